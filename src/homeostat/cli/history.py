"""`homeostat history`: what is known of what happened to a thing, and of a change set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import echo_lines, emit, output_option, table

if TYPE_CHECKING:
    from homeostat.cli.kinds import Kind
    from homeostat.client import Client

_LOG = "audit.log"


class Entry(NamedTuple):
    """Something that happened."""

    time: str
    source: str
    who: str
    what: str
    change_set: str = ""


@click.command()
@click.argument("kind", required=False)
@click.argument("name", required=False)
@click.option(
    "--change-set", default="", help="Only what belongs to this change set; then KIND and NAME may be left out."
)
@click.option(
    "--data", metavar="DIR", help="Data directory of the server, for its audit log. Default: where the kubeconfig lies."
)
@output_option("table", "json", "yaml")
@server_options()
def command(
    server: Connection, kind: str | None, name: str | None, change_set: str, data: str | None, output: str
) -> None:
    """Show what happened to a thing: who declared what, what the loop did, and what was said of it.

    It is put together from the object, its events and, on the server's own host, the audit log.

    \b
    Examples:
      homeostat history file motd
      homeostat history --change-set apply-20260131-120000-x7k2p

    Exits with 0, or 1 where the kind or the object is not there.
    """
    if not change_set and not (kind and name):
        raise click.UsageError("say which thing (KIND NAME), or which --change-set")

    async def read(client: Client) -> tuple[Kind | None, dict[str, Any], list[dict[str, Any]], str]:
        from homeostat.cli.kinds import kind_named

        if not kind or not name:
            return None, {}, [], ""
        found = await kind_named(client, kind)
        obj = await found.on(client).get(name)
        uid = obj["metadata"]["uid"]
        events = await client.kind("v1", "Event").list(fields=f"involvedObject.uid={uid}")
        return found, obj, events, obj["metadata"].get("namespace", "")

    found, obj, events, namespace = server.run(read)
    entries: list[Entry] = []
    if found is not None:
        entries += [*_of_object(obj), *_of_events(events)]
    entries += _of_log(_directory(server, data), found, name or "", namespace)
    chosen = sorted(entry for entry in entries if not change_set or entry.change_set == change_set)
    if output != "table":
        emit([entry._asdict() for entry in chosen], output)
    elif chosen:
        echo_lines(table([["TIME", "FROM", "WHO", "WHAT", "CHANGE SET"], *map(list, chosen)]))
    else:
        click.echo("nothing is known of it", err=True)


def _of_object(obj: dict[str, Any]) -> Iterator[Entry]:
    metadata, status = obj["metadata"], obj.get("status") or {}
    mark = (metadata.get("annotations") or {}).get("homeostat.dev/change-set", "")
    yield Entry(metadata["creationTimestamp"], "object", "", "created")
    for entry in metadata.get("managedFields") or ():
        below = "/" + entry["subresource"] if entry.get("subresource") else ""
        what = f"last {entry['operation'].lower()} of {', '.join(_fields(entry.get('fieldsV1') or {})) or 'nothing'}{below}"
        ours = mark if entry["manager"] == "homeostat-cli" else ""
        yield Entry(entry.get("time", ""), "object", entry["manager"], what, ours)
    if drift := status.get("drift"):
        yield Entry(
            drift["since"],
            "loop",
            ",".join(drift.get("by") or ()),
            f"seen to differ ({drift['cause']}): {', '.join(drift.get('changes') or drift.get('paths') or ())}",
            drift.get("changeSet", ""),
        )
    if at := status.get("repairedAt"):
        yield Entry(at, "loop", "homeostat", "repaired: reality had changed")
    for at in status.get("reversals") or ():
        yield Entry(at, "loop", "", "what was repaired was undone again")
    for condition in status.get("conditions") or ():
        what = f"{condition['type']} became {condition['status']}: {condition.get('message') or condition.get('reason', '')}"
        yield Entry(condition.get("lastTransitionTime", ""), "loop", "", what)


def _fields(owned: dict[str, Any]) -> list[str]:
    """The owned fields, two levels deep."""
    found = []
    for name, below in owned.items():
        inner = [n for n in below if n.startswith("f:")] if isinstance(below, dict) else []
        top = name.removeprefix("f:")
        found += [f"{top}.{n.removeprefix('f:')}" for n in inner] or [top]
    return found


def _of_events(events: list[dict[str, Any]]) -> Iterator[Entry]:
    for event in events:
        at = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
        who = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
        times = f" ({event['count']} times)" if event.get("count", 1) > 1 else ""
        yield Entry(at, "event", who, f"{event.get('reason', '')}: {event.get('message', '')}{times}")


def _directory(server: Connection, data: str | None) -> Path | None:
    import os

    if data:
        return Path(data).expanduser()
    places = (server.kubeconfig or os.environ.get("KUBECONFIG", "")).split(os.pathsep)
    place = Path(places[0]).expanduser() if places[0] else Path(server.place() or "")
    return place.parent if (place.parent / _LOG).exists() else None


def _of_log(directory: Path | None, kind: Kind | None, name: str, namespace: str) -> Iterator[Entry]:
    """Writes that the audit log knows; the log never holds values, only which fields changed."""
    import orjson

    if directory is None:
        return
    try:
        files = sorted(directory.glob(f"{_LOG}*"))
        lines = [line for file in files for line in file.read_bytes().splitlines()]
    except OSError as error:
        click.echo(f"the audit log cannot be read: {error.strerror}", err=True)
        return
    for line in lines:
        try:
            said = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue  # cut off by a crash
        thing = said.get("object") or {}
        if said.get("dryRun") or said["verb"] in ("get", "list", "watch") or not thing:
            continue
        if kind is not None and (thing.get("group", ""), thing.get("resource"), thing.get("name")) != (
            kind.group,
            kind.plural,
            name,
        ):
            continue
        if kind is not None and thing.get("namespace", "") != namespace:
            continue
        yield _logged(said, thing)


def _logged(said: dict[str, Any], thing: dict[str, Any]) -> Entry:
    below = "/" + thing["subresource"] if thing.get("subresource") else ""
    where = f"{thing.get('namespace', '')}/" if thing.get("namespace") else ""
    what = f"{said['verb']} {thing['resource']}{below} {where}{thing.get('name', '')}: {said['code']}"
    if fields := said.get("fieldsChanged"):
        what += f" ({', '.join(fields[:5])}{', …' if len(fields) > 5 else ''})"
    return Entry(said["time"], "audit", (said.get("user") or {}).get("name", ""), what, said.get("changeSet", ""))
