"""`top`, `tree`, `events`, `doctor`, `completion`, `ui`: what people type to see how things are."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import COMMAND, Up, command_in, environment_in, starting

Run = Callable[..., subprocess.CompletedProcess[str]]

FILE = """
apiVersion: files.homeostat.dev/v1
kind: File
metadata: {{name: {name}}}
spec: {{path: {path}, content: "hello"}}
"""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    found = tmp_path / "room"
    found.mkdir()
    return found


@pytest.fixture
def up(start: Callable[..., Up], room: Path) -> Up:
    return start("--allow", f"file:{room}", "--enforce")


@pytest.fixture
def run(homeostat_command: Run, up: Up) -> Run:
    return lambda *arguments, **variables: homeostat_command(*arguments, KUBECONFIG=str(up.kubeconfig), **variables)


def declared(run: Run, room: Path, manifest: Path) -> str:
    """Declares the file `motd`, and gives its name once it is there."""
    manifest.write_text(FILE.format(name="motd", path=room / "motd"))
    deadline = time.monotonic() + 20
    while (said := run("apply", "-f", manifest, "--yes")).returncode and time.monotonic() < deadline:
        time.sleep(0.1)  # the loop makes its kinds known after the server is ready
    assert said.returncode == 0, said.stderr
    assert run("wait", "file", "motd", "--for", "condition=Ready", "--timeout", "20s").returncode == 0
    return "motd"


@pytest.fixture
def motd(run: Run, room: Path, tmp_path: Path) -> str:
    return declared(run, room, tmp_path / "motd.yaml")


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A command at a house that has the file `motd` as declared. For tests that change nothing there: they share it."""
    folder = tmp_path_factory.mktemp("house")
    environment, room = environment_in(folder / "home"), folder / "room"
    room.mkdir()
    with starting(environment, folder) as start:
        run = command_in({**environment, "KUBECONFIG": str(start("--allow", f"file:{room}", "--enforce").kubeconfig)})
        declared(run, room, folder / "motd.yaml")
        yield run


def test_top_shows_fleets_and_nothing_else_where_all_is_as_declared(look: Run) -> None:
    said = look("top", "--once")
    assert said.returncode == 0
    assert "default/files.files.homeostat.dev" in said.stdout
    assert "all is as declared" in said.stdout
    data = json.loads(look("top", "-o", "json").stdout)
    assert data["fleets"][0]["converged"] == 1
    assert data["resources"] == []


def test_top_shows_what_is_not_as_declared_and_why(run: Run, motd: str, room: Path) -> None:
    assert run("freeze", "files", "--reason", "a look").returncode == 0
    (room / "motd").write_text("other")
    deadline = time.monotonic() + 20
    while not (found := json.loads(run("top", "-o", "json").stdout))["resources"] and time.monotonic() < deadline:
        time.sleep(0.1)
    (late,) = found["resources"]
    assert (late["kind"], late["name"], late["standing"]) == ("File", "motd", "held")
    assert "freeze" in late["why"]
    assert "a look" in found["fleets"][0]["frozen"][0]
    assert (room / "motd").read_text() == "other"


def test_a_tree_is_a_thing_and_what_it_owns(run: Run, motd: str, up: Up) -> None:
    parent = json.loads(run("get", "file", "motd", "-o", "json").stdout)
    owner = {"apiVersion": parent["apiVersion"], "kind": "File", "name": "motd", "uid": parent["metadata"]["uid"]}
    below = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "note", "ownerReferences": [owner]}}
    manifest = up.data.parent / "note.json"
    manifest.write_text(json.dumps(below))
    assert run("apply", "-f", manifest, "--yes").returncode == 0
    said = run("tree", "file", "motd")
    assert said.stdout.splitlines()[0] == "File/motd  Current"
    assert said.stdout.splitlines()[1] == "└─ ConfigMap/note  Current"
    data = json.loads(run("tree", "file", "motd", "-o", "json").stdout)
    assert [child["kind"] for child in data["children"]] == ["ConfigMap"]
    assert run("tree", "file", "none").returncode == 1


def test_events_say_what_was_done(run: Run, motd: str, room: Path) -> None:
    (room / "motd").write_text("other")
    deadline = time.monotonic() + 20
    while "Updated" not in (said := run("events", "file", "motd").stdout) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "File default/motd" in said
    assert json.loads(run("events", "file", "motd", "-o", "json").stdout)[-1]["reason"]
    assert run("events", "file", "nobody").stderr.strip() == "no events"


def test_events_go_on_as_they_come(run: Run, motd: str, room: Path, up: Up, environment: dict[str, str]) -> None:
    call = [*COMMAND, "events", "-f", "-A", "-o", "json"]
    process = subprocess.Popen(
        call, env={**environment, "KUBECONFIG": str(up.kubeconfig)}, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert process.stdout is not None
        time.sleep(0.5)
        (room / "motd").unlink()
        while json.loads(process.stdout.readline())["name"] != "motd":
            pass
    finally:
        process.kill()
        process.wait()


def test_a_healthy_house_gets_a_clean_bill(look: Run) -> None:
    said = look("doctor")
    assert said.returncode == 0, said.stdout
    assert "✗" not in said.stdout
    for subject in ("server", "version", "clock", "certificate", "disk", "loop", "guards", "finalizers", "breakers"):
        assert subject in said.stdout


def test_a_freeze_is_noted_and_what_does_not_answer_is_a_problem(run: Run, motd: str, up: Up) -> None:
    run("freeze", "files", "--reason", "a look")
    deadline = time.monotonic() + 20
    while "homeostat unfreeze" not in (said := run("doctor")).stdout and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "homeostat unfreeze" in said.stdout
    told = {one["subject"]: one["toDo"] for one in json.loads(run("doctor", "-o", "json").stdout)}
    assert ("homeostat unfreeze" in told["guards"], told["server"]) == (True, "")
    up.stop()
    said = run("doctor")
    assert said.returncode == 1
    assert "nothing listens on" in said.stdout


def test_where_no_loop_ever_ran_nothing_is_said_to_be_as_declared(start: Callable[..., Up], homeostat_command: Run) -> None:
    kubeconfig = str(start("--no-loop").kubeconfig)
    for command in ("drift", "runbook", "plan"):
        said = homeostat_command(command, KUBECONFIG=kubeconfig)
        assert said.returncode == 0
        assert "no loop has run on this server yet: nothing was looked at" in said.stdout + said.stderr
        assert "all is as declared" not in said.stderr
        assert "nothing is halted" not in said.stderr


def test_who_may_not_see_everything_hears_of_the_rest(run: Run, up: Up, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "ada"
    kubeconfig.write_text(run("token", "create", "--user", "ada", "-o", "kubeconfig").stdout)
    said = run("doctor", "--kubeconfig", kubeconfig)
    assert said.returncode == 0, said.stdout
    assert "! loop          that cannot be told: " in said.stdout
    assert 'User "ada" cannot list resource "guardpolicies"' in said.stdout
    assert "it is not this server" not in said.stdout
    assert "no loop has run here" not in said.stdout


def test_whose_token_is_not_taken_is_told_that_and_not_to_look_for_the_server(run: Run, up: Up, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "ada"
    kubeconfig.write_text(re.sub("token: .*", "token: hst_wrong", run("token", "create", "--user", "ada", "-o", "kubeconfig").stdout))
    said = run("doctor", "--kubeconfig", kubeconfig)
    assert said.returncode == 1
    assert "is not taken: it expired, was revoked or is for another server" in said.stdout
    assert "something listens" not in said.stdout


def test_the_kubeconfig_of_another_server_is_said_to_be_that(run: Run, start: Callable[..., Up], up: Up, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(re.sub("server: .*", f'server: "{up.url}"', start(data=tmp_path / "other").kubeconfig.read_text()))
    said = run("get", "files", "--kubeconfig", kubeconfig)
    assert said.returncode == 1
    assert "The kubeconfig is not this server's: `homeostat up` prints where its own is" in said.stderr
    assert "Is the server up" not in said.stderr
    kubeconfig.write_text(up.kubeconfig.read_text().replace("    server:", "    tls-server-name: not.the.name\n    server:"))
    said = run("get", "files", "--kubeconfig", kubeconfig)
    assert "Call it by the name that `homeostat up` prints" in said.stderr


def test_the_disk_is_looked_at_where_the_directory_is_this_servers(run: Run, up: Up, tmp_path: Path, environment: dict[str, str]) -> None:
    elsewhere = tmp_path / "copied"
    elsewhere.write_text(up.kubeconfig.read_text())
    default = Path(environment["HOME"]) / ".homeostat"
    (default / "pki").mkdir(parents=True)
    (default / "pki" / "ca.crt").write_text("another's")
    assert "disk" not in run("doctor", "--kubeconfig", elsewhere).stdout
    (default / "pki" / "ca.crt").write_bytes((up.data / "pki" / "ca.crt").read_bytes())
    assert f"free for {default}" in run("doctor", "--kubeconfig", elsewhere).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_tab_key_is_taught(homeostat_command: Run, shell: str) -> None:
    said = homeostat_command("completion", shell)
    assert said.returncode == 0
    assert "_HOMEOSTAT_COMPLETE" in said.stdout


def test_the_tab_key_knows_the_commands(homeostat_command: Run) -> None:
    said = homeostat_command(_HOMEOSTAT_COMPLETE="bash_complete", COMP_WORDS="homeostat fre", COMP_CWORD="1")
    assert said.stdout.strip() == "plain,freeze"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("get fi", {"files", "file"}),
        ("get file m", {"motd"}),
        ("explain files ", {"motd"}),
        ("explain file x", set()),
        ("get nonsense m", set()),
        ("wait file mo", {"motd"}),
    ],
)
def test_the_tab_key_knows_what_the_server_has(look: Run, typed: str, offered: set[str]) -> None:
    words = f"homeostat {typed}"
    said = look(_HOMEOSTAT_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    found = {line.partition(",")[2] for line in said.stdout.split()}
    assert found <= offered
    assert bool(found) == bool(offered)
    assert not said.stderr


def test_the_tab_key_says_nothing_where_nobody_answers(homeostat_command: Run, tmp_path: Path) -> None:
    line = {"_HOMEOSTAT_COMPLETE": "bash_complete", "COMP_WORDS": "homeostat get fi", "COMP_CWORD": "2"}
    said = homeostat_command(KUBECONFIG=str(tmp_path / "none"), **line)
    assert (said.stdout.strip(), said.stderr) == ("", "")


def test_a_link_to_the_dashboard_is_printed(run: Run, up: Up) -> None:
    said = run("ui", "--no-browser")
    assert said.returncode == 0
    assert said.stdout.startswith(f"{up.url}/ui/#code=")
    assert f"{up.url}/ui/#code=" in up.said


def test_a_mistyped_name_is_answered_with_the_one_that_was_meant(look: Run) -> None:
    for words in (["get", "file", "modt"], ["explain", "file", "modt"], ["tree", "file", "modt"]):
        said = look(*words)
        assert said.returncode == 1
        assert 'files.files.homeostat.dev "modt" not found. Did you mean \'motd\'?' in said.stderr
    assert "Did you mean" not in look("get", "file", "something-else").stderr
    assert "Did you mean 'motd'?" in look("freeze", "file/modt", "--reason", "a look").stderr


def test_waiting_for_all_of_a_kind_is_over_when_all_are_as_declared(run: Run, motd: str, room: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "more.yaml"
    manifest.write_text("---".join(FILE.format(name=f"f{i}", path=room / f"f{i}") for i in range(3)))
    assert run("apply", "-f", manifest, "--yes").returncode == 0
    said = run("wait", "files", "--timeout", "20s")
    assert sorted(said.stdout.split()) == sorted(f"files/{name}: condition=Ready".split()[i] for name in ("f0", "f1", "f2", "motd") for i in (0, 1))
    assert all((room / f"f{i}").read_text() == "hello" for i in range(3))
    late = run("wait", "files", "f0", "f1", "--for", "delete", "--timeout", "1s")
    assert late.returncode == 1
    assert "File f0: not delete within 1 s." in late.stderr
    assert "File f1: not delete within 1 s." in late.stderr
    assert run("wait", "files", "-l", "app=none").stderr == "there are no files to wait for\n"
