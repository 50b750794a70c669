"""`homeostat runbook`: what needs a person now, and the ways out."""

from __future__ import annotations

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import echo_lines, emit, output_option


@click.command()
@click.argument("scope", required=False)
@output_option("text", "json", "yaml")
@server_options(namespace=False)
def command(server: Connection, scope: str | None, output: str) -> None:
    """For what is halted, frozen or held now: what happened, what to look at, and the exact commands out of it.

    \b
    Examples:
      homeostat runbook
      homeostat runbook files

    Exits with 0, also when nothing needs anybody.
    """
    from homeostat.cli.openplan import view_of
    from homeostat.guards import runbook
    from homeostat.insight.fleets import hold_of
    from homeostat.loop.fleet import Verdict

    view = server.run(lambda client: view_of(client, scope))
    found: dict[str, list[str]] = {}
    for name, fleet in sorted(view.fleets.items()):
        held = {ref: hold for ref in fleet.drifts if (hold := hold_of(view.at(ref))) is not None}
        halts = {f"{number}": halt for number, halt in enumerate(view.halts(fleet))}
        lines = runbook(view.gate.policy(fleet), fleet, Verdict(held=held, halts=halts), view.now)
        if lines:
            found[name] = lines
    if output != "text":
        emit(found, output)
    elif found:
        for lines in found.values():
            echo_lines([*lines, ""])
    else:
        click.echo("nothing is halted, frozen or held", err=True)
