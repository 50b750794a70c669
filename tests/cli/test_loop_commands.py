"""The commands by which people steer the loop: a real server, a real engine beside it, and the provider of docs/loop.md."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import pty
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homeostat.cli import main
from homeostat.cli.allow import load_own
from homeostat.cli.controllers import assemble
from homeostat.client import Unreachable
from homeostat.guards import Mode
from homeostat.guards.keeper import Keeper
from homeostat.loop.engine import Engine
from homeostat.model.errors import ApiError
from homeostat.testing import TestPlane

from .conftest import COMMAND

GUIDE = Path(__file__).parents[2] / "docs" / "loop.md"
KIND = ("lamps.example.com/v1", "Lamp")


class House:
    """Lamps, the loop that keeps them, and the command line."""

    def __init__(self, plane: TestPlane, directory: Path, lamps: Path) -> None:
        self.plane = plane
        self.directory = directory
        self.lamps = lamps
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._parts: list[Any] = []
        self.engine: Engine

    # The loop

    def start(self, provider: Path, mode: Mode) -> None:
        self._thread.start()
        self._call(self._start(provider, mode))

    async def _start(self, provider: Path, mode: Mode) -> None:
        client = self.plane.client()
        keeper, self.engine = assemble(client, load_own(str(provider)), mode)
        assert isinstance(keeper, Keeper)
        await keeper.start()
        await self.engine.start()
        self._parts = [self.engine.stop, keeper.stop, client.close]

    def close(self) -> None:
        """Ends the loop; things and the command line stay."""
        for part in self._parts:
            self._call(part())
        self._parts = []

    def stop(self) -> None:
        self.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def look(self) -> None:
        """Has everything looked at again, as the next pass would."""
        self._loop.call_soon_threadsafe(self.engine.regroup)

    # The world

    def colour(self, name: str) -> str:
        try:
            return str(json.loads((self.lamps / name).read_text())["colour"])
        except (FileNotFoundError, json.JSONDecodeError):
            return ""

    def paint(self, name: str, colour: str) -> None:
        (self.lamps / name).write_text(json.dumps({"colour": colour, "watts": 10}))
        self.look()

    def declare(self, colour: str, *names: str) -> Path:
        """A file that declares lamps of this colour."""
        file = self.directory / "lamps.yaml"
        documents = [
            f"apiVersion: lamps.example.com/v1\nkind: Lamp\nmetadata: {{name: {name}, labels: {{house: ours}}}}\n"
            f"spec: {{colour: {colour}}}\n"
            for name in names
        ]
        file.write_text("---\n".join(documents))
        return file

    def delete(self, api_version: str, kind: str, *names: str) -> None:
        async def work() -> None:
            async with self.plane.client() as client:
                for name in names:
                    await client.kind(api_version, kind).delete(name, namespace="default")

        self._call(work())

    # The command line

    def run(self, *arguments: object, code: int = 0, given: str | None = None) -> str:
        call = [*map(str, arguments), "--kubeconfig", str(self.plane.kubeconfig)]
        result: Result = CliRunner().invoke(main, call, input=given, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    def answer(self, answers: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Runs it for a person at a terminal, who gives these answers, a letter each."""
        terminal, other_end = pty.openpty()
        call = [*COMMAND, *map(str, arguments), "--kubeconfig", str(self.plane.kubeconfig)]
        os.write(terminal, "".join(f"{answer}\n" for answer in answers).encode())
        done = subprocess.run(call, stdin=other_end, capture_output=True, text=True, timeout=30, check=False)
        os.close(terminal)
        os.close(other_end)
        return done

    def data(self, *arguments: object) -> Any:
        return json.loads(self.run(*arguments, "-o", "json"))

    def until(self, holds: Callable[[], Any]) -> Any:
        end = time.monotonic() + 10
        while not (found := holds()):
            assert time.monotonic() < end, f"it never came: {self.run('drift')}"
            time.sleep(0.02)
        return found

    def lamp(self, name: str) -> dict[str, Any]:
        return self.plane.get(*KIND, name, "default")


@pytest.fixture
def open_house(
    homeostat: TestPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Mode], House]]:
    lamps = tmp_path / "lamps"
    lamps.mkdir()
    monkeypatch.setenv("LAMPS", str(lamps))
    provider = tmp_path / "lamps.py"
    lamp, shop, *_ = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    provider.write_text(lamp + shop)
    house = House(homeostat, tmp_path, lamps)

    def begin(mode: Mode) -> House:
        house.start(provider, mode)
        return house

    yield begin
    house.stop()


@pytest.fixture
def house(open_house: Callable[[Mode], House]) -> House:
    """One whose loop acts."""
    return open_house(Mode.ENFORCE)


def test_a_plan_says_what_would_be_written_and_writes_nothing(house: House) -> None:
    file = house.declare("red", "hall", "attic")
    said = house.run("plan", "-f", file)
    assert "+ Lamp default/hall" in said
    assert "Plan: 2 to add, 0 to change, 0 to destroy" in said
    assert "Guards: let it through" in said
    assert "nothing found" in house.run("get", "lamps")


def test_what_is_applied_is_one_change_set_and_comes_true(house: House) -> None:
    said = house.run("apply", "--yes", "-f", house.declare("red", "hall", "attic"))
    assert "Plan: 2 to add, 0 to change, 0 to destroy" in said
    for name in ("hall", "attic"):
        house.run("wait", "lamp", name, "--for", "condition=Ready", "--timeout", "10s")
    assert house.colour("hall") == "red"
    marks = {house.lamp(name)["metadata"]["annotations"]["homeostat.dev/change-set"] for name in ("hall", "attic")}
    assert len(marks) == 1
    assert marks.pop() in said


@pytest.mark.parametrize("end", [KeyboardInterrupt(), Unreachable("the connection to it broke")])
def test_what_ends_in_the_middle_says_how_far_it_came(house: House, monkeypatch: pytest.MonkeyPatch, end: BaseException) -> None:
    async def write(client: Any, plan: Any, *, force: bool, done: Callable[[], None]) -> None:
        done()
        raise end

    monkeypatch.setattr("homeostat.insight.planning.carry_out", write)
    said = house.run("apply", "--yes", "-f", house.declare("red", "hall", "attic"), code=1)
    assert str(end) in said
    assert re.search(r"1 of 2 objects are written as change set (\S+), .*: homeostat rollback changeset \1\n", said)


def test_applying_the_same_again_changes_nothing_at_all(house: House) -> None:
    file = house.declare("red", "hall")
    house.run("apply", "--yes", "-f", file)
    house.run("wait", "lamp", "hall")
    before = house.lamp("hall")
    said = house.run("apply", "--yes", "-f", file)
    assert "Plan: 0 to add, 0 to change, 0 to destroy" in said
    assert house.lamp("hall") == before


def test_diff_exits_as_kubectl_diff_does(house: House) -> None:
    file = house.declare("red", "hall")
    house.run("diff", "-f", file, code=1)
    house.run("apply", "--yes", "-f", file)
    assert house.run("diff", "-f", file) == ""
    assert '~ spec.colour: "red" → "blue"' in house.run("diff", "-f", house.declare("blue", "hall"), code=1)
    house.run("diff", "-f", house.directory / "nowhere.yaml", code=2)
    file.write_text("apiVersion: lamps.example.com/v1\nkind: Lamp\nmetadata: {name: hall}\nspec: {watts: 3}\n")
    assert "spec.colour" in house.run("diff", "-f", file, code=2)


def test_where_one_object_is_refused_nothing_is_written(house: House) -> None:
    file = house.declare("red", "hall", "attic")
    file.write_text(
        file.read_text() + "---\napiVersion: lamps.example.com/v1\nkind: Lamp\nmetadata: {name: bad}\nspec: {}\n"
    )
    said = house.run("apply", "--yes", "-f", file, code=1)
    assert "document 3" in said
    assert "nothing was done" in said
    assert "nothing found" in house.run("get", "lamps")


@pytest.mark.parametrize(("answer", "code"), [("n", 3), ("y", 0)])
def test_a_person_is_shown_the_plan_and_asked(house: House, answer: str, code: int) -> None:
    done = house.answer(answer, "apply", "-f", house.declare("red", "hall"))
    assert "Plan: 1 to add" in done.stdout
    assert done.returncode == code
    found = house.run("get", "lamps")
    assert ("hall" in found) is (answer == "y")


def test_where_nobody_can_be_asked_nothing_is_written(house: House) -> None:
    assert "add --yes" in house.run("apply", "-f", house.declare("red", "hall"), code=2)
    assert "nothing found" in house.run("get", "lamps")


def test_what_is_no_longer_declared_is_pruned_and_counted(house: House) -> None:
    house.run("apply", "--yes", "-f", house.declare("red", "hall", "attic"))
    house.run("wait", "lamp", "attic")
    said = house.run("apply", "--yes", "-f", house.declare("red", "hall"), "--prune", "house=ours")
    assert "- Lamp default/attic" in said
    assert "Plan: 0 to add, 0 to change, 1 to destroy" in said
    house.run("wait", "lamp", "attic", "--for", "delete")
    assert house.colour("attic") == ""
    assert house.colour("hall") == "red"


def test_a_kind_and_what_is_of_that_kind_can_come_together(house: House) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "chairs.shop.example.com"},
        "spec": {
            "group": "shop.example.com",
            "scope": "Namespaced",
            "names": {"kind": "Chair", "plural": "chairs", "singular": "chair"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    }
    room = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "room"}}
    chair = {"apiVersion": "shop.example.com/v1", "kind": "Chair", "metadata": {"name": "red", "namespace": "room"}}
    file = house.directory / "all.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [chair, room, definition]}))
    assert "Plan: 3 to add" in house.run("apply", "--yes", "-f", file)
    assert "red" in house.run("get", "chair", "red", "-n", "room")


def test_a_secret_is_never_shown(house: House) -> None:
    file = house.directory / "secret.yaml"
    file.write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n")
    said = house.run("apply", "--yes", "-f", file)
    assert "(sensitive)" in said
    assert "hunter2" not in said
    assert "aHVudGVyMg" not in said


def test_what_is_declared_cannot_steer_the_terminal_of_who_reads_the_plan(house: House) -> None:
    def note(text: str) -> Path:
        file = house.directory / "note.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "note"}, "data": {"text": text}}))
        return file

    house.run("apply", "--yes", "-f", note("one\ntwo\n"))
    file = note("one\n\x1b[1A\x1b[2K\x1b[8mtwo\u202e\n")
    for command in ("plan", "diff", "apply"):
        assert r"+\x1b[1A\x1b[2K\x1b[8mtwo\u202e" in house.answer("n", command, "-f", file).stdout


def test_drift_is_shown_explained_and_repaired_only_after_the_freeze(house: House) -> None:
    house.run("apply", "--yes", "-f", house.declare("red", "hall"))
    house.run("wait", "lamp", "hall")
    assert "is frozen" in house.run(
        "freeze", "lamps", "--reason", "the electrician is here", "--author", "ana", "--for", "2h"
    )
    house.paint("hall", "green")
    (line,) = house.until(lambda: [d for d in house.data("drift") if d["heldBy"] == "freeze"])
    assert (line["name"], line["cause"], line["op"]) == ("hall", "drift", "update")
    assert line["changes"] == ['~ colour: "green" → "red"  (drift)']
    told = house.run("explain", "lamp", "hall")
    assert "reality changed" in told
    assert "held by freeze: frozen until" in told
    assert re.search(r"mode +lets it through", told)
    assert re.search(r"freeze +holds it: .*electrician", told)
    assert "ask ana, then homeostat unfreeze" in house.run("runbook")
    assert house.colour("hall") == "green"
    assert "lifted: the electrician is here" in house.run("unfreeze", "lamps")
    house.until(lambda: house.colour("hall") == "red")


def test_what_cannot_be_read_is_told_to_programs_as_well(house: House) -> None:
    house.run("apply", "--yes", "-f", house.declare("red", "hall", "attic"))
    for name in ("hall", "attic"):
        house.run("wait", "lamp", name)
    assert house.data("drift") == []
    (house.lamps / "hall").write_text("{")
    house.look()
    (line,) = house.until(lambda: house.data("drift"))
    assert (line["op"], line["kind"], line["name"], line["heldBy"]) == ("unknown", "Lamp", "hall", "unknown")
    assert "Expecting property name" in line["reason"]
    assert house.data("drift", "lamp/attic") == []
    assert "all is as declared" in house.run("drift", "lamp/attic")


def test_what_no_loop_has_looked_at_is_not_said_to_be_as_declared(house: House) -> None:
    house.run("apply", "--yes", "-f", house.declare("red", "hall"))
    house.run("wait", "lamp", "hall")
    house.close()
    house.run("apply", "--yes", "-f", house.declare("red", "attic"))
    told = house.run("explain", "lamp", "attic")
    assert "differs    unknown: no loop has looked" in told
    assert "next       it is looked at when a loop with its provider runs" in told
    assert "nothing is known to differ (1 looked at, 1 not yet)" in house.run("drift")


def test_one_thing_alone_can_be_frozen(house: House) -> None:
    house.run("apply", "--yes", "-f", house.declare("red", "hall", "attic"))
    for name in ("hall", "attic"):
        house.run("wait", "lamp", name)
    house.run("freeze", "lamp/hall", "--reason", "under investigation")
    house.paint("hall", "green")
    house.paint("attic", "green")
    house.until(lambda: house.colour("attic") == "red")
    house.until(lambda: [d for d in house.data("drift", "lamps") if d["heldBy"] == "freeze"])
    assert house.colour("hall") == "green"
    assert "lifts it: homeostat unfreeze lamps.lamps.example.com/hall -n default" in house.run("explain", "lamp", "hall")
    house.run("unfreeze", "lamp/hall")
    house.until(lambda: house.colour("hall") == "red")


def test_the_runbooks_way_out_of_a_freeze_of_one_thing_lifts_no_other(house: House) -> None:
    house.run("apply", "--yes", "-f", house.declare("red", "hall", "attic"))
    house.run("freeze", "lamp/hall", "--reason", "under investigation")
    house.run("freeze", "lamp/attic", "--reason", "the roof leaks")
    there = house.run("freeze", "lamp/attic", "-n", "elsewhere", "--reason", "another attic")
    assert "To lift it: homeostat unfreeze lamp/attic -n elsewhere" in there
    ways_out = re.findall(r"then homeostat (unfreeze .*)", house.run("runbook"))
    assert len(ways_out) == 3
    (way_out,) = [one for one in ways_out if one.endswith("attic -n default")]
    assert house.run(*way_out.split()) == "lifted: the roof leaks (frozen by " + getpass.getuser() + ")\n"
    (policy,) = [one for one in house.data("get", "guardpolicies")["items"] if one["metadata"]["name"] == "lamps.lamps.example.com"]
    assert [one["reason"] for one in policy["spec"]["freezes"]] == ["under investigation", "another attic"]


def test_who_deleted_a_thing_is_not_guessed_from_who_declared_it(house: House) -> None:
    house.run("apply", "--yes", "-f", house.declare("red", "hall"))
    house.run("wait", "lamp", "hall")
    house.run("freeze", "lamps", "--reason", "stocktaking")
    house.delete("lamps.example.com/v1", "Lamp", "hall")
    (line,) = house.until(lambda: [one for one in house.data("drift", "lamps") if one["op"] == "delete"])
    assert line["by"] == []


def test_a_new_kind_is_only_observed_until_a_person_enforces_it(open_house: Callable[[Mode], House]) -> None:
    house = open_house(Mode.OBSERVE)
    said = house.run("apply", "--yes", "-f", house.declare("red", "hall"))
    assert "mode holds 1" in said
    house.until(lambda: [d for d in house.data("drift") if d["heldBy"] == "mode"])
    assert house.colour("hall") == ""
    house.run("enforce", "lamps", code=2)  # nobody to ask
    said = house.run("enforce", "lamps", "--yes")
    assert "+ Lamp default/hall" in said
    assert "Plan: 1 to add, 0 to change, 0 to destroy" in said
    assert "1 at once" in said
    house.run("wait", "lamp", "hall")
    assert house.colour("hall") == "red"
    house.run("observe", "lamps")
    house.paint("hall", "green")
    house.until(lambda: [d for d in house.data("drift") if d["heldBy"] == "mode"])
    assert house.colour("hall") == "green"


SHOP = "apiVersion: shops.example.com/v1\nkind: Shop\nmetadata: {name: corner}\nspec: {till: TILL}\n"


def test_what_a_composer_declares_is_enforced_shown_and_frozen_by_the_name_of_its_kind(open_house: Callable[[Mode], House]) -> None:
    house = open_house(Mode.OBSERVE)

    def declare(till: str) -> None:
        file = house.directory / "shop.yaml"
        file.write_text(SHOP.replace("TILL", till))
        house.run("apply", "--yes", "-f", file)

    def till() -> str:
        return str(house.plane.get("v1", "ConfigMap", "corner", "default")["data"]["till"])

    declare("open")
    (line,) = house.until(lambda: [d for d in house.data("drift") if d["heldBy"] == "mode"])
    assert (line["kind"], line["name"], line["op"]) == ("ConfigMap", "corner", "create")
    assert "held by mode" in house.run("runbook")
    assert "held by mode" in house.run("explain", "configmap", "corner"), "though it is not there yet"
    said = house.run("enforce", "shops", "--yes")
    assert "+ ConfigMap default/corner" in said
    assert "(GuardPolicy children.shops.shops.example.com, configmaps)" in said
    house.run("wait", "shop", "corner")
    assert till() == "open"

    house.run("freeze", "shops", "--reason", "stocktaking")
    declare("closed")
    house.until(lambda: [d for d in house.data("drift") if d["heldBy"] == "freeze"])
    assert "stocktaking" in house.run("runbook")
    assert till() == "open"
    assert "what it declares" in house.run("freeze", "shop/corner", "--reason", "x", code=1)
    assert "lifted: stocktaking" in house.run("unfreeze", "shops")
    house.until(lambda: till() == "closed")

    house.run("observe", "shops")
    declare("open")
    house.until(lambda: [d for d in house.data("drift") if d["heldBy"] == "mode"])
    assert till() == "closed"


def test_what_a_parent_leaves_behind_that_is_gone_waits_for_a_word_and_gets_it(house: House) -> None:
    names = [f"shop-{number}" for number in range(4)]
    file = house.directory / "shops.yaml"
    file.write_text("---\n".join(SHOP.replace("TILL", "open").replace("corner", name) for name in names))
    house.run("apply", "--yes", "-f", file)
    for name in names:
        house.run("wait", "shop", name)

    def there() -> list[str]:
        return [one["metadata"]["name"] for one in house.data("get", "configmaps")["items"] if one["metadata"]["name"] in names]

    house.delete("shops.example.com/v1", "Shop", *names[:2])
    told = house.until(lambda: text if "held by deletion" in (text := house.run("runbook")) else "")
    assert there() == names
    plan = re.search(r"homeostat approve ([0-9a-f]{16})", told)
    assert plan is not None
    assert "2 held by deletion" in house.run("approve", plan[1], "--yes", "--reason", "they closed")
    house.until(lambda: there() == names[2:])


def test_a_freeze_in_a_policy_that_selects_nothing_is_told_to_hold_nothing(house: House) -> None:
    house.plane.apply(
        "{apiVersion: homeostat.dev/v1alpha1, kind: GuardPolicy, metadata: {name: typo}, "
        "spec: {mode: Enforce, fleet: {kinds: [lamp.lamps.example.com]}, freezes: [{reason: stocktaking, author: ana}]}}"
    )
    house.until(lambda: house.plane.get("homeostat.dev/v1alpha1", "GuardPolicy", "typo").get("status"))
    told = house.run("runbook")
    assert "typo: a freeze that holds nothing" in told
    assert "it selects nothing, and so nothing of it holds: frozen by ana: stocktaking" in told


def test_a_freeze_stays_when_somebody_writes_another_policy(house: House) -> None:
    house.run("apply", "--yes", "-f", house.declare("red", "hall"))
    house.run("wait", "lamp", "hall")
    house.run("freeze", "lamps", "--reason", "the electrician is here")
    house.plane.apply(
        "{apiVersion: homeostat.dev/v1alpha1, kind: GuardPolicy, metadata: {name: lax}, "
        "spec: {mode: Enforce, fleet: {kinds: [lamps.lamps.example.com]}}}"
    )
    house.paint("hall", "green")
    house.until(lambda: [d for d in house.data("drift") if d["heldBy"] == "freeze"])
    assert "homeostat unfreeze lamps.lamps.example.com" in house.run("unfreeze", "lax", code=1)
    assert house.colour("hall") == "green"
    house.run("unfreeze", "lamps")
    house.until(lambda: house.colour("hall") == "red")


def test_a_halted_plan_is_shown_and_approved_by_its_name(house: House) -> None:
    names = [f"lamp-{number}" for number in range(12)]
    house.run("apply", "--yes", "-f", house.declare("red", *names))
    for name in names:
        house.run("wait", "lamp", name)
    said = house.run("apply", "--yes", "-f", house.declare("black", *names))
    assert "mass-drift halts it: 12 of 12 would be changed, more than 3" in said

    def black() -> int:
        return sum(house.colour(name) == "black" for name in names)

    def halted() -> str:
        """The plan that stands once all have been looked at; a change that trickles in may have had its first canary."""
        found = re.search(r"homeostat approve (\w+)", house.run("runbook"))
        opened = house.data("plan", "lamps")
        whole = len(opened["actions"]) + black() == len(names)
        return found[1] if found and whole and opened["guards"][0]["plan"] == found[1] else ""

    plan = house.until(halted)
    assert black() <= 1
    left = len(names) - black()
    assert "mass-drift" in house.run("get", "guardpolicies")
    assert "no plan that is open now" in house.run("approve", "0123456789abcdef", "--yes", code=1)
    said = house.run("approve", plan, "--yes", "--reason", "it is meant")
    assert f"Plan: 0 to add, {left} to change, 0 to destroy" in said
    house.until(lambda: all(house.colour(name) == "black" for name in names))


def test_a_push_that_is_halted_is_taken_back_by_the_command_that_the_runbook_has(house: House) -> None:
    names = twelve(house)
    house.run("freeze", "lamps", "--reason", "so that nothing of it is done")
    house.run("apply", "--yes", "-f", house.declare("black", *names))
    house.until(lambda: len(house.data("plan", "lamps")["actions"]) == len(names))
    found = house.until(lambda: re.search(r"homeostat (rollback changeset \S+)", house.run("runbook")))
    command = found[1].split()
    (guards,) = house.data(*command, "--dry-run")["guards"]
    assert (guards["halts"], guards["held"], guards["approvable"]) == ([], [], False), "what is there is declared again"
    house.run(*command, "--yes")
    house.until(lambda: house.data("drift") == [])
    told = house.until(lambda: "that is over" in (said := house.run("runbook", "lamps")) and said)
    assert "approve" not in told


def twelve(house: House) -> list[str]:
    """Lamps that are there and red: more than ten, so that a change of all of them is halted."""
    names = [f"lamp-{number}" for number in range(12)]
    house.run("apply", "--yes", "-f", house.declare("red", *names))
    for name in names:
        house.run("wait", "lamp", name)
    return names


def test_a_change_set_that_is_approved_as_a_whole_goes_out_in_waves_without_a_second_approval(house: House) -> None:
    names = twelve(house)
    file = house.declare("black", *names)
    assert house.data("plan", "-f", file)["guards"][0]["approvable"]
    said = house.run("apply", "--yes", "--approve", "--reason", "it is meant", "-f", file)
    assert "mass-drift halts it" in said
    house.until(lambda: all(house.colour(name) == "black" for name in names))
    (approval,) = house.data("get", "approvals")["items"]
    assert approval["spec"]["reason"] == "it is meant"
    assert approval["spec"]["changeSet"]["kinds"] == {"lamps.lamps.example.com": {"changes": 12, "deletions": 0}}
    assert approval["spec"]["changeSet"]["name"] in said
    house.until(lambda: house.data("get", "approvals")["items"][0].get("status", {}).get("used"))


@pytest.mark.parametrize(("answers", "approvals"), [("yy", 1), ("yn", 0)])
def test_a_person_is_asked_whether_all_of_it_is_meant(house: House, answers: str, approvals: int) -> None:
    names = twelve(house)
    done = house.answer(answers, "apply", "-f", house.declare("black", *names))
    assert "The guards would stop it for its size" in done.stdout
    assert done.returncode == 0, done.stderr
    assert len(house.data("get", "approvals")["items"]) == approvals
    assert house.lamp(names[0])["spec"]["colour"] == "black"


def test_deletions_that_are_approved_as_a_whole_belong_to_the_change_set(house: House) -> None:
    names = twelve(house)
    file = house.declare("red", *names[:2])
    said = house.run("apply", "--yes", "--approve", "-f", file, "--prune", "house=ours")
    assert "Plan: 0 to add, 0 to change, 10 to destroy" in said
    house.until(lambda: not any(house.colour(name) for name in names[2:]))
    assert all(house.colour(name) == "red" for name in names[:2])


def test_who_may_not_approve_is_told_and_nothing_is_written(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any) -> str:
        raise ApiError(403, "Forbidden", "approvals.homeostat.dev is forbidden")

    names = twelve(house)
    monkeypatch.setattr("homeostat.cli.approve.approve_change_set", refused)
    said = house.run("apply", "--yes", "--approve", "-f", house.declare("black", *names), code=1)
    assert "it could not be approved, so nothing was done: approvals.homeostat.dev is forbidden" in said
    assert house.lamp(names[0])["spec"]["colour"] == "red"


def test_what_needs_no_approval_is_approved_by_none(house: House) -> None:
    house.run("apply", "--yes", "--approve", "-f", house.declare("red", "hall"))
    house.run("wait", "lamp", "hall")
    assert house.data("get", "approvals")["items"] == []


def test_nothing_more_is_written_once_all_is_as_declared(house: House) -> None:
    house.run("apply", "--yes", "-f", house.declare("red", "hall", "attic"))
    for name in ("hall", "attic"):
        house.run("wait", "lamp", name)

    def versions() -> list[str]:
        objects = [*house.data("get", "lamps")["items"], *house.data("get", "guardpolicies")["items"]]
        return [obj["metadata"]["resourceVersion"] for obj in objects]

    def reported() -> bool:
        status = house.plane.get("homeostat.dev/v1alpha1", "GuardPolicy", "lamps.lamps.example.com").get("status", {})
        return (status.get("fleetSize"), status.get("drifted")) == (2, 0)

    house.until(reported)
    before = versions()
    house.look()
    time.sleep(1.5)  # longer than a decision and the report on it take
    assert versions() == before


def test_history_tells_who_did_what_and_by_which_change_set(house: House) -> None:
    said = house.run("apply", "--yes", "-f", house.declare("red", "hall"))
    change_set = re.search(r"change set (\S+)\.", said)
    assert change_set is not None
    house.run("wait", "lamp", "hall")
    entries = house.until(lambda: [e for e in house.data("history", "lamp", "hall") if e["source"] == "write"])
    assert any(entry["changeSet"] == change_set[1] for entry in entries)
    of_set = house.data("history", "--change-set", change_set[1])
    assert "write" in {entry["source"] for entry in of_set}
    told = house.run("history", "lamp", "hall")
    assert "homeostat-cli" in told
    assert "Ready True" in told


def test_a_kind_goes_by_any_of_its_names_and_a_typo_gets_a_hint(house: House) -> None:
    house.run("apply", "--yes", "-f", house.declare("red", "hall"))
    for word in ("lamps", "lamp", "Lamp", "LAMPS", "lamps.lamps.example.com"):
        assert "hall" in house.run("get", word)
    assert "Did you mean 'lamp'?" in house.run("get", "lamsp", code=1)
    assert "default" in house.run("get", "ns")
    assert "is no policy" in house.run("freeze", "lamsp", "--reason", "x", code=1)


def test_waiting_in_vain_says_why(house: House) -> None:
    house.run("freeze", "lamps", "--reason", "the electrician is here")
    house.run("apply", "--yes", "-f", house.declare("red", "hall"))
    house.until(lambda: [d for d in house.data("drift") if d["heldBy"] == "freeze"])
    assert "electrician" in house.run("wait", "lamp", "hall", "--timeout", "1s", code=1)
    assert "is not there" in house.run("wait", "lamp", "nowhere", code=1)


def test_a_plan_that_an_invariant_refuses_is_said_to_be_refused_before_and_after_it_is_declared(house: House) -> None:
    names = [f"lamp-{i}" for i in range(4)]
    house.run("apply", "--yes", "-f", house.declare("red", *names))
    house.until(lambda: all(house.colour(name) == "red" for name in names))
    policy = house.directory / "policy.yaml"
    policy.write_text(
        "apiVersion: homeostat.dev/v1alpha1\nkind: GuardPolicy\nmetadata: {name: lit}\nspec:\n  fleet: {kinds: [lamps.lamps.example.com]}\n"
        "  mode: Enforce\n  invariants: [{name: light, expression: \"after.exists(o, o.spec.colour != 'black')\", message: a light stays on}]\n"
    )
    house.run("apply", "--yes", "-f", policy)
    kept = house.until(lambda: [c for c in house.data("get", "guardpolicy", "lit").get("status", {}).get("conditions", ()) if c["type"] == "InvariantsHold"])
    assert kept
    house.until(lambda: house.data("get", "guardpolicy", "lit")["status"]["conditions"][-1]["status"] == "True")
    one = house.run("plan", "-f", house.declare("black", names[0]))
    assert "Guards: let it through" in one
    told = house.run("plan", "-f", house.declare("black", *names))
    assert "invariant holds 4: the plan is refused: it would break an invariant: light: a light stays on" in told
