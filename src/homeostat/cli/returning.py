"""The way back as commands go it: a plan that is shown, asked about, and written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.progress import progress
from homeostat.cli.show import ask, count, echo_lines, emit
from homeostat.insight.returning import Target, carry_back, plan_return

if TYPE_CHECKING:
    from homeostat.cli.connection import Connection
    from homeostat.client import Client
    from homeostat.insight.planning import Plan, Step


def go_back(
    server: Connection,
    targets: Callable[[Client], Awaitable[Sequence[Target]]],
    *,
    command: str,
    yes: bool,
    approve: bool,
    reason: str,
    dry_run: bool,
    output: str,
) -> None:
    """Shows the plan, asks, has it approved where that is wanted, writes, and tells. Where something is refused, nothing is written."""
    from homeostat.cli.apply import QUESTION, approve_first
    from homeostat.cli.planview import plan_lines, refuse_errors, write_plan
    from homeostat.insight.planned import guards_on, plan_data

    async def read(client: Client) -> tuple[Plan, list[Any]]:
        meant = await targets(client)
        with progress(len(meant), "asking the server") as bar:
            plan = await plan_return(client, meant, command=command, done=bar.step)
        return plan, [] if plan.errors else await guards_on(client, plan)

    plan, verdicts = server.run(read, timeout=None)
    refuse_errors(plan)
    if output == "text":
        echo_lines(plan_lines(plan, verdicts))
    halted = any(verdict.approvable for verdict in verdicts)
    if dry_run or not plan.changes:
        if output != "text":
            emit({**plan_data(plan, verdicts), "failed": []}, output)
        return
    if not yes:
        ask("Go back, and approve this?" if halted and approve else "Go back to this?")
    if halted and (approve or (not yes and click.confirm(QUESTION))):
        approve_first(server, plan, verdicts, reason, anybody=not yes)

    async def write(client: Client, done: Callable[[], None]) -> list[Step]:
        return await carry_back(client, plan, done=done)

    failed = write_plan(server, plan, "taking back", len(plan.changes), write, timeout=None)
    if output != "text":
        told = [{"object": step.title, "error": step.error} for step in failed]
        emit({**plan_data(plan, verdicts), "failed": told}, output)
    if failed:
        lines = "\n  ".join(f"{step.title}: {step.error}" for step in failed)
        raise click.ClickException(f"{count(len(failed), 'object')} could not be written:\n  {lines}")
    if output == "text":
        click.echo(f"Took back {count(len(plan.changes), 'object')} as change set {plan.change_set}.")
