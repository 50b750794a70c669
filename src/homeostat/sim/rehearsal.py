'''Providers and composers of your own in storms: the real loop, guards, API and store, on a virtual clock, where everything fails that can.

    def lamps(seed: int) -> Play:
        world: dict[str, str] = {}
        return Play(
            lambda: [Lamp(world)],
            [lamp("hall", "red"), lamp("hall", "blue"), lamp("stairs", "red")],
            meddle=lambda dice: world.pop("hall", None),
            check=lambda declared: assert_lit(world, declared),
        )

    def test_lamps_come_through_storms() -> None:
        rehearse(lamps, seeds=20)

While a storm lasts, people declare, change and delete; requests get lost, watches break off and lag behind; calls of the provider are slow,
fail, or fail after they have worked; the loop and the server are killed at any step, and start again. Then it is calm: all must be as declared,
and Ready, within an hour of virtual time, and nothing may be done or written after that. A failure names its seed, and that shows the same again.
Providers are made anew whenever the loop starts, and end wherever they stand, as by `kill -9`: the world is what outlives them. There are no
threads, and who waits does so by `asyncio`: time jumps.
'''

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import msgspec

from homeostat.client import Client, Unreachable
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.guards.policy import Mode
from homeostat.loop.compose import Composer
from homeostat.loop.engine import Engine
from homeostat.loop.passes import PassPolicy
from homeostat.loop.provider import Provider
from homeostat.model.conditions import condition_is
from homeostat.model.errors import ApiError
from homeostat.sim.loop import Life, SimClock
from homeostat.sim.network import FINE, Network
from homeostat.sim.people import insist, plans_of
from homeostat.sim.seeds import simulate
from homeostat.sim.server import Line, Server
from homeostat.sim.storm import CALM_SECONDS, QUIET_SECONDS, SETTLED_SECONDS, Storm, draw
from homeostat.sim.world import NONE, Trouble
from homeostat.store import Event

Object = dict[str, Any]
_ACTS = ("apply", "delete")
_READS = ("observe", "observe_all")
_APPROVAL = ("homeostat.dev/v1alpha1", "Approval")


class Play(msgspec.Struct, frozen=True):
    """What goes through a storm. Make all of it anew for each seed, the world that the provider acts on included."""

    keeps: Callable[[], Sequence[Provider[Any, Any] | Composer[Any]]]
    """Makes the providers and composers; called whenever the loop starts."""
    declared: Sequence[Object]
    """Manifests. Several of the same name are versions of one: people go to and fro between them, delete it, and declare it again."""
    meddle: Callable[[random.Random], object] | None = None
    """What others do to the world behind the loop's back."""
    check: Callable[[Sequence[Object]], object] | None = None
    """Called in the end with the manifests that stand then: to raise where the world is not so."""


def rehearse(make: Callable[[int], Play], seeds: int | Iterable[int] = 20) -> None:
    """Plays one storm for each seed (a number: so many, from 0). AssertionError says what was wrong, and in which seed."""
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        wrongs = simulate(seed, lambda seed=seed: _play(seed, make(seed)))
        if wrongs:
            lines = "\n".join(f"  {wrong}" for wrong in wrongs[:5])
            raise AssertionError(f"seed {seed} (to see it again: seeds=[{seed}]):\n{lines}")


async def _play(seed: int, play: Play) -> list[str]:
    loop: Any = asyncio.get_running_loop()
    stage = _Stage(seed, play)
    try:
        await stage.rage()
        wrongs = await stage.calm()
        return wrongs or await stage.quiet()
    finally:
        await loop.bury()
        await stage.server.close()


class _Stage:
    """A server, a loop and people, in a storm."""

    def __init__(self, seed: int, play: Play) -> None:
        self._play = play
        self._storm: Storm = draw(seed)
        self._dice = random.Random(f"rehearsal {seed}")
        self._clock = SimClock(asyncio.get_running_loop())
        self.weather, self._trouble = FINE, NONE
        self.revision = 0
        self.written: list[Event] = []
        self.acted: list[str] = []
        self.server = Server(random.Random(self._dice.random()), self._clock, self._heard, self._storm.keep)
        self._network = Network(self.server, "loop", random.Random(self._dice.random()), self)
        self._people = Client(Line(self.server, "people"), source=random.Random(self._dice.random()))
        self._crashes, self._outages = list(self._storm.crashes), list(self._storm.outages)
        self._engine: Engine | None = None
        self._life = Life("loop")
        self._versions: dict[tuple[str, str, str, str], list[Object]] = {}
        self._stands: dict[tuple[str, str, str, str], Object | None] = {}
        if not play.declared:
            raise ValueError("Play: declared is empty; a storm needs at least one manifest that people declare")
        for manifest in play.declared:
            metadata = manifest["metadata"]
            key = (manifest["apiVersion"], manifest["kind"], metadata.get("namespace", ""), metadata["name"])
            self._versions.setdefault(key, []).append(manifest)

    def sent(self, method: str, target: str, body: bytes) -> None:
        """The loop sends a request."""

    def _heard(self, events: Sequence[Event], revision: int) -> None:
        self.revision = revision
        self.written += events

    def _troubled(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """A call of a provider that is slow, fails, or says so after it has worked; of a read, one that does not answer."""

        def happens(part: float) -> bool:
            return self._dice.random() < part

        async def made(*given: Any) -> Any:
            trouble: Trouble = self._trouble
            if happens(trouble.slow):
                await asyncio.sleep(self._dice.uniform(0, trouble.slowest))
            if happens(trouble.blind if name in _READS else trouble.fails):
                raise ConnectionError("it does not answer")
            if name in _ACTS:
                self.acted.append(f"{name} {given[0]}")
            found = await call(*given)
            if name in _ACTS and happens(trouble.lies):
                raise ConnectionError("the answer got lost")
            return found

        return made

    # Processes

    async def _live(self) -> None:
        """Starts the loop, and again whenever it dies."""
        down = self._dice.uniform(0, 10)

        def died() -> None:
            self._engine = None
            self._network.cut()
            asyncio.get_running_loop().call_later(down, self._again)

        self._network = Network(self.server, "loop", random.Random(self._dice.random()), self)
        self._life = Life("loop", self._crashes.pop(0) if self._crashes else None, died)
        self._life.begin(self._start())

    def _again(self) -> None:
        asyncio.get_running_loop().create_task(self._live())

    async def _start(self) -> None:
        client = Client(self._network, user_agent="loop", source=random.Random(self._dice.random()))
        gate, kept = PolicyGate(mode=Mode.ENFORCE), self._play.keeps()
        providers = [one for one in kept if isinstance(one, Provider)]
        for one, name in product(providers, (*_ACTS, *_READS)):
            setattr(one, name, self._troubled(name, getattr(one, name)))
        engine = Engine(
            client,
            providers,
            gate,
            clock=self._clock,
            source=random.Random(self._dice.random()),
            passes=PassPolicy(every=60.0),
            composers=[one for one in kept if isinstance(one, Composer)],
        )
        keeper = Keeper(client, gate, engine.controllers)
        while True:  # as a supervisor would: what cannot start is started again
            try:
                await keeper.start()
                keeper.attach(engine)
                await engine.start()
                break
            except (ApiError, Unreachable, TimeoutError):
                await asyncio.sleep(1.0)
        self._engine = engine

    def _serve_again(self) -> None:
        loop = asyncio.get_running_loop()

        async def again() -> None:
            await self.server.start(self._outages.pop(0) if self._outages else None)

        loop.call_later(self._dice.uniform(0, 5), lambda: loop.create_task(again()))

    # The storm

    async def rage(self) -> None:
        """Until the storm is over; from then on nothing fails."""
        await self.server.start()
        await self._live()
        while self._engine is None:
            await asyncio.sleep(0.1)  # who declares something needs its kind
        self.weather, self._trouble = self._storm.weather, self._storm.trouble
        self.server.at_death = self._serve_again
        if self._outages:
            self.server.life.doom(self._outages.pop(0))
        end = self._now() + self._storm.seconds
        while self._now() < end:
            await self._somebody()
            await asyncio.sleep(self._dice.expovariate(1 / self._storm.pause))
        self.weather, self._trouble = FINE, NONE
        self._crashes.clear()
        self._outages.clear()
        self.server.life.spare()
        self._life.spare()
        self._network.release()

    async def _somebody(self) -> None:
        key = self._dice.choice(list(self._versions))
        what = self._dice.random()
        if self._play.meddle is not None and what < 0.3:
            self._play.meddle(self._dice)
        elif what < 0.45:
            self._stands[key] = None
            await _if_there(lambda: self._kind(key).delete(key[3]))
        elif (found := await self._get(key)) is None or "deletionTimestamp" not in found["metadata"]:  # else it goes, whatever is declared
            self._stands[key] = manifest = self._dice.choice(self._versions[key])
            await insist(lambda: self._kind(key).apply(manifest, field_manager="people", force=True))

    async def _get(self, key: tuple[str, str, str, str]) -> Object | None:
        found: Object | None = await _if_there(lambda: self._kind(key).get(key[3]))
        return found

    def _kind(self, key: tuple[str, str, str, str]) -> Any:
        return self._people.kind(key[0], key[1], namespace=key[2])

    # What must hold afterwards

    async def calm(self) -> list[str]:
        """Waits until all is as declared; a person approves what the guards ask about. What is not so after all, in words."""
        end, since = self._now() + CALM_SECONDS, self._now()
        while True:
            await asyncio.sleep(10.0)
            left = await self._left()
            if not left and self._now() - since > SETTLED_SECONDS:  # what somebody did to the world in the end is seen with the next pass
                break
            since = self._now() if left else since
            if self._now() > end:
                return [f"{CALM_SECONDS:.0f} s after the storm {what}" for what in left]
            for plan in plans_of(self._engine):
                await self._approve({"metadata": {"name": f"yes-{plan}"}, "spec": {"plan": plan}})
        await asyncio.sleep(SETTLED_SECONDS)
        if self._play.check is not None:
            try:
                self._play.check([manifest for manifest in self._stands.values() if manifest is not None])
            except AssertionError as error:
                return [f"all is said to be as declared, and the check says: {error}"]
        return []

    async def _approve(self, approval: Object) -> None:
        try:
            await insist(lambda: self._people.kind(*_APPROVAL).create(approval))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    async def _left(self) -> list[str]:
        found = [] if self._engine is not None and self.server.up else ["the loop does not run"]
        for key, manifest in self._stands.items():
            title = f"{key[1]} {key[2]}/{key[3]}" if key[2] else f"{key[1]} {key[3]}"
            obj = await self._get(key)
            if manifest is None:
                found += [f"{title} is deleted and not gone: {obj.get('status')}"] if obj is not None else []
            elif obj is None:
                found.append(f"{title} is declared and not there")
            elif not _is_ready(obj):
                found.append(f"{title} is not Ready: {obj.get('status')}")
        return found

    async def quiet(self) -> list[str]:
        """Looks on for some passes, in which nothing may be written and nothing done. What was, in words."""
        self.written.clear()
        self.acted.clear()
        await asyncio.sleep(QUIET_SECONDS)
        found = [f"{what}, and nothing was left to do" for what in self.acted]
        return found + [f"{event.key} was written, and nothing had changed" for event in self.written]

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


async def _if_there(ask: Callable[[], Awaitable[Any]]) -> Any:
    """What a person is answered; None where there is no such thing."""
    try:
        return await insist(ask)
    except ApiError as error:
        if error.code != 404:
            raise
        return None


def _is_ready(obj: Mapping[str, Any]) -> bool:
    return condition_is(obj, "Ready") and (obj.get("status") or {}).get("observedGeneration") == obj["metadata"].get("generation")
