"""`homeostat wait`: until a condition holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.duration import seconds

if TYPE_CHECKING:
    from homeostat.client import Client


@click.command()
@click.argument("kind")
@click.argument("name")
@click.option("--for", "what", metavar="WHAT", default="condition=Ready", show_default=True,
              help="condition=TYPE, condition=TYPE=STATUS, or delete.")  # fmt: skip
@click.option("--timeout", callback=seconds, default="30s", show_default=True, help="How long at most: 90s, 5m.")
@server_options()
def command(server: Connection, kind: str, name: str, what: str, timeout: int) -> None:
    """Wait until a condition of an object holds, for what is declared now; or until it is gone.

    \b
    Examples:
      homeostat wait file motd
      homeostat wait process web --for condition=Ready --timeout 2m
      homeostat wait file motd --for delete

    Exits with 0 when it holds, 1 when it does not within the time or something else is wrong.
    """
    holds = _condition(what)

    async def wait(client: Client) -> Any:
        from homeostat.cli.kinds import kind_named

        found = await kind_named(client, kind)
        where = client.namespace if found.namespaced else ""
        last: dict[str, Any] | None = None
        async with found.on(client).informer(namespace=where, fields=f"metadata.name={name}") as informer:
            try:
                async with asyncio.timeout(timeout):
                    await informer.wait_synced()
                    last = informer.get(name, where)
                    if last is None and what != "delete":
                        raise click.ClickException(f"{found.kind} {name} is not there")
                    if holds(last):
                        return
                    async for change in informer.changes():
                        last = change.object if change.key.name == name else last
                        if holds(last):
                            return
            except TimeoutError:
                pass
        raise click.ClickException(f"{found.kind} {name}: not {what} within {timeout} s.{_why(last)}")

    server.run(wait)
    click.echo(f"{kind}/{name}: {what}")


def _condition(what: str) -> Any:
    from homeostat.model.conditions import find_condition

    if what == "delete":
        return lambda obj: obj is None
    word, _, rest = what.partition("=")
    kind, _, status = rest.partition("=")
    if word != "condition" or not kind:
        raise click.UsageError(f"--for {what}: write condition=Ready, condition=Ready=False, or delete")

    def holds(obj: dict[str, Any] | None) -> bool:
        found = find_condition(obj, kind) if obj is not None else None
        if obj is None or found is None or found.get("status", "").lower() != (status or "true").lower():
            return False
        generation = obj["metadata"].get("generation", 0)
        return bool(found.get("observedGeneration", generation) >= generation)

    return holds


def _why(obj: dict[str, Any] | None) -> str:
    from homeostat.model.conditions import find_condition

    ready = find_condition(obj, "Ready") if obj is not None else None
    return f" Ready is {ready['status']}: {ready.get('message') or ready.get('reason')}" if ready else ""
