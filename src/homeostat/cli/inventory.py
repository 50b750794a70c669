"""`homeostat inventory`: all that is managed, by source, provider and owner; and what is there that nobody declared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from homeostat.cli.allow import FORMS, Allowed
from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import count, echo_lines, emit, output_option, table

if TYPE_CHECKING:
    from homeostat.client import Client

Object = dict[str, Any]

SOURCES = ("homeostat.dev/source", "homeostat.dev/synced-by", "homeostat.dev/sync")
"""Annotations and labels that say where a declaration comes from, if it carries one."""
_LOOP = frozenset({"homeostat"})
"""Field managers that only report."""


class Row(NamedTuple):
    """One managed thing."""

    provider: str
    namespace: str
    name: str
    source: str
    owner: str
    health: str
    since: str
    message: str


@click.command()
@click.option("-l", "--selector", default="", help="Only what has these labels: app=web,tier!=cache.")
@click.option("--by", type=click.Choice(["source", "provider", "owner", "health"]), help="Count, instead of naming each.")
@click.option("--unmanaged", is_flag=True, help="What the providers can see that nobody declared.")
@click.option("--allow", metavar="WHAT", multiple=True, help="With --unmanaged: where to look. " + "; ".join(FORMS.values()) + ".")
@click.option("--provider", "own", metavar="FILE|MODULE[:CLASS]", multiple=True, help="With --unmanaged: a provider of your own.")
@click.option(
    "--state", metavar="DIR", default="~/.homeostat", show_default=True,
    help="With --unmanaged: the data or state directory of the loop, for what it started.",
)
@output_option("table", "json", "yaml")
@server_options()
def command(
    server: Connection,
    selector: str,
    by: str | None,
    unmanaged: bool,
    allow: tuple[str, ...],
    own: tuple[str, ...],
    state: str,
    output: str,
) -> None:
    """Show all that is managed: of which provider, declared from where, owned by whom, and how it is.

    With --unmanaged: what is really there and that nobody declared, on this host and behind the APIs that declarations name. Say
    where to look as you told the loop, with the same --allow. Nothing is ever done about it.

    \b
    Examples:
      homeostat inventory
      homeostat inventory --by source
      homeostat inventory -l app=site -o json
      homeostat inventory --unmanaged --allow file:/etc/app --allow process

    Exits with 0, also where nothing is found; 1 where something cannot be read.
    """
    if not unmanaged:
        if allow or own:
            raise click.UsageError("--allow and --provider say where to look for what is not managed: add --unmanaged")
        rows = server.run(lambda client: managed(client, selector, server.namespace))
        _show(rows, by, output)
        return
    if by or selector:
        raise click.UsageError("--by and --selector are about what is declared: leave them out, or --unmanaged")
    allowed = Allowed.parse(allow, own)
    found = server.run(lambda client: undeclared(client, allowed, Path(state).expanduser()), timeout=None)
    if output != "table":
        emit([{"provider": provider, "name": name, "what": what} for provider, name, what in found], output)
    elif found:
        echo_lines(table([["PROVIDER", "NAME", "WHAT"], *map(list, found)]))
    else:
        click.echo("nothing found that is not declared", err=True)


async def managed(client: Client, selector: str, namespace: str) -> list[Row]:
    """Everything that the loop keeps."""
    import asyncio

    from homeostat.cli.fromgit import applied
    from homeostat.cli.kinds import served_kinds

    served = await served_kinds(client)
    kinds = [kind for kind in served if kind.kept]
    listed = await asyncio.gather(
        *(k.on(client).list(labels=selector, namespace=namespace if k.namespaced else "") for k in kinds)
    )
    rows = [_row(kind.kind, obj) for kind, objects in zip(kinds, listed, strict=True) for obj in objects]
    return sorted([*rows, *(_row(kind.kind, obj) for kind, obj in await applied(client, served, selector, namespace))])


def _row(kind: str, obj: Object) -> Row:
    metadata = obj["metadata"]
    health, since, message = health_of(obj)
    return Row(
        kind, metadata.get("namespace", ""), metadata["name"], source_of(obj), owner_of(obj), health, since, message
    )


def source_of(obj: Object) -> str:
    """Where the declaration comes from: what it says itself, what makes it, or the program that wrote it last."""
    metadata = obj["metadata"]
    notes = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    for name in SOURCES:
        if notes.get(name):
            return str(notes[name])
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner['kind']}/{owner['name']}"
    return owner_of(obj)


def owner_of(obj: Object) -> str:
    """The field manager that wrote its spec last; of what has none, what else is declared of it."""
    entries = [e for e in obj["metadata"].get("managedFields") or () if e.get("manager") not in _LOOP]
    meant = [e for e in entries if "f:spec" in (e.get("fieldsV1") or {})] or [e for e in entries if e.get("subresource") != "status"]
    last: Object = max(meant, key=lambda entry: entry.get("time", ""), default={})
    return str(last.get("manager", ""))


def health_of(obj: Object) -> tuple[str, str, str]:
    """How it is in a word, since when, and why."""
    from homeostat.model.conditions import find_condition

    ready = find_condition(obj, "Ready")
    if ready is None:
        return "Unobserved", "", "no loop has looked at it"
    since = ready.get("lastTransitionTime", "")
    if ready.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
        return "Pending", since, "its newest declaration was not looked at yet"
    word = "Healthy" if ready.get("status") == "True" else str(ready.get("reason") or "NotReady")
    return word, since, ready.get("message", "")


def _show(rows: Sequence[Row], by: str | None, output: str) -> None:
    if by:
        counts: dict[str, int] = {}
        for row in rows:
            name = getattr(row, by) or "unknown"
            counts[name] = counts.get(name, 0) + 1
        told = [{by: name, "count": number} for name, number in sorted(counts.items())]
        if output != "table":
            emit(told, output)
        else:
            echo_lines(table([[by.upper(), "COUNT"], *([name, str(n)] for name, n in sorted(counts.items()))]))
    elif output != "table":
        emit([row._asdict() for row in rows], output)
    elif rows:
        lines = [list(row) for row in rows]
        echo_lines(table([["PROVIDER", "NAMESPACE", "NAME", "SOURCE", "OWNER", "HEALTH", "SINCE", "WHY"], *lines]))
        sick = sum(row.health != "Healthy" for row in rows)
        click.echo(f"{count(len(rows), 'thing')} managed" + (f", {sick} not healthy" if sick else ", all healthy"), err=True)
    else:
        click.echo("nothing is managed here", err=True)


async def undeclared(client: Client, allowed: Allowed, state: Path) -> list[tuple[str, str, str]]:
    """What the providers see that nobody declared, by provider."""
    from homeostat.cli.kinds import served_kinds
    from homeostat.loop.provider import Provider

    kinds = await served_kinds(client)
    served = {(kind.api_version, kind.kind) for kind in kinds}
    found: list[tuple[str, str, str]] = []
    blind: list[str] = []
    providers = allowed.providers(state)
    for provider in providers:
        if not isinstance(provider, Provider):
            continue
        if not provider.discovers():
            blind.append(provider.info.kind)
            continue
        objects: Iterable[Object] = ()
        if (provider.info.api_version, provider.info.kind) in served:
            objects = await client.kind(provider.info.api_version, provider.info.kind).list()
        await provider.open(client)
        try:
            for one in await provider.discover(_declared(provider, objects)):
                found.append((provider.info.kind, *one))
        except Exception as error:  # of a provider that anybody may have written
            raise click.ClickException(f"{provider.info.kind}: it cannot be told what is there: {error}") from None
        finally:
            await provider.close()
    if blind:
        click.echo(f"cannot look for what is not declared: {', '.join(blind)}", err=True)
    names = {provider.info.name for provider in providers}
    if left := sorted(kind.kind for kind in kinds if kind.kept and kind.name not in names):
        click.echo(f"not looked for, as no --allow or --provider here says how: {', '.join(left)}", err=True)
    return found


def _declared(provider: Any, objects: Iterable[Object]) -> list[Any]:
    from homeostat.loop.fleet import Ref
    from homeostat.loop.provider import Declared
    from homeostat.model.kinds import InvalidSpec, decode

    found = []
    for obj in objects:
        metadata = obj["metadata"]
        try:
            spec = decode(provider.info.spec, obj.get("spec") or {})
        except InvalidSpec as error:
            raise click.ClickException(f"{provider.info.kind} {metadata['name']} cannot be read: {error}") from None
        ref = Ref(provider.info.name, metadata.get("namespace", ""), metadata["name"], metadata["uid"])
        found.append(Declared(ref, spec, (obj.get("status") or {}).get("identity", "")))
    return found
