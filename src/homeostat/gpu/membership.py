"""Which pool a node is of: the one that it names; and where it names none, the one that got it.

Who sets up a machine for a pool easily forgets `homeostat agent --pool`. The pool has written down what it got and under which name, so it
is known all the same. Where two pools say that they got it, nobody knows; and a node that names another pool than the one that got it is
that one's: to be given back, a node has to be a pool's beyond doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]


def got_by(pools: Iterable[Object]) -> dict[str, tuple[str, ...]]:
    """By name of a node: the pools that say that they got it."""
    found: dict[str, tuple[str, ...]] = {}
    for pool in pools:
        name = pool["metadata"]["name"]
        for node in {one.get("node") for one in (pool.get("status") or {}).get("machines") or ()} - {None, ""}:
            found[node] = (*found.get(node, ()), name)
    return found


def pool_of(node: Object, got: Mapping[str, tuple[str, ...]]) -> str:
    """The pool that a node counts for; empty where it is of none, or of which one cannot be told."""
    if named := node["spec"].get("pool", ""):
        return str(named)
    by = got.get(node["metadata"]["name"], ())
    return by[0] if len(by) == 1 else ""


def strays(pool: str, nodes: Iterable[Object], got: Mapping[str, tuple[str, ...]]) -> str:
    """Of the nodes that a pool got and that do not count for it: which, why, and what helps. Empty where there are none."""
    found = []
    for node in nodes:
        name, by = node["metadata"]["name"], got.get(node["metadata"]["name"], ())
        if pool in by and (of := pool_of(node, got)) != pool:
            others = " and ".join(one for one in by if one != pool)
            found.append(f"{name} says that it is of {of}" if of else f"{others} got {name} as well")
    if not found:
        return ""
    more = f", and {len(found) - 1} more like it" if len(found) > 1 else ""
    return f"it got nodes that do not count for it: {found[0]}{more}. Start their agents with `--pool {pool}`"
