"""Policies that ask in CEL, under the whole loop: invariants over the fleet as it is and would be, and health of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Client
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.loop.diff import Diff
from homeostat.loop.engine import Engine
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Provider, current
from homeostat.model.conditions import find_condition
from homeostat.model.kinds import Spec

KIND = "ovens.ovens.test.dev"
ALONE = {"deletion": {"confirmAbove": "100%"}, "cap": "100%"}
"""So that no other guard has something to say of a small fleet."""


class OvenSpec(Spec):
    power: int


class OvenState(Spec):
    power: int
    heat: int


class Oven(Provider[OvenSpec, OvenState], group="ovens.test.dev"):
    """An oven in memory, which takes its time to get hot."""

    def __init__(self) -> None:
        self.world: dict[str, dict[str, int]] = {}
        self.unreadable: set[str] = set()
        self.looks = 0

    async def observe(self, spec: OvenSpec) -> OvenState | Absent:
        name = current().ref.name
        self.looks += 1
        if name in self.unreadable:
            raise ConnectionError("no answer")
        return OvenState(**self.world[name]) if name in self.world else ABSENT

    async def apply(self, spec: OvenSpec, diff: Diff) -> None:
        self.world[current().ref.name] = {"power": spec.power, "heat": 0}

    async def delete(self, spec: OvenSpec) -> None:
        self.world.pop(current().ref.name, None)


class Kitchen:
    """A control plane with ovens and one policy for them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.ovens = client.kind("ovens.test.dev/v1", "Oven", namespace="default")
        self.policies = client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
        self.provider = Oven()
        self.begin_anew()

    def begin_anew(self) -> None:
        """A loop that knows nothing of the one before it."""
        self.gate = PolicyGate(mode=Mode.ENFORCE)
        self.keeper = Keeper(self.client, self.gate)
        self.engine = Engine(self.client, [self.provider], self.gate, settle=0.01, workers=4)

    async def start(self) -> None:
        await self.keeper.start()
        self.keeper.attach(self.engine)
        await self.engine.start()

    async def stop(self) -> None:
        await self.engine.stop()
        await self.keeper.stop()

    async def policy(self, name: str = "ovens", **spec: Any) -> None:
        wanted = {"fleet": {"kinds": [KIND]}, "mode": "Enforce", **ALONE, **spec}
        await self.policies.apply({"metadata": {"name": name}, "spec": wanted}, field_manager="test", force=True)
        await until(lambda: name in self.gate.policies)

    async def declare(self, *names: str, power: int = 1, **metadata: Any) -> None:
        for name in names:
            oven = {"metadata": {"name": name, **metadata}, "spec": {"power": power}}
            await self.ovens.apply(oven, field_manager="test", force=True)

    async def says(self, name: str, kind: str, status: str, part: str = "") -> None:
        """Waits until a condition of an oven has this status, and this in its message."""

        async def told() -> bool:
            oven = await self.ovens.get(name)
            found = find_condition(oven, kind) or {}
            current = found.get("observedGeneration") == oven["metadata"]["generation"]
            return current and found.get("status") == status and part in found.get("message", "")

        await until(told)

    async def invariants(self, status: str, part: str = "") -> None:
        async def told() -> bool:
            found = find_condition(await self.policies.get("ovens"), "InvariantsHold") or {}
            return found.get("status") == status and part in found.get("message", "")

        await until(told)


async def until(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(15):
        while True:
            answer = holds()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.01)


@pytest.fixture
async def kitchen(tmp_path: Path) -> AsyncIterator[Kitchen]:
    server = Server(tmp_path / "data", Listen("127.0.0.1", 0))
    await server.start()
    client = local_client(server.plane, "loop")
    kitchen = Kitchen(client)
    await kitchen.start()
    try:
        yield kitchen
    finally:
        await kitchen.stop()
        await client.close()
        await server.stop()


ENOUGH = [{"name": "enough", "expression": "size(after) >= 3", "message": "three ovens bake for the town"}]


async def test_a_plan_that_breaks_an_invariant_is_refused_and_one_that_does_not_goes(kitchen: Kitchen) -> None:
    await kitchen.policy(invariants=ENOUGH)
    await kitchen.declare("a", "b", "c", "d")
    await until(lambda: len(kitchen.provider.world) == 4)
    await kitchen.invariants("True")
    await kitchen.ovens.delete("a")
    await until(lambda: kitchen.provider.world.keys() == {"b", "c", "d"})
    await kitchen.ovens.delete("b")
    refused = "held by invariant: the plan is refused: it would break an invariant: enough"
    await kitchen.says("b", "Ready", "False", refused)
    assert len(kitchen.provider.world) == 3
    await kitchen.policy(invariants=[{**ENOUGH[0], "expression": "size(after) >= 2"}])
    await until(lambda: kitchen.provider.world.keys() == {"c", "d"})


async def test_what_is_broken_now_is_said_and_may_be_mended(kitchen: Kitchen) -> None:
    await kitchen.policy(invariants=ENOUGH, mode="Observe")
    await kitchen.declare("a", "b", "c", power=2)
    await kitchen.invariants("False", "enough: three ovens bake for the town")
    assert kitchen.provider.world == {}
    await kitchen.policy(invariants=ENOUGH)
    await kitchen.invariants("True")
    assert len(kitchen.provider.world) == 3
    await kitchen.policy(invariants=[])
    await until(lambda: not kitchen.engine.fleets["ovens"].observed)


async def test_an_invariant_sees_labels_declarations_and_states(kitchen: Kitchen) -> None:
    one_of_each = (
        "['east', 'west'].all(z, after.exists(o, o.metadata.labels.zone == z && o.state.power == o.spec.power))"
    )
    await kitchen.policy(invariants=[{"name": "zones", "expression": one_of_each}])
    await kitchen.declare("a", labels={"zone": "east"})
    await kitchen.declare("b", labels={"zone": "west"})
    await kitchen.invariants("True")
    await kitchen.ovens.delete("b")
    await kitchen.says("b", "Ready", "False", "it would break an invariant: zones")
    assert kitchen.provider.world.keys() == {"a", "b"}


async def test_what_an_invariant_counts_on_has_to_be_readable(kitchen: Kitchen) -> None:
    await kitchen.policy(invariants=ENOUGH, unknown="50%")
    await kitchen.declare("a", "b", "c", "d")
    await kitchen.invariants("True")
    kitchen.provider.unreadable.add("d")
    kitchen.engine.passes.begin()
    await kitchen.says("d", "Ready", "Unknown")
    await kitchen.ovens.delete("a")
    await kitchen.says("a", "Ready", "False", "should what cannot be read not be there")
    kitchen.provider.unreadable.clear()
    kitchen.engine.passes.begin()
    await until(lambda: kitchen.provider.world.keys() == {"b", "c", "d"})


async def test_an_invariant_sees_what_an_action_leads_to(kitchen: Kitchen) -> None:
    await kitchen.policy(invariants=[{"name": "fuse", "expression": "after.map(o, o.state.power).sum() <= 5"}])
    await kitchen.declare("a", "b", power=2)
    await kitchen.invariants("True")
    await until(lambda: len(kitchen.provider.world) == 2)
    await kitchen.declare("a", power=4)
    await kitchen.says("a", "Ready", "False", "it would break an invariant: fuse")
    await kitchen.declare("a", power=3)
    await until(lambda: kitchen.provider.world["a"]["power"] == 3)


async def test_an_invariant_about_what_is_declared_refuses_the_change_that_would_break_it(kitchen: Kitchen) -> None:
    await kitchen.declare("a", "b", "c")
    await kitchen.policy(invariants=[{"name": "power", "expression": "after.all(o, o.spec.power <= 5)"}])
    await kitchen.invariants("True")
    await kitchen.declare("a", power=9)
    await kitchen.says("a", "Ready", "False", "would break an invariant: power")
    await kitchen.invariants("True")  # nothing is broken yet: it is only declared
    assert kitchen.provider.world["a"]["power"] == 1
    await kitchen.declare("a", power=5)
    await kitchen.says("a", "Ready", "True")


async def test_what_was_declared_while_no_loop_ran_or_no_policy_asked_breaks_no_invariant_either(kitchen: Kitchen) -> None:
    power = [{"name": "power", "expression": "after.all(o, o.spec.power <= 5)"}]
    await kitchen.policy(invariants=power)
    await kitchen.declare("a", "b", "c")
    await kitchen.invariants("True")
    await kitchen.stop()
    await kitchen.declare("a", power=9)
    kitchen.begin_anew()
    await kitchen.start()
    await kitchen.says("a", "Ready", "False", "would break an invariant: power")
    assert kitchen.provider.world["a"]["power"] == 1

    await kitchen.policy(mode="Observe")
    await kitchen.declare("b", power=8)
    await kitchen.says("b", "Ready", "False")
    await kitchen.policy(invariants=power)
    await kitchen.says("b", "Ready", "False", "would break an invariant: power")
    assert kitchen.provider.world["b"]["power"] == 1


async def test_what_leaves_the_fleet_counts_no_more(kitchen: Kitchen) -> None:
    east = {"kinds": [KIND], "selector": {"matchLabels": {"zone": "east"}}}
    await kitchen.policy(fleet=east, invariants=[{"name": "east", "expression": "size(after) >= 2"}])
    await kitchen.declare("a", "b", labels={"zone": "east"})
    await kitchen.invariants("True")
    await kitchen.ovens.patch("b", {"metadata": {"labels": {"zone": "west"}}})
    kitchen.engine.passes.begin()
    await kitchen.invariants("False", "east: size(after) >= 2")


HOT = [{"name": "hot", "expression": "state.heat >= object.spec.power * 100", "message": "it is not hot yet"}]


async def test_a_thing_is_ready_when_its_policies_find_it_healthy(kitchen: Kitchen) -> None:
    await kitchen.policy(health=HOT)
    await kitchen.policy("others", health=[{"name": "mild", "expression": "state.heat < 300"}])
    await kitchen.declare("a")
    await kitchen.says("a", "Ready", "False", "hot: it is not hot yet")
    kitchen.provider.world["a"]["heat"] = 300
    await kitchen.says("a", "Ready", "False", "mild: state.heat < 300")
    kitchen.provider.world["a"]["heat"] = 200
    await kitchen.says("a", "Ready", "True")
    kitchen.provider.world["a"]["heat"] = 10
    kitchen.engine.passes.begin()
    await kitchen.says("a", "Ready", "False", "hot: it is not hot yet")
    await kitchen.policy(health=[])
    await kitchen.says("a", "Ready", "True")


async def test_health_that_cannot_be_evaluated_is_no_yes(kitchen: Kitchen) -> None:
    await kitchen.policy(health=[{"name": "clean", "expression": "state.dirt == 0"}])
    await kitchen.declare("a")
    await kitchen.says("a", "Ready", "False", "clean cannot be evaluated: no such key: dirt")


async def test_a_wave_waits_until_what_it_touched_is_healthy(kitchen: Kitchen) -> None:
    await kitchen.policy(health=HOT, canary={"steps": [1]}, massDrift={"limit": "100%"})
    await kitchen.declare("a", "b", "c")
    await until(lambda: len(kitchen.provider.world) == 3)
    for oven in kitchen.provider.world.values():
        oven["heat"] = 100
    for name in "abc":
        await kitchen.says(name, "Ready", "True")
    annotations = {"homeostat.dev/change-set": "stronger"}
    await kitchen.declare("a", "b", "c", power=2, annotations=annotations)
    await until(lambda: any(oven["power"] == 2 for oven in kitchen.provider.world.values()))
    (first,) = [name for name, oven in kitchen.provider.world.items() if oven["power"] == 2]
    await kitchen.says(first, "Ready", "False", "hot: it is not hot yet")
    for _ in range(3):
        kitchen.engine.passes.begin()
        await asyncio.sleep(0.1)
    assert [name for name, oven in kitchen.provider.world.items() if oven["power"] == 2] == [first]
    kitchen.provider.world[first]["heat"] = 200
    await until(lambda: all(oven["power"] == 2 for oven in kitchen.provider.world.values()))


async def test_what_is_acted_on_and_not_healthy_yet_is_looked_at_again_and_again(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homeostat.loop.ledger.UNHEALTHY_SECONDS", 0.02)
    await kitchen.policy(health=HOT)
    await kitchen.declare("a")
    await kitchen.says("a", "Ready", "False", "hot: it is not hot yet")
    looks = kitchen.provider.looks
    await until(lambda: kitchen.provider.looks > looks + 10)
    kitchen.provider.world["a"]["heat"] = 100
    await kitchen.says("a", "Ready", "True")
