"""Checkpoints of a running server: streamed to who may read everything, and written by the clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

from homeostat.api.audit import Record
from homeostat.api.auth import Attributes, User, denied
from homeostat.api.request import Response, Stream
from homeostat.model.clock import format_time
from homeostat.store import StoreError
from homeostat.store.checkpoint import SUFFIX, Draft, Summary, pack

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

log = logging.getLogger("homeostat.checkpoints")

MEDIA = "application/octet-stream"
PATH = "/homeostat/checkpoint"
PREFIX = "auto-"
"""How the names of timed checkpoints begin: no others are ever deleted."""
RETRY_SECONDS = 60.0


async def stream(plane: ControlPlane, user: User, client: str) -> Response:
    """The checkpoint of now. It holds every secret there is, so it is for those who may read everything."""
    wanted = Attributes(user=user, verb="get", group="*", resource="*")
    decision = plane.rbac.authorize(wanted)
    if not decision.allowed:
        raise denied(wanted, decision.reason)

    plane.audit.record(
        Record(plane.clock.now(), plane.ids.uid(), user, "get", 200, source=client, path=PATH, reason="all objects were read")
    )

    async def write(out: Stream) -> None:
        async with contextlib.aclosing(pieces(plane)) as made:  # who goes away holds nothing back
            async for piece in made:
                out.write(piece)
                await out.drained()
                if out.closed:
                    return

    return Response(200, content_type=MEDIA, stream=write)


async def pieces(plane: ControlPlane) -> AsyncGenerator[bytes, None]:
    """A checkpoint of now, piece by piece; the log stays readable until it is done."""
    from homeostat import __version__

    revision, now = plane.store.revision, format_time(plane.clock.now())
    with plane.history.held(revision):
        async for piece in pack(plane.store, revision, now, __version__, asyncio.to_thread):
            yield piece


async def write(plane: ControlPlane, path: Path) -> Summary:
    """Writes a checkpoint of now to a file, which appears whole."""
    draft = await asyncio.to_thread(Draft, path)
    try:
        async with contextlib.aclosing(pieces(plane)) as made:
            async for piece in made:
                await asyncio.to_thread(draft.write, piece)
        return await asyncio.to_thread(draft.finish)
    except BaseException:
        draft.give_up()
        raise


class Timed:
    """Writes a checkpoint every so many seconds and keeps the newest `keep`. One that fails is tried again after a minute."""

    def __init__(self, plane: ControlPlane, directory: Path, every: float, keep: int) -> None:
        self._plane = plane
        self._directory = directory
        self._every = every
        self._keep = max(1, keep)
        self._written = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The first comes when the youngest there is has its age, at once where there is none."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._directory.glob(f"{PREFIX}*{SUFFIX}.part"):  # of a process that was killed
            left.unlink(missing_ok=True)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="checkpoints")

    async def stop(self) -> None:
        """One that is being written is given up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        youngest = max((path.stat().st_mtime for path in self.kept()), default=0.0)
        pause = max(0.0, min(self._every, youngest + self._every - time.time()))
        while True:
            await asyncio.sleep(pause)
            try:
                if self._plane.store.revision != self._written:  # else the last one still says it all
                    await self.write()
                pause = self._every
            except (StoreError, OSError) as error:
                log.error("no checkpoint could be written: %s; it is tried again in a minute", error)
                pause = min(RETRY_SECONDS, self._every)

    async def write(self) -> Path:
        """Writes one now; only then the oldest go."""
        revision = self._plane.store.revision
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._plane.clock.now()))
        path = self._directory / f"{PREFIX}{stamp}-r{revision}{SUFFIX}"
        self._written = (await write(self._plane, path)).revision
        for old in self.kept()[self._keep :]:
            with contextlib.suppress(OSError):
                old.unlink()
        return path

    def kept(self) -> list[Path]:
        """Those there are, youngest first."""
        found = [path for path in self._directory.glob(f"{PREFIX}*{SUFFIX}") if path.is_file()]
        return sorted(found, key=lambda path: path.name, reverse=True)
