"""The governor's memory, kept in a ConfigMap: budgets, past use and preemptions outlive a restart. Losing it costs fairness some history."""

from __future__ import annotations

import logging

import msgspec

from homeostat.client import Client, Unreachable
from homeostat.gpu.decisions import Memory
from homeostat.loop.election import NAMESPACE
from homeostat.model.errors import ApiError

log = logging.getLogger("homeostat.gpu")

NAME, FIELD = "homeostat-governor", "memory"
EVERY_SECONDS = 60.0
LARGEST_BYTES = 900_000
"""What a ConfigMap can hold, with room to spare."""


class Notes:
    """Reads the memory once, and writes it now and then."""

    def __init__(self, client: Client, manager: str) -> None:
        self._maps = client.kind("v1", "ConfigMap", namespace=NAMESPACE)
        self._manager = manager
        self._written: float | None = None

    async def read(self) -> Memory:
        """What was known before a restart; nothing where there is nothing that makes sense."""
        try:
            found = await self._maps.get(NAME)
            memory = msgspec.json.decode((found.get("data") or {})[FIELD], type=Memory)
        except (ApiError, KeyError, msgspec.MsgspecError) as error:
            if not (isinstance(error, ApiError) and error.reason == "NotFound"):
                log.warning("what the governor knew is lost, and it begins anew: %s", error)
            return Memory()
        self._written = memory.at
        return memory

    async def write(self, memory: Memory, *, last: bool = False) -> None:
        """Writes it down where that is due, or for the `last` time. What cannot be written is written later."""
        if memory.at is None or (self._written is not None and not last and memory.at - self._written < EVERY_SECONDS):
            return
        text = msgspec.json.encode(memory).decode()
        self._written = memory.at
        if len(text) > LARGEST_BYTES:
            log.warning("the governor's memory takes %d bytes and is not kept: after a restart it begins anew", len(text))
            return
        try:
            await self._maps.apply({"metadata": {"name": NAME}, "data": {FIELD: text}}, field_manager=self._manager, force=True)
        except (ApiError, Unreachable) as error:
            log.warning("the governor's memory could not be kept: %s", error)
