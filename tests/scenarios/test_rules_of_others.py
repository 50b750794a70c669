"""An update flushed the network rules of a host to write its own, and with them those that somebody else had put there."""

from __future__ import annotations

import asyncio
from typing import Annotated

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.loop.diff import Diff, Item
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Provider, current
from homeostat.model.kinds import ListMap, Spec

INCIDENT = "Datadog, 2023"
MUST_HOLD = "what is not owned is never touched: neither a thing nor an item beside our own"
GROUP = "scenarios.homeostat.dev"


class Rule(Spec):
    """One rule of a host."""

    name: str
    port: int


class HostSpec(Spec):
    """The rules that a host should have. Others may put theirs beside them."""

    rules: Annotated[list[Rule], ListMap("name")] = []


class HostState(Spec):
    """The rules that a host has, whosever they are."""

    rules: Annotated[list[Rule], ListMap("name")] = []


class Hosts(Provider[HostSpec, HostState], group=GROUP, kind="Host"):
    """Network rules of hosts. `flushes`: it writes them as the update did, all of them at once."""

    def __init__(self, flushes: bool) -> None:
        self.flushes = flushes
        self.tables: dict[str, dict[str, int]] = {}
        self.touched: set[str] = set()

    async def observe(self, spec: HostSpec) -> HostState | Absent:
        table = self.tables.get(current().ref.name)
        return ABSENT if table is None else HostState(rules=[Rule(name=n, port=p) for n, p in table.items()])

    async def apply(self, spec: HostSpec, diff: Diff) -> None:
        name = current().ref.name
        self.touched.add(name)
        table = self.tables.setdefault(name, {})
        if self.flushes:
            table.clear()
            table.update({rule.name: rule.port for rule in spec.rules})
            return
        ports = {rule.name: rule.port for rule in spec.rules}
        for change in diff.changes:
            item = next(step for step in change.path if isinstance(step, Item))
            rule = item.named["name"]
            if rule in ports:
                table[rule] = ports[rule]
            else:
                table.pop(rule, None)

    async def delete(self, spec: HostSpec) -> None:
        self.tables.pop(current().ref.name, None)

    async def unhealthy(self, spec: HostSpec, state: HostState) -> str:
        return "" if "pods" in self.tables[current().ref.name] else "nothing reaches its pods"


class Net(Fleet):
    """Hosts with a rule of ours, and one of somebody else that their pods need."""

    def __init__(self, fleet: Fleet, flushes: bool) -> None:
        super().__init__(fleet.house, fleet.naive, fleet.size)
        self.hosts = Hosts(flushes)

    async def stand(self, zones: int = 1, policy: dict[str, object] | None = None, mode: str = "Enforce") -> None:
        self.house.providers = [self.hosts]
        await self.house.start_engine(self.gates, workers=16)
        self.declarations = self.house.people.kind(f"{GROUP}/v1", "Host", namespace="default")
        self.house.things = self.declarations
        if not self.naive:
            spec = {"fleet": {"kinds": [f"hosts.{GROUP}"]}, "mode": mode, **(policy or {})}
            await self.house.policies.create({"metadata": {"name": "things"}, "spec": spec})
        self.names = [f"host-{i:03}" for i in range(self.size)]
        await self.update(22)
        await self.until(lambda: len(self.hosts.tables) == self.size)
        for table in self.hosts.tables.values():
            table["pods"] = 4240
        await asyncio.sleep(3 * PASS)
        self.fault()

    async def update(self, port: int) -> None:
        for name in self.names:
            spec = {"rules": [{"name": "ssh", "port": port}]}
            await self.declarations.apply(
                {"metadata": {"name": name}, "spec": spec}, field_manager="people", force=True
            )

    async def damage(self) -> int:
        return sum(1 for table in self.hosts.tables.values() if table.get("pods") != 4240)

    def updated(self) -> bool:
        return all(table.get("ssh") == 2222 for table in self.hosts.tables.values())


MEANT = {"massDrift": {"limit": "100%"}}


async def incident(fleet: Fleet) -> Figures:
    net = Net(fleet, flushes=fleet.naive)
    await net.stand(policy=MEANT)
    await net.update(2222)
    await asyncio.sleep(3 * PASS)
    assert net.updated()
    return Figures(await net.damage(), fleet.size, None, "—" if fleet.naive else "nothing to come back from")


async def flushed(fleet: Fleet) -> Figures:
    """Whoever wrote the provider flushes all the same."""
    net = Net(fleet, flushes=True)
    await net.stand(policy=MEANT)
    await net.update(2222)
    told = await net.told()
    await asyncio.sleep(3 * PASS)
    damage = await net.damage()
    net.hosts.flushes = False
    for table in net.hosts.tables.values():
        table["pods"] = 4240  # somebody repairs the one
    came = await net.until(net.updated)
    return Figures(damage, fleet.size, told, "by itself, once it flushed no more" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """all hosts get another rule, and the others keep theirs"""
    net = Net(fleet, flushes=False)
    await net.stand(policy=MEANT)
    await net.update(2222)
    return await net.honest(net.updated)


@pytest.mark.parametrize(("size", "seed"), [(9, 1), (20, 0)])
def test_an_update_of_our_rules_leaves_those_of_others(size: int, seed: int) -> None:
    assert live_through(incident, size=size, seed=seed).damage == 0


@pytest.mark.parametrize(("size", "seed"), [(9, 1), (20, 0)])
def test_a_provider_that_flushes_is_stopped_at_the_first_host(size: int, seed: int) -> None:
    figures = live_through(flushed, size=size, seed=seed)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.came_back == "by itself, once it flushed no more"


def test_rules_of_ours_are_changed_at_once() -> None:
    figures = live_through(honest)
    assert (figures.damage, figures.came_back) == (0, "at once")


def test_a_naive_loop_flushes_every_host() -> None:
    assert live_through(incident, naive=True).damage == 20
