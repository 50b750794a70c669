"""`homeostat freeze`: closes the gate for a scope. Looking and reporting go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.duration import seconds

if TYPE_CHECKING:
    from homeostat.cli.scope import Scope
    from homeostat.client import Client


def _somebody() -> str:
    import getpass

    return getpass.getuser()


@click.command()
@click.argument("scope")
@click.option("--reason", required=True, help="Why, for whoever finds it closed.")
@click.option("--for", "length", metavar="DURATION", callback=seconds, default=None, help="How long: 30m, 2h, 1d.")
@click.option(
    "--until", metavar="TIME", help="Until when: 2026-01-31T18:00:00Z. Without an end, until `homeostat unfreeze`."
)
@click.option("--author", metavar="WHO", default=_somebody, show_default="you", help="Who can be asked about it.")
@server_options()
def command(server: Connection, scope: str, reason: str, length: int | None, until: str | None, author: str) -> None:
    """Let nothing be done to a SCOPE: a kind, a policy, a fleet, or one thing as KIND/NAME.

    Drift is still seen and reported. Only the end, or `homeostat unfreeze`, lifts it. Where a policy and a kind have the same name,
    the policy is meant; the whole name of the kind (`files.files.homeostat.dev`) is never in doubt.

    \b
    Examples:
      homeostat freeze files --reason "the disk is being replaced" --for 2h
      homeostat freeze file/motd --reason "under investigation"

    Exits with 0 when it is frozen, 1 when that failed.
    """
    from homeostat.cli.scope import change_policy, find_scope

    freeze: dict[str, Any] = {"reason": reason, "author": author}
    if length is not None and until:
        raise click.UsageError("--for and --until exclude each other")
    wanted = _time(until)

    async def write(client: Client) -> list[str]:
        found: Scope = await find_scope(client, scope)
        if end := _end(length, wanted, client.now()):
            freeze["until"] = end
        if found.kind is not None:
            freeze["kinds"] = [found.guarded_as]
            if found.name and found.guarded_as != found.kind.name:
                raise click.ClickException(
                    f"{scope} is not acted on itself, but what it declares: freeze all that {found.kind.plural} declare "
                    f"(homeostat freeze {found.kind.plural}), or the kind of what it declares"
                )
            if found.name:
                await _note_if_missing(client, found)
                freeze["names"] = [found.name]
                if found.kind.namespaced:
                    freeze["namespaces"] = [client.namespace]
        for policy in found.policies:
            await change_policy(client, policy, lambda spec: {"freezes": [*(spec.get("freezes") or ()), freeze]})
        return [policy["metadata"]["name"] for policy in found.policies]

    names = server.run(write)
    click.echo(f"{scope} is frozen{' until ' + freeze['until'] if 'until' in freeze else ''} (in GuardPolicy {', '.join(names)}).")
    there = "".join(f" -n {name}" for name in freeze.get("namespaces", ()))
    click.echo(f"To lift it: homeostat unfreeze {scope}{there}")


async def _note_if_missing(client: Client, scope: Scope) -> None:
    """What does not exist yet can be frozen; but a freeze of a name that is mistyped would only look like one."""
    from homeostat.cli.kinds import similar_name
    from homeostat.model.errors import ApiError

    assert scope.kind is not None
    try:
        await scope.kind.on(client).get(scope.name)
    except ApiError as error:
        if error.code == 404:
            click.echo(f"note: {error.message}{await similar_name(client, error)}", err=True)


def _time(until: str | None) -> float:
    from homeostat.model.clock import parse_time

    try:
        return parse_time(until) if until else 0.0
    except ValueError:
        raise click.UsageError(f"--until {until}: write a time such as 2026-01-31T18:00:00Z") from None


def _end(length: int | None, until: float, now: float) -> str:
    """When it ends, as the server's clock has it; empty: when somebody lifts it."""
    from homeostat.model.clock import format_time

    if length is not None:
        return format_time(now + length)
    if until and until <= now:
        raise click.ClickException(f"--until {format_time(until)} is over already: it is {format_time(now)}")
    return format_time(until) if until else ""
