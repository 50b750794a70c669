"""`homeostat token`, against a server that runs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from homeostat.client import Client
from homeostat.model.errors import ApiError

from .conftest import Up

Start = Callable[..., Up]
Command = Callable[..., subprocess.CompletedProcess[str]]


def test_a_token_is_made_listed_and_revoked(start: Start, homeostat_command: Command) -> None:
    up = start()
    order = ["token", "create", "--user", "ada", "--group", "dev", "--ttl", "1h30m"]
    made = homeostat_command(*order, KUBECONFIG=str(up.kubeconfig))
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    assert token.startswith("hst_")
    assert len(made.stdout.splitlines()) == 1  # for `TOKEN=$(homeostat token create …)`
    name = made.stderr.split()[0]
    listed = homeostat_command("token", "list", "--kubeconfig", up.kubeconfig).stdout
    assert [line.split()[:3] for line in listed.splitlines()] == [["NAME", "USER", "GROUPS"], [name, "ada", "dev"]]
    assert token not in listed
    gone = homeostat_command("token", "revoke", "other", name, "--kubeconfig", up.kubeconfig)
    assert gone.returncode == 1
    assert "other is not revoked: " in gone.stderr
    assert f"{name} is revoked" in gone.stderr  # one that is gone already does not keep the others alive
    assert "no tokens" in homeostat_command("token", "list", "--kubeconfig", up.kubeconfig).stderr
    again = homeostat_command("token", "revoke", name, "--kubeconfig", up.kubeconfig)
    assert again.returncode != 0
    assert f'"{name}" not found' in again.stderr


async def test_a_kubeconfig_for_somebody_works_until_it_is_revoked(
    start: Start, homeostat_command: Command, tmp_path: Path
) -> None:
    up = start()
    done = homeostat_command("token", "create", "--user", "ada", "-o", "kubeconfig", "--kubeconfig", up.kubeconfig)
    theirs = tmp_path / "ada.kubeconfig"
    theirs.write_text(done.stdout)
    assert "client-key-data" not in done.stdout
    assert yaml.safe_load(done.stdout)["clusters"][0]["cluster"]["server"] == up.url
    async with Client.from_kubeconfig(theirs) as client:
        assert await client.version()
        with pytest.raises(ApiError, match='User "ada" cannot list'):
            await client.kind("v1", "Secret").list()
        name = done.stderr.split()[0]
        homeostat_command("token", "revoke", name, "--kubeconfig", up.kubeconfig)
        with pytest.raises(ApiError) as refused:
            await client.version()
    assert refused.value.code == 401


def test_what_is_wrong_is_said_in_a_line(start: Start, homeostat_command: Command, tmp_path: Path) -> None:
    none = homeostat_command("token", "list")
    assert "homeostat up" in none.stderr
    up = start()
    bad = homeostat_command("token", "create", "--user", "ada", "--ttl", "soon", "--kubeconfig", up.kubeconfig)
    assert "'soon' is no duration" in bad.stderr
    long = homeostat_command("token", "create", "--user", "ada", "--ttl", "9999d", "--kubeconfig", up.kubeconfig)
    assert "spec.expirationSeconds" in long.stderr
    kubeconfig = tmp_path / "kept"
    kubeconfig.write_bytes(up.kubeconfig.read_bytes())
    up.stop()
    away = homeostat_command("token", "list", "--kubeconfig", kubeconfig)
    assert "cannot reach" in away.stderr
    assert "Is the server up?" in away.stderr
    for done in (none, bad, long, away):
        assert done.returncode != 0
        assert done.stdout == ""
        assert "Traceback" not in done.stderr


def test_without_a_word_it_is_our_own_server(
    start: Start, homeostat_command: Command, environment: dict[str, str]
) -> None:
    start(data=Path(environment["HOME"]) / ".homeostat")
    assert homeostat_command("token", "create", "--user", "ada").stdout.startswith("hst_")
