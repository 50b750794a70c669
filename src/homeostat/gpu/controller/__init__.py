"""The governor in the loop: what it decides goes through the same gate and guards as all else.

    declared, reported ─▶ governing: snapshot ─▶ decide ─▶ wishes ─▶ Workload.wanted ─▶ guards ─▶ Workload.apply ─▶ agents
                              ▲                                                                                        │
                              └──────────────────────────────── status.reports ◀──────────────────────────────────────┘

`standing` holds the pure part: how a workload stands by its status and the reports of agents, and what a decision makes of it.
`governing` follows all that is declared and runs the governor: `known` is the copy of workloads that it shares with the loop, `hearing` which nodes
are heard of. `workload` is the provider that the loop keeps, `lane` its short way through the loop. `speaking` says
what nobody acts on: why something waits (`waiting`), warnings (`notices`), how tenants and nodes stand (`tallies`, written by `telling`). `nodes` is the provider of GpuNodes; that of NodePools is in `gpu/pools`.
"""

from homeostat.gpu.controller.nodes import GpuNode
from homeostat.gpu.controller.workload import Workload
from homeostat.gpu.pools.keeping import Pools, Reach
from homeostat.gpu.pools.provider import NodePool
from homeostat.model.clock import Clock

__all__ = ["GpuNode", "NodePool", "Reach", "Workload", "providers"]


def providers(reach: Reach, clock: Clock | None = None) -> tuple[Workload, GpuNode, NodePool]:
    """All that shares out GPUs, under one governor. `reach` says what pools may touch from this host."""
    clock = clock or Clock()
    workload = Workload(clock)
    governor = workload.governor
    pools = Pools(reach, lambda: governor.nodes.lease, clock)
    return workload, GpuNode(governor, pools, clock), NodePool(governor, pools, clock)
