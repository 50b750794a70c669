"""Which nodes are heard of: by their leases, and by what their agents report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from homeostat.client import Client
from homeostat.gpu.objects import Reader
from homeostat.gpu.snapshot import Snapshot
from homeostat.loop.election import NAMESPACE
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError

LEASE = "Lease"


class Hearing:
    """What was last heard, put into a reader of leases. `count` goes up whenever another node is lost, or back."""

    def __init__(self, client: Client, clock: Clock, reader: Reader) -> None:
        self._leases = client.kind("coordination.k8s.io/v1", LEASE)
        self._clock = clock
        self._reader = reader
        self.seconds = 0.0
        """After so long without a word a node is lost, unless its own lease is longer."""
        self.silent: frozenset[str] = frozenset()
        self._known: frozenset[str] = frozenset()
        self.count = 0

    def lost(self, node: str) -> bool:
        """Whether a node was not heard of for longer than its lease, or is no more."""
        return bool(self._known) and (node in self.silent or node not in self._known)  # before the first look nothing is known, and nothing lost

    def speaks(self, nodes: Collection[str]) -> None:
        """Who reports lives, whatever the last look at leases said."""
        if self.silent and not self.silent.isdisjoint(nodes):
            self.silent -= set(nodes)
            self.count += 1

    def returns(self, lease: Mapping[str, Any] | None) -> bool:
        """Whether this lease is that of a node that was lost, renewed: from now on it is not. Beats of all others are looked at by the clock."""
        if lease is None or lease["metadata"]["name"] not in self.silent or not self._is_fresh(lease):
            return False
        self.speaks([lease["metadata"]["name"]])
        return True

    def _is_fresh(self, lease: Mapping[str, Any]) -> bool:
        self._reader.put({**lease, "kind": LEASE})
        now = self._clock.now()
        heard, lasts = self._reader.heard(lease["metadata"]["name"], now)
        return now - heard <= max(self.seconds, lasts)

    def news(self, snapshot: Snapshot) -> bool:
        """Whether one would be taken for lost by this that was not."""
        return bool(self._silent_in(snapshot) - self.silent)

    def take(self, snapshot: Snapshot) -> list[int]:
        """Takes note of who is heard of; gives where those are in the snapshot that are not any more."""
        missing = snapshot.missing
        lives = zip(missing.node, missing.heard_of(snapshot.now, self.seconds).tolist(), strict=True)
        silent, known = self._silent_in(snapshot), frozenset((*snapshot.nodes.name, *(node for node, heard in lives if heard)))
        fallen = silent - self.silent
        if silent != self.silent or known != self._known:
            self.silent, self._known = silent, known
            self.count += 1
        return [at for at, name in enumerate(snapshot.nodes.name) if name in fallen] if fallen else []

    def _silent_in(self, snapshot: Snapshot) -> frozenset[str]:
        nodes = snapshot.nodes
        with np.errstate(invalid="ignore"):
            return frozenset(nodes.name[at] for at in np.flatnonzero(snapshot.now - nodes.heard > nodes.patience(self.seconds)).tolist())

    async def read(self) -> None:
        """Nobody is taken for lost by a copy, which may be late: their work would run twice. Raises where they cannot be read."""
        for lease in await self._leases.list(namespace=NAMESPACE):
            self._reader.put({**lease, "kind": LEASE})

    async def is_back(self, nodes: Iterable[str]) -> str:
        """One of these that was taken for lost, and is not; empty where there is none."""
        for node in nodes:
            if node not in self.silent:
                continue
            try:
                found = await self._leases.get(node, namespace=NAMESPACE)
            except ApiError as error:
                if error.code == 404:
                    continue
                raise
            if self._is_fresh(found):
                return node
        return ""
