"""`homeostat diff`: what differs between files and the server, with exit codes for scripts."""

from __future__ import annotations

import click

from homeostat.cli.connection import Connection, Trouble, server_options
from homeostat.cli.manifests import manifest_options
from homeostat.cli.show import painted


@click.command()
@manifest_options()
@server_options()
def command(server: Connection, files: tuple[str, ...], recursive: bool, prune: str, force: bool) -> None:
    """Show what differs between what files declare and what the server has.

    \b
    Examples:
      homeostat diff -f site/
      homeostat diff -f site/ || homeostat apply -f site/

    Exits with 0 when nothing differs, 1 when something does, and more than 1 when that cannot be told.
    """
    from homeostat.cli.manifests import read
    from homeostat.cli.planning import SIGNS, make_plan
    from homeostat.cli.planview import refuse_errors

    try:
        documents = read(files, recursive)
    except click.ClickException as error:
        raise Trouble(error.message) from None
    plan = server.run(lambda client: make_plan(client, documents, force=force, prune=prune), failure=Trouble)
    refuse_errors(plan, Trouble)
    for step in plan.changes:
        assert step.op is not None
        click.echo(painted(f"{SIGNS[step.op]} {step.title}"))
        for line in step.lines():
            click.echo("    " + painted(line))
    if plan.changes:
        raise click.exceptions.Exit(1)
