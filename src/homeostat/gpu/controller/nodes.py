"""GpuNodes under the loop: what is wanted of one is the stage that the governor last decided on.

The fleet are the nodes: to cordon, to drain and to give back one changes one of them, so a wave is a tenth of them, and where more than
30 % would change at once it stops and asks. To open one again harms nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from homeostat.client import Client, Key
from homeostat.gpu.kinds import NODE, GpuNodeSpec, GpuNodeStatus, NodePoolSpec, NodeStage
from homeostat.gpu.pools.keeping import TIMEOUT_MOST, Pools
from homeostat.gpu.pools.provider import MARGIN_SECONDS
from homeostat.gpu.pools.standing import NodeState, NodeWish, Object, stage_of
from homeostat.loop.controller import Controller
from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Cause, Ref
from homeostat.loop.provider import Moved, Provider, Refused, current
from homeostat.model.clock import Clock, format_time
from homeostat.model.conditions import find_condition
from homeostat.model.kinds import KindInfo, decode, schema_of

if TYPE_CHECKING:
    from homeostat.gpu.controller.governing import Governor

MANAGER = "homeostat-governor"


class NodeController(Controller):
    """Passes by nodes that are open, are to be, and were told so: there may be ten thousand."""

    provider: GpuNode

    @property
    def batches(self) -> bool:
        return True

    async def unmoved(self, keys: Sequence[Key], *, first: bool) -> set[Key]:
        return {key for key in keys if self.provider.is_open(key.name)}


class GpuNode(Provider[GpuNodeSpec, NodeState]):
    """A machine with GPUs."""

    info: ClassVar[KindInfo] = NODE
    controller = NodeController
    state_type = NodeState
    contested = False
    adopts = True
    beside = frozenset(schema_of(GpuNodeStatus)["properties"])
    deadline: ClassVar[float] = 2 * TIMEOUT_MOST + MARGIN_SECONDS

    def __init__(self, governor: Governor, pools: Pools, clock: Clock | None = None) -> None:
        self._governor = governor
        self._pools = pools
        self._clock = clock or Clock()
        self._asked: dict[str, NodeWish] = {}  # by uid: what was last said to be wanted

    async def open(self, client: Client) -> None:
        self._nodes = client.kind(NODE.api_version, NODE.kind)

    def forget(self, ref: Ref) -> None:
        self._asked.pop(ref.uid, None)
        self._governor.nodes.node_bell.forget(ref)

    def watch(self) -> AsyncIterator[Ref]:
        return self._governor.nodes.node_bell.stream()

    async def observe(self, spec: GpuNodeSpec) -> NodeState:
        ref = current().ref
        self._governor.nodes.check()
        await self._governor.ready()
        stage = stage_of(self._node(ref))
        if stage is NodeStage.GIVING_BACK:
            if await self._is_had(self._governor.nodes.pool_of(ref.name), ref.name):
                return NodeState(stage=NodeStage.DRAINING)
            self._governor.nodes.gone[ref.name] = ref.uid
        return NodeState(stage=stage)

    def is_open(self, name: str) -> bool:
        """Whether it is open, its status says that this is as it should be, and nothing else is wanted of it."""
        if not self._governor.can_tell or (node := self._governor.nodes.node(name)) is None:
            return False
        metadata, told = node["metadata"], find_condition(node, "Ready") or {}
        if "deletionTimestamp" in metadata or metadata["uid"] in self._governor.nodes.nodes or stage_of(node) is not NodeStage.OPEN:
            return False
        return told.get("status") == "True" and told.get("observedGeneration") == metadata.get("generation")

    def _node(self, ref: Ref) -> Object:
        found = self._governor.nodes.node(ref.name)
        return found if found is not None and found["metadata"]["uid"] == ref.uid else {}

    async def _is_had(self, pool: str, node: str) -> bool:
        """Whether its pool still has it. A pool that is no more has nothing."""
        declared = self._governor.nodes.pool(pool)
        if declared is None:
            return False
        return any(one.node == node for one in await self._pools.has(pool, decode(NodePoolSpec, declared["spec"])))

    async def wanted(self, spec: GpuNodeSpec) -> NodeState:
        ref = current().ref
        self._governor.check_fresh()
        stage = stage_of(self._node(ref))
        wish = self._asked[ref.uid] = self._governor.nodes.nodes.get(ref.uid) or NodeWish(stage)
        return NodeState(stage=wish.stage)

    async def apply(self, spec: GpuNodeSpec, diff: Diff) -> None:
        ref = current().ref
        wish = self._asked[ref.uid]
        async with self._governor.turn:  # so that it is decided on with this, or was before
            now = self._governor.nodes.nodes.get(ref.uid)
            if (now.stage if now else stage_of(self._node(ref))) is not wish.stage:
                raise Moved("the governor has decided anew")
            await self._write(ref, wish)
        if wish.stage is NodeStage.GIVING_BACK:
            await self._give_back(ref)

    async def _write(self, ref: Ref, wish: NodeWish) -> None:
        status = {
            "stage": str(wish.stage),
            "reason": wish.reason,
            "constraint": str(wish.constraint),
            "stageSince": format_time(self._clock.now()),
        }
        await self._nodes.patch(
            ref.name, {"metadata": {"uid": ref.uid}, "status": status}, subresource="status", field_manager=MANAGER
        )

    async def _give_back(self, ref: Ref) -> None:
        name = self._governor.nodes.pool_of(ref.name)
        pool = self._governor.nodes.pool(name)
        if pool is None:
            raise Refused(f"{name or 'what it is of'} is no NodePool: nobody can take {ref.name} back")
        await self._pools.give_back(name, pool["metadata"]["uid"], decode(NodePoolSpec, pool["spec"]), ref.name)

    def holds(self, declaration: Object) -> bool:
        """One that is open may go at once."""
        return stage_of(declaration) is not NodeStage.OPEN

    def leaves(self, spec: GpuNodeSpec) -> bool:
        """Who deletes a GpuNode takes it out of the API; its agent declares it again."""
        return True

    def harmless(self, spec: GpuNodeSpec, diff: Diff) -> bool:
        return self._asked[current().ref.uid].stage is NodeStage.OPEN

    def attribute(self, spec: GpuNodeSpec, diff: Diff) -> Diff:
        """What the governor decides follows from what is, not from who wrote the node last."""
        return replace(diff, cause=Cause.DRIFT)

    def takes(self, spec: GpuNodeSpec) -> float:
        return self.deadline
