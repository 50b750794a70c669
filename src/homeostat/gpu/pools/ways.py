"""What every way of getting and giving back nodes has in common. It is asked one of three things, in JSON:

    {"action": "list", "pool": "h100", "spec": {…}}
    {"action": "get", "pool": "h100", "key": "h100-3f9a1c", "spec": {…}}
    {"action": "giveBack", "pool": "h100", "key": "h100-3f9a1c", "node": "gpu-17", "spec": {…}}

and answers, in JSON:

    {"nodes": [{"key": "h100-3f9a1c", "node": "gpu-17"}]}       to `list`: all that were had and not given back
    {"node": "gpu-17"}                                           to `get`; without, the node is named as its key
    {}                                                           to `giveBack`

`spec` has `model`, `gpusPerNode`, `gpuMemoryMib`, `cpuMilli`, `memoryMib`, `costPerHour` and `spot` of the pool.

- The same key is the same node, however often it is asked for: `get` is asked again when nobody knows whether it was heard.
- `list` leaves nothing out. Where it cannot tell, it must fail: then nothing is asked for, and nothing given back.
- `giveBack` may be asked again for what is gone already, and `list` no longer has what was given back.
- An agent with `--name NODE --pool POOL` must join from the node, within `arrivesWithin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import orjson

from homeostat.gpu.kinds import NodePoolSpec
from homeostat.model.kinds import encode
from homeostat.model.names import dns_subdomain_problems

_SAID = ("model", "gpusPerNode", "gpuMemoryMib", "cpuMilli", "memoryMib", "costPerHour", "spot")


class PoolFailed(Exception):
    """A pool did not do as agreed, or could not be asked; in words for people. What it has is not known then."""


class Had(NamedTuple):
    """A node that a pool has."""

    key: str
    node: str


class Pool(NamedTuple):
    """Whom a way is asked for."""

    name: str
    spec: NodePoolSpec


class Way(Protocol):
    """One way. Raises `PoolFailed` where it cannot tell or do; `Refused` where this host does not allow it."""

    async def has(self, pool: Pool) -> list[Had]:
        """All nodes that were had of a pool and not given back."""

    async def get(self, pool: Pool, key: str) -> str:
        """A node for a key, always the same; gives its name."""

    async def give_back(self, pool: Pool, had: Had) -> None:
        """Gives a node back; fine if it is gone already."""


def question(action: str, pool: Pool, **more: str) -> dict[str, Any]:
    """What is asked, in words that are sent."""
    spec = {name: value for name, value in encode(pool.spec).items() if name in _SAID}
    return {"action": action, "pool": pool.name, **more, "spec": spec}


def listed(answer: bytes) -> list[Had]:
    """What an answer to `list` says. Whatever is not understood makes all of it unknown."""
    nodes = _object(answer, "list").get("nodes")
    if not isinstance(nodes, list):
        raise PoolFailed('list: the answer has no "nodes": a pool without any answers {"nodes": []}')
    found = [_had(one) for one in nodes]
    keys = [one.key for one in found]
    if len(set(keys)) < len(keys):
        raise PoolFailed(f"list: the answer has {next(key for key in keys if keys.count(key) > 1)} twice")
    by_node: dict[str, str] = {}
    for key, node in found:
        if by_node.setdefault(node, key) != key:
            raise PoolFailed(f"list: {node} is given for two keys, {by_node[node]} and {key}: to give back one would take away both")
    return found


def obtained(answer: bytes, key: str) -> str:
    """The name of a node by the answer to `get`."""
    name = _object(answer, "get").get("node", key) if answer.strip() else key
    return _name(name, "get")


def _had(raw: object) -> Had:
    if not isinstance(raw, Mapping) or not isinstance(key := raw.get("key"), str) or not key:
        raise PoolFailed('list: each node needs the "key" that it was asked for by')
    return Had(key, _name(raw.get("node", key), "list"))


def _name(name: object, action: str) -> str:
    if not isinstance(name, str) or (problems := dns_subdomain_problems(name)):
        why = "it is no text" if not isinstance(name, str) else "; ".join(problems)
        raise PoolFailed(f"{action}: {name!r:.80} cannot be the name of a node: {why}")
    return name


def _object(answer: bytes, action: str) -> Mapping[str, Any]:
    try:
        found = orjson.loads(answer)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, Mapping):
        raise PoolFailed(f"{action}: the answer is no JSON object: {answer[:80].decode(errors='replace')!r}")
    return found
