"""`homeostat wait`: until a condition holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli import completing
from homeostat.cli.connection import Connection, server_options
from homeostat.cli.duration import seconds
from homeostat.cli.kindname import KindName

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.client.informer import Informer

    Holds = Callable[[dict[str, Any] | None], bool]

SHOWN = 5
"""How many of those that are late are named with the reason."""


@click.command(cls=KindName)
@click.argument("kind", shell_complete=completing.kinds)
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=completing.names)
@click.option("--for", "what", metavar="WHAT", default="condition=Ready", show_default=True,
              help="condition=TYPE, condition=TYPE=STATUS, or delete.")  # fmt: skip
@click.option("-l", "--selector", default="", help="Without names: all that have these labels.")
@click.option("--timeout", callback=seconds, default="30s", show_default=True, help="How long at most, for all of them: 90s, 5m.")
@server_options()
def command(server: Connection, kind: str, names: tuple[str, ...], what: str, selector: str, timeout: int) -> None:
    """Wait until a condition of objects holds, for what is declared now; or until they are gone. Without names: of all that are there now.

    \b
    Examples:
      homeostat wait file motd
      homeostat wait files -l app=site --timeout 10m
      homeostat wait process web --for condition=Ready --timeout 2m
      homeostat wait file motd --for delete

    Exits with 0 when it holds of all, 1 when it does not within the time or something else is wrong.
    """
    if names and selector:
        raise click.UsageError("names and --selector exclude each other")
    holds = _condition(what)

    async def wait(client: Client) -> list[str]:
        import asyncio

        from homeostat.cli.kinds import kind_named

        found = await kind_named(client, kind)
        where = client.namespace if found.namespaced else ""
        fields = f"metadata.name={names[0]}" if len(names) == 1 else ""
        async with found.on(client).informer(namespace=where, fields=fields, labels=selector) as informer:
            open_: dict[str, Any] = dict.fromkeys(names)
            try:
                async with asyncio.timeout(timeout):
                    await informer.wait_synced()
                    open_ = {name: informer.get(name, where) for name in names or [obj["metadata"]["name"] for obj in informer.all(where)]}
                    await _until(informer, open_, holds, found.kind, what)
            except TimeoutError:
                raise click.ClickException(_late(found.kind, open_, holds, what, timeout)) from None
        return list(open_)

    waited = server.run(wait)
    if not waited:
        click.echo(f"there are no {kind} to wait for", err=True)
    for name in waited:
        click.echo(f"{kind}/{name}: {what}")


async def _until(informer: Informer[dict[str, Any]], last: dict[str, Any], holds: Holds, kind: str, what: str) -> None:
    """Waits until it holds of all that are in `last`, and keeps that up to date."""
    from homeostat.cli.progress import progress

    gone = next((name for name, obj in last.items() if obj is None), None)
    if gone is not None and what != "delete":
        raise click.ClickException(f"{kind} {gone} is not there")
    with progress(len(last), f"{kind} {what}") as bar:
        left = {name for name, obj in last.items() if not holds(obj)}
        bar.at(len(last) - len(left))
        told: set[str] = set()
        for name in sorted(left):
            _tell_held(kind, name, last[name], told)
        if not left:
            return
        async for change in informer.changes():
            name = change.key.name
            if name in last:
                last[name] = change.object
                (left.discard if holds(change.object) else left.add)(name)
                bar.at(len(last) - len(left))
                if name in left:
                    _tell_held(kind, name, change.object, told)
            if not left:
                return


def _tell_held(kind: str, name: str, obj: dict[str, Any] | None, told: set[str]) -> None:
    """Says at once, of some, that somebody has to do something first: who waits may be the one."""
    if name not in told and len(told) < SHOWN and (why := _held(obj)):
        told.add(name)
        click.echo(f"{kind} {name} waits for a person: {why}", err=True)


def _held(obj: dict[str, Any] | None) -> str:
    """Why a person is waited for; empty where none is, or it goes on by itself."""
    if obj is None:
        return ""
    conditions, generation = (obj.get("status") or {}).get("conditions") or (), obj["metadata"].get("generation")
    said = {one["type"]: one for one in conditions if one.get("observedGeneration") == generation}
    ready, progressing = (said.get(kind, {}) for kind in ("Ready", "Progressing"))
    held = progressing.get("reason") == "Held" or ready.get("reason") == "ObjectsHeld"  # as a Sync puts it
    return str(ready.get("message", "")) if held else ""


def _late(kind: str, last: dict[str, Any], holds: Holds, what: str, timeout: int) -> str:
    open_ = [name for name, obj in last.items() if not holds(obj)]
    lines = [f"{kind} {name}: not {what} within {timeout} s.{_why(last[name])}" for name in open_[:SHOWN]]
    return "\n  ".join([*lines, *([f"… and {len(open_) - SHOWN} more"] if len(open_) > SHOWN else [])])


def _condition(what: str) -> Holds:
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
