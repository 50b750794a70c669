"""`fleet`: policies with what they guard, kinds with how many stand how, and how drift went."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from homeostat.client import Key
from homeostat.client.kinds import Kind
from homeostat.guards.keeper import is_built_in
from homeostat.guards.policy import GROUP, KIND, VERSION
from homeostat.web.board import Board
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer

POLICIES = Kind(f"{GROUP}/{VERSION}", KIND, "guardpolicies", "guardpolicy", False)


async def fleet(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """Everything at first, and then again whenever something of it changed; of the series what is new."""
    pace, told = Pace(), 0.0

    def heard(kind: str, key: Key | None) -> None:
        pace.changed()

    async with board.viewing():
        with board.listening(heard):
            pace.changed()
            while True:
                await pace.turn()
                words, told = _words(viewer, board, told)
                yield words


def _words(viewer: Viewer, board: Board, told: float) -> tuple[dict[str, Any], float]:
    kinds = [_kind(viewer, board, name, kind) for name, kind in sorted(board.kinds.items())]
    words: dict[str, Any] = {"kinds": [kind for kind in kinds if kind is not None], "policies": [], "series": {}}
    if viewer.sees(POLICIES) and board.policies.synced:
        words["policies"] = [_policy(one) for one in sorted(board.policies.all(), key=lambda one: str(one["metadata"]["name"]))]
        words["series"] = {name: series.since(told) for name, series in board.series.items()}
        told = max((times["at"][-1] for times in words["series"].values() if times["at"]), default=told)
    return words, told


def _kind(viewer: Viewer, board: Board, name: str, kind: Kind) -> dict[str, Any] | None:
    tally = board.tallies.get(name)
    if tally is None:
        return None
    everywhere = viewer.sees(kind)
    seen = {namespace for namespace in tally.counts if everywhere or viewer.sees(kind, namespace)}
    if not everywhere and not seen:
        return None
    return {"name": name, "kind": kind.kind, "apiVersion": kind.api_version, "counts": tally.total(seen.__contains__)}


def _policy(policy: Mapping[str, Any]) -> dict[str, Any]:
    metadata = policy["metadata"]
    return {
        "name": metadata["name"],
        "builtIn": is_built_in(policy),
        "resourceVersion": metadata["resourceVersion"],
        "spec": policy.get("spec") or {},
        "status": policy.get("status") or {},
    }
