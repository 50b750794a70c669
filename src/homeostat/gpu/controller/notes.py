"""The governor's memory, kept in a ConfigMap: budgets, past use and preemptions outlive a restart. Losing it costs fairness some history."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from homeostat.client import Client, Unreachable
from homeostat.gpu.decisions import USED_UP, Memory
from homeostat.loop.election import NAMESPACE
from homeostat.model.errors import ApiError

log = logging.getLogger("homeostat.gpu")

NAME, FIELD = "homeostat-governor", "memory"
EVERY_SECONDS = 60.0
RETRY_SECONDS = 1.0
LARGEST_BYTES = 900_000
"""What a ConfigMap can hold, with room to spare."""


class Notes:
    """Reads the memory once, and writes it now and then."""

    def __init__(self, client: Client, manager: str) -> None:
        self._maps = client.kind("v1", "ConfigMap", namespace=NAMESPACE)
        self._manager = manager
        self._written: float | None = None
        self._preempted: dict[str, int] = {}

    async def read(self) -> Memory:
        """What was known before a restart; nothing where there is nothing that makes sense. What cannot be read now is asked for again."""
        while True:
            try:
                found = await self._maps.get(NAME)
                memory = msgspec.json.decode((found.get("data") or {})[FIELD], type=Memory)
            except (KeyError, msgspec.MsgspecError) as error:
                log.warning("what the governor knew is lost, and it begins anew: %s", error)
                return Memory()
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.reason == "NotFound":
                    return Memory()
                log.warning("what the governor knew cannot be read, and nothing is decided before: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._written, self._preempted = memory.at, _counted(memory)
                return memory

    async def write(self, memory: Memory, *, last: bool = False) -> None:
        """Writes it down where that is due, or for the `last` time. What cannot be written is written later.

        A preemption is due at once, before it is carried out, and so is that a budget is used up: else one restart after the other could use up
        the budgets again.
        """
        counted = _counted(memory)
        new = any(count > self._preempted.get(uid, 0) for uid, count in counted.items())
        if memory.at is None or (self._written is not None and not (last or new) and memory.at - self._written < EVERY_SECONDS):
            return
        text = msgspec.json.encode(memory).decode()
        self._written, self._preempted = memory.at, counted
        if len(text) > LARGEST_BYTES:
            log.warning("the governor's memory takes %d bytes and is not kept: after a restart it begins anew", len(text))
            return
        try:
            await self._maps.apply({"metadata": {"name": NAME}, "data": {FIELD: text}}, field_manager=self._manager, force=True)
        except (ApiError, Unreachable) as error:
            log.warning("the governor's memory could not be kept: %s", error)


def _counted(memory: Memory) -> dict[str, int]:
    """By workload how often it was preempted, and by tenant that it has used up its budget."""
    return {uid: len(times) for uid, times in memory.preempted.items()} | dict.fromkeys((key for key in memory.missed if key.endswith(USED_UP)), 1)
