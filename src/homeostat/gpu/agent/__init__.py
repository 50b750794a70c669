"""The node agent: one on each machine with GPUs. It declares the machine, runs what is placed there, and reports.

    homeostat agent --join https://control:7443 --ca-file ca.crt --token-file token
    homeostat agent --simulate 8xH100            # a machine without GPUs, for a workbench and for tests

It decides nothing about who gets which GPU. It reads `status.phase` and `status.assignment` of Workloads, and writes three things of its
own: its `GpuNode`, the Lease of the node's name, and its entries in `status.reports` of the workloads that it has to do with.

Replicas are processes as `homeostat.providers.process` has them: started behind a gate and recorded before they run, known by pid, start
time and boot, marked in their environment. So none is doubled, and all outlive the agent and the control plane; the next agent with the
same state directory takes them up again.

Read `wanted` for what is decided (all of it pure), `journal` for what is remembered, `replica` for one replica, `keeper` for all of
them, `suspend` and `cuda` for how a process leaves the GPU with its state and comes back, `devices`, `nvml` and `simulated` for the
GPUs, `node`, `lease` and `reports` for what is told.
"""

from homeostat.gpu.agent.agent import Agent
from homeostat.gpu.agent.node import Machine

__all__ = ["Agent", "Machine"]
