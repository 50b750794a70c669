"""The whole loop on a real API server in process, over a world of plain memory that tests can break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Client, Key, Resource
from homeostat.guards import GuardPolicy, Mode
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.loop.controller import Controller
from homeostat.loop.declarations import ADOPT
from homeostat.loop.diff import Diff
from homeostat.loop.engine import Engine
from homeostat.loop.fleet import Ref, Wave, plan_hash
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Provider, current
from homeostat.model.kinds import Sensitive, Spec, decode
from homeostat.model.protocol import FINALIZER

FLEET = "default/lamps.lamps.test.dev"


class LampSpec(Spec):
    """A lamp as it should be."""

    colour: str
    watts: int = 10


class LampState(Spec):
    """A lamp as it is."""

    colour: str
    watts: int


class Lamp(Provider[LampSpec, LampState], group="lamps.test.dev"):
    """A lamp in memory."""

    def __init__(self) -> None:
        self.world: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.broken: dict[str, str] = {}  # by what to break: observe, apply, unhealthy
        self.silent = False  # whether it never says how a lamp does
        self.keys: list[str] = []
        self.looks = 0
        self.wavers = False  # whether every other look fails

    def _fail(self, what: str) -> None:
        if what in self.broken:
            raise ConnectionError(self.broken[what])

    async def observe(self, spec: LampSpec) -> LampState | Absent:
        self._fail("observe")
        self.looks += 1
        if self.wavers and self.looks % 2:
            raise ConnectionError("it is not sure who we are")
        lamp = self.world.get(current().ref.name)
        return ABSENT if lamp is None else LampState(**lamp)

    async def apply(self, spec: LampSpec, diff: Diff) -> None:
        name = current().ref.name
        self.calls.append(f"apply {name}")
        self.keys.append(current().key)
        self._fail("apply")
        self.world[name] = {"colour": spec.colour, "watts": spec.watts}

    async def delete(self, spec: LampSpec) -> None:
        self.calls.append(f"delete {current().ref.name}")
        self.world.pop(current().ref.name, None)

    async def unhealthy(self, spec: LampSpec, state: LampState) -> str:
        self._fail("unhealthy")
        if self.silent:
            await asyncio.Event().wait()
        return ""


class SafeSpec(Spec):
    """A safe, and what opens it."""

    owner: str
    code: Annotated[str, Sensitive()]


class Safe(Provider[SafeSpec, SafeSpec], group="safes.test.dev"):
    """A safe that never takes the code that it is given."""

    def __init__(self) -> None:
        self.owner = ""

    async def observe(self, spec: SafeSpec) -> SafeSpec | Absent:
        return SafeSpec(owner=self.owner, code="0000") if self.owner else ABSENT

    async def apply(self, spec: SafeSpec, diff: Diff) -> None:
        self.owner = "nobody"

    async def delete(self, spec: SafeSpec) -> None:
        self.owner = ""


class Door(Provider[SafeSpec, SafeSpec], group="doors.test.dev"):
    """A door that never closes."""

    deadline = 0.05

    def __init__(self, *, opens: bool) -> None:
        self._opens = opens

    async def open(self, client: Client) -> None:
        if not self._opens:
            await asyncio.Event().wait()

    async def close(self) -> None:
        await asyncio.Event().wait()


class Bench:
    """A control plane, a client, a provider, and the engine between them."""

    def __init__(self, client: Client, lamps: Resource[dict[str, Any]], provider: Lamp) -> None:
        self.client = client
        self.lamps = lamps
        self.provider = provider
        self.engine: Engine
        self.gate: PolicyGate

    def start_engine(self, mode: Mode = Mode.ENFORCE) -> Engine:
        self.gate = PolicyGate(mode=mode)
        self.engine = Engine(self.client, [self.provider], self.gate, settle=0.01, workers=4)
        return self.engine

    async def full_house(self, size: int) -> list[str]:
        """Lamps that are all there, known and looked at."""
        names = [f"lamp-{i}" for i in range(size)]
        for name in names:
            await self.declare(name, "red")
        for name in names:
            await self.ready(name)
        while self.engine.passes.under_way or not self.engine.fleets[FLEET].passes_done:
            self.look_again()
            await asyncio.sleep(0.02)
        return names

    async def declare(self, name: str, colour: str, **annotations: str) -> None:
        metadata: dict[str, Any] = {"name": name}
        if annotations:
            metadata["annotations"] = {k.replace("__", "/").replace("_", "."): v for k, v in annotations.items()}
        await self.lamps.apply({"metadata": metadata, "spec": {"colour": colour}}, field_manager="test", force=True)

    async def ready(self, name: str) -> dict[str, Any]:
        return await self.until(name, lambda lamp: condition(lamp, "Ready") == "True")

    async def until(self, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(10):
            while True:
                lamp = await self.lamps.get(name)
                if holds(lamp):
                    return lamp
                await asyncio.sleep(0.005)

    def look_again(self) -> None:
        self.engine.passes.begin()


def condition(obj: dict[str, Any], kind: str) -> str:
    generation = obj["metadata"]["generation"]
    for found in (obj.get("status") or {}).get("conditions", ()):
        if found["type"] == kind and found["observedGeneration"] == generation:
            return str(found["status"])
    return ""


@asynccontextmanager
async def running(tmp_path: Path, mode: Mode = Mode.ENFORCE) -> AsyncIterator[Bench]:
    server = Server(tmp_path / "data", Listen("127.0.0.1", 0))
    await server.start()
    client = local_client(server.plane, "loop")
    provider = Lamp()
    bench = Bench(client, client.kind("lamps.test.dev/v1", "Lamp", namespace="default"), provider)
    await bench.start_engine(mode).start()
    try:
        yield bench
    finally:
        await bench.engine.stop()
        await client.close()
        await server.stop()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path) as bench:
        yield bench


async def test_what_reads_back_differently_is_said_for_people_and_without_its_secrets(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", Listen("127.0.0.1", 0))
    await server.start()
    client = local_client(server.plane, "loop")
    engine = Engine(client, [Safe()], PolicyGate(mode=Mode.ENFORCE), settle=0.01, workers=1)
    await engine.start()
    safes = client.kind("safes.test.dev/v1", "Safe", namespace="default")
    try:
        await safes.create({"metadata": {"name": "safe"}, "spec": {"owner": "ada", "code": "4711"}})
        async with asyncio.timeout(10):
            while "reads back differently" not in str(status := (await safes.get("safe")).get("status", {})):
                await asyncio.sleep(0.005)
        message = next(c["message"] for c in status["conditions"] if c["type"] == "Ready")
        assert '~ owner: "nobody" → "ada"' in message
        assert "~ code: (sensitive) → (sensitive)" in message
        assert "0000" not in str(status["conditions"])
    finally:
        await engine.stop()
        await client.close()
        await server.stop()


async def test_what_is_declared_is_made_and_said_to_be_ready(bench: Bench) -> None:
    await bench.declare("hall", "red")
    lamp = await bench.ready("hall")
    assert bench.provider.world == {"hall": {"colour": "red", "watts": 10}}
    assert lamp["status"]["lastApplied"] == {"colour": "red", "watts": 10}
    assert FINALIZER in lamp["metadata"]["finalizers"]
    assert "intent" not in lamp["status"]
    assert "drift" not in lamp["status"]


async def test_a_changed_declaration_is_followed(bench: Bench) -> None:
    await bench.declare("hall", "red")
    await bench.ready("hall")
    await bench.declare("hall", "blue")
    await bench.ready("hall")
    assert bench.provider.world["hall"]["colour"] == "blue"


async def test_drift_of_reality_is_repaired(bench: Bench) -> None:
    await bench.declare("hall", "red")
    await bench.ready("hall")
    bench.provider.world["hall"]["colour"] = "green"
    bench.look_again()
    await bench.until("hall", lambda lamp: bench.provider.world["hall"]["colour"] == "red")
    lamp = await bench.until("hall", lambda lamp: "drift" not in lamp["status"] and "repairedAt" in lamp["status"])
    assert condition(lamp, "Ready") == "True"


async def test_what_is_deleted_is_cleaned_up_first(bench: Bench) -> None:
    await bench.declare("hall", "red")
    await bench.ready("hall")
    await bench.lamps.delete("hall")
    async with asyncio.timeout(10):
        while any(lamp["metadata"]["name"] == "hall" for lamp in await bench.lamps.list()):
            await asyncio.sleep(0.005)
    assert bench.provider.world == {}
    assert bench.provider.calls == ["apply hall", "delete hall"]


async def test_what_was_never_made_can_be_deleted_also_where_it_cannot_be_read(bench: Bench) -> None:
    bench.provider.broken["observe"] = "lamps are not allowed here"
    await bench.declare("hall", "red")
    lamp = await bench.until("hall", lambda lamp: condition(lamp, "Ready") == "Unknown")
    assert FINALIZER in lamp["metadata"]["finalizers"]
    await bench.lamps.delete("hall")
    async with asyncio.timeout(10):
        while await bench.lamps.list():
            await asyncio.sleep(0.005)
    assert bench.provider.calls == []


async def test_what_was_made_stays_declared_while_it_cannot_be_read(bench: Bench) -> None:
    await bench.declare("hall", "red")
    await bench.ready("hall")
    bench.provider.broken["observe"] = "the lamp does not answer"
    await bench.lamps.delete("hall")
    lamp = await bench.until("hall", lambda lamp: condition(lamp, "Ready") == "Unknown")
    bench.look_again()
    while bench.engine.passes.under_way:
        await asyncio.sleep(0.005)
    assert FINALIZER in (await bench.lamps.get("hall"))["metadata"]["finalizers"] == lamp["metadata"]["finalizers"]
    assert bench.provider.world["hall"]["colour"] == "red"


async def test_nothing_more_is_written_once_all_is_as_declared(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        await bench.declare(name, "red")
    for name in ("a", "b", "c"):
        await bench.ready(name)
    before = [lamp["metadata"]["resourceVersion"] for lamp in await bench.lamps.list()]
    calls = list(bench.provider.calls)
    for _ in range(3):
        bench.look_again()
        while bench.engine.passes.under_way:
            await asyncio.sleep(0.005)
    assert [lamp["metadata"]["resourceVersion"] for lamp in await bench.lamps.list()] == before
    assert bench.provider.calls == calls


async def test_a_failed_read_is_unknown_and_nothing_is_done_on_it(bench: Bench) -> None:
    await bench.declare("hall", "red")
    await bench.ready("hall")
    calls = list(bench.provider.calls)
    bench.provider.broken["observe"] = "the lamp does not answer"
    bench.look_again()
    lamp = await bench.until("hall", lambda lamp: condition(lamp, "Ready") == "Unknown")
    assert "does not answer" in str(lamp["status"]["conditions"])
    assert bench.provider.calls == calls
    bench.provider.broken.clear()
    bench.look_again()
    await bench.ready("hall")


async def test_health_that_cannot_be_told_is_unknown_too(bench: Bench) -> None:
    await bench.declare("hall", "red")
    await bench.ready("hall")
    bench.provider.broken["unhealthy"] = "the switch does not answer"
    bench.look_again()
    lamp = await bench.until("hall", lambda lamp: condition(lamp, "Ready") == "Unknown")
    assert "the switch does not answer" in str(lamp["status"]["conditions"])
    bench.provider.broken.clear()
    bench.look_again()
    await bench.ready("hall")


async def test_who_never_says_how_things_do_takes_no_worker_away(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):  # as many as there are workers
        await bench.declare(f"lamp-{number}", "red")
        await bench.ready(f"lamp-{number}")
    monkeypatch.setattr(Lamp, "deadline", 0.05)
    bench.provider.silent = True
    bench.look_again()
    lamp = await bench.until("lamp-0", lambda lamp: condition(lamp, "Ready") == "Unknown")
    assert "it did not answer in time" in str(lamp["status"]["conditions"])
    bench.provider.silent = False
    bench.look_again()
    for number in range(4):
        await bench.ready(f"lamp-{number}")


async def test_what_is_read_now_so_and_now_so_is_not_read_all_the_time(bench: Bench) -> None:
    bench.provider.broken["apply"] = "no bulb"
    await bench.declare("hall", "red")
    await bench.until("hall", lambda lamp: (lamp.get("status") or {}).get("drift", {}).get("failures", 0) > 1)
    bench.provider.wavers = True
    bench.look_again()
    before = bench.provider.looks
    await asyncio.sleep(0.6)
    assert bench.provider.looks - before < 20
    bench.provider.wavers = False
    bench.provider.broken.clear()
    bench.look_again()
    await bench.ready("hall")


async def test_a_failing_action_is_reported_and_tried_again_with_the_same_key(bench: Bench) -> None:
    bench.provider.broken["apply"] = "no bulb"
    await bench.declare("hall", "red")
    lamp = await bench.until("hall", lambda lamp: condition(lamp, "Degraded") == "True")
    assert "no bulb" in str(lamp["status"]["conditions"])
    bench.provider.broken.clear()
    await bench.ready("hall")
    assert len(bench.provider.keys) >= 2
    assert len(set(bench.provider.keys)) == 1


async def test_what_exists_and_is_not_ours_is_not_touched_until_adoption_is_said(bench: Bench) -> None:
    bench.provider.world["hall"] = {"colour": "gold", "watts": 99}
    await bench.declare("hall", "red")
    await bench.until("hall", lambda lamp: "Held" in str(lamp.get("status")))
    assert bench.provider.world["hall"]["colour"] == "gold"
    await bench.lamps.patch("hall", {"metadata": {"annotations": {ADOPT: "true"}}, "spec": {"watts": 11}})
    await bench.ready("hall")
    assert bench.provider.world["hall"] == {"colour": "red", "watts": 11}


async def test_observe_only_reports_and_touches_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, Mode.OBSERVE) as bench:
        await bench.declare("hall", "red")
        lamp = await bench.until("hall", lambda lamp: "Held" in str(lamp.get("status")))
        assert "observe" in str(lamp["status"]["conditions"]).lower()
        assert lamp["status"]["drift"]["op"] == "create"
        assert bench.provider.calls == []


async def test_a_mass_change_is_halted_after_nothing_or_the_first(bench: Bench) -> None:
    names = await bench.full_house(20)
    await asyncio.gather(*(bench.declare(name, "black") for name in names))
    fleet = bench.engine.fleets[FLEET]
    async with asyncio.timeout(10):
        while not fleet.halts:
            await asyncio.sleep(0.005)
    black = [name for name in names if bench.provider.world[name]["colour"] == "black"]
    assert len(black) <= 1
    assert any(halt.guard == "mass-drift" for halt in fleet.halts.values())


async def test_a_restart_knows_what_was_done_and_does_nothing_twice(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.declare("hall", "red")
        await bench.ready("hall")
        await bench.engine.stop()
        before = (await bench.lamps.get("hall"))["metadata"]["resourceVersion"]
        await bench.start_engine().start()
        while bench.engine.passes.under_way:
            await asyncio.sleep(0.005)
        assert bench.provider.calls == ["apply hall"]
        assert (await bench.lamps.get("hall"))["metadata"]["resourceVersion"] == before


async def test_after_a_restart_nothing_is_repaired_before_the_whole_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as bench:
        await bench.full_house(12)
        await bench.engine.stop()
        for lamp in bench.provider.world.values():
            lamp["colour"] = "black"
        bench.provider.calls.clear()
        observe, seen = bench.provider.observe, asyncio.Event()

        async def slowly(spec: LampSpec) -> LampState | Absent:
            if current().ref.name != "lamp-0":
                await seen.wait()
            return await observe(spec)

        monkeypatch.setattr(bench.provider, "observe", slowly)
        await bench.start_engine().start()
        async with asyncio.timeout(10):
            while not bench.engine.ledger.holds:
                assert bench.provider.calls == []
                await asyncio.sleep(0.005)
        assert [hold.reason for hold in bench.engine.ledger.holds.values()] == ["the first look at the whole fleet is not complete"]
        seen.set()
        await bench.until("lamp-0", lambda lamp: "12 of 12 would be changed" in str(lamp["status"]))
        assert bench.provider.calls == []


async def test_an_intent_left_by_a_crash_is_settled_by_looking_at_the_world(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.engine.stop()
        await bench.declare("hall", "red")
        intent = {"op": "create", "madeFrom": "x", "key": "k", "at": "2026-01-01T00:00:00Z"}
        await bench.lamps.patch("hall", {"status": {"intent": intent}}, subresource="status")
        bench.provider.world["hall"] = {"colour": "red", "watts": 10}  # it was made before the crash
        await bench.start_engine().start()
        lamp = await bench.ready("hall")
        assert "intent" not in lamp["status"]
        assert bench.provider.calls == []


@pytest.mark.parametrize("until", ["it is looked at", "its status is written"])
async def test_a_cache_that_is_behind_after_a_crash_takes_nothing_from_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: str) -> None:
    async with running(tmp_path) as bench:
        await bench.engine.stop()
        metadata = {"name": "hall", "finalizers": [FINALIZER]}
        old = await bench.lamps.create({"metadata": metadata, "spec": {"colour": "red"}})
        intent = {"op": "create", "madeFrom": "x", "key": "k", "at": "2026-01-01T00:00:00Z"}
        await bench.lamps.patch("hall", {"status": {"intent": intent}}, subresource="status")
        bench.provider.world["hall"] = {"colour": "red", "watts": 10}
        behind, get, observe, fetch = [True], Controller.get, Lamp.observe, Controller.fetch

        def cached(controller: Controller, key: Key) -> dict[str, Any] | None:
            return old if behind else get(controller, key)

        async def observed(lamp: Lamp, spec: LampSpec) -> LampState | Absent:
            if until == "it is looked at":
                behind.clear()
            return await observe(lamp, spec)

        async def fetched(controller: Controller, name: str, namespace: str) -> dict[str, Any]:
            behind.clear()
            return await fetch(controller, name, namespace)

        monkeypatch.setattr(Controller, "get", cached)
        monkeypatch.setattr(Lamp, "observe", observed)
        monkeypatch.setattr(Controller, "fetch", fetched)
        await bench.start_engine().start()
        lamp = await bench.ready("hall")
        assert lamp["status"]["lastApplied"] == {"colour": "red", "watts": 10}  # it is ours
        await bench.lamps.delete("hall")
        async with asyncio.timeout(10):
            while bench.provider.world:
                await asyncio.sleep(0.005)


async def test_an_approval_of_the_exact_plan_lets_a_halted_change_through_once(bench: Bench) -> None:
    keeper = Keeper(bench.client, bench.gate)
    await keeper.start()
    keeper.attach(bench.engine)
    fleet = await bench.full_house(20)
    await asyncio.gather(*(bench.declare(name, "black") for name in fleet))
    halted = bench.engine.fleets[FLEET]
    async with asyncio.timeout(10):
        # The plan grows until the last of the twenty was looked at; a canary may have gone through before the halt.
        while True:
            plan = plan_hash(halted.drifts.values())
            done = sum(lamp["colour"] == "black" for lamp in bench.provider.world.values())
            if len(halted.drifts) + done >= 20 and plan in {halt.plan for halt in halted.halts.values()}:
                break
            await asyncio.sleep(0.005)
    approvals = bench.client.kind("homeostat.dev/v1alpha1", "Approval")
    await approvals.create({"metadata": {"name": "yes"}, "spec": {"plan": plan}})
    for name in fleet:
        await bench.ready(name)
    assert {lamp["colour"] for lamp in bench.provider.world.values()} == {"black"}
    async with asyncio.timeout(10):
        while not (await approvals.get("yes")).get("status", {}).get("used"):
            await asyncio.sleep(0.01)
    await keeper.stop()


async def test_a_freeze_stops_acting_and_not_looking_and_says_so(bench: Bench) -> None:
    keeper = Keeper(bench.client, bench.gate)
    await keeper.start()
    keeper.attach(bench.engine)
    await bench.declare("hall", "red")
    await bench.ready("hall")
    policies = bench.client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
    spec: dict[str, Any] = {
        "fleet": {"kinds": ["lamps.lamps.test.dev"]},
        "mode": "Enforce",
        "freezes": [{"reason": "the electrician is here", "author": "ana"}],
    }
    await policies.create({"metadata": {"name": "lamps"}, "spec": spec})
    bench.provider.world["hall"]["colour"] = "green"
    bench.look_again()
    lamp = await bench.until("hall", lambda lamp: "electrician" in str(lamp["status"]))
    assert lamp["status"]["drift"]["cause"] == "drift"
    assert bench.provider.world["hall"]["colour"] == "green"
    async with asyncio.timeout(10):
        while (await policies.get("lamps")).get("status", {}).get("drifted") != 1:
            await asyncio.sleep(0.01)
    await policies.patch("lamps", {"spec": {"freezes": []}})
    await bench.until("hall", lambda lamp: bench.provider.world["hall"]["colour"] == "red")
    await keeper.stop()


async def test_a_target_that_fails_again_and_again_is_left_alone_for_a_while(bench: Bench) -> None:
    bench.provider.broken["apply"] = "no power"
    bench.gate.built_in["lamps.lamps.test.dev"] = decode(
        GuardPolicy, {"mode": "Enforce", "breaker": {"failures": 2, "openFor": "1h"}, "backoff": {"first": "1ms", "most": "1ms"}}
    )
    await bench.declare("hall", "red")
    lamp = await bench.until("hall", lambda lamp: "held by breaker" in str(lamp.get("status")))
    assert "after 2 failures in a row" in str(lamp["status"])
    assert bench.provider.calls == ["apply hall", "apply hall"]


async def test_a_creation_does_not_wait_for_others_and_a_change_of_intent_does(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        bench.engine._deciding.settle = 3600.0
        await bench.declare("hall", "red")
        await bench.ready("hall")
        await bench.declare("hall", "blue")
        await bench.until("hall", lambda lamp: (lamp["status"].get("drift") or {}).get("op") == "update")
        assert bench.provider.world["hall"]["colour"] == "red"


async def test_when_it_was_looked_at_is_told_and_no_reason_to_write(bench: Bench) -> None:
    await bench.declare("hall", "red")
    lamp = await bench.ready("hall")
    assert lamp["status"]["observedAt"].endswith("Z")
    await asyncio.sleep(1.1)  # a later second
    while bench.engine.passes.under_way:
        await asyncio.sleep(0.005)
    bench.look_again()
    while bench.engine.passes.under_way:
        await asyncio.sleep(0.005)
    assert (await bench.lamps.get("hall"))["metadata"]["resourceVersion"] == lamp["metadata"]["resourceVersion"]


async def test_a_policy_that_cannot_be_read_says_so_and_only_observes(bench: Bench) -> None:
    keeper = Keeper(bench.client, bench.gate)
    await keeper.start()
    keeper.attach(bench.engine)
    try:
        policies = bench.client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
        wrong = {"fleet": {"kinds": ["lamps.lamps.test.dev"]}, "mode": "Enforce", "invariants": [{"name": "x", "expression": "size("}]}
        await policies.create({"metadata": {"name": "mine"}, "spec": wrong})
        async with asyncio.timeout(10):
            while "Unreadable" not in str((await policies.get("mine")).get("status")):
                await asyncio.sleep(0.01)
        await bench.declare("hall", "red")
        await bench.until("hall", lambda lamp: "held by mode" in str(lamp.get("status")))
    finally:
        await keeper.stop()


@pytest.mark.parametrize("error", [OSError("too many watches"), asyncio.CancelledError()], ids=repr)
async def test_hints_that_break_off_are_taken_up_again(bench: Bench, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr("homeostat.loop.engine.HINTS_AGAIN_SECONDS", 0.01)
    await bench.declare("hall", "red")
    ref = bench.engine.controllers["lamps.lamps.test.dev"].ref_of(await bench.ready("hall"))
    await bench.engine.stop()
    asked = 0

    async def hints() -> AsyncIterator[Ref]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise error
        bench.provider.world["hall"]["colour"] = "blue"
        yield ref
        await asyncio.Event().wait()

    monkeypatch.setattr(bench.provider, "watch", hints)
    await bench.start_engine().start()
    async with asyncio.timeout(10):
        while asked < 2 or bench.provider.world["hall"]["colour"] != "red":
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("opens", [True, False])
async def test_who_never_closes_keeps_nobody_from_beginning_and_ending(tmp_path: Path, opens: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path) as bench:
        await bench.engine.stop()
        engine = Engine(bench.client, [Door(opens=opens), bench.provider], PolicyGate(mode=Mode.ENFORCE), settle=0.01)
        async with asyncio.timeout(5):
            await engine.start(apart=True)
            assert list(engine.aside) == ([] if opens else ["doors.doors.test.dev"])
            await bench.declare("hall", "red")
            await bench.ready("hall")
            await engine.stop()
        assert ("Door did not close: it did not answer in time" in caplog.text) == opens


async def test_a_failed_wave_of_a_change_set_that_came_in_and_is_gone_ends_with_the_next_pass(bench: Bench) -> None:
    await bench.declare("hall", "red")
    await bench.ready("hall")
    fleet = bench.engine.fleets[FLEET]
    fleet.waves["people"] = Wave(1, "people")
    fleet.gathering = {"people": bench.engine.clock.now() - 1}  # as the last decision left it, some time ago
    bench.engine.pass_ends(1, 0.0)
    assert not fleet.waves
