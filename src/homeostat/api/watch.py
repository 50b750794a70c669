"""Watch: every change of a collection from a revision on, in order, complete, none twice.

A watch has no queue. It is either **live**, and is written to straight from the commit, or it is **behind**, and reads
the log from its position until it has caught up. A slow reader falls behind and comes back by itself; memory does not
grow with it. An event is encoded once for all watches that want it in the same form.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import orjson

from homeostat.api.call import Call, integer, revision_of
from homeostat.api.read import not_older, pages
from homeostat.api.request import Response, Stream
from homeostat.api.select import Matcher, matcher_for
from homeostat.api.shape import Shape, shape_for
from homeostat.model.errors import ApiError, FieldError, expired, invalid
from homeostat.model.protocol import INITIAL_EVENTS_END
from homeostat.store import Compacted, Entry, Event, Store

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

BOOKMARK_SECONDS = 60.0
"""How often a quiet watch that allows bookmarks is told how far it has come."""
LONGEST_SECONDS = 3600
SHORTEST_SECONDS = 1800
"""A watch that names no timeout ends at a random time between these, so that reconnects spread."""
FUTURE_SECONDS = 0.2
"""How often a watch from a future revision looks whether it has come."""


class Watch:
    """One open watch. `position` is the revision it has seen, `told` the last one that its client was told of."""

    __slots__ = ("_shared", "bookmarks", "ended", "matcher", "position", "prefix", "shape", "stream", "told", "wake")

    def __init__(
        self, stream: Stream, prefix: str, shape: Shape, matcher: Matcher | None, bookmarks: bool
    ) -> None:
        self.stream = stream
        self.prefix = prefix
        self.shape = shape
        self.matcher = matcher
        self.bookmarks = bookmarks
        self.position = 0
        self.told = 0
        self.ended = False
        self.wake: asyncio.Event = asyncio.Event()
        # Plain objects of one codec look the same to all who watch them: encoded once, kept on the event.
        self._shared = shape.codec if type(shape) is Shape else None

    def send(self, events: Sequence[Event]) -> None:
        """Writes what of these events this watch should see."""
        prefix = self.prefix
        lines = [line for e in events if e.key.startswith(prefix) and (line := self._line(e))]
        if lines:
            self.stream.write(lines[0] if len(lines) == 1 else b"".join(lines))

    def _line(self, event: Event) -> bytes:
        """One event as a line of JSON; empty where it does not concern this watch."""
        if self.matcher is None:
            kind = "DELETED" if event.value is None else "ADDED" if event.previous is None else "MODIFIED"
        else:
            # Entering a selector looks like a creation, leaving it like a deletion.
            now = event.value is not None and self.matcher.matches(event.key, event.value)
            before = event.previous is not None and self.matcher.matches(event.key, event.previous)
            if not now and not before:
                return b""
            kind = "DELETED" if not now else "MODIFIED" if before else "ADDED"
        # What is gone is told as it last was, for this watch, under the revision of its going.
        value = event.previous if kind == "DELETED" else event.value
        assert value is not None
        if self._shared is None:
            return _encode(kind, self.shape.single(Entry(event.key, value, event.revision, event.created)))
        if event.form is self._shared and event.told == kind:
            return event.line
        if event.form is None:
            event.form, event.told = self._shared, kind
            event.line = _encode(kind, self._shared.serve(value, event.revision))
            return event.line
        memo = event.memo
        if memo is None:
            memo = event.memo = {}
        line: bytes | None = memo.get((self._shared, kind))
        if line is None:
            line = memo[self._shared, kind] = _encode(kind, self._shared.serve(value, event.revision))
        return line

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> None:
        """Tells the client how far it has come."""
        self.told = revision
        self.stream.write(_encode("BOOKMARK", self.shape.bookmark(revision, annotations)))


def _encode(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)


class Fanout:
    """All live watches, grouped by kind, fed by one subscription to the store."""

    def __init__(self, store: Store) -> None:
        self._live: dict[str, dict[Watch, None]] = {}  # fed in the order in which they came
        self._loop = asyncio.get_running_loop()
        self._end: Callable[[], None] = store.subscribe(self._deliver)
        self.revision = store.revision
        self._timer = self._loop.call_later(BOOKMARK_SECONDS, self._remind)

    def _deliver(self, events: Sequence[Event], revision: int) -> None:
        self.revision = revision
        if not self._live:
            return
        groups: dict[str, list[Event]] = {}
        for event in events:
            groups.setdefault(event.key[: event.key.index("/") + 1], []).append(event)
        for kind, group in groups.items():
            for watch in tuple(self._live.get(kind, ())):
                watch.send(group)
                if watch.stream.congested or watch.stream.closed:
                    watch.position = revision
                    self.detach(kind, watch)
                    watch.wake.set()

    def attach(self, kind: str, watch: Watch) -> None:
        """Makes a watch that has caught up a live one."""
        self._live.setdefault(kind, {})[watch] = None

    def detach(self, kind: str, watch: Watch) -> bool:
        """Takes a watch out of the live ones; says whether it was one of them."""
        live = self._live.get(kind)
        if live is None or watch not in live:
            return False
        live.pop(watch, None)
        if not live:
            del self._live[kind]
        return True

    def end(self, kind: str) -> None:
        """Ends all watches of a kind that is no longer served, or not in the same form."""
        for watch in tuple(self._live.get(kind, ())):
            watch.ended = True
            watch.wake.set()

    def _remind(self) -> None:
        for live in self._live.values():
            for watch in live:
                if watch.bookmarks:
                    watch.bookmark(self.revision)
        self._timer = self._loop.call_later(BOOKMARK_SECONDS, self._remind)

    def close(self) -> None:
        """Feeds nobody any more."""
        self._timer.cancel()
        self._end()

    def __len__(self) -> int:
        return sum(len(live) for live in self._live.values())


class _Start:
    """From where a watch begins, by its parameters."""

    __slots__ = ("bookmarks", "initial", "mark_end", "revision", "timeout")

    def __init__(self, plane: ControlPlane, call: Call) -> None:
        params = call.request.params
        version = params.get("resourceVersion", "")
        match = params.get("resourceVersionMatch", "")
        send = params.get("sendInitialEvents")
        self.bookmarks = call.request.flag("allowWatchBookmarks")
        wanted = call.request.flag("sendInitialEvents")
        if send is None and not match and version in ("", "0"):
            send, match, wanted = "true", "NotOlderThan", True  # what such a watch has always meant
        _check_options(send, match, params.get("continue", ""))
        self.revision = revision_of(version)
        self.initial = wanted
        self.mark_end = wanted and self.bookmarks
        seconds = integer(params, "timeoutSeconds")
        self.timeout = float(seconds) if seconds > 0 else plane.ids.jitter(SHORTEST_SECONDS, LONGEST_SECONDS)


def _check_options(send: str | None, match: str, token: str) -> None:
    problems: list[str] = []
    if send is not None and match != "NotOlderThan":
        problems.append("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if send is None and match:
        problems.append("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    errors = [FieldError.forbidden("resourceVersionMatch", problem) for problem in problems]
    if match not in ("", "NotOlderThan"):
        errors.append(FieldError.not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
    if match and token:
        forbidden = "resourceVersionMatch is forbidden when continue is provided"
        errors.append(FieldError.forbidden("resourceVersionMatch", forbidden))
    if errors:
        raise invalid("meta.k8s.io", "ListOptions", "", errors)


async def watch(plane: ControlPlane, call: Call) -> Response:
    """Opens a watch. What is wrong with the request is said before the stream begins; what has expired, inside it."""
    start = _Start(plane, call)
    matcher = matcher_for(call)
    shape = shape_for(
        call.request.header(b"accept"),
        call.resource,
        call.codec,
        listing=False,
        streaming=True,
        include=call.request.params.get("includeObject", ""),
        now=plane.clock.now,
    )
    return Response(200, content_type=shape.content_type, stream=lambda s: _run(plane, call, start, shape, matcher, s))


async def _run(
    plane: ControlPlane, call: Call, start: _Start, shape: Shape, matcher: Matcher | None, stream: Stream
) -> None:
    fanout = plane.fanout
    kind = call.resource.prefix
    watch = Watch(stream, call.prefix, shape, matcher, start.bookmarks)
    stream.notify = watch.wake.set
    timer = asyncio.get_running_loop().call_later(start.timeout, watch.wake.set)
    deadline = asyncio.get_running_loop().time() + start.timeout
    try:
        await _begin(plane, start, watch)
        while not (stream.closed or stream.stopping or watch.ended):
            if watch.position > fanout.revision:
                await _future(watch, FUTURE_SECONDS)
            else:
                events, watch.position = await plane.store.since(watch.prefix, watch.position)
                watch.send(events)
                await stream.drained()
                if watch.position < fanout.revision:
                    continue
                if plane.registry.get(call.resource.qualified) is not call.resource:
                    return  # the kind went, or changed, while this watch was behind
                fanout.attach(kind, watch)
                watch.wake.clear()
                await watch.wake.wait()
                if fanout.detach(kind, watch):
                    watch.position = fanout.revision
            if asyncio.get_running_loop().time() >= deadline:
                if watch.bookmarks and watch.position > watch.told:
                    watch.bookmark(watch.position)
                return
    except Compacted as error:
        stream.write(_encode("ERROR", orjson.dumps(_too_old(error).status())))
    except ApiError as error:
        stream.write(_encode("ERROR", orjson.dumps(error.status())))
    finally:
        timer.cancel()
        fanout.detach(kind, watch)


async def _begin(plane: ControlPlane, start: _Start, watch: Watch) -> None:
    """Brings a watch to the revision from which changes are told."""
    if not start.initial:
        watch.position = watch.told = start.revision or plane.store.revision
        return
    not_older(plane, start.revision)
    watch.position = await _initial(plane, watch)
    if start.mark_end:
        watch.bookmark(watch.position, {INITIAL_EVENTS_END: "true"})


async def _future(watch: Watch, seconds: float) -> None:
    """A watch from a revision that has not happened waits for it, as upstream's does; rare, so it simply looks again."""
    watch.wake.clear()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(watch.wake.wait(), seconds)


def _too_old(error: Compacted) -> ApiError:
    return expired(f"too old resource version: {error.asked} ({error.oldest})")


async def _initial(plane: ControlPlane, watch: Watch) -> int:
    """The collection as it is, as ADDED events; gives its revision."""
    revision = 0
    async for page in pages(plane.store, watch.prefix):
        revision = page.revision
        lines = [
            _encode("ADDED", watch.shape.single(e))
            for e in page.entries
            if watch.matcher is None or watch.matcher.matches(e.key, e.value)
        ]
        if lines:
            watch.stream.write(b"".join(lines))
        await watch.stream.drained()
        if watch.stream.closed:
            break
    return revision
