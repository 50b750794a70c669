"""`homeostat events`: what was said of things, and with -f what is being said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli import completing
from homeostat.cli.connection import Connection, server_options
from homeostat.cli.kindname import KindName
from homeostat.cli.show import echo_lines, emit, output_option

if TYPE_CHECKING:
    from homeostat.client import Client


@click.command(cls=KindName)
@click.argument("kind", required=False, shell_complete=completing.kinds)
@click.argument("name", required=False, shell_complete=completing.names)
@click.option("-f", "--follow", is_flag=True, help="Go on, until Ctrl-C.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In every namespace.")
@click.option("--warnings", is_flag=True, help="Only what is wrong.")
@output_option("table", "json", "yaml")
@server_options()
def command(server: Connection, kind: str | None, name: str | None, follow: bool, everywhere: bool, warnings: bool, output: str) -> None:
    """Show events, the latest last: all, those of a KIND, or those of one thing.

    \b
    Examples:
      homeostat events -A -f
      homeostat events file motd
      homeostat events workloads --warnings

    Exits with 0, also by Ctrl-C and when there are none.
    """
    if follow and output == "yaml":
        raise click.UsageError("-f goes on for ever, which YAML cannot: use -o json, a line an event")

    async def read(client: Client) -> None:
        events = client.kind("v1", "Event")
        where = "" if everywhere else client.namespace
        fields = await _selector(client, kind, name, warnings)
        found = await events.list(namespace=where, fields=fields)
        shown = sorted(found, key=_time)
        if follow:
            _print(shown, output, lines=True)
            async with events.watch(namespace=where, fields=fields, resource_version=found.resource_version) as changes:
                async for change in changes:
                    if change.type != "DELETED":
                        _print([change.object], output, lines=True)
        elif output != "table":
            emit([_data(event) for event in shown], output)
        elif shown:
            _print(shown, output)
        else:
            click.echo("no events", err=True)

    with contextlib.suppress(KeyboardInterrupt):
        server.run(read)


async def _selector(client: Client, kind: str | None, name: str | None, warnings: bool) -> str:
    parts = ["type=Warning"] if warnings else []
    if kind:
        from homeostat.cli.kinds import kind_named

        parts.append(f"involvedObject.kind={(await kind_named(client, kind)).kind}")
    if name:
        parts.append(f"involvedObject.name={name}")
    return ",".join(parts)


def _time(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    at = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(at or event["metadata"].get("creationTimestamp") or "")


def _data(event: Mapping[str, Any]) -> dict[str, Any]:
    about = event.get("involvedObject") or {}
    return {
        "time": _time(event),
        "type": event.get("type", ""),
        "reason": event.get("reason", ""),
        "kind": about.get("kind", ""),
        "namespace": about.get("namespace", ""),
        "name": about.get("name", ""),
        "count": (event.get("series") or {}).get("count") or event.get("count") or 1,
        "message": event.get("message", ""),
    }


def _print(events: Iterable[Mapping[str, Any]], output: str, *, lines: bool = False) -> None:
    for event in events:
        one = _data(event)
        if output == "json" and lines:
            import orjson

            click.echo(orjson.dumps(one).decode())
            continue
        where = f"{one['namespace']}/{one['name']}" if one["namespace"] else one["name"]
        times = f" ×{one['count']}" if one["count"] > 1 else ""
        colour = "yellow" if one["type"] == "Warning" else None
        echo_lines([f"{one['time'][:19]}  {click.style(one['reason'].ljust(18), fg=colour)}  {one['kind']} {where}: {one['message']}{times}"])
