"""`gpu`: nodes with their GPUs, tenants, queue, what was taken away and what lies idle; `gpu-workload`: how one workload stands, and why.

Both come from the functions that decide, run here. Each viewer gets what RBAC lets them see: a workload of a namespace that they do not
see is "taken", no more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from orjson import Fragment

from homeostat.client.kinds import Kind
from homeostat.gpu.kinds import NODE, TENANT, WORKLOAD
from homeostat.model.errors import ApiError
from homeostat.model.kinds import KindInfo
from homeostat.web.board import Board
from homeostat.web.topics.fleet import POLICIES
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer

if TYPE_CHECKING:
    from homeostat.web.judge import Judge

MISSING = "This view needs numpy on the server: pip install 'homeostat[gpu]', and start it again."


def _kind(info: KindInfo) -> Kind:
    return Kind(info.api_version, info.kind, info.plural, info.kind.lower(), info.scope == "Namespaced")


NODES, TENANTS, WORKLOADS = _kind(NODE), _kind(TENANT), _kind(WORKLOAD)


async def gpu(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`absent` where the server knows no GPUs; else each part at first (`whole`), and then again when it changed; of `nodes` those that did."""
    if find_spec("numpy") is None:
        yield {"missing": MISSING}
        return
    if not board.gpu.served:
        yield {"absent": True}
        await _until_served(board)
    pace = Pace()
    async with board.gpu.viewing() as judge:
        with judge.listening(pace.changed):
            pace.changed()
            told, whole = _Told(viewer, board, judge), {"whole": True}
            while True:
                await pace.turn()
                if words := told.news():
                    yield words | whole
                    whole = {}


async def workload(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`namespace`, `name`: the story of a workload, each time that it changes; `problem` where there is none (any more)."""
    namespace, name = params.get("namespace", ""), params["name"]
    if not viewer.sees(WORKLOADS, namespace):
        raise ApiError(403, "Forbidden", f"you may not see workloads in {namespace}: ask for the right to list {WORKLOAD.name} there")
    if find_spec("numpy") is None:
        raise ApiError(501, "NotImplemented", MISSING)
    if not board.gpu.served:
        yield {"problem": "this server knows nothing of GPUs yet"}
        await _until_served(board)
    pace, told = Pace(), None
    async with board.gpu.viewing() as judge:
        with judge.listening(pace.changed):
            pace.changed()
            while True:
                await pace.turn()
                said = _story(viewer, judge, f"{namespace}/{name}".lstrip("/"))
                if said != told:
                    told = said
                    yield said


async def _until_served(board: Board) -> None:
    pace = Pace()
    with board.listening(lambda kind, key: None if kind else pace.changed()):
        while not board.gpu.served:
            await pace.turn()


def _story(viewer: Viewer, judge: Judge, wanted: str) -> dict[str, Any]:
    from homeostat.insight.gpu_story import Story, find

    if judge.facts is None:
        return {"problem": judge.problem}
    try:
        story = Story(judge.facts, find(judge.facts, wanted, lambda namespace: viewer.sees(WORKLOADS, namespace)))
    except LookupError as error:
        return {"problem": error.args[0]}
    return {"headline": story.headline, "lines": [list(line) for line in story.lines()], "data": story.data(), "notes": judge.facts.notes}


class _Told:
    """What one viewer has been told, so that only news is."""

    def __init__(self, viewer: Viewer, board: Board, judge: Judge) -> None:
        self._viewer, self._board, self._judge = viewer, board, judge
        self._facts: object = None
        self._rights: tuple[bool, ...] = ()
        self._looks = -1
        self._parts: dict[str, Any] = {}
        self._version = -1
        """Of the racks; -1: nothing of them was told."""
        self._veiled: dict[str, dict[str, Any]] | None = None
        """What was told of nodes where not all of them is; None: nothing was."""
        self._sampled = 0.0

    def news(self) -> dict[str, Any]:
        """What differs from what was told before; empty: nothing."""
        facts = self._judge.facts
        if facts is None:
            return self._changed({"problem": self._judge.problem})
        nodes, tenants, workloads = rights = tuple(self._viewer.sees(kind) for kind in (NODES, TENANTS, WORKLOADS))
        again = rights != self._rights or (self._looks != self._viewer.looks and not workloads)
        if again:
            self._rights, self._version = rights, -1
        words: dict[str, Any] = {}
        if again or facts is not self._facts:
            words = self._changed(self._now() | {"problem": "", "sees": {"nodes": nodes, "tenants": tenants, "workloads": workloads}})
        if nodes:
            words |= self._node_news() if workloads else self._veiled_news()
        if tenants and (facts is not self._facts or again):
            words |= self._series_news()
        self._facts, self._looks = facts, self._viewer.looks
        return words | {"at": facts.now} if words else {}

    def _series_news(self) -> dict[str, Any]:
        series = {name: one.since(self._sampled) if self._sampled else one.outline() for name, one in self._board.gpu.series.items()}
        self._sampled = max((one["at"][-1] for one in series.values() if one["at"]), default=self._sampled)
        found = {name: one for name, one in series.items() if one["at"]}
        return {"series": found} if found else {}

    def _now(self) -> dict[str, Any]:
        """Parts as `Part` where all get the same."""
        from homeostat.web.judge import parts_of

        judge, viewer = self._judge, self._viewer
        assert judge.facts is not None
        hidden = {name for name, kind in (("empty", NODES), ("tenants", TENANTS), ("halts", POLICIES)) if not viewer.sees(kind)}
        parts: dict[str, Any] = {name: part for name, part in judge.parts.items() if name not in hidden}
        if not viewer.sees(WORKLOADS):
            parts |= parts_of(judge.facts, self._sees)
            parts["waiting"] = len(parts["queue"])
        return parts

    def _sees(self, workload: Mapping[str, Any]) -> bool:
        return self._viewer.sees(WORKLOADS, workload["metadata"].get("namespace", ""))

    def _changed(self, parts: dict[str, Any]) -> dict[str, Any]:
        from homeostat.web.judge import Part

        found = {name: part for name, part in parts.items() if name not in self._parts or not _same(self._parts[name], part)}
        self._parts.update(found)
        return {name: Fragment(part.line) if isinstance(part, Part) else part for name, part in found.items()}

    def _node_news(self) -> dict[str, Any]:
        racks, before = self._judge.racks, self._version
        self._version, self._veiled = racks.version, None
        if before < 0:
            return {"nodes": Fragment(racks.whole()), "gone": []}
        moved = list(racks.since(before))
        rows = [Fragment(rack.line) for _, rack in moved if rack is not None]
        gone = [name for name, rack in moved if rack is None]
        return {"nodes": rows, "gone": gone} if moved else {}

    def _veiled_news(self) -> dict[str, Any]:
        """Nodes without the names of what one does not see."""
        racks, known, first = self._judge.racks, self._veiled or {}, self._veiled is None
        if self._version < 0:  # rights are others: all of it is looked at
            now = {rack.row["name"]: self._veil(rack.row) for rack in racks.all()}
            gone = [name for name in known if name not in now]
        else:
            moved = list(racks.since(self._version))
            now = {name: self._veil(rack.row) for name, rack in moved if rack is not None}
            gone = [name for name, rack in moved if rack is None and name in known]
        rows = [row for name, row in now.items() if known.get(name) != row]
        self._veiled = {name: row for name, row in (known | now).items() if name not in gone}
        self._version = racks.version
        return {"nodes": rows, "gone": gone} if rows or gone or first else {}

    def _veil(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "gpus": [[*gpu[:-1], [self._veiled_holder(one) for one in gpu[-1]]] for gpu in row["gpus"]]}

    def _veiled_holder(self, holder: list[Any]) -> list[Any]:
        seen = self._viewer.sees(WORKLOADS, holder[0].rpartition("/")[0])
        return holder if seen or not holder[0] else ["*", holder[1] if self._viewer.sees(TENANTS) else "", *holder[2:]]


def _same(before: Any, now: Any) -> bool:
    """What all get is made once, so another object is another value; all else is compared."""
    return before is now or (type(before) is type(now) and not isinstance(now, tuple) and bool(before == now))
