"""Informer: a local copy of a collection that keeps itself current."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from homeostat.client.backoff import Backoff
from homeostat.client.cache import Cache, Index
from homeostat.client.errors import is_expired
from homeostat.client.kubeconfig import ConfigError
from homeostat.client.objects import Key, Selection, newer
from homeostat.client.transport import Unreachable
from homeostat.client.watch import Lines, bookmark_of, open_lines
from homeostat.model.errors import ApiError
from homeostat.model.selectors import parse_field_selector, parse_label_selector

if TYPE_CHECKING:
    from homeostat.client.resource import Resource

log = logging.getLogger("homeostat.client")

T = TypeVar("T")

OWN_KEPT = 1000
"""Of how many own writes it is remembered that they are in already, until their events come."""
_REVISION = re.compile(rb'{"apiVersion":"[^"]*","kind":"[^"]*","metadata":{"resourceVersion":"(\d+)"').match
"""Finds the revision of an object without opening it where, as our server does, it stands first; elsewhere it finds none."""


class NotSynced(Exception):
    """The collection has not been read yet: nothing can be said about what is in it, least of all that it is empty."""


class Change(NamedTuple, Generic[T]):
    """Look at this object: as it is now, or None where it is gone. How it came to be so is not said."""

    key: Key
    object: T | None


class Informer(Generic[T]):
    """A copy of a collection, made by `Resource.informer`. Start it with `async with`, and wait for `wait_synced`.

    It lists and watches, and goes on through disconnects, silent connections, restarts of the server and a past that
    was forgotten (410), with growing pauses. A list that fails changes nothing: what was known stays known.

    **Own writes are seen at once.** What was written or deleted through the same client is in here when the call
    returns, and an event that is older never undoes it. (An informer with a field selector other than on metadata.name
    or metadata.namespace cannot tell whether a write belongs to it: there, wait with `reached`.)

    Objects are shared with everybody who asks: copy before you change one.
    """

    def __init__(
        self,
        resource: Resource[T],
        which: Selection,
        *,
        indexes: Mapping[str, Index[T]],
        idle: float,
    ) -> None:
        self._resource = resource
        self._which = which
        self._labels = parse_label_selector(which.labels)
        self._fields = parse_field_selector(which.fields)
        self._idle = idle
        self._cache: Cache[T] = Cache(resource.form, indexes)
        self._backoff = Backoff(source=resource.client.random)
        self._handlers: list[Callable[[Key], None]] = []
        self._own: dict[str, None] = {}  # revisions that answers to own writes brought; their events need not be opened
        self._synced = asyncio.Event()
        self.synced = False
        """Whether the collection was read, ever."""
        self._tells_own = self._fields.names <= {"metadata.name", "metadata.namespace"}  # whether a write belongs here can be told
        self._progress = asyncio.Event()
        self._streams_lists = resource.client.streams_lists
        self._namespaced = True
        self._task: asyncio.Task[None] | None = None
        self.problem: Exception | None = None
        """Why the server cannot be followed at present; None while it can."""

    # Its life

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def start(self) -> None:
        """Begins to follow the server, in a task of its own."""
        if self._task is None:
            self._resource.client.follow(self)
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"informer {self._resource!r}")

    async def stop(self) -> None:
        """Ends it; what is known stays readable."""
        self._resource.client.unfollow(self)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def wait_synced(self, timeout: float | None = None) -> None:
        """Waits until the collection was read. Raises `TimeoutError` after `timeout` seconds (default: never)."""
        try:
            async with asyncio.timeout(timeout):
                await self._synced.wait()
        except TimeoutError:
            why = f": {self.problem}" if self.problem else ""
            raise TimeoutError(f"{self._resource!r} was not read within {timeout:g} s{why}") from None

    async def reached(self, resource_version: str) -> None:
        """Waits until everything up to this resourceVersion, whoever wrote it, is in here."""
        while not self.synced or newer(resource_version, self._cache.revision):
            self._progress.clear()
            await self._progress.wait()

    # What it knows

    def get(self, name: str, namespace: str = "") -> T | None:
        """One object, or None where there is none. Raises `NotSynced` before the collection was read.

        `namespace` is that of the informer, else that of the client, where it is not said.
        """
        self._check()
        where = namespace or self._which.namespace or self._resource.client.namespace
        return self._cache.get(Key(where if self._namespaced else "", name))

    def at(self, key: Key) -> T | None:
        """One object by a key that this informer told, or None where there is none."""
        if not self.synced:
            self._check()
        return self._cache.get(key)

    def all(self, namespace: str = "") -> list[T]:
        """All objects, or those of a namespace."""
        self._check()
        found = (self._cache.get(key) for key in self._cache.keys(namespace))
        return [obj for obj in found if obj is not None]

    def indexed(self, index: str, value: str) -> list[T]:
        """The objects for which the named index gives `value`."""
        self._check()
        return self._cache.indexed(index, value)

    def __len__(self) -> int:
        self._check()
        return len(self._cache)

    def _check(self) -> None:
        if not self.synced:
            raise NotSynced(f"{self._resource!r} was not read yet: await wait_synced() first")

    # Who wants to know

    def subscribe(self, handler: Callable[[Key], None]) -> Callable[[], None]:
        """Calls `handler` with each key that changed, from now on; gives the function that ends it.

        Called in the event loop between two events: it must be quick and must not raise.
        """
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler) if handler in self._handlers else None

    async def changes(self) -> AsyncIterator[Change[T]]:
        """Everything that is there, then what changes, as long as one listens.

        Each object comes as it is when it is taken: of changes that came faster than they are taken, the last counts.
        """
        waiting: dict[Key, None] = dict.fromkeys(self._cache.keys())
        wake = asyncio.Event()

        def note(key: Key) -> None:
            waiting[key] = None
            wake.set()

        end = self.subscribe(note)
        try:
            await self._synced.wait()
            while True:
                while waiting:
                    key = next(iter(waiting))
                    del waiting[key]
                    yield Change(key, self._cache.get(key))
                wake.clear()
                await wake.wait()
        finally:
            end()

    def _tell(self, key: Key | None) -> None:
        if key is None or not self.synced:
            return
        for handler in tuple(self._handlers):
            try:
                handler(key)
            except Exception:
                log.exception("a handler of %r failed on %s", self._resource, key)

    # What was written through the same client

    @property
    def of(self) -> tuple[str, str]:
        """apiVersion and kind of what it follows."""
        return self._resource.api_version, self._resource.kind

    def wrote(self, obj: Any, body: bytes) -> None:
        """Takes in an object that the server answered a write with, by these bytes; `obj` is what whoever wrote has of it."""
        if not self._tells_own:
            return
        form = self._resource.form
        made: T = obj if form.shares(obj) else self._decode(body)
        identity = form.identity(made)
        key = identity.key
        if not self._concerns(key.namespace):
            return
        if self._selects(key, made):
            if not self._cache.put(made, identity):
                return
            if self._task is not None:
                self._own[identity.revision] = None
                if len(self._own) > OWN_KEPT:
                    del self._own[next(iter(self._own))]
            self._tell(key)
        elif key in self._cache:
            self._tell(self._cache.leave(made))

    def _selects(self, key: Key, made: T) -> bool:
        if not (self._which.labels or self._which.fields):
            return True
        named = {"metadata.name": key.name, "metadata.namespace": key.namespace}
        return self._labels.matches(self._resource.form.labels(made)) and self._fields.matches(named)

    def removed(self, namespace: str, name: str, uid: str) -> None:
        """Takes in that an object is gone."""
        if self._concerns(namespace):
            self._tell(self._cache.remove(Key(namespace, name), uid))

    def _concerns(self, namespace: str) -> bool:
        return not self._which.namespace or namespace == self._which.namespace

    # Following

    async def _run(self) -> None:
        listed = False
        lines: Lines | None = None
        while True:
            try:
                if not listed:
                    lines = await self._read()
                    listed = True
                lines = lines or await self._open({"resourceVersion": self._cache.revision})
                await self._listen(lines)
                pause = self._backoff.next()  # the server ended the watch in order
            except ApiError as error:
                listed = listed and not is_expired(error)
                pause = self._failed(error)
            except (Unreachable, ConfigError) as error:
                pause = self._failed(error)
            except Exception as error:  # an object that the form does not fit: a copy that stands still would be worse
                log.exception("%r: following failed", self._resource)
                listed = False
                pause = self._failed(error)
            finally:
                if lines is not None:
                    lines.close()
                    lines = None
            await self._backoff.rest(pause)

    def hurry(self) -> None:
        """Tries again at once where it pauses after a failure: whoever calls it knows that the server can be reached."""
        self._backoff.hurry()

    def _failed(self, error: Exception) -> float:
        self.problem = error
        told = error.retry_after if isinstance(error, ApiError) else 0
        pause = max(told, self._backoff.next())
        log.info("%r: %s; again in %.1f s", self._resource, error, pause)
        return pause

    async def _read(self) -> Lines | None:
        """Reads the collection whole: by a watch that begins with it where the server can, else by a list.

        Gives the watch, which goes on from there, where there is one.
        """
        self._namespaced = (await self._resource.served()).namespaced
        begun = self._cache.begin_list()
        if self._streams_lists:
            try:
                lines = await self._open({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
            except ApiError as error:
                if error.code not in (400, 422):
                    raise
                self._streams_lists = False  # a server from before there was such a thing
            else:
                await self._read_stream(lines, begun)
                return lines
        listing = await self._resource.select(self._which)
        self._take(listing, listing.resource_version, begun)
        return None

    async def _read_stream(self, lines: Lines, begun: int) -> None:
        found: dict[Key, T] = {}
        try:
            while (event := await lines.next()) is not None:
                kind, body = event
                if kind == "BOOKMARK":
                    revision, whole = bookmark_of(body)
                    if whole:
                        self._take(list(found.values()), revision, begun)
                        return
                    continue
                obj = self._resource.form.listed(body, self._resource.api_version, self._resource.kind)
                key = self._resource.form.identity(obj).key
                if kind == "DELETED":
                    found.pop(key, None)
                else:
                    found[key] = obj
            raise Unreachable("the watch ended before the collection was whole")
        except BaseException:
            lines.close()
            raise

    def _take(self, objects: Sequence[T], revision: str, begun: int) -> None:
        first = not self.synced
        self._own.clear()
        changed = self._cache.replace(objects, revision, begun)
        self.synced = True
        self._synced.set()
        self._worked()
        for key in self._cache.keys() if first else changed:
            self._tell(key)

    async def _listen(self, lines: Lines) -> None:
        while (event := await lines.next()) is not None:
            kind, body = event
            if kind == "BOOKMARK":
                self._cache.revision = bookmark_of(body)[0] or self._cache.revision
                self._worked()
                continue
            own = _REVISION(body)
            if own is not None and (revision := own[1].decode()) in self._own and kind != "DELETED":
                del self._own[revision]
                self._cache.revision = revision
                self._worked()
                continue
            changed = self._cache.event(kind, self._decode(body))
            self._worked()
            self._tell(changed)

    def _worked(self) -> None:
        self.problem = None
        self._backoff.reset()
        self._progress.set()

    async def _open(self, params: dict[str, str]) -> Lines:
        return await open_lines(self._resource, self._which, params, self._idle)

    def _decode(self, body: bytes) -> T:
        return self._resource.form.decode(body, self._resource.api_version, self._resource.kind)
