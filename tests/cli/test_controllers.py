"""The loop as people run it: inside of `homeostat up`, and as a process of its own."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from homeostat.cli.allow import load_own

from .conftest import COMMAND, Up
from .test_loop_commands import GUIDE

Start = Callable[..., Up]
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def lamps(tmp_path: Path) -> tuple[Path, Path]:
    """The provider of the guide, and the directory that its lamps are in."""
    place = tmp_path / "lamps"
    place.mkdir()
    code = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert code is not None
    provider = tmp_path / "lamps.py"
    provider.write_text(code[1])
    return provider, place


@pytest.fixture
def controllers(environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `homeostat controllers` and waits until it says what it keeps."""
    running: list[subprocess.Popen[str]] = []

    def begin(*arguments: object, **variables: str) -> subprocess.Popen[str]:
        call = [*COMMAND, "controllers", *map(str, arguments)]
        full = {**environment, **variables}
        process = subprocess.Popen(call, env=full, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "keeping" in line, line + process.stdout.read()
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def declare(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def test_up_keeps_files_where_it_is_allowed_to(start: Start, homeostat_command: Command, tmp_path: Path) -> None:
    place = tmp_path / "site"
    place.mkdir()
    up = start("--allow", f"file:{place}", "--enforce")
    assert f"acts, and may touch file:{place}" in up.said
    served(homeostat_command, up, "files.files.homeostat.dev")
    manifest = declare(
        tmp_path / "motd.yaml",
        "apiVersion: files.homeostat.dev/v1\nkind: File\nmetadata: {name: motd}\n"
        f"spec: {{path: {place}/motd, content: hello}}\n",
    )
    done = homeostat_command("apply", "--yes", "-f", manifest, KUBECONFIG=str(up.kubeconfig))
    assert done.returncode == 0, done.stderr
    done = homeostat_command("wait", "file", "motd", KUBECONFIG=str(up.kubeconfig))
    assert done.returncode == 0, done.stderr
    assert (place / "motd").read_text() == "hello"
    up.stop()
    assert up.process.returncode == 0
    assert "Traceback" not in up.said


def test_what_is_not_allowed_is_not_even_a_kind(start: Start, homeostat_command: Command) -> None:
    up = start("--enforce")
    assert "acts, and may touch nothing here" in up.said
    served(homeostat_command, up, "kubernetesobjects.kubernetes.homeostat.dev")
    for kind in ("file", "process", "exec", "httpresource"):
        done = homeostat_command("get", kind, KUBECONFIG=str(up.kubeconfig))
        assert done.returncode == 1
        assert f"no kind '{kind}'" in done.stderr


def test_a_process_of_its_own_keeps_what_a_provider_of_the_users_defines(
    start: Start,
    controllers: Callable[..., subprocess.Popen[str]],
    homeostat_command: Command,
    lamps: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    provider, place = lamps
    up = start("--no-loop")
    assert "none here: `homeostat controllers` runs it" in up.said
    process = controllers("--kubeconfig", up.kubeconfig, "--provider", provider, "--enforce", LAMPS=str(place))
    served(homeostat_command, up, "lamps.lamps.example.com")
    manifest = declare(
        tmp_path / "hall.yaml",
        "apiVersion: lamps.example.com/v1\nkind: Lamp\nmetadata: {name: hall}\nspec: {colour: red}\n",
    )
    assert homeostat_command("apply", "--yes", "-f", manifest, KUBECONFIG=str(up.kubeconfig)).returncode == 0
    done = homeostat_command("wait", "lamp", "hall", KUBECONFIG=str(up.kubeconfig))
    assert done.returncode == 0, done.stderr
    assert '"red"' in (place / "hall").read_text()
    assert "all is as declared" in homeostat_command("drift", KUBECONFIG=str(up.kubeconfig)).stderr
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    assert "Traceback" not in said
    for command in (("drift",), ("plan",), ("explain", "lamp", "hall")):
        looked = homeostat_command(*command, KUBECONFIG=str(up.kubeconfig))
        assert "no loop has kept lamps.lamps.example.com for" in looked.stdout + looked.stderr
        assert "all is as declared" not in looked.stderr


SHOPS = """
from homeostat import Composer, Spec


class ShopSpec(Spec):
    till: str = "open"


class Shop(Composer[ShopSpec], group="shops.example.com"):
    def compose(self, spec, parent):
        name = parent["metadata"]["name"]
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"till": spec.till}}
"""


def test_up_keeps_what_a_composer_of_the_users_composes(
    start: Start, homeostat_command: Command, tmp_path: Path
) -> None:
    composer = declare(tmp_path / "shops.py", SHOPS)
    up = start("--provider", composer, "--enforce")
    served(homeostat_command, up, "shops.shops.example.com")
    manifest = declare(
        tmp_path / "corner.yaml",
        "apiVersion: shops.example.com/v1\nkind: Shop\nmetadata: {name: corner}\nspec: {till: closed}\n",
    )
    done = homeostat_command("apply", "--yes", "-f", manifest, KUBECONFIG=str(up.kubeconfig))
    assert done.returncode == 0, done.stderr
    done = homeostat_command("wait", "shop", "corner", KUBECONFIG=str(up.kubeconfig))
    assert done.returncode == 0, done.stderr
    child = homeostat_command("get", "configmap", "corner", "-o", "json", KUBECONFIG=str(up.kubeconfig))
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout)["data"] == {"till": "closed"}


def test_of_several_in_a_file_the_one_that_is_named_is_kept(tmp_path: Path) -> None:
    file = declare(tmp_path / "mixed.py", SHOPS + "\n\nclass Kiosk(Composer[ShopSpec], group='shops.example.com'): ...\n")
    assert [one.info.kind for one in load_own(str(file))] == ["Shop", "Kiosk"]
    assert [one.info.kind for one in load_own(f"{file}:Kiosk")] == ["Kiosk"]


def test_a_file_that_is_called_as_a_module_is_takes_nothing_from_those_who_import_it(tmp_path: Path) -> None:
    file = declare(tmp_path / "logging.py", SHOPS)
    assert [one.info.kind for one in load_own(str(file))] == ["Shop"]
    assert sys.modules["logging"] is logging


def test_two_for_one_kind_are_refused_by_name(homeostat_command: Command, tmp_path: Path) -> None:
    first, second = declare(tmp_path / "shops.py", SHOPS), declare(tmp_path / "more.py", SHOPS)
    done = homeostat_command("up", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--provider", first, "--provider", second)
    assert done.returncode == 1
    assert f"--provider {second}: Shop is for the kind shops.shops.example.com, which --provider {first} keeps already; leave one out" in done.stderr


def test_the_mode_that_a_person_chose_outlives_the_flag(start: Start, homeostat_command: Command) -> None:
    kind = "kubernetesobjects.kubernetes.homeostat.dev"

    up = start("--enforce")
    assert "Enforce" in mode_line(homeostat_command, up, kind)
    up.stop()
    up = start("--allow", "http")
    assert "Observe" in mode_line(homeostat_command, up, kind)  # nobody chose: the flag decides
    done = homeostat_command("enforce", "--yes", kind, KUBECONFIG=str(up.kubeconfig))
    assert done.returncode == 0, done.stderr
    up.stop()
    up = start("--allow", "http")
    assert "Enforce" in mode_line(homeostat_command, up, kind)


def mode_line(homeostat_command: Command, up: Up, kind: str) -> str:
    served(homeostat_command, up, kind)
    return homeostat_command("get", "guardpolicy", kind, KUBECONFIG=str(up.kubeconfig)).stdout


def served(homeostat_command: Command, up: Up, kind: str) -> None:
    """Waits until the loop, which begins after the server is ready, has made a kind known."""
    for _ in range(50):
        done = homeostat_command("get", kind, KUBECONFIG=str(up.kubeconfig))
        if done.returncode == 0:
            return
    raise AssertionError(f"{kind} never came: {done.stderr}")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--allow", "everything"], "file:DIR keeps files below DIR"),
        (["--allow", "file"], "say where"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(
    homeostat_command: Command, tmp_path: Path, arguments: list[str], hint: str
) -> None:
    done = homeostat_command("up", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", *arguments)
    assert done.returncode == 2
    assert hint in done.stderr


@pytest.mark.parametrize("place", ["nowhere.py", "no.such.module", "json"])
def test_a_provider_that_is_none_is_said(homeostat_command: Command, tmp_path: Path, place: str) -> None:
    kubeconfig = declare(
        tmp_path / "config",
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
        "clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: a, user: {}}]\n",
    )
    done = homeostat_command("controllers", "--kubeconfig", kubeconfig, "--provider", place)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: --provider {place}")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def broken(:\n", "line 1: invalid syntax"),
        ("x = 1\nraise KeyError('boom')\n", "line 2: KeyError: 'boom'"),
        ("import json\nimport jsonn\n", "line 2: No module named 'jsonn'"),
        ("from homeostat import Composer, Spec\nclass S(Spec):\n    x: complex\nclass C(Composer[S], group='a.b'): ...\n", "line 2: TypeError: S.x: complex has no place in a kind"),
        ("from homeostat import Spec\nclass S(Spec):\n    x: list[int] = [1]\n", "line 2: TypeError: Using a non-empty mutable collection"),
        ("from homeostat import Composer, Spec\nclass S(Spec): ...\nclass C(Composer[S], group='a.b'):\n    def __init__(self): 1 / 0\n", "line 4: ZeroDivisionError"),
    ],
)
def test_what_a_providers_code_raises_is_said_with_its_line_and_without_a_traceback(
    homeostat_command: Command, tmp_path: Path, code: str, said: str
) -> None:
    place = tmp_path / "mine.py"
    place.write_text(code)
    done = homeostat_command("up", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--provider", place)
    assert done.returncode == 1
    assert f"Error: --provider {place}: {place}, {said}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_that_is_a_file_here_is_probably_meant_as_that(homeostat_command: Command, tmp_path: Path) -> None:
    file = declare(tmp_path / "shops.py", SHOPS)
    done = homeostat_command("up", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--provider", file.with_suffix(""))
    assert done.returncode == 1
    assert f"Did you mean '{file}'?" in done.stderr


def test_a_server_whose_provider_does_not_load_any_more_does_not_say_that_it_is_ready(start: Start, homeostat_command: Command, tmp_path: Path) -> None:
    file = declare(tmp_path / "shops.py", SHOPS)
    up = start("--provider", file)
    up.stop()
    declare(file, SHOPS.replace("ShopSpec(Spec)", "ShopSpec(Spex)"))
    done = homeostat_command("up", "--data", up.data, "--listen", "127.0.0.1:0", "--provider", file)
    assert done.returncode == 1
    assert "name 'Spex' is not defined" in done.stderr
    assert done.stdout == ""


def test_help_costs_next_to_nothing(homeostat_command: Command) -> None:
    homeostat_command("--help")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = homeostat_command("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "runbook" in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.15 * _slowness()


def _slowness() -> float:
    """Tests share the machine with others; under load the same work costs more."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
