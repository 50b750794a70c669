"""The audit log, read again: its last records, for those who may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from homeostat.api.audit import KEEP_FILES, READ_VERBS
from homeostat.api.call import integer
from homeostat.api.request import Request, Response, json_response

if TYPE_CHECKING:
    from homeostat.api.audit import AuditLog

PATH = "/homeostat/audit"
"""Who may `get` this may read all of it: it tells of every kind and namespace."""
LIMIT, MOST = 500, 5000
READ_BYTES = 32 * 1024 * 1024
"""How far back is looked, however few records were found."""
_BLOCK = 256 * 1024
_MACHINES = ("system:", "homeostat:")

Said = dict[str, Any]
Wanted = Callable[[Said], bool]


def by_people(said: Said) -> bool:
    """Whether it was a person, or a program of theirs; not one of the server's own, nor an agent."""
    return not str((said.get("user") or {}).get("name", "")).startswith(_MACHINES)


def is_question(said: Said) -> bool:
    """Whether it only asked what one may do: pages do that all the time."""
    return str((said.get("object") or {}).get("resource", "")).endswith("reviews") and said.get("verb") == "create"


OF_OBJECT = ("group", "resource", "namespace", "name")
"""What may be asked for of the object of a record; the empty group is the core's."""


async def answer(log: AuditLog, request: Request) -> Response:
    """The last records, newest first: `limit` of them; with `people=true` without what the server's own parts did.

    `resource`, `group`, `namespace`, `name` and `changeSet` choose; `writes=true` leaves out reads and dry runs.
    """
    limit = min(integer(request.params, "limit") or LIMIT, MOST)
    people, writes, params = request.flag("people"), request.flag("writes"), request.params
    of = {name: params[name] for name in OF_OBJECT if name in params}
    change_set = params.get("changeSet", "")

    def wanted(said: Said) -> bool:
        if people and (not by_people(said) or is_question(said)):
            return False
        if writes and not is_write(said):
            return False
        thing = said.get("object") or {}
        return all(thing.get(name, "") == value for name, value in of.items()) and change_set in ("", said.get("changeSet"))

    items = await last(log, limit, wanted)
    return json_response({"apiVersion": "homeostat.dev/v1alpha1", "kind": "AuditList", "metadata": {}, "items": items})


def is_write(said: Said) -> bool:
    """Whether it may have changed something that is stored."""
    return bool(said.get("object")) and not said.get("dryRun") and said.get("verb") not in READ_VERBS


async def last(log: AuditLog, limit: int, wanted: Wanted) -> list[Said]:
    """The last wanted records, newest first. What waits is written first."""

    def read() -> list[Said]:
        log.flush()
        found: list[Said] = []
        for said in _backwards(log.path):
            if wanted(said):
                found.append(said)
                if len(found) >= limit:
                    break
        return found

    return await asyncio.to_thread(read)


def _backwards(path: Path) -> Iterator[Said]:
    left = READ_BYTES
    for file in (path, *(path.with_name(f"{path.name}.{number}") for number in range(1, KEEP_FILES))):
        for line in _lines(file):
            left -= len(line) + 1
            if left < 0:
                return
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError:
                continue  # cut off by a crash


def _lines(file: Path) -> Iterator[bytes]:
    """The lines of a file, the last one first."""
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        return
    with opened as source:
        at, rest = source.seek(0, 2), b""
        while at > 0:
            step = min(_BLOCK, at)
            at -= step
            source.seek(at)
            first, *lines = (source.read(step) + rest).split(b"\n")
            yield from (line for line in reversed(lines) if line)
            rest = first
        if rest:
            yield rest
