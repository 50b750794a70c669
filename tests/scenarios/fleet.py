"""A fleet in a simulated house, as it is before an incident: declared, made, looked at, and well. And what an incident cost it.

The same incident can be lived through with our guards, and with a loop that obeys: every difference is acted on at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from homeostat.loop.controller import ADOPT
from homeostat.loop.fleet import Drift, Hold, Op, Verdict
from homeostat.loop.fleet import Fleet as Ledger
from homeostat.loop.gating import Gate
from homeostat.loop.queue import Backoff
from homeostat.model.protocol import CHANGE_SET
from homeostat.sim import House, simulate
from homeostat.sim.house import KIND

SIZE = 20
PASS = 70.0
"""Seconds in which every thing is looked at."""
AT_ONCE = 3.0
"""Seconds in which a change is through that nothing but its own waves has kept."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What an incident came to."""

    damage: int
    of: int
    told_after: float | None
    """Seconds until a person was told; None: nobody was."""
    came_back: str
    """How it went on once the cause was gone."""

    def __str__(self) -> str:
        told = "never" if self.told_after is None else f"{self.told_after:.1f} s"
        return f"damage {self.damage} of {self.of}, told after {told}, came back: {self.came_back}"


class Lockstep(Backoff):
    """How a naive loop waits: all that failed together comes back together."""

    def delay(self, failures: int, source: random.Random) -> float:
        return self.ceiling(failures)


class Obey:
    """The gate of a naive loop: it is open, but for the wait after a failure."""

    def fleet_of(self, kind: str, namespace: str, labels: Mapping[str, str]) -> str:
        return "everything"

    def judge(self, fleet: Ledger, now: float) -> Verdict:
        verdict = Verdict(allowed=[drift for drift in fleet.drifts.values() if not drift.in_flight])
        verdict.sift(lambda d: Hold("backoff", "it failed, and waits", d.retry_at) if d.retry_at > now else None)
        return verdict

    def taken(self, fleet: Ledger, verdict: Verdict) -> None:
        pass

    def equip(self, fleet: Ledger) -> None:
        pass

    def keeps(self, fleet: str) -> bool:
        return False

    def admits(self, fleet: Ledger, drift: Drift, now: float) -> bool:
        return drift.retry_at <= now

    def backoff(self, fleet: Ledger) -> Backoff:
        return Lockstep()


class Fleet:
    """`size` things that are all as declared."""

    def __init__(self, house: House, naive: bool, size: int = SIZE) -> None:
        self.house = house
        self.size = size
        self.world = house.world
        self.naive = naive
        self.names: list[str] = []
        self._since = 0
        self._fault = 0.0

    async def stand(self, zones: int = 1, policy: dict[str, Any] | None = None, mode: str = "Enforce") -> None:
        """Builds it up and waits until it was looked at whole."""
        spec = {"fleet": {"kinds": [KIND]}, "mode": mode, **(policy or {})}
        await self.house.start_engine(self.gates, workers=16)
        if not self.naive:
            await self.house.policies.create({"metadata": {"name": "things"}, "spec": {**spec, "mode": "Enforce"}})
        self.names = [f"thing-{i:03}" for i in range(self.size)]
        for i, name in enumerate(self.names):
            await self.house.declare(name, {"colour": "red", "zone": f"zone-{i % zones}" if zones > 1 else ""})
        await self.until(lambda: len(self.world.things) == self.size)
        if mode != "Enforce" and not self.naive:
            await self.policy({"mode": mode})
        await asyncio.sleep(3 * PASS)
        self.fault()

    async def policy(self, change: dict[str, Any]) -> None:
        """A person changes the policy."""
        await self.house.policies.patch("things", {"spec": change})

    def fault(self) -> None:
        """From here on it is counted."""
        self._since = len(self.world.calls)
        self._fault = self.now

    @property
    def gates(self) -> Callable[[], Gate] | None:
        """What the engine is started with."""
        return Obey if self.naive else None

    @property
    def before(self) -> int:
        """How many calls there had been when the fault began."""
        return self._since

    @property
    def fault_at(self) -> float:
        """When the fault began."""
        return self._fault

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def declare(self, colour: str, names: list[str] | None = None, change_set: str = "push") -> None:
        """Changes the colour of many, by one change set."""
        for name in names or self.names:
            thing = await self.house.things.get(name)
            marks = {"annotations": {CHANGE_SET: change_set}} if change_set else {}
            await self.house.declare(name, {**thing["spec"], "colour": colour}, **marks)

    async def delete(self, names: list[str] | None = None) -> None:
        """Deletes the declarations of many."""
        for name in names or self.names:
            await self.house.undeclare(name)

    async def have_back(self, names: list[str]) -> None:
        """Lets declarations go without their things, and declares these anew as ours."""
        for name in names:
            spec = (await self.house.things.get(name))["spec"]
            await self.house.things.patch(name, {"metadata": {"finalizers": None}})
            made = await self.house.declare(name, spec, annotations={ADOPT: "true"})
            self.world.things[name][0].owner = made["metadata"]["uid"]

    def drift(self, names: list[str], colour: str = "green", by: str = "") -> None:
        """Somebody else changes things."""
        for name in names:
            thing = self.world.one(name)
            if thing is not None:
                thing.fields, thing.by = {**thing.fields, "colour": colour}, by

    @property
    def touched(self) -> set[str]:
        """Which of the existing things were changed or deleted since the fault."""
        return {call.name for call in self.world.calls[self._since :] if call.op is not Op.CREATE}

    async def damage(self) -> int:
        """How many of the existing things were changed or deleted since the fault."""
        return len(self.touched)

    def colours(self) -> dict[str, int]:
        """How many there are of each colour."""
        found: dict[str, int] = {}
        for things in self.world.things.values():
            for thing in things:
                found[thing.fields["colour"]] = found.get(thing.fields["colour"], 0) + 1
        return found

    async def told(self, within: float = 5 * PASS) -> float | None:
        """Waits until a person could read, in the API, that something is held, halted or cannot be read; gives after how long."""
        end = self.now + within
        while self.now < end:
            if await self.says():
                return round(self.now - self._fault, 1)
            await asyncio.sleep(0.1 if self.now - self._fault < 5 else 1.0)
        return None

    async def says(self) -> str:
        """What a person can read now of what is wrong; empty: nothing is."""
        if not self.naive:
            policy = await self.house.policies.get("things")
            for halt in (policy.get("status") or {}).get("halts") or ():
                return str(halt["reason"])
        for thing in await self.house.things.list():
            for condition in (thing.get("status") or {}).get("conditions", ()):
                if condition["type"] == "Ready" and condition["reason"] in ("Held", "Unreadable", "Unhealthy"):
                    return str(condition["message"])
        return ""

    async def halted_by(self) -> str:
        """The guards that halt the fleet, by the status of its policy."""
        policy = await self.house.policies.get("things")
        return str((policy.get("status") or {}).get("halted", ""))

    async def until(
        self, holds: Callable[[], bool | Awaitable[bool]], within: float = 3600.0, every: float = 1.0
    ) -> bool:
        """Waits until it holds; whether it did in time."""
        end = self.now + within
        while self.now < end:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return True
            await asyncio.sleep(every)
        return False

    async def figures(self, back: Callable[[], bool | Awaitable[bool]], approve: bool = False) -> Figures:
        """What it cost so far, and how it comes back: by itself, or by one approval where `approve`."""
        told = await self.told()
        await asyncio.sleep(3 * PASS)
        damage = await self.damage()
        if self.naive:
            return Figures(damage, len(self.names), told, "—")
        if not approve:
            came = await self.until(back)
            return Figures(damage, len(self.names), told, "by itself" if came else "not")
        plans = self.house.plans()
        for plan in plans:
            await self.house.approve(plan)
        came = await self.until(back)
        said = "by one approval" if len(plans) == 1 else f"by {len(plans)} approvals"
        return Figures(damage, len(self.names), told, said if came else "not")

    async def corrected(self) -> Figures:
        """What a wrong push cost, and whether all is calm again once what was meant is declared."""
        told = await self.told()
        await asyncio.sleep(3 * PASS)
        damage = await self.damage()
        if self.naive:
            return Figures(damage, self.size, told, "—")
        await self.declare("red", change_set="correction")
        came = await self.until(self._calm)
        return Figures(damage, self.size, told, "by itself, once corrected" if came else "not")

    async def _calm(self) -> bool:
        return self.colours() == {"red": self.size} and not await self.says()

    async def honest(self, done: Callable[[], bool | Awaitable[bool]], approve: bool = False) -> Figures:
        """How an honest change gets through: at once, in waves, or by one approval."""
        said = "at once"
        if approve:
            await self.until(lambda: bool(self.house.plans()), PASS, every=0.1)
            plans = self.house.plans()
            for plan in plans:
                await self.house.approve(plan)
            said = "by one approval" if len(plans) == 1 else f"by {len(plans)} approvals"
        began = self.now
        if not await self.until(done, 3 * 3600.0, every=0.1):
            return Figures(await self.damage(), len(self.names), None, "not")
        took = self.now - began
        if took > AT_ONCE:
            said = f"{said if approve else 'by itself'}, in {_long(took)}"
        return Figures(await self.damage(), len(self.names), None, said)


def _long(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


Incident = Callable[[Fleet], Awaitable[Figures]]


def live_through(incident: Incident, *, naive: bool = False, size: int = SIZE, seed: int = 0) -> Figures:
    """The figures of an incident, in virtual time; of the same size and seed always the same."""

    async def live() -> Figures:
        house = House(seed)
        await house.open()
        try:
            return await incident(Fleet(house, naive, size))
        finally:
            await asyncio.get_running_loop().bury()  # type: ignore[attr-defined]
            await house.close()

    figures: Figures = simulate(seed, live)
    print(f"{incident.__module__.rpartition('.')[2].removeprefix('test_')}{' (naive)' if naive else ''}: {figures}")
    return figures
