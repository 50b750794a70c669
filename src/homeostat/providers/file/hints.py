"""Hints where to look: changes of watched directories, and of the ConfigMaps and Secrets that templates use.

A hint says nothing but "look at this one". Lost hints cost time until the next pass, and nothing else; so every trouble here is
borne in silence, or with a line in the log.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterable

from homeostat.client import Client, Unreachable
from homeostat.loop.fleet import Ref
from homeostat.model.errors import ApiError
from homeostat.providers.file.inotify import Inotify, Mask
from homeostat.providers.file.tree import TEMPORARY, Watch
from homeostat.providers.references import Source

log = logging.getLogger("homeostat.providers.file")

AGAIN_SECONDS = 5.0
"""Until a watch of ConfigMaps or Secrets that broke off is tried again."""


class Hints:
    """Who has to look when what changes. Made, and read, in the event loop; `watching` is for threads."""

    def __init__(self, client: Client | None) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._pending: dict[Ref, None] = {}
        self._some = asyncio.Event()
        self._lock = threading.Lock()
        self._names: dict[int, dict[Ref, set[str]]] = {}  # by watch: who looks at which names
        self._watches: dict[Ref, set[int]] = {}
        self._users: dict[tuple[str, str, str], set[Ref]] = {}  # by kind, namespace, name
        self._followers: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._full = False
        self._inotify: Inotify | None = None
        try:
            self._inotify = Inotify()
            self._loop.add_reader(self._inotify.fd, self._read)
        except OSError as error:
            log.warning("changes of files are only found by passes: %s", error.strerror)

    async def stream(self) -> AsyncIterator[Ref]:
        """The hints, as they come, each once."""
        try:
            while True:
                await self._some.wait()
                self._some.clear()
                while self._pending:
                    ref = next(iter(self._pending))
                    del self._pending[ref]
                    yield ref
        finally:
            self.close()

    def close(self) -> None:
        """Ends it."""
        for task in self._followers.values():
            task.cancel()
        self._followers.clear()
        with self._lock:
            if self._inotify is not None:
                self._loop.remove_reader(self._inotify.fd)
                self._inotify.close()
                self._inotify = None

    def forget(self, ref: Ref) -> None:
        """Nobody looks at this any more."""
        with self._lock:
            for watch in self._watches.pop(ref, ()):
                self._let_go(watch, ref)
        for users in self._users.values():
            users.discard(ref)

    # Files

    def watching(self, ref: Ref) -> tuple[Watch, set[int]]:
        """For one look, in a thread: what to call for every directory that it depends on, before it is read."""
        now: set[int] = set()

        def watch(fd: int, name: str) -> None:
            with self._lock:
                if self._inotify is None:
                    return
                try:
                    number = self._inotify.watch(fd)
                except OSError as error:
                    if not self._full:
                        self._full = True
                        log.warning("no more directories can be watched (%s): passes find what changes", error.strerror)
                    return
                names = self._names.setdefault(number, {})
                if number in now:
                    names[ref].add(name)
                else:
                    now.add(number)
                    names[ref] = {name}
                    self._watches.setdefault(ref, set()).add(number)

        return watch, now

    def watched(self, ref: Ref, now: set[int]) -> None:
        """The look is done: what it did not depend on is watched for it no more."""
        with self._lock:
            for watch in self._watches.get(ref, set()) - now:
                self._watches[ref].discard(watch)
                self._let_go(watch, ref)

    def _let_go(self, watch: int, ref: Ref) -> None:
        users = self._names.get(watch)
        if users is not None:
            users.pop(ref, None)
            if not users:
                del self._names[watch]
                if self._inotify is not None:
                    self._inotify.unwatch(watch)

    def _read(self) -> None:
        assert self._inotify is not None
        for event in self._inotify.read():
            if event.mask & Mask.OVERFLOW:
                self._tell(list(self._watches))
                continue
            if event.name.startswith(TEMPORARY):
                continue
            with self._lock:
                users = self._names.get(event.watch, {})
                if event.mask & Mask.IGNORED:
                    self._names.pop(event.watch, None)
                found = [ref for ref, names in users.items() if not event.name or event.name in names or "" in names]
            self._tell(found)

    def _tell(self, refs: Iterable[Ref]) -> None:
        self._pending.update(dict.fromkeys(refs))
        if self._pending:
            self._some.set()

    # Values

    def uses(self, ref: Ref, sources: Iterable[Source]) -> None:
        """A resource depends on these ConfigMaps and Secrets."""
        for source in sources:
            self._users.setdefault((source.kind, ref.namespace, source.object), set()).add(ref)
            where = (source.kind, ref.namespace)
            if self._client is not None and where not in self._followers:
                self._followers[where] = self._loop.create_task(self._follow(self._client, *where))

    async def _follow(self, client: Client, kind: str, namespace: str) -> None:
        while True:
            try:
                async with client.kind("v1", kind).watch(namespace=namespace) as events:
                    async for event in events:
                        name = (event.object.get("metadata") or {}).get("name", "")
                        self._tell(self._users.get((kind, namespace, name), ()))
            except (ApiError, Unreachable) as error:
                log.info("the watch of %ss in %s broke off: %s", kind, namespace, error)
            await asyncio.sleep(AGAIN_SECONDS)
