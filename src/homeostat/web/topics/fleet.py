"""`fleet`: policies with what they guard, kinds with how many stand how, and how drift went."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from homeostat.client import Key
from homeostat.client.kinds import Kind
from homeostat.guards.keeper import is_built_in
from homeostat.guards.policy import GROUP, KIND, VERSION
from homeostat.model.clock import format_time
from homeostat.web.board import Board
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer

ASIDE = frozenset(("alerts", "pastWaves", "returns", "conditions"))
"""What of a policy's status no list shows."""
POLICIES = Kind(f"{GROUP}/{VERSION}", KIND, "guardpolicies", "guardpolicy", False)


async def fleet(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """Everything at first (`whole`), and then again whenever something of it changed; of the series an outline, and then what is new.

    While `reading`, how many stand how is not known yet. Of a kind that no loop keeps any more, it says since when (`unkeptSince`).
    """
    pace, told = Pace(), 0.0

    def heard(kind: str, key: Key | None) -> None:
        pace.changed()

    async with board.viewing(wait=False):
        with board.listening(heard):
            if not board.synced:  # what is halted is known already, and does not wait for the rows of all kinds
                words, _ = _words(viewer, board, 0.0)
                yield words | {"reading": True}
                await board.wait_synced()
            pace.changed()
            while True:
                await pace.turn()
                words, told = _words(viewer, board, told)
                yield words


def _words(viewer: Viewer, board: Board, told: float) -> tuple[dict[str, Any], float]:
    kinds = [_kind(viewer, board, name, kind) for name, kind in sorted(board.kinds.items())]
    words: dict[str, Any] = {"kinds": [kind for kind in kinds if kind is not None], "policies": [], "series": {}, "whole": not told}
    if viewer.sees(POLICIES) and board.policies.synced:
        words["policies"] = [_policy(one) for one in sorted(board.policies.all(), key=lambda one: str(one["metadata"]["name"]))]
        series = {name: one.since(told) if told else one.outline() for name, one in board.series.items()}
        words["series"] = {name: {"at": one["at"], "drifted": one["drifted"]} for name, one in series.items() if one["at"]}
        told = max((one["at"][-1] for one in series.values() if one["at"]), default=told)
    return words, told


def _kind(viewer: Viewer, board: Board, name: str, kind: Kind) -> dict[str, Any] | None:
    tally = board.tallies.get(name)
    if tally is None:
        return None
    everywhere = viewer.sees(kind)
    seen = {namespace for namespace in tally.counts if everywhere or viewer.sees(kind, namespace)}
    if not everywhere and not seen:
        return None
    sees = seen.__contains__
    told = {"name": name, "kind": kind.kind, "apiVersion": kind.api_version, "counts": tally.total(sees)}
    if (heard := board.unkept.get(name)) is not None:
        told["unkeptSince"] = format_time(heard)
    return told | {"queue": tally.queue(sees), "convergence": tally.convergence(sees)}


def _policy(policy: Mapping[str, Any]) -> dict[str, Any]:
    metadata = policy["metadata"]
    return {
        "name": metadata["name"],
        "builtIn": is_built_in(policy),
        "resourceVersion": metadata["resourceVersion"],
        "spec": policy.get("spec") or {},
        "status": {name: said for name, said in (policy.get("status") or {}).items() if name not in ASIDE},
    }
