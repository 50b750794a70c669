"""A storm: people, other writers, the network, the world and kill -9 do what they can; then it calms down, and all must be well.

Everything hangs on the seed: how many things there are, how strict the guards, who does what when, and what fails.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import orjson

from homeostat.model.clock import format_time
from homeostat.model.conditions import condition_is
from homeostat.model.errors import ApiError
from homeostat.sim.boxes import label, wanted_labels
from homeostat.sim.house import KIND, House
from homeostat.sim.network import FINE, Weather
from homeostat.sim.people import insist
from homeostat.sim.server import KEEP_SECONDS
from homeostat.sim.witness import BOXES, LABELS, THINGS, labels_of
from homeostat.sim.world import NONE, Fields, Thing, Trouble
from homeostat.store import Event

COLOURS = ("red", "green", "blue", "black")
SECRETS = ("", "tulip", "rose")
CALM_SECONDS = 3600.0
"""All must be as declared so long after a storm: the longest hold of a guard and the longest backoff are over by then."""
SETTLED_SECONDS = 70.0
"""So long what was done may still be told: a pass, and the moment that reports wait."""
QUIET_SECONDS = 200.0
"""How long nothing at all may be written then: three passes."""


class Storm(msgspec.Struct, frozen=True):
    """What a seed draws."""

    seconds: float
    things: int
    policy: dict[str, Any]
    weather: Weather
    trouble: Trouble
    crashes: tuple[int, ...]
    """Counts of steps after which the engine dies, one life after the other."""
    pause: float
    """Seconds between what people and other writers do, on average."""
    outages: tuple[int, ...] = ()
    """Counts of steps after which the server dies, one life after the other."""
    boxes: int = 0
    steering: bool = False
    """Whether people freeze, thaw, approve and switch to observing and back meanwhile."""
    keep: float = KEEP_SECONDS
    """How far back a watch can be taken up, in seconds."""


def draw(seed: int) -> Storm:
    """The storm of a seed."""
    source = random.Random(f"storm {seed}")

    def chance(most: float, part: float = 0.5) -> float:
        """A chance up to `most`, which is there in a `part` of all storms: few faults at a time are found out more easily."""
        return source.uniform(0, most) if source.random() < part else 0.0

    limits: dict[str, Any] = {"cap": source.choice((1, 2, 3)), "canary": {"verifyWithin": "60s"}}
    if source.random() < 0.6:
        limits |= {"massDrift": {"limit": "100%"}, "deletion": {"confirmAbove": "100%"}, "flap": {"reversals": 50}}
    weather = Weather(
        late=chance(0.5),
        lost=chance(0.15),
        refused=chance(0.15),
        broken=chance(0.2),
        held=chance(0.1),
        longest=source.choice((5.0, 20.0, 90.0)),
        past=chance(0.8),
    )
    trouble = Trouble(slow=chance(0.5), fails=chance(0.3), lies=chance(0.3), hangs=chance(0.05, 0.2), blind=chance(0.2))
    boxes = source.choice((0, 0, 0, 2))
    return Storm(
        seconds=source.uniform(30, 120),
        things=source.choice((1, 3, 6) if boxes else (1, 3, 6, 12)),
        policy={"fleet": {"kinds": [KIND]}, "mode": "Enforce", **limits},
        weather=weather,
        trouble=trouble,
        crashes=tuple(int(source.expovariate(1 / 400)) for _ in range(source.choice((0, 1, 1, 2, 4)))),
        pause=source.choice((1.0, 3.0, 8.0)),
        outages=tuple(int(source.expovariate(1 / 1000)) for _ in range(source.choice((0, 0, 1, 2)))),
        boxes=boxes,
        steering=source.random() < 0.3,
        keep=source.choice((KEEP_SECONDS, KEEP_SECONDS, 10.0)),
    )


class Weathering:
    """A house that goes through a storm."""

    def __init__(self, house: House, storm: Storm, source: random.Random) -> None:
        self.house = house
        self.storm = storm
        self._random = source
        self._crashes = list(storm.crashes)
        self._outages = list(storm.outages)
        self._strangers: dict[str, Fields] = {}
        self.engine_steps = self.server_steps = 0
        self._acts: dict[Callable[[str], Awaitable[None]], int] = {
            self._declare: 6,
            self._undeclare: 2,
            self._drift: 2,
            self._drift_all: 1,
            self._vanish: 1,
            self._stranger: 1,
        }
        if storm.boxes:
            self._acts |= {self._pack: 4, self._unpack: 1, self._meddle: 1}
        if storm.steering:
            self._acts |= {self._steer: 1, self._approve: 1}

    async def rage(self, story: Callable[[House], Awaitable[None]] | None = None) -> None:
        """Until the storm is over, or the `story` told. Then engine and server live, and nothing fails any more."""
        house, storm = self.house, self.storm
        house.world.cap = storm.policy["cap"]
        await self._live()
        await house.guard(storm.policy)
        house.weather, house.world.trouble = storm.weather, storm.trouble
        house.server.at_death = self._serve_again
        self._doom_server()
        serving = house.server.life.steps
        if story is not None:
            await story(house)
        end = self._now() + storm.seconds
        while self._now() < end:
            await self._somebody()
            await asyncio.sleep(self._random.expovariate(1 / storm.pause))
        self.engine_steps = house.engine_life.steps if house.engine_life is not None else 0
        self.server_steps = house.server.life.steps - serving
        self.end()
        await house.guard(storm.policy)

    def end(self) -> None:
        """Nothing fails from now on."""
        house = self.house
        house.weather, house.world.trouble = FINE, NONE
        self._crashes.clear()
        self._outages.clear()
        house.server.life.spare()
        house.network.release()
        if house.engine_life is not None:
            house.engine_life.spare()

    async def _live(self) -> None:
        """Starts the engine, and again whenever it dies."""
        steps = self._crashes.pop(0) if self._crashes else None
        loop = asyncio.get_running_loop()
        down = self._random.uniform(0, 10)

        def again() -> None:
            loop.call_later(down, lambda: loop.create_task(self._live(), name="engine again"))

        await self.house.start_engine(steps=steps, at_end=again, kinds=(KIND,), composes=self.storm.boxes > 0)

    def _doom_server(self) -> None:
        if self._outages:
            self.house.server.life.doom(self._outages.pop(0))

    def _serve_again(self) -> None:
        loop = asyncio.get_running_loop()

        async def again() -> None:
            await self.house.server.start(self._outages.pop(0) if self._outages else None)

        loop.call_later(self._random.uniform(0, 5), lambda: loop.create_task(again(), name="server again"))

    # What happens in it

    async def _somebody(self) -> None:
        name = f"thing-{self._random.randrange(self.storm.things)}"
        await self._random.choices(tuple(self._acts), tuple(self._acts.values()))[0](name)

    async def _declare(self, name: str) -> None:
        fields = {"colour": self._random.choice(COLOURS), "size": self._random.randrange(3), "secret": self._random.choice(SECRETS)}
        found = self.house.witness.objects[THINGS].get(name)
        if found is not None and found["metadata"].get("deletionTimestamp"):
            return
        await self.house.declare(name, fields)

    async def _undeclare(self, name: str) -> None:
        await self.house.undeclare(name)

    async def _drift(self, name: str) -> None:
        thing = self.house.world.one(name)
        if thing is not None and thing.owner:
            thing.fields = {**thing.fields, "colour": self._random.choice(COLOURS)}

    async def _drift_all(self, _: str) -> None:
        for name in list(self.house.world.things):
            await self._drift(name)

    async def _vanish(self, name: str) -> None:
        thing = self.house.world.one(name)
        if thing is not None and thing.owner:
            del self.house.world.things[name]

    async def _stranger(self, name: str) -> None:
        if self.house.world.one(name) is None and name not in self.house.witness.objects[THINGS]:
            fields = {"colour": "gold", "size": 99}
            self._strangers[name] = fields
            self.house.world.things[name] = [Thing(name, "", "stranger", dict(fields))]

    async def _pack(self, _: str) -> None:
        names = [name for name in "abc" if self._random.random() < 0.7]
        await self.house.pack(self._box(), {name: self._random.choice(COLOURS) for name in names})

    async def _unpack(self, _: str) -> None:
        await self.house.unpack(self._box())

    async def _meddle(self, _: str) -> None:
        """Changes a label that a composer declared, or takes it away."""
        name = label(self._box(), self._random.choice("abc"))
        if name not in self.house.witness.objects[LABELS]:
            return
        with suppress(ApiError):  # it may be gone by now
            if self._random.random() < 0.3:
                await insist(lambda: self.house.labels.delete(name))
            else:
                patch = {"data": {"text": self._random.choice(COLOURS)}}
                await insist(lambda: self.house.labels.patch(name, patch))

    def _box(self) -> str:
        return f"box-{self._random.randrange(self.storm.boxes)}"

    async def _steer(self, _: str) -> None:
        """Closes the gate in one of the ways there are, or opens it."""
        until = format_time(self.house.clock.now() + self._random.uniform(5, 60))
        freeze = {"reason": "wait", "author": "people"}
        ways: tuple[dict[str, Any], ...] = (
            {},
            {},
            {"mode": "Observe"},
            {"freezes": [freeze]},
            {"freezes": [{**freeze, "until": until}]},
            {"freezes": [{**freeze, "names": ["thing-0"]}]},
        )
        await self.house.guard({**self.storm.policy, **self._random.choice(ways)})

    async def _approve(self, _: str) -> None:
        if plans := self.house.plans():
            await self.house.approve(self._random.choice(plans))

    # What must hold afterwards

    async def calm(self) -> float | None:
        """Waits until all is as declared; a person approves what the guards ask about. Gives how long it took, None: too long."""
        start = self._now()
        while self._now() < start + CALM_SECONDS:
            await asyncio.sleep(10.0)
            if not await self.left():
                took = self._now() - start
                await asyncio.sleep(SETTLED_SECONDS)
                return took
            for plan in self.house.plans():
                await self.house.approve(plan)
        return None

    async def left(self) -> list[str]:
        """What is not as it should be, in words."""
        world, objects = self.house.world, self.house.witness.objects[THINGS]
        found = [f"{name} changed, and is not ours" for name, f in self._strangers.items() if not self._stands(name, f)]
        if self.house.engine is None or not self.house.server.up:
            found.append("the engine or the server is not running")
        for name, history in world.declared.items():
            _, uid, fields = history[-1]
            obj, things = objects.get(name), world.things.get(name, [])
            if fields is None:
                if obj is not None and obj["metadata"]["uid"] == uid:
                    found.append(f"{name} is deleted and still declared: {obj}")
                if any(thing.owner == uid for thing in things):
                    found.append(f"{name} is deleted and still there")
            elif name in self._strangers:
                if obj is not None and condition_is(obj, "Ready"):
                    found.append(f"{name} is said to be ready, and is not ours")
            elif len(things) != 1 or things[0].fields != fields:
                found.append(f"{name} is {things}, declared as {fields}: {(obj or {}).get('status')}")
            elif obj is None or not _ready(obj):
                found.append(f"{name} is as declared and not ready: {obj}")
            elif things[0].secret != obj["spec"].get("secret", ""):
                found.append(f"{name} has the secret {things[0].secret!r}, declared is {obj['spec'].get('secret')!r}: {obj['status']}")
        return found + self._left_in_boxes()

    def _left_in_boxes(self) -> list[str]:
        found, stored = [], self.house.witness.objects
        owners = {box["metadata"]["uid"] for box in stored[BOXES].values()}
        for name, obj in stored[LABELS].items():
            if any(owner["uid"] not in owners for owner in obj["metadata"].get("ownerReferences") or ()):
                found.append(f"{name} is of a box that is no more")
        for name, box in stored[BOXES].items():
            has, wanted = labels_of(box, stored[LABELS]), wanted_labels(box)
            if has != wanted or not _ready(box):
                found.append(f"{name} should have {wanted}, has {has}, and says {box.get('status')}")
        return found

    def _stands(self, name: str, fields: Fields) -> bool:
        thing = self.house.world.one(name)
        return thing is not None and not thing.owner and thing.fields == fields

    async def quiet(self) -> list[str]:
        """Looks on for some passes, in which nothing may be written and nothing done. What was, in words."""
        house = self.house
        calls = len(house.world.calls)
        events: list[Event] = []
        house.witness.written = events
        await asyncio.sleep(QUIET_SECONDS)
        found = [f"{c.op} {c.name} at {c.at:.3f}, and nothing was left to do" for c in house.world.calls[calls:]]
        found += [f"{e.key} was written, and nothing had changed: {_change(e.previous, e.value)}" for e in events[:3]]
        return found

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _ready(obj: dict[str, Any]) -> bool:
    generation = obj["metadata"]["generation"]
    return condition_is(obj, "Ready") and (obj.get("status") or {}).get("observedGeneration") == generation


def _change(before: bytes | None, after: bytes | None) -> str:
    """What differs, as far as a line has room."""
    old, new = (orjson.loads(one) if one else {} for one in (before, after))
    parts = []
    for part in sorted(old.keys() | new.keys()):
        was, now = old.get(part), new.get(part)
        if part == "metadata" or was == now:
            continue
        if isinstance(was, dict) and isinstance(now, dict):
            parts += [
                f"{part}.{k}: {was.get(k)} → {now.get(k)}"
                for k in sorted(was.keys() | now.keys())
                if was.get(k) != now.get(k)
            ]
        else:
            parts.append(f"{part}: {was} → {now}")
    return "; ".join(parts)
