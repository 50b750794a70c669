"""Commands under the real engine: a thing kept in a JSON file by a few lines of Python."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.providers.bench import Bench, ready, running

from homeostat.providers.exec import Exec

SCRIPT = """
import json, os, sys
given = json.load(sys.stdin)
here = os.path.dirname(os.path.abspath(__file__))
world = os.path.join(here, given["ref"]["name"] + ".json")
with open(os.path.join(here, "calls"), "a") as calls:
    calls.write(json.dumps({**given, "environment": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv[1:]}) + "\\n")
if given["action"] == "observe":
    try:
        print(open(world).read())
    except FileNotFoundError:
        sys.exit(44)
elif given["action"] == "apply":
    json.dump({**given["desired"], "made_by": "script"}, open(world, "w"))
else:
    os.remove(world)
"""


class Commands:
    """A folder with scripts, and what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = self.write("thing", SCRIPT)

    def write(self, name: str, body: str) -> str:
        path = self.folder / name
        path.write_text(f"#!{sys.executable} -IS\n{textwrap.dedent(body)}")
        path.chmod(0o755)
        return str(path)

    def spec(self, **fields: Any) -> dict[str, Any]:
        return {name: [self.script, name] for name in ("observe", "apply", "delete")} | fields

    def world(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text())
        except FileNotFoundError:
            return None
        return found

    def calls(self, action: str) -> list[dict[str, Any]]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [call for call in map(json.loads, lines) if call["action"] == action]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    folder = tmp_path / "bin"
    folder.mkdir()
    return Commands(folder)


@pytest.fixture
async def bench(tmp_path: Path, commands: Commands) -> AsyncIterator[Bench]:
    os.environ["PASSED_ON"], os.environ["KEPT_BACK"] = "yes", "no"
    try:
        async with running(tmp_path, lambda: Exec(allowed=[commands.folder], environment=["PASSED_ON"])) as bench:
            yield bench
    finally:
        del os.environ["PASSED_ON"], os.environ["KEPT_BACK"]


async def test_a_thing_is_made_kept_and_taken_away_by_commands(bench: Bench, commands: Commands) -> None:
    await bench.declare("lamp", commands.spec(desired={"colour": "red", "parts": {"bulb": 1}}))
    await bench.ready("lamp")
    assert commands.world("lamp") == {"colour": "red", "parts": {"bulb": 1}, "made_by": "script"}
    (commands.folder / "lamp.json").write_text('{"colour": "green", "parts": {"bulb": 1}, "made_by": "hand"}')
    await bench.whole_pass()
    await bench.until("lamp", lambda obj: "repairedAt" in obj["status"])
    world = commands.world("lamp")
    assert world is not None
    assert world["colour"] == "red"
    await bench.kind.delete("lamp")
    await bench.gone("lamp")
    assert commands.world("lamp") is None


async def test_a_command_gets_all_it_needs_and_nothing_of_our_environment(bench: Bench, commands: Commands) -> None:
    await bench.secret("keys", token="hunter2")
    values = [{"name": "keys", "secret": "keys"}]
    await bench.declare("lamp", commands.spec(desired={"colour": "red"}, values=values, directory="/tmp"))
    obj = await bench.ready("lamp")
    call = commands.calls("apply")[0]
    uid = obj["metadata"]["uid"]
    assert call["ref"] == {"kind": "Exec", "namespace": "default", "name": "lamp", "uid": uid}
    assert call["key"] == call["environment"]["HOMEOSTAT_KEY"]
    assert call["key"].startswith(uid)
    assert (call["desired"], call["lastApplied"], call["state"]) == ({"colour": "red"}, None, None)
    assert call["changes"] == [{"path": "desired", "old": None, "new": {"colour": "red"}}]
    assert call["values"] == {"keys": {"token": "hunter2"}}
    assert (call["cwd"], call["argv"]) == ("/tmp", ["apply"])
    assert call["environment"]["PASSED_ON"] == "yes"
    assert "KEPT_BACK" not in call["environment"]
    assert "hunter2" not in str(obj) + str(call["environment"])


async def test_an_update_is_told_what_was_there(bench: Bench, commands: Commands) -> None:
    await bench.declare("lamp", commands.spec(desired={"colour": "red", "watts": 5}))
    await bench.ready("lamp")
    await bench.declare("lamp", commands.spec(desired={"colour": "blue"}))
    obj = await bench.ready("lamp")
    call = commands.calls("apply")[1]
    assert call["lastApplied"] == {"colour": "red", "watts": 5}
    assert call["state"] == {"colour": "red", "watts": 5, "made_by": "script"}
    paths = {change["path"]: (change["old"], change["new"]) for change in call["changes"]}
    assert paths == {"desired.colour": ("red", "blue"), "desired.watts": (5, None)}
    assert obj["status"]["lastApplied"] == {"desired": {"colour": "blue"}}
    await bench.whole_pass()
    assert len(commands.calls("apply")) == 2


async def test_fields_that_nobody_declared_are_nobodys_business(bench: Bench, commands: Commands) -> None:
    await bench.declare("lamp", commands.spec(desired={"colour": "red"}))
    await bench.ready("lamp")
    (commands.folder / "lamp.json").write_text('{"colour": "red", "dust": "much"}')
    await bench.whole_pass()
    assert len(commands.calls("apply")) == 1


async def test_a_thing_without_a_delete_command_stays(bench: Bench, commands: Commands) -> None:
    await bench.declare("lamp", commands.spec(desired={"colour": "red"}, delete=[]))
    await bench.ready("lamp")
    await bench.kind.delete("lamp")
    await bench.gone("lamp")
    assert commands.world("lamp") is not None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import sys; sys.exit(1)", "observe: exit status 1"),
        ("import sys; sys.exit('the lamp is not plugged in')", "not plugged in"),
        ("pass", "did not print a JSON object"),
        ("print('[]')", "did not print a JSON object"),
        ("print('{')", "did not print a JSON object"),
        ("import os; os.kill(os.getpid(), 9)", "killed by signal 9"),
        ("print('x' * 2_000_000)", "printed more than 1048576 bytes"),
    ],
)
async def test_whatever_else_observe_does_is_unknown_and_nothing_is_done(
    bench: Bench, commands: Commands, body: str, reason: str
) -> None:
    broken = commands.write("broken", body)
    await bench.declare("lamp", commands.spec(observe=[broken], desired={"colour": "red"}))
    assert reason in await bench.reason("lamp", "Unreadable")
    assert commands.world("lamp") is None


async def test_a_command_that_fails_to_apply_says_why_and_is_tried_again(bench: Bench, commands: Commands) -> None:
    failing = commands.write("failing", "import sys; sys.exit('no bulb')")
    await bench.declare("lamp", commands.spec(apply=[failing], desired={"colour": "red"}))
    assert await bench.reason("lamp", "ActionFailed") == "apply: exit status 1: no bulb"
    commands.write("failing", SCRIPT)
    await bench.ready("lamp")


async def test_secrets_are_blotted_out_of_what_a_command_complains_about(bench: Bench, commands: Commands) -> None:
    telling = commands.write(
        "telling",
        """
        import base64, json, sys
        token = json.load(sys.stdin)["values"]["keys"]["token"]
        sys.exit(f"login with {token} ({base64.b64encode(token.encode()).decode()}) failed")
        """,
    )
    await bench.secret("keys", token="hunter2")
    values = [{"name": "keys", "secret": "keys"}]
    await bench.declare("lamp", commands.spec(observe=[telling], values=values))
    reason = await bench.reason("lamp", "Unreadable")
    assert reason == "observe: exit status 1: login with (secret) ((secret)) failed"


async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(bench: Bench, commands: Commands) -> None:
    slow = commands.write(
        "slow",
        """
        import os, signal, subprocess, sys, time
        child = subprocess.Popen(["/bin/sleep", "600"])
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pids"), "w") as file:
            file.write(f"{os.getpid()} {child.pid}")
        print("waiting for the lamp", file=sys.stderr, flush=True)
        time.sleep(600)
        """,
    )
    await bench.declare("lamp", commands.spec(observe=[slow], timeout="500ms"))
    reason = await bench.reason("lamp", "Unreadable")
    assert "did not end within 0.5 s" in reason
    assert "waiting for the lamp" in reason
    for pid in map(int, (commands.folder / "pids").read_text().split()):
        async with asyncio.timeout(5):
            while _runs(pid):
                await asyncio.sleep(0.01)


async def test_who_keeps_the_output_open_is_not_waited_for(bench: Bench, commands: Commands) -> None:
    daemon = commands.write(
        "daemon",
        """
        import os, subprocess, sys
        child = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pid"), "w") as file:
            file.write(str(child.pid))
        print("{}")
        """,
    )
    try:
        await bench.declare("lamp", commands.spec(observe=[daemon]))
        await bench.until("lamp", lambda obj: ready(obj) != {})
    finally:
        os.kill(int((commands.folder / "pid").read_text()), 9)


async def test_stopping_the_loop_ends_what_runs(bench: Bench, commands: Commands) -> None:
    slow = commands.write(
        "slow",
        """
        import os, time
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pid.new"), "w") as file:
            file.write(str(os.getpid()))
        os.rename(file.name, file.name[:-4])
        time.sleep(600)
        """,
    )
    await bench.declare("lamp", commands.spec(observe=[slow]))
    async with asyncio.timeout(5):
        while not (commands.folder / "pid").exists():
            await asyncio.sleep(0.005)
    await bench.stop()
    assert not _runs(int((commands.folder / "pid").read_text()))


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_only_allowed_programs_run_and_links_are_looked_through(bench: Bench, commands: Commands) -> None:
    link = commands.folder / "innocent"
    link.symlink_to("/bin/true")
    for name, program in (("one", "/bin/true"), ("two", str(link)), ("three", f"{commands.folder}/../../bin/true")):
        await bench.declare(name, commands.spec(observe=[program]))
        assert "may not be run on this host" in await bench.reason(name, "Unreadable")
    await bench.declare("four", commands.spec(observe=["true"]))
    assert "absolute path" in await bench.reason("four", "Unreadable")
    await bench.declare("five", commands.spec(observe=[str(commands.folder / "nowhere")]))
    assert "cannot be run: No such file" in await bench.reason("five", "Unreadable")


async def test_without_an_allow_list_nothing_runs(tmp_path: Path, commands: Commands) -> None:
    async with running(tmp_path, Exec) as bench:
        await bench.declare("lamp", commands.spec(desired={"colour": "red"}))
        assert "--allow exec:PATH" in await bench.reason("lamp", "Unreadable")
        assert not (commands.folder / "calls").exists()


async def test_a_missing_secret_is_said_to_be_missing(bench: Bench, commands: Commands) -> None:
    await bench.declare("lamp", commands.spec(values=[{"name": "keys", "secret": "keys"}]))
    assert "Secret default/keys is not there" in await bench.reason("lamp", "Unreadable")


async def test_too_long_a_timeout_is_refused(bench: Bench, commands: Commands) -> None:
    await bench.declare("lamp", commands.spec(timeout="11m"))
    assert "between 0 and 600 s" in await bench.reason("lamp", "Unreadable")
