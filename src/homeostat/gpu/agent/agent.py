"""The agent as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

from homeostat.client import Client
from homeostat.gpu.agent.devices import Devices
from homeostat.gpu.agent.keeper import SUSPEND_SECONDS, Keeper
from homeostat.gpu.agent.launching import Rules
from homeostat.gpu.agent.lease import TIMING, Heartbeat
from homeostat.gpu.agent.node import BEAT_SECONDS, READ_SECONDS, Machine, NodeReporter
from homeostat.gpu.agent.origin import Origin
from homeostat.loop.election import Timing
from homeostat.model.clock import Clock
from homeostat.providers.process.kind import Logs


class Agent:
    """Keeps one machine. `identity` is that of no other living agent, and the same after a restart: a lease in that name is its own.

    `state` is a directory for what must outlast it. `rules` say what may be run; `output` how logs are rotated.
    """

    def __init__(
        self,
        client: Client,
        machine: Machine,
        devices: Devices,
        state: Path,
        identity: str,
        *,
        rules: Rules | None = None,
        output: Logs | None = None,
        suspend_seconds: float = SUSPEND_SECONDS,
        read_seconds: float = READ_SECONDS,
        beat_seconds: float = BEAT_SECONDS,
        timing: Timing = TIMING,
        clock: Clock | None = None,
    ) -> None:
        self._devices = devices
        origin = Origin(client, state, lambda: self._keeper.runs)
        self._heartbeat = Heartbeat(client, machine.name, identity, timing=timing, clock=clock, origin=origin)
        self._keeper = Keeper(
            client,
            machine.name,
            devices,
            state,
            rules=rules,
            output=output,
            suspend_seconds=suspend_seconds,
            clock=clock,
            origin=origin,
        )
        self._node = NodeReporter(
            client,
            machine,
            devices,
            self._keeper,
            clock=clock,
            read_seconds=read_seconds,
            beat_seconds=beat_seconds,
            numbered=None if devices.simulated else devices,
            trouble=lambda: origin.trouble,
        )
        self.ready = asyncio.Event()
        """Set once the node is declared and its lease held."""

    async def run(self) -> None:
        """Keeps the machine until it is cancelled; what it runs goes on then. Raises where it can never begin."""
        self._heartbeat.back = self._keeper.hurry
        try:
            await self._keeper.load()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._heartbeat.run(), name="heartbeat")
                await self._heartbeat.held.wait()
                await self._node.declare()
                self.ready.set()
                tasks.create_task(self._keeper.run(), name="keeper")
                tasks.create_task(self._node.run(), name="node")
        finally:
            await self._keeper.close()
            await asyncio.to_thread(self._devices.close)
