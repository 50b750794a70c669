"""NodePools under the loop: what is wanted of one is as many nodes as the governor last asked for, and none that never joined.

To have a node harms nothing that is at work and counts as a creation. To give one back is done to the GpuNode, see `gpu/controller/nodes`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, ClassVar

import msgspec
from msgspec.structs import replace

from homeostat.client import Client
from homeostat.gpu.kinds import POOL, NodePoolSpec, NodePoolStatus
from homeostat.gpu.pools.keeping import TIMEOUT_MOST, Pools
from homeostat.gpu.pools.standing import PoolState, PoolWish, late_ones, machines_of, pool_state, unwanted_ones
from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Cause, Ref
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Moved, Provider, Refused, current
from homeostat.model.clock import Clock
from homeostat.model.kinds import KindInfo, schema_of

if TYPE_CHECKING:
    from homeostat.gpu.controller.governing import Governor

MARGIN_SECONDS = 30.0
"""Beyond what a pool may take for its answers, for writing down what it said."""


class _Look(msgspec.Struct, frozen=True):
    """A pool when it was last looked at."""

    state: PoolState
    late: frozenset[str]
    unjoined: frozenset[str]
    """Those of the late ones that are there, and have not joined."""
    unwanted: frozenset[str]
    wish: PoolWish


class NodePool(Provider[NodePoolSpec, PoolState]):
    """Nodes of one sort that can be had and given back."""

    info: ClassVar[KindInfo] = POOL
    state_type = PoolState
    contested = False
    adopts = True
    beside = frozenset(schema_of(NodePoolStatus)["properties"])
    deadline: ClassVar[float] = 2 * TIMEOUT_MOST + MARGIN_SECONDS

    def __init__(self, governor: Governor, pools: Pools, clock: Clock | None = None) -> None:
        self._governor = governor
        self._pools = pools
        self._clock = clock or Clock()
        self._looks: dict[str, _Look] = {}

    async def open(self, client: Client) -> None:
        self._pools.open(client)

    async def close(self) -> None:
        await self._pools.close()

    def forget(self, ref: Ref) -> None:
        self._looks.pop(ref.uid, None)
        self._governor.nodes.pool_bell.forget(ref)
        self._governor.nodes.read.pop(ref.name, None)

    def watch(self) -> AsyncIterator[Ref]:
        return self._governor.nodes.pool_bell.stream()

    async def observe(self, spec: NodePoolSpec) -> PoolState | Absent:
        task, nodes = current(), self._governor.nodes
        nodes.check()
        await self._governor.ready()
        if task.deleting and not await self._pools.asked(task.ref.name, task.ref.uid):
            return ABSENT  # also where it cannot be read any more: nothing was ever asked of it, or all is given back
        try:
            had = await self._pools.has(task.ref.name, spec)
        except Exception as error:
            nodes.read[task.ref.name] = f"it cannot be read, and neither grows nor shrinks: {error}"
            raise
        nodes.read[task.ref.name] = ""
        obj = nodes.pool(task.ref.name)
        machines = machines_of(obj or {})
        wish = nodes.pools.get(task.ref.uid) or PoolWish(len(machines))
        late = late_ones(machines, had, nodes.names(), self._clock.now(), spec.arrives_within.total_seconds())
        unwanted = unwanted_ones(machines, wish)
        unjoined = late & {one.key for one in had}
        look = self._looks[task.ref.uid] = _Look(pool_state(machines, late | unwanted, wish.replaced), late, unjoined, unwanted, wish)
        return look.state

    async def wanted(self, spec: NodePoolSpec) -> PoolState:
        self._governor.check_fresh()
        look = self._looks[current().ref.uid]
        return PoolState(nodes=_goal(look))

    async def apply(self, spec: NodePoolSpec, diff: Diff) -> None:
        ref = current().ref
        look = self._looks[ref.uid]
        if self._governor.nodes.pools.get(ref.uid, look.wish) != look.wish:
            raise Moved("the governor has decided anew")
        obj = self._governor.nodes.pool(ref.name)
        back = look.late | look.unwanted
        known = [one for one in machines_of(obj or {}) if one.node not in look.wish.replaced and one.key not in back]
        missing = max(_goal(look) - len(known), 0)
        replaces = [uid for uid in look.wish.replaces if uid not in {one.replaces for one in known}]
        await self._pools.grow(ref.name, ref.uid, spec, missing, replaces, back, look.unjoined)

    async def delete(self, spec: NodePoolSpec) -> None:
        """Its nodes are drained and given back, each through the gate, before it goes; what never joined goes at once."""
        ref, names = current().ref, self._governor.nodes.names()
        obj = self._governor.nodes.pool(ref.name)
        machines = machines_of(obj or {})
        await self._pools.give_all_back(ref.name, ref.uid, spec, {one.key for one in machines if one.node not in names})
        if left := [one.node for one in machines if one.node in names]:
            raise Refused(f"still to be drained and given back, {len(left)} in all: {', '.join(sorted(left)[:3])}")

    def takes(self, spec: NodePoolSpec) -> float:
        return min(self.deadline, 2 * spec.provision.timeout.total_seconds() + MARGIN_SECONDS)

    def target(self, spec: NodePoolSpec) -> str:
        """What is asked by the same program or of the same host fails together."""
        how = spec.provision
        return how.exec[0] if how.exec else how.webhook

    def harmless(self, spec: NodePoolSpec, diff: Diff) -> bool:
        return True

    def attribute(self, spec: NodePoolSpec, diff: Diff) -> Diff:
        """What the governor asks for follows from what is, not from who wrote the pool last."""
        return replace(diff, cause=Cause.DRIFT)


def _goal(look: _Look) -> int:
    """How many it should have: what is late is given back first, and asked for anew where it is still wanted then."""
    return max(look.wish.nodes - len(look.late), look.state.nodes)
