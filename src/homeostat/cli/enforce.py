"""`homeostat enforce`: shows what the loop would do, and then lets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import ask, echo_lines

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.insight.fleets import View


@click.command()
@click.argument("scope")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@server_options(namespace=False)
def command(server: Connection, scope: str, yes: bool) -> None:
    """Let the loop act on a SCOPE (a kind, a policy or a fleet), after showing what it would do now.

    \b
    Examples:
      homeostat enforce files
      homeostat enforce files --yes

    Exits with 0 when it is enforced, 1 when that failed, 3 when you said no.
    """
    from homeostat.cli.observe import set_mode
    from homeostat.cli.openplan import open_lines

    view = server.run(lambda client: _as_if(client, scope))
    echo_lines(open_lines(view))
    if not yes:
        ask(f"Enforce {scope}?")
    names = server.run(lambda client: set_mode(client, scope, "Enforce"))
    click.echo(f"{scope} is enforced now (GuardPolicy {', '.join(names)}).")


async def _as_if(client: Client, scope: str) -> View:
    """The view of a scope as if it were enforced already."""
    from msgspec import structs

    from homeostat.cli.openplan import view_of
    from homeostat.guards.policy import Mode

    view = await view_of(client, scope)
    chosen = {policy["metadata"]["name"] for fleet in view.fleets.values() for policy in view.policies_of(fleet)}
    for known in (view.gate.policies, view.gate.built_in):
        for name in chosen & known.keys():
            known[name] = structs.replace(known[name], mode=Mode.ENFORCE)
    return view
