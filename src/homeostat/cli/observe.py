"""`homeostat observe`: report drift, act on nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from homeostat.cli.connection import Connection, server_options

if TYPE_CHECKING:
    from homeostat.client import Client


@click.command()
@click.argument("scope")
@server_options(namespace=False)
def command(server: Connection, scope: str) -> None:
    """Have a SCOPE (a kind, a policy or a fleet) only observed: drift is reported, and nothing is done about it.

    \b
    Examples:
      homeostat observe files

    Exits with 0 when it is so, 1 when that failed.
    """
    names = server.run(lambda client: set_mode(client, scope, "Observe"))
    click.echo(f"{scope} is only observed now (GuardPolicy {', '.join(names)}).")


async def set_mode(client: Client, scope: str, mode: str) -> list[str]:
    """Sets the mode of every policy that guards a scope; gives their names."""
    from homeostat.cli.scope import change_policy, find_scope, guarding_children

    found = await find_scope(client, scope)
    if found.name:
        raise click.ClickException(f"{scope} is one thing: modes are for kinds and policies; for one thing, freeze it")
    policies = [*found.policies, *await guarding_children(client, found)]
    for policy in policies:
        await change_policy(client, policy, lambda spec: {"mode": mode})
    return [policy["metadata"]["name"] for policy in policies]
