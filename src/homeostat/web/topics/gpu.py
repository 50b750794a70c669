"""`gpu`: nodes with their GPUs, tenants, queue, what was taken away and what lies idle; `gpu-workload`: how one workload stands, and why.

Both come from the functions that decide, run here. Each viewer gets what RBAC lets them see: a workload of a namespace that they do not
see is "taken", no more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

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
        self._parts: dict[str, Any] = {}
        self._nodes: dict[str, dict[str, Any]] = {}
        self._sampled = 0.0

    def news(self) -> dict[str, Any]:
        """What differs from what was told before; empty: nothing."""
        if self._judge.facts is None:
            return self._changed({"problem": self._judge.problem})
        words = self._changed(self._now() | {"problem": ""})
        if self._viewer.sees(NODES):
            words |= self._node_news()
        if self._viewer.sees(TENANTS):
            series = {name: one.since(self._sampled) for name, one in self._board.gpu.series.items()}
            self._sampled = max((one["at"][-1] for one in series.values() if one["at"]), default=self._sampled)
            if series := {name: one for name, one in series.items() if one["at"]}:
                words["series"] = series
        return words | {"at": self._judge.facts.now} if words else {}

    def _now(self) -> dict[str, Any]:
        from homeostat.insight import gpu_view
        from homeostat.web.judge import LIMIT, parts_of

        judge, facts, viewer = self._judge, self._judge.facts, self._viewer
        assert facts is not None
        everything = viewer.sees(WORKLOADS)
        parts: dict[str, Any] = {
            "sees": {"nodes": viewer.sees(NODES), "tenants": viewer.sees(TENANTS), "workloads": everything},
            "notes": facts.notes[:20],
            "preemptions": gpu_view.preemptions(facts),
            **(judge.parts if everything else parts_of(facts, self._sees)),
        }
        parts["waiting"] = len(facts.plan.pending) if everything else len(parts["queue"])
        if viewer.sees(NODES):
            parts["empty"] = gpu_view.empty_nodes(facts)[:LIMIT]
        if viewer.sees(TENANTS):
            parts["tenants"] = [_tenant(row, facts.tenants[row["tenant"]], judge.figures[row["tenant"]]) for row in judge.tenants]
        if viewer.sees(POLICIES):
            parts["halts"] = facts.halts
        return parts

    def _sees(self, workload: Mapping[str, Any]) -> bool:
        return self._viewer.sees(WORKLOADS, workload["metadata"].get("namespace", ""))

    def _changed(self, parts: dict[str, Any]) -> dict[str, Any]:
        found = {name: part for name, part in parts.items() if name not in self._parts or self._parts[name] != part}
        self._parts.update(found)
        return found

    def _node_news(self) -> dict[str, Any]:
        whole = self._viewer.sees(WORKLOADS)
        now = self._judge.nodes if whole else {name: self._veiled(row) for name, row in self._judge.nodes.items()}
        rows = [row for name, row in now.items() if (known := self._nodes.get(name)) is not row and known != row]
        gone = [name for name in self._nodes if name not in now]
        first, self._nodes = not self._nodes, dict(now)
        return {"nodes": rows, "gone": gone} if rows or gone or first else {}

    def _veiled(self, row: dict[str, Any]) -> dict[str, Any]:
        """A node without the names of what one does not see."""
        return {**row, "gpus": [[*gpu[:-1], [self._veil(one) for one in gpu[-1]]] for gpu in row["gpus"]]}

    def _veil(self, holder: list[Any]) -> list[Any]:
        seen = self._viewer.sees(WORKLOADS, holder[0].rpartition("/")[0])
        return holder if seen or not holder[0] else ["*", holder[1] if self._viewer.sees(TENANTS) else "", *holder[2:]]


def _tenant(row: dict[str, Any], tenant: Mapping[str, Any], figures: Mapping[str, float]) -> dict[str, Any]:
    status = tenant.get("status") or {}
    return {
        **row,
        "entitled": figures["entitled"],
        "gpuHours": round(status.get("gpuHours", 0.0), 2),
        "cost": round(status.get("cost", 0.0), 2),
        "slaMisses": status.get("slaMisses", 0),
    }
