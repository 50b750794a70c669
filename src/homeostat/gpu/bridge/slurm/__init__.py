"""Slurm: `cluster` runs its commands, `reading` reads what they print, `script` is what a job runs."""

from homeostat.gpu.bridge.slurm.cluster import Options, Slurm

__all__ = ["Options", "Slurm"]
