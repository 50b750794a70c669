"""A storm over the hall: people, networks, machines and kill -9 do what they can; then it calms down, and all work must get done."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from msgspec import structs

from homeostat.model.conditions import condition_is
from homeostat.sim.gpu.agents import Station
from homeostat.sim.gpu.blocked import is_blocked
from homeostat.sim.gpu.hall import Hall
from homeostat.sim.gpu.machine import Wear
from homeostat.sim.gpu.witness import LEASE_SECONDS, NODES, WORKLOADS, Limits
from homeostat.sim.gpu.witness import TENANTS as TENANT_KIND
from homeostat.sim.network import FINE, Weather
from homeostat.sim.server import KEEP_SECONDS
from homeostat.sim.storm import _change
from homeostat.store import Event

CALM_SECONDS = 3600.0
"""All work must be done, or at work, so long after a storm: the longest hold of a guard and the longest backoff are over by then."""
SETTLED_SECONDS = 70.0
"""So long what was done may still be told: a pass, and the moment that reports wait."""
QUIET_SECONDS = 70.0
"""How long nothing at all may be written then but heartbeats: a pass."""
CUT = Weather(lost=2.0, broken=1.0)
"""No way to the server."""
HEARTBEATS = ("leases.coordination.k8s.io/", "gpunodes.gpu.homeostat.dev/", "configmaps/kube-system/homeostat-governor")
"""What is written as long as somebody lives: leases, readings of GPUs, and the governor's memory, which has the time in it."""
TENANTS = ("red", "blue", "solo")
SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"replicas": 2},
    {"replicas": 3},
    {"resources": {"gpus": 2}},
    {"resources": {"gpus": "0.5", "gpuMemoryMib": 40_000}},
    {"resources": {"gpus": "0.25"}, "replicas": 2},
    {"replicas": 2, "resources": {"gpus": 2}},
)
MODES = ("Suspend", "Suspend", "Checkpoint", "Restart", "Never")


class GpuStorm(msgspec.Struct, frozen=True):
    """What a seed draws."""

    seconds: float
    machines: tuple[int, ...]
    """How many GPUs each has."""
    nominal: int
    """GPUs that each tenant may use of its own."""
    jobs: int
    settings: dict[str, Any]
    policy: dict[str, Any]
    weather: Weather
    """Between the loop and the server."""
    far: Weather
    """Between agents and the server."""
    wear: Wear
    pause: float
    """Seconds between what happens, on average."""
    crashes: tuple[int, ...] = ()
    outages: tuple[int, ...] = ()
    agent_crashes: tuple[int, ...] = ()
    acts: tuple[str, ...] = ()
    """Which misfortunes happen, beside what people do."""
    budget: float | None = None
    """GPU hours of the tenant `solo`."""
    keep: float = KEEP_SECONDS


def draw(seed: int) -> GpuStorm:
    """The storm of a seed: few faults at a time, so that each has room."""
    source = random.Random(f"gpu storm {seed}")

    def chance(most: float, part: float = 0.3) -> float:
        return source.uniform(0, most) if source.random() < part else 0.0

    def deaths(mean: float, *counts: int) -> tuple[int, ...]:
        return tuple(int(source.expovariate(1 / mean)) for _ in range(source.choice(counts)))

    fine = source.random() < 0.4
    longest = source.choice((5.0, 20.0, 60.0))
    weather, far = (
        FINE
        if fine
        else Weather(
            late=chance(0.3),
            lost=chance(0.1),
            refused=chance(0.1),
            broken=chance(0.1),
            held=chance(0.05),
            longest=longest,
        )
        for _ in range(2)
    )
    misfortunes = ("lose", "perish", "cut", "cut_half", "pause_agent", "pause_engine", "drain", "freeze", "typo")
    machines = source.choice(((4, 4), (4, 4, 4), (2, 2, 2, 2), (8, 2), (4, 4, 2, 2)))
    tidies = source.random() < 0.2
    per_hour, per_workload = source.choice((2, 60)), source.choice((1, 3))
    if tidies:  # work that never ends must be movable more than once, or it may keep GPUs apart for good
        per_hour, per_workload = 60, 3
    storm = GpuStorm(
        seconds=source.uniform(40, 160),
        machines=machines,
        nominal=source.choice((2, 4, sum(machines) // 3 + 1)),
        jobs=source.choice((6, 12, 20)),
        settings={
            "every": source.choice(("5s", "10s")),
            "preemption": {"perHour": per_hour, "perWorkload": per_workload},
            "defragment": tidies,
        },
        policy=source.choice(({}, {}, {"cap": 1, "massDrift": {"limit": "100%"}}, {"cap": 3, "flap": {"reversals": 50}})),
        weather=weather,
        far=far,
        wear=Wear(stubborn=chance(0.5), slow_end=source.choice((0.5, 10.0)), stuck=chance(0.4)),
        pause=source.choice((1.0, 3.0, 6.0)),
        crashes=deaths(900, 0, 0, 1, 2, 4),
        outages=deaths(2000, 0, 0, 1, 2),
        agent_crashes=deaths(300, 0, 0, 1, 3),
        acts=tuple(one for one in misfortunes if source.random() < 0.25),
        budget=source.choice((None, None, 0.02)),
        keep=source.choice((KEEP_SECONDS, KEEP_SECONDS, 10.0)),
    )
    return structs.replace(storm, acts=(*storm.acts, "dismiss")) if source.random() < 0.2 else storm


class Count(msgspec.Struct):
    """What happened, so that it can be seen that it did."""

    of: dict[str, int] = msgspec.field(default_factory=dict)

    def one(self, what: str) -> None:
        self.of[what] = self.of.get(what, 0) + 1


class GpuWeathering:
    """A hall that goes through a storm."""

    def __init__(self, hall: Hall, storm: GpuStorm, source: random.Random) -> None:
        self.hall, self.storm = hall, storm
        self.count = Count()
        self._random = source
        self._crashes, self._outages = list(storm.crashes), list(storm.outages)
        self._agent_crashes = list(storm.agent_crashes)
        self._jobs = 0
        self._over = False
        self._acts: dict[Callable[[], Awaitable[None]], int] = {
            self._submit: 8,
            self._withdraw: 1,
            self._lower: 1,
            self._raise: 1,
            self._stop: 1,
        } | {getattr(self, f"_{name}"): 1 for name in storm.acts}

    async def rage(self, story: Callable[[GpuWeathering], Awaitable[None]] | None = None) -> None:
        """Until the storm is over, or the `story` told. Then everybody lives, and nothing fails any more."""
        hall, storm = self.hall, self.storm
        hall.witness.limits = self._limits()
        await self._live()
        for number, gpus in enumerate(storm.machines):
            hall.add_machine(f"n{number}", gpus).machine.wear = storm.wear
        await hall.settle_by(storm.settings)
        await hall.guard(storm.policy)
        await self._declare_tenants()
        await asyncio.sleep(10.0)
        hall.weather = storm.weather
        for station in hall.stations.values():
            station.machine.weather = storm.far
            if self._agent_crashes and station.life is not None:
                station.life.doom(self._agent_crashes.pop(0))
        hall.server.at_death = self._serve_again
        if self._outages:
            hall.server.life.doom(self._outages.pop(0))
        if self._crashes and hall.engine_life is not None:
            hall.engine_life.doom(self._crashes.pop(0))
        if story is not None:
            await story(self)
        end = _now() + storm.seconds
        while _now() < end:
            act = self._random.choices(tuple(self._acts), tuple(self._acts.values()))[0]
            self.count.one(act.__name__)
            await act()
            await asyncio.sleep(self._random.expovariate(1 / storm.pause))
        await self.end()

    def _limits(self) -> Limits:
        storm, preemption = self.storm, self.storm.settings["preemption"]
        bad = storm.weather
        stale = 5.0 + (3 * bad.longest if bad.held else 0.0) + (30.0 if bad.broken or bad.lost or bad.refused or bad.late else 0.0)
        if "pause_engine" in storm.acts:
            stale += 60.0
        sure = not (bad.lost or bad.late or bad.refused or storm.outages or bad.held or bad.broken)
        on_its_way = (2 * bad.latest if bad.late else 0.0) + (LEASE_SECONDS if "pause_engine" in storm.acts else 0.0)
        return Limits(preemption["perHour"], preemption["perWorkload"], storm.policy.get("cap"), stale, on_its_way, sure)

    async def _declare_tenants(self, *, wide: bool = False) -> None:
        storm = self.storm
        for name in TENANTS[:2]:
            await self.hall.tenant(name, sum(storm.machines) if wide else storm.nominal, cohort="both")
        more: dict[str, Any] = {}
        if storm.budget is not None and not wide:
            more["budget"] = {"gpuHours": storm.budget, "onExceeded": "Suspend"}
        await self.hall.tenant("solo", sum(storm.machines) if wide else storm.nominal, **more)

    async def end(self) -> None:
        """Nothing fails from now on, and there is room for all."""
        hall = self.hall
        self._over = True
        self._crashes.clear()
        self._outages.clear()
        hall.server.life.spare()
        hall.weather = FINE
        hall.network.release()
        if hall.engine_life is not None:
            hall.engine_life.spare()
            hall.engine_life.wake()
        for station in hall.stations.values():
            self._heal(station)
            station.machine.wear = Wear()
            if station.life is not None:
                station.life.spare()
                station.life.wake()
            if station.network is not None:
                station.network.release()
            station.come_back()
        await hall.guard(self.storm.policy)
        await self._declare_tenants(wide=True)
        for name, obj in list(hall.witness.objects[WORKLOADS].items()):
            if obj["spec"]["command"][1] == "0" and obj["spec"]["tenant"] in self._departing():
                await hall.withdraw(name)  # else it would be there for ever, and its tenant with it
        for name in list(hall.witness.objects[NODES]):
            await hall.node(name, cordoned=False, drain=False)
        for name, obj in list(hall.witness.objects[WORKLOADS].items()):
            if obj["spec"].get("suspended"):
                await hall.edit(name, {"suspended": False})

    async def _live(self) -> None:
        """Starts the engine, and again whenever it dies."""
        loop = asyncio.get_running_loop()

        def again() -> None:
            loop.call_later(self._random.uniform(0, 10), lambda: loop.create_task(self._live(), name="engine again"))

        self._begun = getattr(self, "_begun", -1) + 1
        steps = self._crashes.pop(0) if self._crashes and self._begun else None
        await self.hall.start_engine(steps=steps, at_end=again)

    def _serve_again(self) -> None:
        loop = asyncio.get_running_loop()

        async def again() -> None:
            await self.hall.server.start(self._outages.pop(0) if self._outages else None)

        loop.call_later(self._random.uniform(0, 5), lambda: loop.create_task(again(), name="server again"))

    # What people do

    async def _submit(self) -> None:
        if self._jobs >= self.storm.jobs:
            return
        self._jobs += 1
        source = self._random
        serves = source.random() < 0.1 and self._jobs <= 4
        spec: dict[str, Any] = {
            "tenant": source.choice(TENANTS),
            "priority": source.choice((0, 0, 50, 100)),
            "preemption": {"mode": source.choice(MODES), "grace": source.choice(("2s", "30s"))},
            "minimumRuntime": source.choice(("0s", "0s", "30s")),
            "command": ["/bin/sleep", "0" if serves else f"{source.uniform(5, 90):.1f}", "1" if source.random() < 0.05 else "0"],
            **({} if serves else source.choice(SHAPES)),
        }
        if source.random() < 0.05:
            spec["maximumRuntime"] = "40s"
        await self.hall.submit(f"job-{self._jobs}", spec)

    async def _withdraw(self) -> None:
        if name := self._any_job():
            await self.hall.withdraw(name)

    async def _stop(self) -> None:
        """Stops a job for now, or lets it go on."""
        if name := self._any_job():
            await self.hall.edit(name, {"suspended": self._random.random() < 0.5})

    async def _lower(self) -> None:
        await self._quota(self._random.randint(1, self.storm.nominal))

    async def _raise(self) -> None:
        await self._quota(self.storm.nominal + self._random.randint(0, 4))

    async def _typo(self) -> None:
        await self._quota(1)

    async def _quota(self, nominal: int) -> None:
        name = self._random.choice(TENANTS)
        more: dict[str, Any] = {} if name == "solo" else {"cohort": "both"}
        if self._random.random() < 0.3:
            more["quota"] = {"borrowingLimit": self._random.randint(0, 2)}
        if name == "solo" and self.storm.budget is not None:
            more["budget"] = {"gpuHours": self.storm.budget, "onExceeded": "Suspend"}
        await self.hall.tenant(name, nominal, **more)

    async def _dismiss(self) -> None:
        """Deletes a tenant, or declares all that are gone by now again."""
        if self._random.random() < 0.5:
            await self.hall.dismiss(self._random.choice(TENANTS))
        else:
            await self._declare_tenants()

    def _departing(self) -> list[str]:
        """Tenants that are deleted, or gone."""
        there = self.hall.witness.objects[TENANT_KIND]
        return [name for name in TENANTS if name not in there or there[name]["metadata"].get("deletionTimestamp")]

    async def _freeze(self) -> None:
        freezes = [{"reason": "wait", "author": "people"}] if self._random.random() < 0.5 else []
        await self.hall.guard({**self.storm.policy, "freezes": freezes})

    async def _drain(self) -> None:
        """Takes a node out of use, or back."""
        name = self._station().machine.name
        out = self._random.random() < 0.5
        await self.hall.node(name, cordoned=out, drain=out and self._random.random() < 0.5)

    def _any_job(self) -> str:
        names = list(self.hall.witness.objects[WORKLOADS])
        return self._random.choice(names) if names else ""

    # What happens to machines and processes

    def _station(self) -> Station:
        return self._random.choice(list(self.hall.stations.values()))

    async def _lose(self) -> None:
        """A machine goes down with all on it, and is back after a while."""
        station = self._station()
        if station.up:
            station.lose()
            self._after(self._random.uniform(5, 2 * LEASE_SECONDS), station.come_back)

    async def _perish(self) -> None:
        """A machine is gone for good; the smallest, so that all that is asked for fits on the others. Once."""
        stations = sorted(self.hall.stations.values(), key=lambda one: (one.machine.count, one.machine.name))
        if len(stations) > 2 and not any(one.gone for one in stations):
            stations[0].gone = True
            stations[0].lose()

    async def _cut(self) -> None:
        self._cut_off([self._station()])

    async def _cut_half(self) -> None:
        """More than half of the fleet falls silent at once."""
        some = list(self.hall.stations.values())
        self._random.shuffle(some)
        self._cut_off(some[: len(some) // 2 + 1])

    def _cut_off(self, stations: Iterable[Station]) -> None:
        for station in stations:
            station.machine.weather = CUT
            if station.network is not None:
                station.network.cut()
            self._after(self._random.uniform(5, 2.5 * LEASE_SECONDS), partial(self._heal, station))

    def _heal(self, station: Station) -> None:
        station.machine.weather = FINE if self._over else self.storm.far

    async def _pause_agent(self) -> None:
        life = self._station().life
        if life is not None and life.alive:
            life.pause(self._random.uniform(1, 2 * LEASE_SECONDS))

    async def _pause_engine(self) -> None:
        life = self.hall.engine_life
        if life is not None and life.alive:
            life.pause(self._random.uniform(1, LEASE_SECONDS))

    def _after(self, seconds: float, work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, work)

    # What must hold afterwards

    async def calm(self) -> float | None:
        """Waits until all work is done or at work; a person approves what the guards ask about, takes back what nobody could place, and declares
        tenants again that are gone by now. None: it took too long."""
        start = _now()
        while _now() < start + CALM_SECONDS:
            await asyncio.sleep(10.0)
            if self._departing():
                await self._declare_tenants(wide=True)
            if not self.left():
                took = _now() - start
                for name in self._blocked():
                    await self.hall.withdraw(name)
                await asyncio.sleep(SETTLED_SECONDS)
                if not self.left():
                    return took
            for plan in self.hall.plans():
                await self.hall.approve(plan)
        return None

    def left(self) -> list[str]:
        """What is not as it should be, in words."""
        hall, found = self.hall, []
        if hall.engine is None or not hall.server.up:
            found.append("the engine or the server is not running")
        objects = {obj["metadata"]["uid"]: obj for obj in hall.witness.objects[WORKLOADS].values()}
        blocked = self._blocked()
        alive = {(p.uid, p.replica, s.machine.name, p.gpus): p for s in hall.stations.values() for p in s.machine.alive()}
        for obj in objects.values():
            status, name = obj.get("status") or {}, obj["metadata"]["name"]
            phase, places = status.get("phase"), status.get("assignment") or ()
            here = [p for (uid, *_), p in alive.items() if uid == obj["metadata"]["uid"]]
            if obj["metadata"].get("deletionTimestamp"):
                found.append(f"{name} is deleted and still there: {status}")
            elif phase in ("Succeeded", "Failed"):
                found += [f"{name} has {phase.lower()}, and pid {p.pid} of it lives" for p in here]
            elif name in blocked:
                continue
            elif phase != "Running":
                found.append(f"{name} is {phase}: {status.get('reason')}; {status.get('reports')}")
            else:
                there = [alive.get((obj["metadata"]["uid"], p["replica"], p["node"], tuple(sorted(p["gpus"])))) for p in places]
                if not all(p is not None and p.on_gpu for p in there) or len(here) != len(there):
                    found.append(f"{name} is said to run at {places}, and has {here}")
                elif obj["spec"]["command"][1] != "0":
                    found.append(f"{name} has not done its work yet")
                elif not condition_is(obj, "Ready"):
                    found.append(f"{name} is at work and not ready: {status.get('conditions')}")
        return found + [f"pid {p.pid} on {where} is of a workload that is no more" for (uid, _, where, _), p in alive.items() if uid not in objects]

    def _blocked(self) -> list[str]:
        """The names of those that wait and could not be placed by anybody."""
        hall, found = self.hall, dict[str, list[dict[str, Any]]]()
        for obj in hall.witness.objects[WORKLOADS].values():
            found.setdefault((obj.get("status") or {}).get("phase", "Pending"), []).append(obj)
        machines = {name: one.machine.count for name, one in hall.stations.items() if not one.gone}
        tidies = self.storm.settings.get("defragment", False)
        waiting = [*found.get("Pending", ()), *found.get("Suspended", ())]
        return [one["metadata"]["name"] for one in waiting if is_blocked(one, found.get("Running", ()), machines, tidies=tidies)]

    async def quiet(self) -> list[str]:
        """Looks on for some passes, in which nothing may be written but heartbeats. What was, in words."""
        events: list[Event] = []
        self.hall.witness.written = events
        await asyncio.sleep(QUIET_SECONDS)
        odd = [event for event in events if not event.key.startswith(HEARTBEATS)]
        return [f"{e.key} was written, and nothing had changed: {_change(e.previous, e.value)}" for e in odd[:3]]


def _now() -> float:
    return asyncio.get_running_loop().time()
