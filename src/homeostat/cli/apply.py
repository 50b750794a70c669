"""`homeostat apply`: declares what files say, all of it as one change set, after showing what that does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.manifests import manifest_options
from homeostat.cli.show import ask, count, echo_lines, emit, output_option

if TYPE_CHECKING:
    from homeostat.cli.planning import Plan, Step
    from homeostat.client import Client


@click.command()
@manifest_options()
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option("text", "json", "yaml")
@server_options()
def command(
    server: Connection, files: tuple[str, ...], recursive: bool, prune: str, force: bool, yes: bool, output: str
) -> None:
    """Declare what files say, as one change set: show the plan, ask, write.

    Every object is tried by the server first; where one is refused, nothing is written. What is declared is then made true by the
    loop, under its guards: `homeostat plan` shows how far it is.

    \b
    Examples:
      homeostat apply -f site/
      homeostat apply -f site/ --prune app=site
      kustomize build . | homeostat apply --yes -f -

    Exits with 0 when all is declared, 1 when something is refused or failed, 3 when you said no.
    """
    from homeostat.cli.manifests import read
    from homeostat.cli.planview import plan_and_verdict, plan_data, plan_lines, refuse_errors

    if "-" in files and not yes:
        raise click.UsageError("what comes from standard input leaves nobody to ask: add --yes")
    documents = read(files, recursive)
    plan, verdicts = server.run(lambda client: plan_and_verdict(client, documents, force=force, prune=prune))
    refuse_errors(plan)
    if output == "text":
        echo_lines(plan_lines(plan, verdicts))
    if plan.changes and not yes:
        ask("Apply this?")
    failed = _write(server, plan, force)
    if output != "text":
        done = plan_data(plan, verdicts)
        emit({**done, "failed": [{"object": s.title, "error": s.error} for s in failed]}, output)
    if failed:
        lines = [f"{step.title}: {step.error}" for step in failed]
        raise click.ClickException(f"{count(len(failed), 'object')} could not be written:\n  " + "\n  ".join(lines))
    if output == "text" and plan.changes:
        click.echo(f"Declared {count(len(plan.changes), 'object')} as change set {plan.change_set}.")


def _write(server: Connection, plan: Plan, force: bool) -> list[Step]:
    from homeostat.cli.planning import CHANGE_SET_HEADER, carry_out

    async def write(client: Client) -> list[Step]:
        return await carry_out(client, plan, force=force)

    return server.run(write, headers={CHANGE_SET_HEADER: plan.change_set})
