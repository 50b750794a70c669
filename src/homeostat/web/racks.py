"""Nodes with their GPUs as pages get them, kept up as objects change: a reading costs one node, whatever the fleet. Needs numpy: import it late.

A node is written down once for all who may see all of it, as the bytes that go out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import orjson

from homeostat.client import Key
from homeostat.insight import gpu_view
from homeostat.insight.gpu import Object

Holder = tuple[int, gpu_view.Row]
GONE_KEPT = 1000


class Rack(NamedTuple):
    """A node: for those who see a part of it, and as bytes for those who see all."""

    row: dict[str, Any]
    line: bytes

    @property
    def health(self) -> tuple[Any, ...]:
        """What of it bears on who gets GPUs; how busy they are does not."""
        return self.row["state"], self.row["model"], tuple(gpu[1] for gpu in self.row["gpus"])


class Racks:
    """All nodes by name. `version` counts changes; `since` gives what changed after one."""

    def __init__(self) -> None:
        self.version = 0
        self._known: dict[str, Rack] = {}
        self._moved: dict[str, int] = {}
        """By node: the version at which it last changed, in that order; of those that are gone, too."""
        self._nodes: dict[str, Object] = {}
        self._held: dict[str, dict[Key, list[Holder]]] = {}
        self._where: dict[Key, set[str]] = {}
        self._lost: Mapping[str, float | None] = {}
        self._stale: dict[str, None] = {}
        self._whole: tuple[int, bytes] = (-1, b"[]")

    # What is so now

    def put_node(self, name: str, obj: Object | None) -> None:
        """A node is so, or gone."""
        if obj is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = obj
        self._stale[name] = None

    def put_workload(self, key: Key, obj: Object | None) -> None:
        """A workload is so, or gone."""
        now: dict[str, list[Holder]] = {}
        for name, gpu, who in gpu_view.places(obj) if obj is not None else ():
            now.setdefault(name, []).append((gpu, who))
        for name in self._where.pop(key, set()) | now.keys():
            held = self._held.setdefault(name, {})
            if held.get(key) == now.get(name):
                continue
            held.pop(key, None)
            if name in now:
                held[key] = now[name]
            self._stale[name] = None
        if now:
            self._where[key] = set(now)

    def put_lost(self, lost: Mapping[str, float | None]) -> None:
        """These are lost, and no others: by name, when they were last heard of (None: never)."""
        moved = {name for name in lost.keys() | self._lost.keys() if lost.get(name, 0) != self._lost.get(name, 0)}
        self._lost = lost
        self._stale |= dict.fromkeys(moved & self._nodes.keys())

    @property
    def stale(self) -> bool:
        """Whether there is something to `settle`."""
        return bool(self._stale)

    def settle(self, most: int) -> bool:
        """Writes down what is stale, so many at most. Whether something changed that bears on who gets GPUs."""
        names = list(islice(self._stale, most))
        for name in names:
            del self._stale[name]
        return sum(map(self._write, names)) > 0

    def _write(self, name: str) -> bool:
        obj, before = self._nodes.get(name), self._known.get(name)
        if obj is None:
            if self._known.pop(name, None) is not None:
                self._move(name)
            return before is not None
        held: dict[int, list[gpu_view.Row]] = {}
        for gpu, who in sorted((one for some in self._held.get(name, {}).values() for one in some), key=lambda one: str(one[1]["workload"])):
            held.setdefault(gpu, []).append(who)
        row = small(gpu_view.node(name, obj, held, None, name in self._lost), self._lost.get(name))
        if before is not None and before.row == row:
            return False
        now = self._known[name] = Rack(row, orjson.dumps(row))
        self._move(name)
        return before is None or before.health != now.health

    def _move(self, name: str) -> None:
        self.version += 1
        self._moved.pop(name, None)
        self._moved[name] = self.version
        if len(self._moved) > GONE_KEPT + 2 * len(self._known):  # all who look have heard of these long since
            self._moved = {name: at for name, at in self._moved.items() if name in self._known}

    # What is told

    def since(self, version: int) -> Iterator[tuple[str, Rack | None]]:
        """What changed after a version, the last first; None is gone."""
        for name, at in reversed(self._moved.items()):
            if at <= version:
                return
            yield name, self._known.get(name)

    def all(self) -> Iterable[Rack]:
        """Every node."""
        return self._known.values()

    def whole(self) -> bytes:
        """All nodes as one list, written down once for all who ask."""
        if self._whole[0] != self.version:
            self._whole = self.version, b"[" + b",".join(rack.line for rack in self._known.values()) + b"]"
        return self._whole[1]


def small(row: dict[str, Any], heard: float | None) -> dict[str, Any]:
    """A node as a page gets it: `gpus` are [use in %, health, reason, MiB used, MiB, watts, °C, holders], holders are [workload, tenant,
    share, whether it leaves]; one of nobody known is ["", "", 1, false]. Of one that is lost, `heard` says since when."""
    found = {
        "name": row["node"],
        "model": row["model"],
        "state": "Lost" if row["lost"] else "Cordoned" if row["cordoned"] and row["stage"] == "Open" else row["stage"],
        "costPerHour": row["costPerHour"],
        "gpus": [_small_gpu(gpu) for gpu in row["gpus"]],
    }
    if row["lost"] and heard is not None:
        found["heard"] = round(heard)
    return found


def _small_gpu(gpu: dict[str, Any]) -> list[Any]:
    holders = [[one["workload"], one["tenant"], one["share"], one["phase"] == "Suspending"] for one in gpu["holders"]]
    if gpu["unknownProcesses"]:
        holders.append(["", "", 1, False])
    use = gpu["utilisation"]
    return [
        None if use is None else round(use * 100),
        gpu["health"],
        gpu["reason"],
        gpu["memoryUsedMib"],
        gpu["memoryMib"],
        None if gpu["powerWatts"] is None else round(gpu["powerWatts"]),
        None if gpu["temperature"] is None else round(gpu["temperature"]),
        holders,
    ]
