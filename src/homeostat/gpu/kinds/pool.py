"""NodePool: where nodes come from and go to."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, field

from homeostat.gpu import GROUP, VERSION
from homeostat.gpu.kinds.amounts import Amount, Model, Name, Size, kept
from homeostat.model.kinds import Column, KindInfo, ListMap, Rule, Spec

NODES_MOST = 1_000_000
"""Of one pool."""


class SecretName(Spec):
    """A Secret. To a command its keys are given as `values`; to a webhook `token` is sent as bearer token, and `hmac` signs the body."""

    namespace: Name
    name: Name


class HowToGet(Spec):
    """How a node is had and given back: by a command, by a webhook, or as a simulated one on the host of the loop. Exactly one.

    What is asked and answered is said in `gpu/pools/ways.py`.
    """

    exec: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    """A command: an absolute path and its arguments. It gets JSON on its standard input and prints JSON."""
    webhook: Annotated[str, Meta(pattern="^(https?://.+)?$", max_length=2048)] = ""
    """Gets the same by POST. With a secret it is `https`."""
    simulated: bool = False
    """Agents with simulated GPUs, and what is placed there, run on the host of the loop: for trying things out."""
    secret: SecretName | None = None
    timeout: timedelta = timedelta(minutes=1)
    """How long one answer may take, up to 10 minutes."""

    rules = [
        Rule(
            "[has(self.exec) && size(self.exec) > 0, has(self.webhook) && self.webhook != '', "
            "has(self.simulated) && self.simulated].filter(x, x).size() == 1",
            message="say exactly one of exec, webhook and simulated",
        )
    ]


class NodePoolSpec(Spec):
    """Nodes of one sort that can be had and given back."""

    model: Model
    gpus_per_node: Annotated[int, Meta(ge=1, le=64)] = 8
    gpu_memory_mib: Size = 0
    cpu_milli: Size = 0
    memory_mib: Size = 0
    minimum: Annotated[int, Meta(ge=0, le=NODES_MOST)] = 0
    """So many are kept though nothing runs on them."""
    maximum: Annotated[int, Meta(ge=0, le=NODES_MOST)] = 0
    """No more are had. A node that is being replaced does not count; those beyond a lowered maximum are drained and given back, but for those that
    joined by themselves, which nobody could give back."""
    cost_per_hour: Amount = 0.0
    """Of a node; the cheapest pool that has what is wanted is asked."""
    spot: bool = False
    provision: HowToGet = field(default_factory=lambda: HowToGet(simulated=True))
    arrives_within: timedelta = timedelta(minutes=10)
    """A node whose agent has not joined by then is given back. Where that happened twice in a row, it is asked for another after a pause: as long
    again, and twice as long each time, up to a day. Other pools are asked meanwhile."""

    rules = [Rule("self.minimum <= self.maximum", message="minimum is larger than maximum")]


class PoolNode(Spec):
    """A node that a pool was asked for. It is written down before it is asked for, and taken out when it was given back."""

    key: str
    """By which it is asked for, as often as need be: the same key gives the same node."""
    node: str = ""
    """The name of its GpuNode, once the pool has said it."""
    since: datetime | None = None
    """When it was asked for."""
    replaces: str = ""
    """Uid of the GpuNode in whose stead it is."""
    refused: str = ""
    """Why it was not had when it was last asked for. It is asked for again as long as it is wanted, and other pools are asked meanwhile."""


class NodePoolStatus(Spec):
    """How many nodes there are."""

    nodes: int = 0
    ready: int = 0
    coming: int = 0
    """Asked for, not refused, and not joined yet."""
    going: int = 0
    unjoined: int = 0
    """How often in a row nodes that it gave were given back, for no agent of theirs joined in time."""
    unjoined_at: datetime | None = None
    """When they last were."""
    trouble: str = ""
    """Why nothing is to be had of it at present: it cannot be read, it refuses, or its nodes do not join. While there is some, other pools are
    asked for what waits."""
    reason: str = ""
    machines: Annotated[tuple[PoolNode, ...], ListMap("key")] = ()


POOL = KindInfo(
    GROUP,
    VERSION,
    "NodePool",
    NodePoolSpec,
    status=kept(NodePoolStatus),
    scope="Cluster",
    categories=("gpu", "homeostat"),
    host=True,
    columns=(
        Column("Model", ".spec.model"),
        Column("Nodes", ".status.nodes", "integer"),
        Column("Up", ".status.ready", "integer"),
        Column("Coming", ".status.coming", "integer"),
        Column("Min", ".spec.minimum", "integer"),
        Column("Max", ".spec.maximum", "integer"),
        Column("Reason", ".status.reason", priority=1),
    ),
)
