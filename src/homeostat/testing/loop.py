"""The loop of a test: engine, guards and keeper on the control plane of the fixture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from homeostat.client import Client
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.guards.telling import Telling
from homeostat.loop.compose import Composer
from homeostat.loop.engine import Engine
from homeostat.loop.provider import Provider
from homeostat.loop.standstill import Standstill


class RunningLoop:
    """From `start` to `stop`. There is no election: a test has one loop."""

    def __init__(self, client: Client, kept: Sequence[Provider[Any, Any] | Composer[Any]], enforce: bool) -> None:
        gate = PolicyGate(mode=Mode.ENFORCE if enforce else Mode.OBSERVE)
        telling = Telling(client, gate)
        self._client = client
        self._engine = Engine(
            client,
            [one for one in kept if isinstance(one, Provider)],
            gate,
            composers=[one for one in kept if isinstance(one, Composer)],
            listeners=telling.listeners,
        )
        self._standstill = Standstill(kept)
        self._keeper = Keeper(client, gate, self._engine.controllers)
        self._keeper.attach(self._engine)
        telling.attach(self._keeper, self._engine)

    async def start(self) -> None:
        """Returns when the kinds are served."""
        await self._keeper.start()
        await self._engine.start()
        self._standstill.start()

    async def stop(self) -> None:
        """What is under way is cut off, as by a crash; what was made stays."""
        await self._standstill.stop()
        await self._engine.stop()
        await self._keeper.stop()
        await self._client.close()
