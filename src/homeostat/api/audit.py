"""The audit log: who did what to which object, as JSON lines. On by default, and it never holds a value.

A record says which fields changed, not to what: so no secret, token or password can get into it, whatever the kind; but for what the
author of an admission policy has it say (`annotations`).
Writes and refusals are always logged, but for the mere renewal of a lease; reads only where they concern secrets, unless
more is asked for. A request pays for one append to a queue; a thread of its own encodes, writes and rotates.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import orjson

from homeostat.api.auth.user import User
from homeostat.model.clock import format_micro_time
from homeostat.model.errors import UNSET, ApiError, Denied

log = logging.getLogger("homeostat.audit")

MAX_BYTES = 64 * 1024 * 1024
"""Size at which a file is put aside and a new one begun."""
KEEP_FILES = 8
"""How many files are kept in all; the oldest is deleted."""
FLUSH_SECONDS = 0.2
"""How long a record waits at most before it is written."""
QUEUE_LIMIT = 50_000
"""Records that may wait. Where the disk stands still for longer, further ones are counted and lost."""
FIELDS_LIMIT = 50
TEXT_LIMIT = 256
ANNOTATION_LIMIT = 64 * 1024

LEASES = "leases.coordination.k8s.io"

READ_VERBS = frozenset({"get", "list", "watch"})


class Record(msgspec.Struct, gc=False):
    """One request, when it was answered. Names are those of the request, or of what it created; `fields` comes from `fields_changed`."""

    time: float
    id: str
    user: User | None
    verb: str
    code: int
    latency: float = 0.0  # seconds
    impersonated_by: User | None = None
    source: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    path: str = ""  # of a request for no resource; without its query, which may hold anything
    fields: list[str] | None = None
    change_set: str = ""
    dry_run: bool = False
    reason: str = ""
    annotations: dict[str, str] | None = None  # what admission policies say, in the words of who wrote them

    def line(self) -> bytes:
        """The record as one line of JSON."""
        shown: dict[str, Any] = {
            "time": format_micro_time(self.time),
            "id": _short(self.id),
            "user": _who(self.user),
            "verb": self.verb,
            "code": self.code,
            "latencyMs": round(self.latency * 1_000_000) / 1000,
        }
        if self.impersonated_by is not None:
            shown["impersonatedBy"] = _who(self.impersonated_by)
        if self.source:
            shown["sourceIP"] = self.source
        if self.resource:
            shown["object"] = self._object()
        elif self.path:
            shown["path"] = _short(self.path.partition("?")[0])
        if self.fields is not None:
            shown["fieldsChanged"] = self.fields
        if self.change_set:
            shown["changeSet"] = _short(self.change_set)
        if self.dry_run:
            shown["dryRun"] = True
        if self.reason:
            shown["reason"] = _short(self.reason)
        if self.annotations:
            shown["annotations"] = {_short(key): _clean(value[:ANNOTATION_LIMIT]) for key, value in self.annotations.items()}
        return orjson.dumps(shown, option=orjson.OPT_APPEND_NEWLINE)

    def _object(self) -> dict[str, str]:
        shown = {"group": self.group} if self.group else {}
        if self.version:
            shown["version"] = self.version
        shown["resource"] = self.resource
        if self.subresource:
            shown["subresource"] = _short(self.subresource)
        if self.namespace:
            shown["namespace"] = _short(self.namespace)
        if self.name:
            shown["name"] = _short(self.name)
        if self.uid:
            shown["uid"] = _short(self.uid)
        return shown


def _who(user: User | None) -> orjson.Fragment | None:
    return None if user is None else _named(user.name, user.groups)


@lru_cache(256)
def _named(name: str, groups: tuple[str, ...]) -> orjson.Fragment:
    """A user, encoded: few do most of what is done."""
    return orjson.Fragment(orjson.dumps({"name": _short(name), "groups": [_short(group) for group in groups[:32]]}))


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # lone surrogates cannot be encoded as JSON


def _short(text: str) -> str:
    if len(text) <= TEXT_LIMIT and text.isascii():
        return text
    clean = _clean(text)
    return clean if len(clean) <= TEXT_LIMIT else clean[: TEXT_LIMIT - 1] + "…"


class AuditLog:
    """Where records go. `reads` logs every read too. `close` writes what waits. `listeners` are called with each record at once.

    A write that fails costs no request anything: it is reported once, its records wait and are tried again, so that the
    log goes on when the disk does. What no longer fits into the queue meanwhile is counted in `lost`.
    """

    def __init__(
        self,
        path: Path,
        *,
        reads: bool = False,
        max_bytes: int = MAX_BYTES,
        keep_files: int = KEEP_FILES,
        flush_seconds: float = FLUSH_SECONDS,
        queue_limit: int = QUEUE_LIMIT,
        report: Callable[[str], None] = log.error,
    ) -> None:
        self.path = path
        self.reads = reads
        self.lost = 0
        self.failures = 0
        self.listeners: set[Callable[[Record], None]] = set()
        self._max_bytes = max_bytes
        self._keep_files = max(1, keep_files)
        self._flush_seconds = flush_seconds
        self._queue_limit = queue_limit
        self._report = report
        self._queue: deque[Record] = deque()
        self._lines: list[bytes] = []  # encoded, not yet written
        self._writing = threading.Lock()
        self._descriptor = -1
        self._failing = False
        self._waiting = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def wants(self, verb: str, group: str, resource: str, code: int) -> bool:
        """Whether such a request is logged: ask before the work of making a record."""
        if verb not in READ_VERBS or self.reads or code in (401, 403):
            return True
        return resource == "secrets" and not group

    def record(self, record: Record) -> None:
        """Takes a record; returns at once."""
        if len(self._queue) + len(self._lines) >= self._queue_limit or self._stopped.is_set():
            self.lost += 1
            return
        self._queue.append(record)
        for heard in tuple(self.listeners):
            heard(record)
        if not self._waiting.is_set():
            self._waiting.set()

    def flush(self) -> None:
        """Writes what waits, now."""
        with self._writing:
            self._waiting.clear()
            for _ in range(len(self._queue)):
                self._encode(self._queue.popleft())
            try:
                self._write()
                self._failing = False
            except OSError as error:
                self.failures += 1
                self._let_go()
                self._waiting.set()  # try again after the usual time
                if not self._failing:
                    self._failing = True
                    self._report(f"the audit log {self.path} cannot be written: {error}. Requests go on; records wait")

    def close(self) -> None:
        """Writes what waits and ends; what cannot be written now is lost."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._waiting.set()
        self._thread.join()
        self.flush()
        with self._writing:
            self.lost += len(self._lines)
            self._lines.clear()
            self._let_go()

    def _run(self) -> None:
        # `close` may ring while a flush is about to clear the bell: who has been stopped does not wait for it.
        while not self._stopped.is_set() and self._waiting.wait() and not self._stopped.wait(self._flush_seconds):
            self.flush()

    def _encode(self, record: Record) -> None:
        try:
            self._lines.append(record.line())
        except (TypeError, ValueError) as error:
            self.lost += 1
            self._report(f"an audit record cannot be encoded: {error}")

    def _write(self) -> None:
        """Writes the lines file by file; those that are written are forgotten, so that none is written twice."""
        while self._lines:
            descriptor = self._open()
            size = os.fstat(descriptor).st_size
            count, end = 0, size
            # A line longer than a whole file still goes somewhere: into a file of its own.
            while count < len(self._lines) and (end == 0 or end + len(self._lines[count]) <= self._max_bytes):
                end += len(self._lines[count])
                count += 1
            if count == 0:
                self._rotate()
                continue
            _append(descriptor, b"".join(self._lines[:count]), size)
            del self._lines[:count]

    def _open(self) -> int:
        if self._descriptor < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o600)
            os.fchmod(self._descriptor, 0o600)
        return self._descriptor

    def _rotate(self) -> None:
        self._let_go()
        files = [self.path, *(self.path.with_name(f"{self.path.name}.{n}") for n in range(1, self._keep_files))]
        files[-1].unlink(missing_ok=True)
        for younger, older in reversed(list(pairwise(files))):
            if younger.exists():
                younger.replace(older)

    def _let_go(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1


def _append(descriptor: int, data: bytes, size: int) -> None:
    """All of it or nothing: half a line would spoil the next one."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


# Why it was refused


def refusal(error: ApiError) -> str:
    """The reason of a refusal as the log may hold it: messages about what was sent quote it, so they are left out."""
    if isinstance(error, Denied):
        return error.summary
    if error.code not in (400, 409, 422) or not (error.causes or error.code == 400):
        return error.message
    wrong = ", ".join(f"{c['field']} ({c['reason']})" for c in error.causes[:FIELDS_LIMIT] if c.get("field"))
    return f"{error.reason}: {wrong}" if wrong and error.code == 422 else error.reason


# What changed

_NOISE = frozenset({"managedFields", "resourceVersion", "generation"})
"""Of the metadata: these follow from other changes and say nothing more."""
_DEPTH_LIMIT = 32
_KEY_LIMIT = 100

Object = Mapping[str, Any]


def is_heartbeat(fields: list[str] | None) -> bool:
    """Whether a lease was only renewed, and told when its loop made a pass. That is not logged: it comes every few seconds, and means
    nothing more than that its holder lives."""
    return bool(fields) and all(path == "spec.renewTime" or path.endswith("homeostat.dev/last-pass") for path in fields or ())


def fields_changed(old: Object | None, new: Object | None, limit: int = FIELDS_LIMIT) -> list[str]:
    """The paths at which two versions of an object differ, at most `limit` and then `…`. Paths only, never values.

    Creations and deletions concern the whole object: they give an empty list. A list whose length changed is named as
    a whole. Keys that users choose (labels, data) are part of a path, shortened where they are long.
    """
    found: list[str] = []
    if old is not None and new is not None:
        _compare(old, new, "", _DEPTH_LIMIT, found, limit)
    if len(found) > limit:
        found[limit:] = ["…"]
    return found


def _compare(old: Any, new: Any, path: str, depth: int, found: list[str], limit: int) -> None:
    if len(found) > limit:
        return
    if depth and isinstance(old, dict) and isinstance(new, dict):
        for key in old if old.keys() == new.keys() else {**old, **new}:
            before, after = old.get(key, UNSET), new.get(key, UNSET)
            if before is after or (path == "metadata" and key in _NOISE):
                continue
            if before != after:
                _compare(before, after, _child(path, key), depth - 1, found, limit)
    elif depth and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            if before != after:
                _compare(before, after, f"{path}[{index}]", depth - 1, found, limit)
    else:
        found.append(path)


def _child(path: str, key: str) -> str:
    shown = key if len(key) <= _KEY_LIMIT else key[: _KEY_LIMIT - 1] + "…"
    if "." in shown or "/" in shown or "[" in shown:
        return f"{path}[{shown}]"
    return f"{path}.{shown}" if path else shown
