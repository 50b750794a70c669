"""`homeostat apply`: declares what files say, all of it as one change set, after showing what that does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.manifests import composer_option, manifest_options
from homeostat.cli.show import ask, count, echo_lines, emit, output_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from homeostat.client import Client
    from homeostat.insight.planning import Plan, Step
    from homeostat.insight.verdicts import FleetVerdict

QUESTION = "The guards would stop it for its size. Approve all of it, once, to go out in waves?"


@click.command()
@manifest_options()
@composer_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--approve", is_flag=True, help="Approve all of it at once, where the guards would stop it for its size.")
@click.option("--reason", default="", help="Why it is approved, for whoever reads it later.")
@output_option("text", "json", "yaml")
@server_options()
def command(
    server: Connection,
    files: tuple[str, ...],
    recursive: bool,
    prune: str,
    force: bool,
    own: tuple[str, ...],
    yes: bool,
    approve: bool,
    reason: str,
    output: str,
) -> None:
    """Declare what files say, as one change set: show the plan, ask, write.

    Every object is tried by the server first; where one is refused, nothing is written. What is declared is then made true by the
    loop, under its guards: `homeostat plan` shows how far it is.

    Where guards would stop it for how much it changes or deletes, you can approve it as a whole: it then goes out in waves, and nobody
    is asked again. The approval is for so much as you were shown, once. --yes alone approves nothing.

    \b
    Examples:
      homeostat apply -f site/
      homeostat apply -f site/ --prune app=site
      homeostat apply -f site/ --approve --reason "the new colour is meant"
      kustomize build . | homeostat apply --yes -f -

    Exits with 0 when all is declared, 1 when something is refused or failed, 3 when you said no.
    """
    from homeostat.cli.manifests import read
    from homeostat.cli.planview import plan_and_verdict, plan_lines, refuse_errors
    from homeostat.insight.planned import plan_data

    if "-" in files and not yes:
        raise click.UsageError("what comes from standard input leaves nobody to ask: add --yes")
    documents = read(files, recursive)
    plan, verdicts = server.run(lambda client: plan_and_verdict(client, documents, force=force, prune=prune, own=own))
    refuse_errors(plan)
    if output == "text":
        echo_lines(plan_lines(plan, verdicts))
    halted = any(verdict.approvable for verdict in verdicts)
    if plan.changes and not yes:
        ask("Apply and approve this?" if halted and approve else "Apply this?")
    if halted and (approve or (not yes and click.confirm(QUESTION))):
        approve_first(server, plan, verdicts, reason, anybody=not yes)
    failed = _write(server, plan, force)
    if output != "text":
        done = plan_data(plan, verdicts)
        emit({**done, "failed": [{"object": s.title, "error": s.error} for s in failed]}, output)
    if failed:
        lines = [f"{step.title}: {step.error}" for step in failed]
        raise click.ClickException(f"{count(len(failed), 'object')} could not be written:\n  " + "\n  ".join(lines))
    if output == "text" and plan.changes:
        click.echo(f"Declared {count(len(plan.changes), 'object')} as change set {plan.change_set}.")


def approve_first(server: Connection, plan: Plan, verdicts: Sequence[FleetVerdict], reason: str, *, anybody: bool) -> None:
    """Says yes to the change set before it is written. Where that is refused it is only written if somebody still wants it."""
    from homeostat.cli.approve import approve_change_set

    async def write(client: Client) -> str:
        return await approve_change_set(client, plan.change_set, verdicts, reason)

    try:
        click.echo(f"Approved as Approval {server.run(write)}.", err=True)
    except click.ClickException as error:
        why = error.message
        if not anybody:
            raise click.ClickException(f"it could not be approved, so nothing was done: {why}") from None
        click.echo(f"It could not be approved: {why}", err=True)
        ask("Apply it without? What the guards stop then waits until somebody approves it.")


def _write(server: Connection, plan: Plan, force: bool) -> list[Step]:
    from homeostat.cli.planview import write_plan
    from homeostat.insight.planning import carry_out

    async def write(client: Client, done: Callable[[], None]) -> list[Step]:
        return await carry_out(client, plan, force=force, done=done)

    return write_plan(server, plan, "declaring", len(plan.steps), write)
