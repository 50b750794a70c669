"""How the past is asked for: `?at=` on a get or a list, `?history=` on a get (with `declared=true`: without reports), and what a change set did.

`at` is a revision or a time. It needs the same right as reading the present: `get` or `list`, now. Beyond the log (an hour, unless
told otherwise) the answer shows what was declared, with the last status of that declaration. Kubernetes' own way,
`resourceVersion=N&resourceVersionMatch=Exact` on a list, reads the log alone, and is 410 beyond it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson

from homeostat.api import auditread, read, unnamed
from homeostat.api.audit import fields_changed
from homeostat.api.auth import Attributes, User
from homeostat.api.call import Call, integer
from homeostat.api.codec import Codec
from homeostat.api.history import change_set_of, declared, same_declaration
from homeostat.api.request import Request, Response, json_response
from homeostat.api.resource import Object, Resource, split_key
from homeostat.api.select import matcher_for
from homeostat.model.clock import format_time
from homeostat.model.errors import bad_request, path_not_found
from homeostat.model.protocol import DELETION_CHANGE_SET
from homeostat.store import Entry

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

API_VERSION = "homeostat.dev/v1alpha1"
REVISION = ["homeostat", "revision"]
MOST = 1000
"""Revisions of one object in an answer."""
MOST_WRITES = 20_000
"""Writes of one object that the log is searched through for declarations."""

_mark = re.compile(rb'"homeostat\.dev/(?:deletion-)?change-set":("(?:[^"\\]|\\.)*")').findall


def asked(request: Request) -> bool:
    """Whether a get or list is about the past."""
    return "at" in request.params or "history" in request.params


async def get(plane: ControlPlane, call: Call) -> Response:
    """An object as it was, or what happened to it."""
    if "history" in call.request.params:
        return await _revisions(plane, call)
    revision = await _at(plane, call)
    entry = await plane.history.entry(call.key, revision)
    if entry is None:
        error = call.not_found()
        error.message += f" at revision {revision}"
        raise error
    shape = read.shape_of(plane, call, listing=False)
    return Response(200, shape.single(entry), shape.content_type)


async def list_objects(plane: ControlPlane, call: Call) -> Response:
    """A collection as it was. In pages where asked for and the log has it, else whole."""
    params = call.request.params
    if "history" in params:
        raise bad_request("history is asked of one object: name it")
    if params.get("continue") or params.get("resourceVersion") or params.get("resourceVersionMatch"):
        raise bad_request("at says which state is meant: leave continue, resourceVersion and resourceVersionMatch out")
    revision = await _at(plane, call)
    if revision >= plane.store.compacted:
        call.request = _exactly(call.request, revision)
        return await read.list_objects(plane, call)
    matcher = matcher_for(call)
    shape = read.shape_of(plane, call, listing=True)
    entries = await plane.history.entries(call.prefix, revision)
    kept = entries if matcher is None else [e for e in entries if matcher.matches(e.key, e.value)]
    body = b"".join((shape.open_list(revision), b",".join(shape.items(kept)), shape.close))
    return Response(200, body, shape.content_type)


def _exactly(request: Request, revision: int) -> Request:
    """The same question in Kubernetes' own words."""
    params = {name: value for name, value in request.params.items() if name != "at"}
    query = urlencode({**params, "resourceVersion": str(revision), "resourceVersionMatch": "Exact"})
    return Request(request.method, f"{request.path}?{query}", request.headers, request.body, request.user, request.client)


async def _at(plane: ControlPlane, call: Call) -> int:
    revision = await plane.history.revision_at(call.request.params["at"])
    read.not_older(plane, revision)
    return revision


# One object


async def _revisions(plane: ControlPlane, call: Call) -> Response:
    """What happened to an object, newest first: its writes as far as the log goes, its declarations before that."""
    limit = min(integer(call.request.params, "history") or 100, MOST)
    states = await _states(plane, call.key, limit + 1, call.request.flag("declared"))
    times = await plane.history.times_of([state.revision for state in states[:limit]])
    items = []
    for at, state in enumerate(states[:limit]):
        before = states[at + 1] if at + 1 < len(states) else None
        items.append(_told(plane.hub(call), state, before, times.get(state.revision), last=before is None))
    return json_response({"apiVersion": API_VERSION, "kind": "RevisionList", "metadata": {}, "items": items})


class _State:
    """What a key held from a revision on; None where it was deleted."""

    __slots__ = ("created", "revision", "value")

    def __init__(self, revision: int, value: bytes | None, created: int) -> None:
        self.revision = revision
        self.value = value
        self.created = created


async def _states(plane: ControlPlane, key: str, limit: int, declarations: bool) -> list[_State]:
    """What a key held, newest first; where only `declarations` are meant, without writes that declared nothing new."""
    compacted = plane.store.compacted
    events = await plane.store.history(key, MOST_WRITES if declarations else limit)
    states = [_State(e.revision, e.value, e.created) for e in events]
    inside = [state for state in states if state.revision > compacted]
    past = await plane.history.past(key, limit)
    # What the log holds from before it begins is the last declaration, as it was written last: it began where the one before ended.
    for state in states[len(inside) : len(inside) + 1]:
        last = past[0].until if past and not past[0].gone else 0
        inside.append(_State(max(state.created, last), state.value, state.created))
    began = inside[-1].revision if inside else plane.store.revision + 1
    for one in past:
        if one.gone and one.until < began:  # between two lives of the same name, or since, it was not there
            inside.append(_State(one.until, None, one.created))
        inside.append(_State(one.since, one.value, one.created))
        began = one.since
    if declarations:
        inside = [state for state, before in zip_longest(inside, inside[1:]) if not _says_the_same(state, before)]
    return inside[:limit]


def _says_the_same(state: _State, before: _State | None) -> bool:
    if before is None or state.value is None or before.value is None:
        return False
    return same_declaration(state.value, before.value)


def _told(codec: Codec, state: _State, before: _State | None, second: int | None, *, last: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"revision": state.revision}
    if second is not None:
        told["time"] = format_time(second)
    if state.value is None:
        left = declared(before.value)["metadata"] if before is not None and before.value is not None else {}
        said = (left.get("annotations") or {}).get(DELETION_CHANGE_SET, "")  # the other note is of who declared it
        return told | {"change": "deleted", "changeSet": said}
    obj = codec.load(state.value, state.revision)
    old = codec.load(before.value, state.revision) if before is not None and before.value is not None else None
    if old is not None and old["metadata"].get("uid") == obj["metadata"].get("uid"):
        meant = not same_declaration(state.value, before.value)  # type: ignore[union-attr,arg-type]
        told |= {"change": "declared" if meant else "status", "fields": fields_changed(old, obj)}
    elif last and state.created != state.revision:
        told["change"] = "known"  # the first of which anything is known
    else:
        told["change"] = "created"
    mark = change_set_of(state.value)
    if before is not None and before.value is not None and mark == change_set_of(before.value):
        mark = ""  # it is of an earlier write, and this one named none
    told |= {"changeSet": mark, "manager": str(unnamed.manager_of(obj, old).get("manager", "")), "generation": obj["metadata"].get("generation", 0)}
    return told | {"object": obj}


# What is not about one kind


async def answer(plane: ControlPlane, request: Request, segments: list[str], user: User) -> Response:
    """What stands under /homeostat/, for those who may read that path."""
    match segments[1:]:
        case ["revision"]:
            asked_for = request.params.get("at", "")
            revision = await plane.history.revision_at(asked_for) if asked_for else plane.store.revision
            read.not_older(plane, revision)
            times = await plane.history.times_of([revision])
            told = {"revision": revision, "compacted": plane.store.compacted, "current": plane.store.revision}
            return json_response(told | ({"time": format_time(times[revision])} if revision in times else {}))
        case ["changesets"]:
            return await _change_sets(plane, user, integer(request.params, "limit") or 100)
        case ["changesets", *parts]:  # a name may have slashes, as that of a return has
            return await _change_set(plane, user, "/".join(parts))
        case ["audit"]:
            return await auditread.answer(plane.audit, request)
        case ["checkpoint"]:
            from homeostat.api.checkpoints import stream

            return await stream(plane, user, request.client)
    raise path_not_found()


async def _change_sets(plane: ControlPlane, user: User, limit: int) -> Response:
    """The last change sets, newest first: when each began, and how many objects of it the user may get."""
    began: dict[str, int] = {}
    touched: dict[str, set[str]] = {}
    async for name, key, revision in _marked_lately(plane):
        _, namespace, called = split_key(key)
        found = _kind_of(plane, key)
        if found is not None and _may(plane, user, "get", found[0], namespace, called):
            began[name] = min(revision, began.get(name, revision))
            touched.setdefault(name, set()).add(key)
    names = sorted(began, key=began.__getitem__, reverse=True)[:limit]
    times = await plane.history.times_of([began[name] for name in names])
    items = [
        {"name": name, "revision": began[name], "objects": len(touched[name])}
        | ({"time": format_time(times[began[name]])} if began[name] in times else {})
        for name in names
    ]
    return json_response({"apiVersion": API_VERSION, "kind": "ChangeSetList", "metadata": {}, "items": items})


async def _marked_lately(plane: ControlPlane) -> AsyncIterator[tuple[str, str, int]]:
    """Change set, key and revision of the last declarations, as far back as a look may cost."""
    for mark, key, since in await plane.history.lately_marked(MOST_WRITES):
        yield mark, key, since
    reached = max(plane.store.compacted, 1, plane.store.revision - MOST_WRITES)
    with plane.history.held(reached):
        while reached < plane.store.revision:
            events, reached = await plane.store.since("", reached, 1000)
            for event in events:
                if event.value is None or _marks(event.value) == _marks(event.previous or b""):
                    continue  # nearly all: reports that declare nothing
                if name := change_set_of(event.value):
                    yield name, event.key, event.revision


def _marks(value: bytes) -> list[bytes]:
    return _mark(value) if b'"homeostat.dev/' in value else []


async def _change_set(plane: ControlPlane, user: User, name: str) -> Response:
    """Every object of a change set that the user may get: before it, after it, and now."""
    firsts: dict[str, tuple[int, int]] = {}
    async for key, revision in _touched(plane, name):
        first, last = firsts.get(key, (revision, revision))
        firsts[key] = (min(first, revision), max(last, revision))
    if not firsts:
        async for key, revision in unnamed.touched(plane, name):
            first, last = firsts.get(key, (revision, revision))
            firsts[key] = (min(first, revision), max(last, revision))
    items: list[dict[str, Any]] = []
    for key, (first, last) in sorted(firsts.items()):
        found = _kind_of(plane, key)
        if found is None:
            continue
        resource, codec = found
        _, namespace, called = split_key(key)
        if not _may(plane, user, "get", resource, namespace, called):
            continue
        before = await plane.history.entry(key, first - 1)
        left = await plane.history.entry(key, last)
        now = await plane.store.get(key)
        items.append(
            {
                "apiVersion": codec.api_version,
                "kind": resource.kind,
                "namespace": namespace,
                "name": called,
                "revision": first,
                "before": _shown(codec, before),
                "after": None if _deleted_by_it(left) else _shown(codec, left),
                "now": _shown(codec, now),
                "changedSince": _differs(left, now),
            }
        )
    times = await plane.history.times_of([item["revision"] for item in items])
    for item in items:
        if item["revision"] in times:
            item["time"] = format_time(times[item["revision"]])
    return json_response({"apiVersion": API_VERSION, "kind": "ChangeSet", "metadata": {"name": name}, "items": items})


async def _touched(plane: ControlPlane, name: str) -> AsyncIterator[tuple[str, int]]:
    """Which keys a change set declared or deleted, and at which revisions."""
    for past in await plane.history.marked(name):
        yield past.key, past.since
    text = orjson.dumps(name)
    reached = max(plane.store.compacted, 1)
    with plane.history.held(reached):
        after, more = "", True
        while more:
            page = await plane.store.range("", after=after, revision=reached, limit=1000)
            for entry in page.entries:
                if text in entry.value and change_set_of(entry.value) == name:
                    past_of = await plane.history.past(entry.key, 1)
                    yield entry.key, max(entry.created, past_of[0].until if past_of else 0)
            more = page.more
            after = page.entries[-1].key if page.entries else ""
        while reached < plane.store.revision:
            events, reached = await plane.store.since("", reached, 1000)
            for event in events:
                if event.value is None or text not in event.value or change_set_of(event.value) != name:
                    continue
                if event.previous is None or change_set_of(event.previous) != name:
                    yield event.key, event.revision


def _kind_of(plane: ControlPlane, key: str) -> tuple[Resource, Codec] | None:
    resource = plane.registry.get(split_key(key)[0])
    return None if resource is None else (resource, plane.registry.codec(resource))


def _may(plane: ControlPlane, user: User, verb: str, resource: Resource, namespace: str, name: str) -> bool:
    wanted = Attributes(
        user=user, verb=verb, group=resource.group, resource=resource.plural, namespace=namespace, name=name
    )
    return plane.rbac.authorize(wanted).allowed


def _shown(codec: Codec, entry: Entry | None) -> Object | None:
    return None if entry is None else codec.load_entry(entry)


def _differs(left: Entry | None, now: Entry | None) -> bool:
    """Whether somebody declared something else since the change set did."""
    if left is None or now is None:
        return now is not None or not _deleted_by_it(left)
    return not same_declaration(left.value, now.value)


def _deleted_by_it(left: Entry | None) -> bool:
    return left is not None and DELETION_CHANGE_SET in (declared(left.value)["metadata"].get("annotations") or {})
