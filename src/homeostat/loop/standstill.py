"""Finds code of users that blocks: while it does, nothing else of this process is done, for nobody."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from types import FrameType

log = logging.getLogger("homeostat.loop")

STANDSTILL_SECONDS = 1.0
"""So long nothing else may be done until it is said."""
LOOK_SECONDS = 0.25
AGAIN_SECONDS = 60.0
"""After so long the same line is told again."""


class Standstill:
    """From `start` to `stop`, on a thread of its own: says which line of these providers and composers blocks the event loop.

    What is built in is not looked at; without others there is no thread.
    """

    def __init__(self, kept: Iterable[object]) -> None:
        modules = {kind.__module__ for one in kept for kind in type(one).__mro__}
        self._modules = {name for name in modules if not name.startswith(("homeostat.", "builtins", "typing"))}
        self._over = threading.Event()
        self._beat = 0.0
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._told: dict[str, float] = {}

    def start(self) -> None:
        """On the event loop that is watched."""
        if not self._modules:
            return
        self._beat = time.monotonic()
        self._task = asyncio.get_running_loop().create_task(self._beats(), name="loop standstill")
        args = (threading.get_ident(),)
        self._thread = threading.Thread(target=self._watch, args=args, name="homeostat-standstill", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._over.set()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    async def _beats(self) -> None:
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(LOOK_SECONDS)

    def _watch(self, watched: int) -> None:
        while not self._over.wait(LOOK_SECONDS):
            now = time.monotonic()
            if now - self._beat < STANDSTILL_SECONDS or (place := self._place(sys._current_frames().get(watched))) is None:
                continue
            if now - self._told.get(place, -AGAIN_SECONDS) >= AGAIN_SECONDS:
                self._told[place] = now
                log.warning(
                    "%s blocks: nothing else was done for %.1f s; await what it waits for, or put it on a thread by `await asyncio.to_thread(...)`",
                    place,
                    now - self._beat,
                )

    def _place(self, frame: FrameType | None) -> str | None:
        while frame is not None:
            if frame.f_globals.get("__name__") in self._modules:
                return f"{os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}, in {frame.f_code.co_name},"
            frame = frame.f_back
        return None
