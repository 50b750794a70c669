"""`changesets`: the last, and all of which something still stands; `changeset`: one of them, what it did, its waves, and where it stopped."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from homeostat.client import Key
from homeostat.client.kinds import Kind
from homeostat.guards.policy import KIND
from homeostat.insight.changesets import changes, latest, reach, touched
from homeostat.loop.standing import Standing
from homeostat.model.errors import ApiError
from homeostat.model.protocol import CHANGE_SET, DELETION_CHANGE_SET
from homeostat.web.board import Board
from homeostat.web.standing import MESSAGE_CHARACTERS, Resource, standing
from homeostat.web.topics.fleet import POLICIES
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer

PACE_SECONDS = 1.0
READ_SECONDS = 10.0
"""What a change set did is looked up in the past, which costs: not more often than this."""
SHOWN = 500
"""Objects of a change set that are told one by one."""


def mark_of(resource: Resource) -> str:
    """The change set that a resource was declared with last, or is deleted by."""
    notes = resource.metadata.annotations
    return notes.get(DELETION_CHANGE_SET) or notes.get(CHANGE_SET) or ""


def _marked(viewer: Viewer, board: Board) -> Iterator[tuple[str, Kind, Resource]]:
    for name, informer in board.rows.items():
        kind = board.kinds.get(name)
        if kind is None:
            continue
        for one in informer.all():
            mark = mark_of(one)
            if mark and viewer.sees(kind, one.metadata.namespace):
                yield mark, kind, one


# All of them


async def changesets(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`sets`, those that moved last first, again whenever something moved."""
    pace, loop = Pace(PACE_SECONDS), asyncio.get_running_loop()
    past: list[dict[str, Any]] = []
    again = 0.0

    def heard(kind: str, key: Key | None) -> None:
        pace.changed()

    async with board.viewing():
        with board.listening(heard):
            pace.changed()
            while True:
                await pace.turn()
                if loop.time() >= again:
                    past = await latest(viewer.client)
                    again = loop.time() + READ_SECONDS
                yield {"sets": _sets(viewer, board, past)}


def _sets(viewer: Viewer, board: Board, past: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = {one["name"]: _row(one["name"], one["objects"], one.get("time", "")) for one in past}
    for mark, kind, one in _marked(viewer, board):
        row = found.setdefault(mark, _row(mark))
        how, why = standing(one)
        row["counts"][str(how)] += 1
        row["kinds"][kind.kind] += 1
        if how in (Standing.HELD, Standing.DEGRADED) and why is not None:
            row["why"] = row["why"] or why.message[:MESSAGE_CHARACTERS]
        row["moved"] = max(row["moved"], one.metadata.creation_timestamp or "", why.last_transition_time if why is not None else "")
    steering = _steering(viewer, board)
    for name, row in found.items():
        row["waves"] = [wave for wave in steering["waves"] if wave.get("changeSet") == name]
        row["halts"] = [halt for halt in steering["halts"] if halt.get("changeSet") == name]
    return sorted(found.values(), key=lambda row: (str(row["moved"]), str(row["name"])), reverse=True)


def _row(name: str, objects: int = 0, at: str = "") -> dict[str, Any]:
    return {"name": name, "objects": objects, "moved": at, "counts": Counter(), "kinds": Counter(), "why": ""}


def _steering(viewer: Viewer, board: Board) -> dict[str, list[dict[str, Any]]]:
    """What policies say of waves and halts now, to those who may see policies."""
    said: dict[str, list[dict[str, Any]]] = {"waves": [], "halts": []}
    if viewer.sees(POLICIES) and board.policies.synced:
        for policy in board.policies.all():
            for what, known in said.items():
                known += [{**one, "policy": policy["metadata"]["name"]} for one in (policy.get("status") or {}).get(what) or ()]
    return said


# One of them


async def changeset(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`name`: `items` with what changed in each and how it stands, `fleets` in which something of it is open, `waves`, and a `problem`
    where not all of it may be seen."""
    name, pace, past = params["name"], Pace(PACE_SECONDS), _Past(viewer, params["name"])

    def heard(kind: str, key: Key | None) -> None:
        informer = board.rows.get(kind)
        one = informer.at(key) if informer is not None and key is not None else None
        if kind == KIND or one is None or mark_of(one) == name:
            pace.changed()

    async with board.viewing():
        with board.listening(heard):
            pace.changed()
            while True:
                await pace.turn()
                await past.read()
                yield await _told(viewer, board, name, past)


class _Past:
    """What the change set did, as far as one may know."""

    def __init__(self, viewer: Viewer, name: str) -> None:
        self._viewer, self._name = viewer, name
        self._next = 0.0
        self.items: list[dict[str, Any]] = []
        self.total = 0
        self.problem = ""

    async def read(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._next:
            return
        try:
            found = await touched(self._viewer.client, self._name)
            self.total = len(found)
            self.items = await changes(self._viewer.client, found[:SHOWN])
        except ApiError as error:
            if error.code != 403:
                raise
            self.problem = error.message
        self._next = asyncio.get_running_loop().time() + READ_SECONDS


async def _told(viewer: Viewer, board: Board, name: str, past: _Past) -> dict[str, Any]:
    rows = {(kind.name, one.metadata.namespace, one.metadata.name): one for mark, kind, one in _marked(viewer, board) if mark == name}
    counts = Counter(str(standing(one)[0]) for one in rows.values())
    items = [{**item, **_stands(board, item)} for item in past.items] if not past.problem else [_bare(board, *key) for key in sorted(rows)[:SHOWN]]
    names = {key[0] for key in rows}
    fleets, problem = await _reach(viewer, [board.kinds[one] for one in sorted(names) if one in board.kinds], name)
    return {
        "items": items,
        "total": len(rows) if past.problem else past.total,
        "counts": counts,
        "fleets": fleets,
        "waves": board.waves.of(name) if viewer.sees(POLICIES) else [],
        "problem": past.problem or problem,
    }


async def _reach(viewer: Viewer, kinds: Sequence[Kind], name: str) -> tuple[list[dict[str, Any]], str]:
    """Guards judge a fleet as a whole: who sees a part of it is told why there is no verdict."""
    try:
        return await reach(viewer.client, kinds, name), ""
    except ApiError as error:
        if error.code != 403:
            raise
        return [], error.message


def _stands(board: Board, item: Mapping[str, Any]) -> dict[str, Any]:
    informer = board.rows.get(item["resource"])
    one = None if informer is None else informer.get(item["name"], item["namespace"])
    if one is None:
        return {"standing": "", "message": ""}
    how, why = standing(one)
    return {"standing": str(how), "message": why.message if why is not None and str(how) != "converged" else ""}


def _bare(board: Board, resource: str, namespace: str, name: str) -> dict[str, Any]:
    """An object of which one knows no more than that it is part of it."""
    kind = board.kinds[resource]
    told = {"resource": resource, "apiVersion": kind.api_version, "kind": kind.kind, "namespace": namespace, "name": name}
    return told | {"op": "", "changes": [], "changedSince": False, "time": "", "revision": 0} | _stands(board, told)
