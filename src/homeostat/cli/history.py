"""`homeostat history`: what is known of what happened to a thing, and of a change set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import echo_lines, emit, output_option, table
from homeostat.model.clock import parse_time
from homeostat.model.protocol import CHANGE_SET

if TYPE_CHECKING:
    from homeostat.cli.kinds import Kind
    from homeostat.client import Client

_LOG = "audit.log"
_QUIET = "status"
"""Writes of the status that say nothing new to people."""
_FOLLOWS = ("Degraded", "Progressing", "Reconciling", "Stalled")
"""Conditions that say again what Ready and the difference say, unless something stopped it."""
_STOPPED = ("Held", "Retrying", "Failed", "Unreadable", "Unhealthy")


class Entry(NamedTuple):
    """Something that happened. `revision` is 0 where it is not a write that the server still knows."""

    time: str
    source: str
    who: str
    what: str
    change_set: str = ""
    revision: int = 0
    fields: tuple[str, ...] = ()


@click.command()
@click.argument("kind", required=False)
@click.argument("name", required=False)
@click.option(
    "--change-set", default="", help="Only what belongs to this change set; then KIND and NAME may be left out."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True, help="Writes, and declarations, to look back at.")
@click.option("-v", "--verbose", is_flag=True, help="Also writes that changed nothing but figures of the status.")
@click.option(
    "--data", metavar="DIR", help="Data directory of the server, for its audit log. Default: where the kubeconfig lies."
)
@output_option("table", "json", "yaml")
@server_options()
def command(
    server: Connection,
    kind: str | None,
    name: str | None,
    change_set: str,
    limit: int,
    verbose: bool,
    data: str | None,
    output: str,
) -> None:
    """Show what happened to a thing: who declared which fields when, what the loop found and did, and what was said of it.

    It is put together from the revisions that the server keeps, the object's events and, on the server's own host, the audit log,
    which alone knows people. What is gone has a history, too. REV is what `homeostat get --at`, `diff --rev` and `rollback --to` take.

    \b
    Examples:
      homeostat history file motd
      homeostat history file motd -o json
      homeostat history --change-set apply-20260131-120000-x7k2p

    Exits with 0, or 1 where the kind is not there, or nothing is known of the object.
    """
    if not change_set and not (kind and name):
        raise click.UsageError("say which thing (KIND NAME), or which --change-set")

    async def read(client: Client) -> _Found:
        return await (_of_thing(client, kind, name, limit) if kind and name else _of_set(client, change_set))

    found = server.run(read)
    audit = list(_of_log(_directory(server, data), found.kind, name or "", found.namespace))
    entries = [e for e in _joined([*found.writes(), *_of_events(found.events)], audit) if verbose or e.source != _QUIET]
    chosen = sorted((e for e in entries if not change_set or e.change_set == change_set), key=_order)
    if not chosen and kind and not change_set:
        raise click.ClickException(f"{found.kind.kind if found.kind else kind} {name} is not known: there is none, and none is kept")
    if output != "table":
        emit([{**entry._asdict(), "fields": list(entry.fields)} for entry in chosen], output)
    elif chosen:
        rows = [[e.time, str(e.revision or ""), e.source, e.who, e.what, e.change_set] for e in chosen]
        echo_lines(table([["TIME", "REV", "FROM", "WHO", "WHAT", "CHANGE SET"], *rows]))
    else:
        click.echo("nothing is known of it", err=True)


def _order(entry: Entry) -> tuple[str, int, str]:
    """By time; within a second, of which alone the server knows, by revision."""
    return entry.time[:19], entry.revision or 1 << 62, entry.time


class _Found:
    """What the server knows: of one thing, its revisions; of a change set, what it touched."""

    def __init__(self, kind: Kind | None = None, namespace: str = "") -> None:
        self.kind = kind
        self.namespace = namespace
        self.events: list[dict[str, Any]] = []
        self.revisions: list[dict[str, Any]] = []
        self.object: dict[str, Any] | None = None  # where the server keeps no past
        self.touched: list[Entry] = []

    def writes(self) -> Iterator[Entry]:
        yield from self.touched
        if self.object is not None:
            yield from _of_object(self.object)
        for at, item in enumerate(self.revisions):
            before = self.revisions[at + 1].get("object") if at + 1 < len(self.revisions) else None
            yield _of_revision(item, before)


async def _of_thing(client: Client, word: str, name: str, limit: int) -> _Found:
    from homeostat.cli.kinds import kind_named
    from homeostat.cli.past import keeps_past

    kind = await kind_named(client, word)
    found = _Found(kind, client.namespace if kind.namespaced else "")
    if await keeps_past(client):
        found.revisions = await _both(client, kind, found.namespace, name, limit)
        uids = {item["object"]["metadata"]["uid"] for item in found.revisions if "object" in item}
    else:
        found.object = await kind.on(client).get(name)
        uids = {found.object["metadata"]["uid"]}
    for uid in sorted(uids):
        found.events += await client.kind("v1", "Event").list(fields=f"involvedObject.uid={uid}")
    return found


async def _both(client: Client, kind: Kind, namespace: str, name: str, limit: int) -> list[dict[str, Any]]:
    """The last writes, and the last declarations, which reports may have outnumbered."""
    from homeostat.cli.past import revisions

    meant = await revisions(client, kind, namespace, name, limit, declared=True)
    found = {item["revision"]: item for item in meant}
    found |= {item["revision"]: item for item in await revisions(client, kind, namespace, name, limit)}
    return [found[revision] for revision in sorted(found, reverse=True)]


async def _of_set(client: Client, change_set: str) -> _Found:
    from homeostat.cli.past import keeps_past
    from homeostat.insight.changesets import touched
    from homeostat.model.errors import ApiError

    found = _Found()
    if not await keeps_past(client):
        return found
    try:
        items = await touched(client, change_set)
    except ApiError as error:
        if error.code != 403:
            raise
        return found
    for item in items:
        title = f"{item['kind']} {item['namespace'] + '/' if item['namespace'] else ''}{item['name']}"
        deed = "declared" if item["before"] is None else "changed"
        since = "; declared otherwise since" if item["changedSince"] else ""
        found.touched.append(Entry(item.get("time", ""), "write", "", f"{deed} {title}{since}", change_set, item["revision"]))
    return found


def _of_revision(item: dict[str, Any], before: dict[str, Any] | None) -> Entry:
    """A write as people read it: of the status, what it says of the thing."""
    time, revision, fields = item.get("time", ""), item["revision"], tuple(item.get("fields") or ())
    who, mark = item.get("manager", ""), item.get("changeSet", "")
    if item["change"] == "status":
        said = "; ".join(_turns(before or {}, item["object"]))
        source = "loop" if said else _QUIET
        return Entry(time, source, who, said or _named(fields), _drift_set(item["object"]), revision, fields)
    if item["change"] == "declared":
        what = f"declared {_named(tuple(f for f in fields if not f.startswith('status') and CHANGE_SET not in f))}"
    else:
        what = {"known": "was so when what is known begins"}.get(item["change"], item["change"])
    return Entry(time, "write", who, what, mark, revision, fields)


def _drift_set(obj: dict[str, Any]) -> str:
    return str(((obj.get("status") or {}).get("drift") or {}).get("changeSet", ""))


def _named(fields: tuple[str, ...]) -> str:
    return ", ".join(fields[:5]) + (", …" if len(fields) > 5 else "")


def _turns(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What turned with a write of the status: a difference found, an action begun, how it stands now."""
    was, now = old.get("status") or {}, new.get("status") or {}
    drift, before = now.get("drift") or {}, was.get("drift") or {}
    found = bool(drift) and drift.get("madeFrom") != before.get("madeFrom")
    if found:
        by = f", by {' and '.join(drift['by'])}" if drift.get("by") else ""
        changes = ", ".join(drift.get("changes") or drift.get("paths") or ())
        yield f"found to differ ({drift.get('cause', '')}{by}), to {drift.get('op', '')}: {changes}"
    if (intent := now.get("intent")) and intent != was.get("intent"):
        yield f"began to {intent.get('op', 'act')}"
    if now.get("repairedAt") and now["repairedAt"] != was.get("repairedAt"):
        yield "repaired: reality had changed"
    if len(now.get("reversals") or ()) > len(was.get("reversals") or ()):
        yield "what was repaired was undone again"
    known = {c["type"]: c for c in was.get("conditions") or ()}
    for condition in now.get("conditions") or ():
        told, kind = known.get(condition["type"], {}), condition["type"]
        same = (told.get("status"), told.get("reason")) == (condition.get("status"), condition.get("reason"))
        follows = (kind in _FOLLOWS and condition.get("reason") not in _STOPPED) or (kind == "Ready" and found)
        if not same and not follows:
            why = condition.get("message") or condition.get("reason", "")
            yield f"{kind} {condition.get('status', '')}: {why}"


def _joined(entries: list[Entry], audit: list[Entry]) -> list[Entry]:
    """Writes with the person beside the program, where the audit log tells of the same write; the rest of the log as it is."""
    left = sorted(audit)
    joined = []
    for entry in sorted(entries, key=lambda one: one.revision):
        same = next((record for record in left if _is_same(entry, record)), None)
        if same is not None:
            left.remove(same)
            who = f"{same.who} ({entry.who})" if entry.who else same.who
            entry = entry._replace(time=same.time, who=who, change_set=entry.change_set or same.change_set)
        joined.append(entry)
    return [*joined, *left]


def _is_same(entry: Entry, record: Entry) -> bool:
    """Whether a record is of this write: what changed is the same, and it came in that second, or was asked for just before."""
    if not entry.revision or not entry.time or record.what.rpartition(": ")[2][:1] not in "2":
        return False
    if entry.fields != record.fields or (entry.what == "deleted") != record.what.startswith("delete"):
        return False
    return -1.0 < parse_time(entry.time) + 1 - parse_time(record.time) < 3.0


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
    what = f"{said['verb']} {thing['resource']}{below} {where}{thing.get('name', '')}"
    if fields := said.get("fieldsChanged"):
        what += f" ({_named(tuple(fields))})"
    what += f": {said['code']}"
    who = (said.get("user") or {}).get("name", "")
    return Entry(said["time"], "audit", who, what, said.get("changeSet", ""), fields=tuple(fields or ()))
