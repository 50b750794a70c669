"""Work that grows with what clients send, done apart from the event loop, so that their neighbours do not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from homeostat.api.call import Call
from homeostat.api.crds import CRDS
from homeostat.api.schema import known_light

LARGE = 64 * 1024
"""Bytes, of what was sent and of what is stored together, from which on the loop is not held up."""

P = ParamSpec("P")
T = TypeVar("T")


class Apart:
    """One thread for all large requests: who sends much waits for others who send much, and for nobody else."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="apart")

    async def __call__(self, call: Call, stored: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Does the work for this call at once where it is small, otherwise in the thread.

        `stored`: bytes it starts from.
        """
        if stored + len(call.request.body) < LARGE and _is_quick(call):
            return work(*args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Takes no more work; what is under way goes to its end unheard."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _is_quick(call: Call) -> bool:
    """Small bodies can be much work too: schemas that are compiled for the first time, and patterns."""
    if call.resource.custom:
        return known_light(call.codec.version.schema)
    return call.resource.prefix != CRDS
