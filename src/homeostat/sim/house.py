"""The real control plane and the real loop, in one simulated house: store, API, guards and engine, over a world of things."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from homeostat.api.apart import Apart
from homeostat.api.audit import AuditLog
from homeostat.api.auth.serviceaccounts import SigningKey
from homeostat.api.auth.user import AUTHENTICATED, MASTERS, User
from homeostat.api.local import LocalTransport, local_client
from homeostat.api.plane import ControlPlane
from homeostat.client import Client
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import APPROVAL_KIND, Keeper
from homeostat.guards.policy import Mode, definition
from homeostat.loop.engine import Engine, Gate
from homeostat.loop.passes import PassPolicy
from homeostat.model.clock import Ids
from homeostat.model.errors import ApiError
from homeostat.model.kinds import crd_for
from homeostat.sim.loop import Life, SimClock
from homeostat.sim.network import FINE, Network
from homeostat.sim.world import GROUP, Things, World
from homeostat.store.sqlite import Inline, SqliteStore

KIND = f"things.{GROUP}"
PASS_SECONDS = 60.0
LOOP_USER = "loop"

Gates = Callable[[], Gate]


class House:
    """Open it, `start_engine`, and it runs; `crash` the engine as often as you like."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"house {seed}")
        self.clock = SimClock(asyncio.get_running_loop())
        self.world = World(random.Random(f"world {seed}"))
        self.engine: Engine | None = None
        self.gate: Gate
        self.engine_life: Life | None = None
        self.deaths = 0
        self.weather = FINE
        self.store: SqliteStore
        self.plane: ControlPlane
        self.people: Client
        self.network: Network
        self._server = Life("server")

    async def open(self) -> None:
        """A control plane with an empty store."""
        await self._server.begin(self._open())
        self.people = local_client(self.plane, "people", source=random.Random(self.random.random()))
        definitions = self.people.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        for crd in (definition(), crd_for(APPROVAL_KIND), crd_for(Things.info)):
            await definitions.apply(crd, field_manager="people")
        self.things = self.people.kind(f"{GROUP}/v1", "Thing", namespace="default")
        self.approvals = self.people.kind("homeostat.dev/v1alpha1", "Approval")
        self.policies = self.people.kind("homeostat.dev/v1alpha1", "GuardPolicy")

    async def _open(self) -> None:
        self.store = await SqliteStore.in_memory(commit_on=Inline())
        ids = Ids(random.Random(self.random.random()))
        self.plane = ControlPlane(self.store, signing_key=_NoKey(), audit=_NoAudit(), clock=self.clock, ids=ids)
        self.plane.apart.close()
        self.plane.apart = _AtOnce()
        await self.plane.start()

    async def close(self) -> None:
        """Lets everything go. Call it when all tasks are over."""
        await self.store.close()

    @property
    def revision(self) -> int:
        """Where the store stands."""
        return self.store.revision

    # The engine, as a process of its own

    async def start_engine(
        self,
        gates: Gates | None = None,
        *,
        settle: float = 0.1,
        workers: int = 4,
        steps: int | None = None,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        """Starts the loop, as after a crash. It dies by itself after so many `steps`; `at_end` is called when it does.

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

        user = User(LOOP_USER, "", (MASTERS, AUTHENTICATED))
        transport = LocalTransport(self.plane, user)
        source = random.Random(self.random.random())
        self.network = Network(transport, self._server, source, self)
        life = self.engine_life = Life("engine", steps, died)
        starting = life.begin(self._start(gates, settle, workers), "engine start")
        gone = asyncio.ensure_future(dead.wait())
        await asyncio.wait([starting, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if starting.done():
            starting.result()

    async def _start(self, gates: Gates | None, settle: float, workers: int) -> None:
        client = Client(self.network, user_agent=LOOP_USER, source=random.Random(self.random.random()))
        gate = gates() if gates is not None else PolicyGate(mode=Mode.ENFORCE)
        engine = Engine(
            client,
            [Things(self.world)],
            gate,
            clock=self.clock,
            source=random.Random(self.random.random()),
            settle=settle,
            workers=workers,
            passes=PassPolicy(every=PASS_SECONDS),
        )
        while True:  # as a supervisor would: what cannot start is started again
            try:
                if isinstance(gate, PolicyGate):
                    keeper = Keeper(client, gate)
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
        """Declares a thing, or changes its declaration; the world is told, so that it knows what may be done."""
        wanted = {"metadata": {"name": name, **metadata}, "spec": fields}
        made = await self.things.apply(wanted, field_manager="people", force=True)
        shown = {k: v for k, v in made["spec"].items() if k in ("colour", "size")}
        deleted = bool(made["metadata"].get("deletionTimestamp"))
        self._said(name, made["metadata"]["uid"], None if deleted else shown)
        return made

    async def undeclare(self, name: str) -> None:
        """Deletes the declaration. It is gone when its thing is."""
        history = self.world.declared.get(name)
        try:
            await self.things.delete(name)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
        if history:
            self._said(name, history[-1][1], None)

    def _said(self, name: str, uid: str, fields: dict[str, Any] | None) -> None:
        history = self.world.declared.setdefault(name, [])
        if not history or history[-1][1:] != (uid, fields):
            history.append((asyncio.get_running_loop().time(), uid, fields))

    async def approve(self, plan: str) -> None:
        """Says yes to a plan; again where it was said before."""
        try:
            await self.approvals.create({"metadata": {"name": f"yes-{plan}"}, "spec": {"plan": plan}})
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            await self.approvals.delete(f"yes-{plan}")

    def plans(self) -> list[str]:
        """All plans that the guards hold and that a person may approve."""
        engine = self.engine
        if engine is None:
            return []
        halted = [halt.plan for fleet in engine.fleets.values() for halt in fleet.halts.values()]
        held = [hold.plan for hold in engine._holds.values()]
        return list(dict.fromkeys(plan for plan in (*halted, *held) if plan))


class _AtOnce(Apart):
    """No threads here: all work is done at once."""

    async def __call__(self, call: Any, stored: int, work: Any, *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)


class _NoKey(SigningKey):
    """Nothing here signs."""

    def __init__(self) -> None:
        self.jwk, self.kid = {}, ""


class _NoAudit(AuditLog):
    """Writes nothing down: what a thread does to a file is none of the simulation's business."""

    def __init__(self) -> None:
        self.lost = 0

    def wants(self, verb: str, group: str, resource: str, code: int) -> bool:
        return False

    def close(self) -> None:
        pass
