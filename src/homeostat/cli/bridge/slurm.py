"""`homeostat bridge slurm`: keeps the GPUs of a Slurm cluster."""

from __future__ import annotations

from pathlib import Path

import click

from homeostat.cli.bridge.running import How, bridge_options, keep


@click.command()
@click.option(
    "--state",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder that this machine and all nodes see under the same name. Jobs leave their output there, and how they ended.",
)
@click.option("--partition", default="", help="Keep its nodes alone, and send jobs there. Default: all nodes with GPUs.")
@click.option("--account", default="", help="Whom Slurm charges. Default: Slurm's.")
@click.option("--qos", default="", help="The quality of service that jobs ask for. Default: Slurm's.")
@click.option("--slurm-bin", metavar="DIR", default="", help="Where Slurm's commands are. Default: the PATH.")
@click.option("--slurm-conf", metavar="FILE", default="", help="Default: $SLURM_CONF, or where Slurm looks for it.")
@bridge_options("slurm")
def command(how: How, state: Path, partition: str, account: str, qos: str, slurm_bin: str, slurm_conf: str) -> None:
    """Keep the GPUs of a Slurm cluster: declare its nodes, send the workloads that are placed there as jobs, and report.

    Run it on a machine with Slurm's commands, as an ordinary user of the cluster: jobs run as that user. They outlive the bridge; the next
    one with the same --state takes them up again. Whoever may place workloads in the API has commands run there.

    \b
    Examples:
      homeostat bridge slurm --state /shared/homeostat
      homeostat bridge slurm --state /shared/homeostat --partition gpu --model a100=A100:40G --suspend-as restart
      homeostat bridge slurm --state /shared/homeostat --print-access | kubectl apply -f -

    Exits with 0 when it is told to stop, 1 when it cannot be run.
    """
    from homeostat.gpu.bridge.slurm import Options, Slurm

    options = Options(partition, account, qos, slurm_bin, slurm_conf, how.called())
    place = state.expanduser().absolute()
    try:
        cluster = Slurm(place, options)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--state") from None
    keep(how, cluster, place)
