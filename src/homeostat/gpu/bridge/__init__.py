"""Bridges: a cluster that people have already, Slurm's or Kubernetes', kept by the governor. One process for each cluster.

    homeostat bridge slurm --state /shared/homeostat
    homeostat bridge kubernetes --cluster-kubeconfig cluster.yaml --pod-namespace gpu-jobs

A bridge is to a cluster what the agent is to a machine. Its machines with GPUs appear as GpuNodes, each with a lease that is renewed while
the cluster says that it lives; what the governor places there is sent there as jobs, one for each replica; what becomes of them is reported
as agents report. It decides nothing, and what somebody else runs on the same machines is counted and left alone.

What is wanted of a replica, how that is told and what is remembered are the agent's (`gpu.agent`: `wanted`, `outcome`, `journal`,
`reports`, `lease`, `node`, `placed`). Read `cluster` for what a bridge sees and asks for, `sent` for one replica, `nodes` for the machines,
`bridge` for all of it, and `slurm` and `kubernetes` for the two clusters.
"""

from homeostat.gpu.bridge.bridge import Bridge
from homeostat.gpu.bridge.cluster import Cluster, Unreadable

__all__ = ["Bridge", "Cluster", "Unreadable"]
