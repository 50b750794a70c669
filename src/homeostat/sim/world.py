"""A world of simple things, made and changed by calls that take time and fail, and by other people.

It keeps book of every call, and notes at once what no call may do: make a thing twice, touch what is not ours, act on a declaration
that is long gone, or have more existing things in hand than the cap.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from homeostat.loop.diff import Diff, Who
from homeostat.loop.fleet import Op
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Provider, current
from homeostat.model.kinds import Spec

Fields = dict[str, Any]

GROUP = "sim.homeostat.dev"
STALE_SECONDS = 2.5
"""How long ago a declaration may have been replaced when a call arrives that acts on it: the answer to the journal may be late."""


class ThingSpec(Spec):
    """A thing as it should be."""

    colour: Annotated[str, Meta(min_length=1)] = "red"
    size: int = 1
    zone: str = ""
    """The fault domain that it is in. It cannot be seen on the thing."""
    secret: str = ""
    """Can be given to the thing, and not be seen on it."""


class ThingState(Spec):
    """A thing as it is."""

    colour: str
    size: int


class Thing(msgspec.Struct):
    """A thing that was made. `owner` is the uid of the resource it was made for; empty: somebody else's."""

    name: str
    owner: str
    key: str
    fields: Fields
    secret: str = ""
    by: str = ""
    """Who else changed it last; empty: nobody did since we."""


class Trouble(msgspec.Struct, frozen=True):
    """How the world fails: chances from 0 to 1, and seconds."""

    slow: float = 0.0
    slowest: float = 3.0
    fails: float = 0.0
    """That a call fails without having done anything."""
    lies: float = 0.0
    """That a call did what it was asked, and then says that it failed."""
    hangs: float = 0.0
    """That a call never comes back."""
    blind: float = 0.0
    """That a thing cannot be read."""


NONE = Trouble()


class Watcher(Protocol):
    """Who is told what the loop asks of the world."""

    def read(self, name: str, worked: bool, shown: Fields | None = None, sick: str = "") -> None: ...

    def called(self, op: Op, name: str, uid: str) -> None: ...

    def failed(self, name: str) -> None: ...


class Call(msgspec.Struct):
    """A call that changes the world."""

    at: float
    op: Op
    name: str
    fields: Mapping[str, Any]
    done: bool = False


class World(msgspec.Struct):
    """All things, by name. One name may have several, which is always wrong."""

    source: random.Random
    cap: int = 1_000_000
    trouble: Trouble = NONE
    things: dict[str, list[Thing]] = msgspec.field(default_factory=dict)
    calls: list[Call] = msgspec.field(default_factory=list)
    wrongs: list[str] = msgspec.field(default_factory=list)
    watcher: Watcher | None = None
    declared: dict[str, list[tuple[float, str, Fields | None]]] = msgspec.field(default_factory=dict)
    """What was declared under a name, since when: (time, uid, fields or None where it was to be deleted)."""
    in_hand: dict[Op, int] = msgspec.field(default_factory=dict)
    most_in_hand: int = 0
    blinded: Callable[[str], bool] | None = None
    hidden: Callable[[str], bool] | None = None
    """Says of a thing that it is read as gone, though it may be there."""
    sick: Callable[[Thing], str] | None = None
    """Says of a thing why it does not do its work; empty where it does."""
    _under_way: dict[int, Callable[[], None]] = msgspec.field(default_factory=dict)
    _answered: set[str] = msgspec.field(default_factory=set)
    _lives: int = 0

    def one(self, name: str) -> Thing | None:
        found = self.things.get(name)
        return found[0] if found else None

    def wrong(self, what: str) -> None:
        """Notes that something happened that never may."""
        self.wrongs.append(f"at {self._now():.3f}: {what}")

    def crashed(self) -> None:
        """Who called is dead. What it had asked for happens now, or never."""
        self._lives += 1
        for effect in list(self._under_way.values()):
            if self.source.random() < 0.5:
                effect()
        self._under_way.clear()
        self.in_hand.clear()

    def under_way(self) -> list[Call]:
        """The calls that have not done what they were asked for yet."""
        return [self.calls[number - 1] for number in self._under_way]

    # What the provider asks

    async def read(self, name: str) -> Fields | None:
        await self._take_time()
        if self._happens(self.trouble.blind) or (self.blinded is not None and self.blinded(name)):
            if self.watcher is not None:
                self.watcher.read(name, worked=False)
            raise ConnectionError(f"{name} does not answer")
        thing = None if self.hidden is not None and self.hidden(name) else self.one(name)
        shown = None if thing is None else dict(thing.fields)
        if self.watcher is not None:
            sick = self.sick(thing) if thing is not None and self.sick is not None else ""
            self.watcher.read(name, True, shown, sick)
        return shown

    async def create(self, name: str, uid: str, key: str, fields: Fields, secret: str) -> None:
        def effect() -> None:
            made = next((t for t in self.things.get(name, ()) if t.key == key), None)
            if made is None and key in self._answered:
                return  # as clouds do: the same key gives what it gave before, even if that is gone by now
            if made is None:
                if self.things.get(name):
                    self.wrong(f"{name} was made twice, by {self.things[name][0].key} and {key}")
                self.things.setdefault(name, []).append(Thing(name, uid, key, fields, secret))
            self._answered.add(key)

        self._check_current(name, uid, fields)
        await self._do(Op.CREATE, name, uid, fields, effect)

    async def update(self, name: str, uid: str, fields: Fields, secret: str) -> None:
        self._check_ours(name, uid, "changed")
        self._check_current(name, uid, fields)

        def effect() -> None:
            if (thing := self.one(name)) is not None:
                thing.fields, thing.secret, thing.by = fields, secret, ""

        await self._do(Op.UPDATE, name, uid, fields, effect)

    async def delete(self, name: str, uid: str) -> None:
        self._check_ours(name, uid, "deleted")
        self._check_current(name, uid, None)

        def effect() -> None:
            self.things.pop(name, None)

        await self._do(Op.DELETE, name, uid, {}, effect)

    async def _do(self, op: Op, name: str, uid: str, fields: Mapping[str, Any], effect: Callable[[], None]) -> None:
        call = Call(self._now(), op, name, fields)
        self.calls.append(call)
        number, life = len(self.calls), self._lives

        def done() -> None:
            call.done = True
            effect()

        self._under_way[number] = done
        self._take_in_hand(op, 1)
        if self.watcher is not None:
            self.watcher.called(op, name, uid)
        try:
            trouble = self.trouble
            await self._take_time()
            if self._happens(trouble.hangs):
                if self._happens(0.5):
                    self._under_way.pop(number)()
                await asyncio.sleep(100_000)
            if self._happens(trouble.fails):
                raise ConnectionError("it did not work")
            self._under_way.pop(number)()
            await self._take_time()
            if self._happens(trouble.lies):
                raise ConnectionError("the answer got lost")
        except BaseException:
            if self.watcher is not None and life == self._lives:
                self.watcher.failed(name)
            raise
        finally:
            if life == self._lives:
                self._under_way.pop(number, None)
                self._take_in_hand(op, -1)

    def _take_in_hand(self, op: Op, step: int) -> None:
        self.in_hand[op] = self.in_hand.get(op, 0) + step
        if op is not Op.CREATE:
            self.most_in_hand = max(self.most_in_hand, self.in_hand[op])
            if self.in_hand[op] > self.cap:
                self.wrong(f"{self.in_hand[op]} existing things in hand at once, more than {self.cap}")

    # What is never right

    def _check_ours(self, name: str, uid: str, what: str) -> None:
        thing = self.one(name)
        if thing is not None and thing.owner != uid:
            self.wrong(f"{name} was {what} for {uid}, and belongs to {thing.owner or 'somebody else'}")

    def _check_current(self, name: str, uid: str, fields: Fields | None) -> None:
        history = self.declared.get(name)
        if not history:
            return
        since = self._now() - STALE_SECONDS
        recent = [said for i, said in enumerate(history) if i + 1 == len(history) or history[i + 1][0] >= since]
        if not any(said == (uid, fields) for said in ((u, f) for _, u, f in recent)):
            self.wrong(f"{name} is made {fields} for {uid}; declared by then: {recent}")

    # Chance and time

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.source.random() < chance

    async def _take_time(self) -> None:
        slow = self._happens(self.trouble.slow)
        await asyncio.sleep(self.source.uniform(0, self.trouble.slowest) if slow else 0.001)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class Things(Provider[ThingSpec, ThingState], group=GROUP, kind="Thing", means=("zone",)):
    """A thing of the simulated world."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def observe(self, spec: ThingSpec) -> ThingState | Absent:
        found = await self.world.read(current().ref.name)
        return ABSENT if found is None else ThingState(**found)

    async def apply(self, spec: ThingSpec, diff: Diff) -> None:
        task = current()
        fields = {"colour": spec.colour, "size": spec.size}
        if diff.op is Op.CREATE:
            await self.world.create(task.ref.name, task.ref.uid, task.key, fields, spec.secret)
        else:
            await self.world.update(task.ref.name, task.ref.uid, fields, spec.secret)

    async def delete(self, spec: ThingSpec) -> None:
        await self.world.delete(current().ref.name, current().ref.uid)

    async def unhealthy(self, spec: ThingSpec, state: ThingState) -> str:
        thing = self.world.one(current().ref.name)
        return self.world.sick(thing) if thing is not None and self.world.sick is not None else ""

    def attribute(self, spec: ThingSpec, diff: Diff) -> Diff:
        thing = self.world.one(current().ref.name)
        if thing is None or not thing.by:
            return diff
        return replace(diff, changes=tuple(replace(change, who=Who(thing.by)) for change in diff.changes))

    def domain(self, spec: ThingSpec) -> str:
        return spec.zone
