"""`homeostat unfreeze`: opens the gate again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import echo_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homeostat.cli.scope import Scope
    from homeostat.client import Client


@click.command()
@click.argument("scope")
@server_options()
def command(server: Connection, scope: str) -> None:
    """Lift the freezes of a SCOPE, as `homeostat freeze` takes it.

    A freeze that closes more than the scope is left, and named.

    \b
    Examples:
      homeostat unfreeze files
      homeostat unfreeze file/motd

    Exits with 0 when nothing of the scope is frozen any more, 1 when something still is, or it failed.
    """

    async def write(client: Client) -> tuple[list[dict[str, Any]], list[str]]:
        from homeostat.cli.scope import change_policy, find_scope

        found = await find_scope(client, scope)
        where = client.namespace
        lifted: list[dict[str, Any]] = []
        wider: list[str] = []
        for policy in found.policies:
            frozen = policy["spec"].get("freezes") or []
            lifted += [f for f in frozen if _within(f, policy, found, where)]
            wider += [
                f"{policy['metadata']['name']}: {f['reason']} ({f['author']})"
                for f in frozen
                if not _within(f, policy, found, where) and _touches(f, found, where)
            ]
            if any(_within(f, policy, found, where) for f in frozen):
                await change_policy(client, policy, _keeper(policy, found, where))
        return lifted, [*wider, *_by_default(found, client.now())]

    lifted, wider = server.run(write)
    for freeze in {(f["reason"], f["author"]) for f in lifted}:
        echo_lines([f"lifted: {freeze[0]} (frozen by {freeze[1]})"])
    if wider:
        lines = "\n  ".join(wider)
        raise click.ClickException(f"{scope} is still frozen, as a part of more:\n  {lines}")
    if not lifted:
        click.echo(f"{scope} is not frozen", err=True)


def _keeper(policy: dict[str, Any], scope: Scope, namespace: str) -> Any:
    return lambda spec: {"freezes": [f for f in spec.get("freezes") or () if not _within(f, policy, scope, namespace)]}


def _within(freeze: dict[str, Any], policy: dict[str, Any], scope: Scope, namespace: str) -> bool:
    """Whether all that a freeze closes lies in the scope."""
    if scope.kind is None:
        return True
    kinds = set(freeze.get("kinds") or policy["spec"].get("fleet", {}).get("kinds") or ())
    if kinds != {scope.guarded_as}:
        return False
    if not scope.name:
        return True
    there = freeze.get("namespaces") or []
    return freeze.get("names") == [scope.name] and (not scope.kind.namespaced or there == [namespace])


def _by_default(scope: Scope, now: float) -> Iterator[str]:
    """Freezes in the defaults of its kinds, which stand whoever guards the things, and how to lift them."""
    from homeostat.guards.freeze import standing
    from homeostat.guards.keeper import readable_policy

    for policy in scope.elsewhere():
        name = policy["metadata"]["name"]
        for freeze in standing(readable_policy(policy), now):
            yield f"{name}: {freeze.reason} ({freeze.author}); to lift it: homeostat unfreeze {name}"


def _touches(freeze: dict[str, Any], scope: Scope, namespace: str) -> bool:
    """Whether a freeze closes something of the scope."""
    if scope.kind is not None and freeze.get("kinds") and scope.guarded_as not in freeze["kinds"]:
        return False
    if scope.name and freeze.get("namespaces") and namespace not in freeze["namespaces"]:
        return False
    return not (scope.name and freeze.get("names") and scope.name not in freeze["names"])
