"""`homeostat bridge`: keeps the GPUs of a cluster that people have already."""

from __future__ import annotations

import click

from homeostat.cli import Lazy

_COMMANDS = {
    "kubernetes": ("homeostat.cli.bridge.kubernetes", "Keep the GPUs of a Kubernetes cluster."),
    "slurm": ("homeostat.cli.bridge.slurm", "Keep the GPUs of a Slurm cluster."),
}


@click.group(cls=Lazy, table=_COMMANDS)
def command() -> None:
    """Bring the GPUs of a cluster under the governor: one process for each cluster.

    Its machines appear as GpuNodes, and what the governor places there runs there as jobs of the cluster. What others run on the same
    machines is counted and left alone.

    \b
    Examples:
      homeostat bridge slurm --state /shared/homeostat
      homeostat bridge kubernetes --cluster-kubeconfig cluster.yaml --pod-namespace gpu-jobs
    """
