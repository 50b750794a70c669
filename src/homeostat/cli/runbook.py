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
    from homeostat.cli.openplan import unlooked, view_of
    from homeostat.guards import runbook
    from homeostat.guards.runbook import look_at
    from homeostat.guards.status import NOTHING
    from homeostat.insight.fleets import hold_of
    from homeostat.loop.fleet import Verdict
    from homeostat.model.conditions import find_condition

    view = server.run(lambda client: view_of(client, scope))
    notes = unlooked(view)
    for line in notes:
        click.echo(line, err=True)
    found: dict[str, list[str]] = {}
    for name, fleet in sorted(view.fleets.items()):
        asks = view.asks(fleet)
        named = {(ask.guard, ask.reason): ask for ask in asks}
        holds = {ref: hold for ref in fleet.drifts if (hold := hold_of(view.at(ref))) is not None}
        held = {ref: named.get((hold.guard, hold.reason), hold) for ref, hold in holds.items()}
        halts = {f"{number}": halt for number, halt in enumerate(view.halts(fleet))}
        lines = runbook(view.gate.policy(fleet), fleet, Verdict(held=held, halts=halts), view.now, asks)
        if lines:
            found[name] = lines
    for ref, why in sorted(view.uncomposed.items()):
        way = "  way out: correct the declaration, its source or the composer; what was made of it before stays, and it goes on by itself"
        found[str(ref)] = [f"{ref}: nobody can tell what it declares, or that is refused", f"  what happened: {why}", f"  look at: {look_at(ref)}", way]
    for name, policy in sorted(view.policies.items()) if not scope else ():
        ready = find_condition(policy, "Ready") or {}
        if ready.get("reason") == NOTHING and policy["spec"].get("freezes"):
            look = f"  look at: kubectl get guardpolicy {name} -o yaml   # are its kinds, namespaces and labels those of what it is to hold?"
            found[name] = [f"{name}: a freeze that holds nothing", f"  what happened: {ready['message']}", look]
    if output != "text":
        emit(found, output)
    elif found:
        for lines in found.values():
            echo_lines([*lines, ""])
    else:
        known = "nothing is known to be" if notes else "nothing is"
        click.echo(f"{known} halted, frozen or held", err=True)
