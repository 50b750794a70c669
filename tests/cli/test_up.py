"""`homeostat up`, as a person starts and stops it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from homeostat.client import Client

from .conftest import COMMAND, Up

Start = Callable[..., Up]
Command = Callable[..., subprocess.CompletedProcess[str]]


async def test_it_starts_and_says_where(start: Start) -> None:
    up = await asyncio.to_thread(start)
    assert f"kubeconfig  {up.kubeconfig}" in up.said
    assert f"export KUBECONFIG={up.kubeconfig}" in up.said
    assert stat.S_IMODE(up.kubeconfig.stat().st_mode) == 0o600
    async with Client.from_kubeconfig(up.kubeconfig) as client:
        names = [item["metadata"]["name"] for item in await client.kind("v1", "Namespace").list()]
    assert "default" in names


async def test_on_new_data_the_kinds_of_its_loop_are_served_when_it_says_that_it_is_ready(start: Start, tmp_path: Path) -> None:
    up = await asyncio.to_thread(start, "--allow", f"file:{tmp_path}", "--allow", "process")
    async with Client.from_kubeconfig(up.kubeconfig) as client:
        for kind in (("files.homeostat.dev/v1", "File"), ("processes.homeostat.dev/v1", "Process"), ("homeostat.dev/v1alpha1", "GuardPolicy")):
            await client.kind(*kind).list()


def test_a_second_one_on_the_same_data_is_refused(start: Start, homeostat_command: Command) -> None:
    up = start()
    second = homeostat_command("up", "--data", up.data, "--listen", "127.0.0.1:0")
    assert second.returncode != 0
    assert str(up.process.pid) in second.stderr
    assert "Traceback" not in second.stderr


def test_a_port_that_is_taken_is_said(start: Start, homeostat_command: Command, tmp_path: Path) -> None:
    up = start()
    address = up.url.removeprefix("https://")
    second = homeostat_command("up", "--data", tmp_path / "other", "--listen", address)
    assert second.returncode != 0
    assert f"{address} is taken by another process" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "300.1.2.3:0", "192.0.2.1:0", "127.0.0.1:٣", "https://[::1]:0"])
def test_a_place_that_is_none_is_said(homeostat_command: Command, tmp_path: Path, listen: str) -> None:
    done = homeostat_command("up", "--data", tmp_path / "data", "--listen", listen)
    assert done.returncode != 0
    assert "--listen" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("listen", ["[::]:0", "0.0.0.0:0"])
async def test_on_every_address_its_own_kubeconfig_works_and_others_are_told_how(start: Start, listen: str) -> None:
    up = await asyncio.to_thread(start, listen=listen)
    assert f"others reach it as https://{socket.gethostname()}:" in up.said
    async with Client.from_kubeconfig(up.kubeconfig) as client:
        assert await client.kind("v1", "Namespace").list()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "it is empty"),
        ("~nobody-of-that-name/x", "no home directory is known"),
        ("/dev/null", "it is a file"),
        ("/dev/null/x", "Not a directory"),
    ],
)
def test_a_data_directory_that_is_none_is_said(homeostat_command: Command, data: str, reason: str) -> None:
    done = homeostat_command("up", "--data", data, "--listen", "127.0.0.1:0")
    assert done.returncode != 0
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_what_to_type_can_be_pasted_whatever_the_path(start: Start, tmp_path: Path) -> None:
    up = start(data=tmp_path / "it's mine")
    assert f"export KUBECONFIG={shlex.quote(str(up.kubeconfig))}\n" in up.said


@pytest.mark.parametrize("output", ["> /dev/full", ">&-", "| true", ">&- 2>&- <&-"])
async def test_it_serves_also_where_its_output_goes_nowhere(
    environment: dict[str, str], tmp_path: Path, output: str
) -> None:
    call = f"exec {shlex.join(COMMAND)} up --data {tmp_path / 'data'} --listen 127.0.0.1:0 {output}"
    shell = subprocess.Popen(["bash", "-c", call], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        async with asyncio.timeout(20):
            while not (tmp_path / "data" / "admin.kubeconfig").exists():
                await asyncio.sleep(0.02)
        async with Client.from_kubeconfig(tmp_path / "data" / "admin.kubeconfig") as client:
            assert await client.kind("v1", "Namespace").list()
    finally:
        os.kill(int((tmp_path / "data" / "lock").read_text()), signal.SIGTERM)
        _, complaints = await asyncio.to_thread(shell.communicate, timeout=20)
    assert "Traceback" not in complaints
    assert "Exception ignored" not in complaints


def test_it_outlives_its_terminal_where_it_was_asked_to(start: Start) -> None:
    up = start(before=["nohup"])
    status = Path(f"/proc/{up.process.pid}/status").read_text()
    ignored = int(re.findall(r"SigIgn:\s*(\w+)", status)[0], 16)
    assert ignored >> (signal.SIGHUP - 1) & 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_it_stops_quickly_with_watches_open(start: Start, number: int) -> None:
    up = await asyncio.to_thread(start)
    async with Client.from_kubeconfig(up.kubeconfig) as client:
        handles = [client.kind("v1", kind).informer() for kind in ("ConfigMap", "Secret", "Namespace")]
        for informer in handles:
            informer.start()
            await informer.wait_synced(20)
        seconds = await asyncio.to_thread(up.stop, number)
    assert seconds < 2
    assert up.process.returncode == 0
    assert "Traceback" not in up.said


async def test_what_was_declared_survives_a_restart(start: Start) -> None:
    first = await asyncio.to_thread(start)
    async with Client.from_kubeconfig(first.kubeconfig) as client:
        made = await client.kind("v1", "ConfigMap").create({"metadata": {"name": "a"}, "data": {"x": "1"}})
    trusted = (first.data / "pki" / "ca.crt").read_bytes()
    await asyncio.to_thread(first.stop)
    second = await asyncio.to_thread(start)
    async with Client.from_kubeconfig(second.kubeconfig) as client:
        assert await client.kind("v1", "ConfigMap").get("a") == made
    assert (second.data / "pki" / "ca.crt").read_bytes() == trusted


async def test_what_was_acknowledged_survives_a_kill(start: Start) -> None:
    first = await asyncio.to_thread(start)
    async with Client.from_kubeconfig(first.kubeconfig) as client:
        made = await client.kind("v1", "ConfigMap").create({"metadata": {"name": "a"}})
    await asyncio.to_thread(first.stop, signal.SIGKILL)
    second = await asyncio.to_thread(start)
    async with Client.from_kubeconfig(second.kubeconfig) as client:
        assert await client.kind("v1", "ConfigMap").get("a") == made
