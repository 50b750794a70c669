"""`homeostat approve`: a person's yes to one exact plan that the guards hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import ask, echo_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homeostat.client import Client
    from homeostat.insight.fleets import View
    from homeostat.insight.verdicts import FleetVerdict
    from homeostat.loop.fleet import Drift, Fleet


@click.command()
@click.argument("plan")
@click.option("--reason", default="", help="Why, for whoever reads it later.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@server_options(namespace=False)
def command(server: Connection, plan: str, reason: str, yes: bool) -> None:
    """Approve the PLAN of this name, once, after showing it.

    The name stands for exactly these actions, decided on exactly these facts: if anything moves, it fits no more. An approval never
    lifts a freeze, a window or an invariant, and waves stay as they are.

    \b
    Examples:
      homeostat runbook
      homeostat approve 0123456789abcdef --reason "the new colour is meant"

    Exits with 0 when it is approved, 1 when no such plan is open or it failed, 3 when you said no.
    """

    async def read(client: Client) -> View:
        from homeostat.cli.openplan import view_of

        return await view_of(client)

    view = server.run(read)
    fleet, drifts = _find(view, plan)
    echo_lines(_shown(view, fleet, drifts))
    if not yes:
        ask("Approve exactly this?")

    async def write(client: Client) -> str:
        from homeostat.guards.keeper import APPROVAL_KIND
        from homeostat.insight.planning import MANAGER

        body = {"metadata": {"generateName": f"{plan}-"}, "spec": {"plan": plan, "reason": reason}}
        handle = client.kind(APPROVAL_KIND.api_version, APPROVAL_KIND.kind)
        made = await handle.create(body, field_manager=MANAGER)
        return str(made["metadata"]["name"])

    click.echo(f"approved as Approval {server.run(write)}; it is used once, when the loop finds exactly this plan.")


async def approve_change_set(client: Client, name: str, verdicts: Iterable[FleetVerdict], reason: str) -> str:
    """Approves that a change set changes and deletes as much as these verdicts say; gives the name of the Approval."""
    from homeostat.guards.keeper import APPROVAL_KIND
    from homeostat.insight.planning import MANAGER

    kinds: dict[str, dict[str, int]] = {}
    for verdict in verdicts:
        for kind, grant in verdict.asked.items():
            counts = kinds.setdefault(kind, {"changes": 0, "deletions": 0})
            counts["changes"] += grant.changes
            counts["deletions"] += grant.deletions
    body = {"metadata": {"generateName": f"{name}-"}, "spec": {"changeSet": {"name": name, "kinds": kinds}, "reason": reason}}
    made = await client.kind(APPROVAL_KIND.api_version, APPROVAL_KIND.kind).create(body, field_manager=MANAGER)
    return str(made["metadata"]["name"])


def _find(view: View, plan: str) -> tuple[Fleet, list[Drift]]:
    from homeostat.insight.open import plan_named

    if (found := plan_named(view, plan)) is not None:
        return found
    for fleet in view.fleets.values():  # of what composers declare, only the loop has every line
        if plan in _asked(view, fleet):
            return fleet, list(fleet.drifts.values())
    asked = [name for fleet in view.fleets.values() for name in _asked(view, fleet)]
    hint = f"What waits for one now: {', '.join(dict.fromkeys(asked))}." if asked else "Nothing waits for one now."
    raise click.ClickException(f"no plan that is open now is called {plan}: what it was made from has moved. {hint}")


def _asked(view: View, fleet: Fleet) -> list[str]:
    """The plans that the engine asks about."""
    return [plan for plan in (*(halt.plan for halt in view.halts(fleet)), *(hold.plan for hold in view.asks(fleet))) if plan]


def _shown(view: View, fleet: Fleet, drifts: list[Drift]) -> list[str]:
    from homeostat.cli.openplan import closing, drift_lines

    halts = [f"halted by {halt.guard}: {halt.reason}" for halt in view.halts(fleet)]
    halts += [f"{count} held by {hold.guard}: {hold.reason}" for hold, count in view.asks(fleet).items()]
    lines = list(drift_lines(view, sorted((drift.ref, drift) for drift in drifts)))
    told = [*lines, "", click.style(closing(drifts), bold=True)] if lines else ["the loop names no more of it than this:"]
    return [*told, f"in {fleet.name} ({fleet.size} resources)", *halts]
