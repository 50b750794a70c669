"""The real control plane and the real loop, in one simulated house: store, API, guards and engine, over a world of things."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from homeostat.client import Client
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.guards.policy import Mode
from homeostat.loop.compose import Composer
from homeostat.loop.engine import Engine
from homeostat.loop.gating import Gate
from homeostat.loop.passes import PassPolicy
from homeostat.loop.provider import Provider
from homeostat.model.errors import ApiError
from homeostat.sim.boxes import Boxes
from homeostat.sim.loop import Life, SimClock
from homeostat.sim.network import FINE, Network
from homeostat.sim.people import insist, plans_of
from homeostat.sim.server import KEEP_SECONDS, Line, Server
from homeostat.sim.witness import THINGS, WatchedGate, Witness
from homeostat.sim.world import GROUP, Things, World

KIND = THINGS
PASS_SECONDS = 60.0
LOOP_USER = "loop"

Gates = Callable[[], Gate]


class House:
    """Open it, `start_engine`, and it runs; `crash` the engine and the server as often as you like.

    `keep` is how far back the server can be asked for the past, in seconds.
    """

    def __init__(self, seed: int, keep: float = KEEP_SECONDS) -> None:
        self.random = random.Random(f"house {seed}")
        self.clock = SimClock(asyncio.get_running_loop())
        self.world = World(random.Random(f"world {seed}"))
        self.witness = self.world.watcher = Witness(self.world)
        self.server = Server(random.Random(self.random.random()), self.clock, self.witness.stored, keep)
        self.engine: Engine | None = None
        self.gate: Gate
        self.engine_life: Life | None = None
        self.deaths = 0
        self.notes: list[bool | str] = []  # what a story found on its way
        self.weather = FINE
        self.providers: list[Provider[Any, Any]] = [Things(self.world)]
        self.composers: list[Composer[Any]] = []
        self.network: Network
        self.people = Client(Line(self.server, "people"), source=random.Random(self.random.random()))
        self.things = self.people.kind(f"{GROUP}/v1", "Thing", namespace="default")
        self.boxes = self.people.kind(f"{GROUP}/v1", "Box", namespace="default")
        self.labels = self.people.kind("v1", "ConfigMap", namespace="default")
        self.approvals = self.people.kind("homeostat.dev/v1alpha1", "Approval")
        self.policies = self.people.kind("homeostat.dev/v1alpha1", "GuardPolicy")

    async def open(self) -> None:
        """A control plane that knows the kinds, and has nothing else."""
        await self.server.start()

    async def close(self) -> None:
        """Lets everything go. Call it when all tasks are over."""
        await self.server.close()

    @property
    def revision(self) -> int:
        """Where the store stands."""
        return self.witness.revision

    def sent(self, method: str, target: str, body: bytes) -> None:
        """The loop sends a request."""
        self.witness.sent(method, target, body)

    # The engine, as a process of its own

    async def start_engine(
        self,
        gates: Gates | None = None,
        *,
        settle: float = 0.1,
        workers: int = 4,
        steps: int | None = None,
        at_end: Callable[[], None] | None = None,
        kinds: tuple[str, ...] = (),
        composes: bool = False,
    ) -> None:
        """Starts the loop, as after a crash. It dies by itself after so many `steps`; `at_end` is called when it does.
        `kinds` get a default policy that people see; `composes`: it keeps boxes too.

        Returns when the loop runs, or is dead before it could.
        """
        dead = asyncio.Event()

        def died() -> None:
            self.deaths += 1
            self.engine = None
            self.network.cut()
            self.world.crashed()
            dead.set()
            if at_end is not None:
                at_end()

        self.network = Network(self.server, LOOP_USER, random.Random(self.random.random()), self)
        self.witness.started(guarded=gates is None)
        life = self.engine_life = Life("engine", steps, died)
        starting = life.begin(self._start(gates, settle, workers, kinds, composes), "engine start")
        gone = asyncio.ensure_future(dead.wait())
        await asyncio.wait([starting, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if starting.done():
            starting.result()

    async def _start(
        self, gates: Gates | None, settle: float, workers: int, kinds: tuple[str, ...], composes: bool
    ) -> None:
        client = Client(self.network, user_agent=LOOP_USER, source=random.Random(self.random.random()))
        gate = gates() if gates is not None else WatchedGate(self.witness, Mode.ENFORCE)
        engine = Engine(
            client,
            self.providers,
            gate,
            clock=self.clock,
            source=random.Random(self.random.random()),
            settle=settle,
            workers=workers,
            passes=PassPolicy(every=PASS_SECONDS),
            composers=[*self.composers, *([Boxes()] if composes else [])],
        )
        while True:  # as a supervisor would: what cannot start is started again
            try:
                if isinstance(gate, PolicyGate):
                    keeper = Keeper(client, gate, kinds)
                    await keeper.start()
                    keeper.attach(engine)
                await engine.start()
                break
            except Exception:
                await asyncio.sleep(1.0)
        self.engine, self.gate = engine, gate

    def crash(self) -> None:
        """Kills the engine where it stands."""
        assert self.engine_life is not None
        self.engine_life.end()

    # What people do

    async def declare(self, name: str, fields: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        """Declares a thing, or changes its declaration."""
        wanted = {"metadata": {"name": name, **metadata}, "spec": fields}
        return await insist(lambda: self.things.apply(wanted, field_manager="people", force=True))

    async def undeclare(self, name: str) -> None:
        """Deletes the declaration. It is gone when its thing is."""
        await insist(lambda: _gone(self.things.delete(name)))

    async def pack(self, name: str, labels: dict[str, str]) -> None:
        """Declares a box and its labels."""
        wanted = {"metadata": {"name": name}, "spec": {"labels": labels}}
        await insist(lambda: self.boxes.apply(wanted, field_manager="people", force=True))

    async def unpack(self, name: str) -> None:
        """Deletes a box; its labels go with it."""
        await insist(lambda: _gone(self.boxes.delete(name)))

    async def guard(self, policy: dict[str, Any]) -> None:
        """Declares how things are guarded."""
        wanted = {"metadata": {"name": "things"}, "spec": policy}
        await insist(lambda: self.policies.apply(wanted, field_manager="people", force=True))

    async def approve(self, plan: str) -> None:
        """Says yes to a plan; again where it was said before."""
        name = f"yes-{plan}"
        said = {"metadata": {"name": name}, "spec": {"plan": plan}}
        try:
            await insist(lambda: self.approvals.create(said))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            await insist(lambda: _gone(self.approvals.delete(name)))

    def plans(self) -> list[str]:
        """All plans that the guards hold and that a person may approve."""
        return plans_of(self.engine)


async def _gone(deletion: Awaitable[Any]) -> None:
    try:
        await deletion
    except ApiError as error:
        if error.reason != "NotFound":
            raise
