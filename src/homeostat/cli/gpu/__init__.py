"""`homeostat gpu`: who has which GPUs, why something waits, and what would be if."""

from __future__ import annotations

import click

from homeostat.cli import Lazy

_COMMANDS = {
    "explain": ("homeostat.cli.gpu.explain", "Why a workload waits, runs or was suspended, and what comes next."),
    "queue": ("homeostat.cli.gpu.queue", "Who waits, for what, and until when."),
    "quota": ("homeostat.cli.gpu.quota", "What each tenant may use, and uses."),
    "simulate": ("homeostat.cli.gpu.simulate", "Replay a trace in virtual time, under one policy or several."),
    "top": ("homeostat.cli.gpu.top", "Nodes and GPUs, who holds them, and tenants against their quota, live."),
}


@click.group(cls=Lazy, table=_COMMANDS)
def command() -> None:
    """See who has which GPUs, ask why, and try out what would be if.

    What these commands say is computed when you ask, from what the server says now, by the very functions that decide.

    \b
    Examples:
      homeostat gpu top
      homeostat gpu explain train-7
      homeostat gpu simulate --generate 500 --fleet 4x8xH100 --compare fifo
    """
