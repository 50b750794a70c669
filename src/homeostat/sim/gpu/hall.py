"""The whole GPU service in one simulated hall: server and store, the governor in the loop, and machines with their agents."""

from __future__ import annotations

import asyncio
import functools
import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from homeostat.client import Client
from homeostat.gpu.controller import Workload
from homeostat.gpu.kinds import NODE, POLICY, POOL, TENANT
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.guards.policy import Mode
from homeostat.loop.engine import Engine
from homeostat.loop.passes import PassPolicy
from homeostat.model.errors import ApiError
from homeostat.sim.gpu.agents import Station
from homeostat.sim.gpu.machine import MODEL, Machine
from homeostat.sim.gpu.witness import GpuWitness
from homeostat.sim.house import LOOP_USER, PASS_SECONDS
from homeostat.sim.loop import Life, SimClock
from homeostat.sim.network import FINE, Network
from homeostat.sim.people import insist, plans_of
from homeostat.sim.server import KEEP_SECONDS, Line, Server, furnished

KIND = Workload.info.name


@functools.cache
def gpu_template() -> Path:
    """What the disk of a server holds that has started once and knows the kinds of the GPU service. Call it outside of an event loop."""
    return furnished(TENANT, NODE, POOL, POLICY, Workload.info)


class Hall:
    """Open it, `start_engine`, add `machines`, and it runs. Crash whoever you like, as often as you like."""

    def __init__(self, seed: int, keep: float = KEEP_SECONDS) -> None:
        self.random = random.Random(f"hall {seed}")
        self.clock = SimClock(asyncio.get_running_loop())
        self.stations: dict[str, Station] = {}
        self.witness = GpuWitness(self.stations)
        self.server = Server(random.Random(self.random.random()), self.clock, self.witness.stored, keep, gpu_template)
        self.weather = FINE
        self.engine: Engine | None = None
        self.engine_life: Life | None = None
        self.network: Network
        self.deaths = 0
        self._disks = tempfile.TemporaryDirectory(
            prefix="homeostat-sim-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
        )
        self.people = Client(Line(self.server, "people"), source=random.Random(self.random.random()))
        self.workloads = self.people.kind(Workload.info.api_version, "Workload", namespace="default")
        self.tenants = self.people.kind(TENANT.api_version, TENANT.kind)
        self.nodes = self.people.kind(NODE.api_version, NODE.kind)
        self.settings = self.people.kind(POLICY.api_version, POLICY.kind)
        self.approvals = self.people.kind("homeostat.dev/v1alpha1", "Approval")
        self.policies = self.people.kind("homeostat.dev/v1alpha1", "GuardPolicy")

    async def open(self) -> None:
        """A control plane that knows the kinds, and has nothing else."""
        await self.server.start()

    async def close(self) -> None:
        """Lets everything go. Call it when all tasks are over."""
        await self.server.close()
        self._disks.cleanup()

    @property
    def revision(self) -> int:
        """Where the store stands."""
        return self.witness.revision

    def sent(self, method: str, target: str, body: bytes) -> None:
        """The loop sends a request."""

    def add_machine(self, name: str, gpus: int) -> Station:
        """A machine with its agent."""
        source = random.Random(self.random.random())
        machine = Machine(name, gpus, Path(self._disks.name, name), source, self.witness.changed)
        station = self.stations[name] = Station(machine, self.server, self.clock, source)
        station.start()
        return station

    # The engine, as a process of its own

    async def start_engine(self, steps: int | None = None, at_end: Callable[[], None] | None = None) -> None:
        """Starts the loop, as after a crash. It dies by itself after so many `steps`; `at_end` is called when it does."""
        dead = asyncio.Event()

        def died() -> None:
            self.deaths += 1
            self.engine = None
            self.network.cut()
            dead.set()
            if at_end is not None:
                at_end()

        self.network = Network(self.server, LOOP_USER, random.Random(self.random.random()), self)
        self.witness.started()
        life = self.engine_life = Life("engine", steps, died)
        starting = life.begin(self._start(), "engine start")
        gone = asyncio.ensure_future(dead.wait())
        await asyncio.wait([starting, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if starting.done():
            starting.result()

    async def _start(self) -> None:
        client = Client(self.network, user_agent=LOOP_USER, source=random.Random(self.random.random()))
        while True:  # as a supervisor would: what cannot start is started again
            gate = PolicyGate(mode=Mode.ENFORCE)
            engine = Engine(
                client,
                [Workload(self.clock)],
                gate,
                clock=self.clock,
                source=random.Random(self.random.random()),
                settle=0.1,
                workers=4,
                passes=PassPolicy(every=PASS_SECONDS),
            )
            try:
                keeper = Keeper(client, gate, (KIND,))
                await keeper.start()
                keeper.attach(engine)
                await engine.start()
                break
            except Exception:
                with suppress(Exception):
                    await engine.stop()
                await asyncio.sleep(1.0)
        self.engine = engine

    def crash(self) -> None:
        """Kills the engine where it stands."""
        if self.engine_life is not None:
            self.engine_life.end()

    # What people do

    async def submit(self, name: str, spec: dict[str, Any]) -> None:
        """Submits a workload; nothing where one of that name is there."""
        with suppress(ApiError):
            await insist(lambda: self.workloads.create({"metadata": {"name": name}, "spec": spec}))

    async def withdraw(self, name: str) -> None:
        """Deletes a workload. It is gone when its processes are."""
        self.witness.withdrawn(name)
        with suppress(ApiError):
            await insist(lambda: self.workloads.delete(name))

    async def edit(self, name: str, spec: dict[str, Any]) -> None:
        """Changes what a workload is to be."""
        with suppress(ApiError):
            await insist(lambda: self.workloads.patch(name, {"spec": spec}))

    async def tenant(self, name: str, nominal: int, **more: Any) -> None:
        """Declares a tenant, or changes its quota."""
        quota = {"model": MODEL, "nominal": nominal, **more.pop("quota", {})}
        wanted = {"metadata": {"name": name}, "spec": {"namespaces": ["default"], "quotas": [quota], **more}}
        await insist(lambda: self.tenants.apply(wanted, field_manager="people", force=True))

    async def dismiss(self, name: str) -> None:
        """Deletes a tenant. It is gone when nothing of it holds GPUs."""
        with suppress(ApiError):
            await insist(lambda: self.tenants.delete(name))

    async def node(self, name: str, **spec: Any) -> None:
        """Cordons or drains a node, or lets it work again."""
        with suppress(ApiError):
            await insist(lambda: self.nodes.patch(name, {"spec": spec}))

    async def settle_by(self, spec: dict[str, Any]) -> None:
        """Says which policies of the governor run."""
        wanted = {"metadata": {"name": "default"}, "spec": spec}
        await insist(lambda: self.settings.apply(wanted, field_manager="people", force=True))

    async def guard(self, policy: dict[str, Any]) -> None:
        """Declares how workloads are guarded."""
        wanted = {"metadata": {"name": "gpus"}, "spec": {"fleet": {"kinds": [KIND]}, "mode": "Enforce", **policy}}
        await insist(lambda: self.policies.apply(wanted, field_manager="people", force=True))

    async def approve(self, plan: str) -> None:
        """Says yes to a plan; again where it was said before."""
        said = {"metadata": {"name": f"yes-{plan}"}, "spec": {"plan": plan}}
        try:
            await insist(lambda: self.approvals.create(said))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            with suppress(ApiError):
                await insist(lambda: self.approvals.delete(f"yes-{plan}"))

    def plans(self) -> list[str]:
        """All plans that the guards hold and that a person may approve."""
        return plans_of(self.engine)
