"""`homeostat history`: what is known of what happened to a thing, and of a change set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from homeostat.cli import completing
from homeostat.cli.audited import ask_server, by_name, from_file, mostly
from homeostat.cli.connection import Connection, server_options
from homeostat.cli.kindname import KindName
from homeostat.cli.show import echo_lines, emit, output_option
from homeostat.model.clock import parse_time
from homeostat.model.protocol import CHANGE_SET

if TYPE_CHECKING:
    from homeostat.cli.kinds import Kind
    from homeostat.client import Client

_QUIET = "status"
"""Writes of the status that say nothing new to people."""
_FOLLOWS = ("Degraded", "Progressing", "Reconciling", "Stalled")
"""Conditions that say again what Ready and the difference say, unless something stopped it."""
_LOOP = ("the loop", "homeostat/")
"""How one begins who is the loop: by the audit log, or by the field manager alone. Nobody is named for a change set's `touched`."""
_WHO_WIDTH = 26
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


def _data(entry: Entry) -> dict[str, Any]:
    """An entry for programs."""
    told = entry._asdict()
    return {"changeSet" if name == "change_set" else name: list(value) if name == "fields" else value for name, value in told.items()}


@click.command(cls=KindName)
@click.argument("kind", required=False, shell_complete=completing.kinds)
@click.argument("name", required=False, shell_complete=completing.names)
@click.option(
    "--change-set", default="", help="Only what belongs to this change set; then KIND and NAME may be left out."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True, help="Writes, and declarations, to look back at.")
@click.option("-v", "--verbose", is_flag=True, help="Also writes that changed nothing but figures of the status.")
@click.option(
    "--data", metavar="DIR", help="Read the audit log in this data directory, instead of asking the server for it."
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

    It is put together from the revisions that the server keeps, the object's events and the audit log, which alone knows people and is
    for those who may `get` /homeostat/audit. What came by a commit names its author. What is gone has a history, too. REV is what `homeostat get --at`, `diff --rev` and `rollback --to` take.

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
        found = await (_of_thing(client, kind, name, limit) if kind and name else _of_set(client, change_set))
        found.audit = None if data else await ask_server(client, found.kind, found.namespace, name or "", change_set)
        found.commits = await _commits(client, found)
        return found

    found = server.run(read)
    if found.audit is None and (directory := _directory(server, data)) is not None:
        found.audit = list(from_file(directory, found.kind, found.namespace, name or ""))
    audit = [_logged(said, said["object"]) for said in found.audit or ()]
    joined = _joined([*found.writes(), *_of_events(found.events)], audit)
    entries = [_credited(e, found.commits) for e in joined if verbose or e.source != _QUIET]
    chosen = sorted((e for e in entries if not change_set or e.change_set == change_set), key=_order)
    if not chosen and kind and not change_set:
        raise click.ClickException(f"{found.kind.kind if found.kind else kind} {name} is not known: there is none, and none is kept")
    if output != "table":
        emit([_data(entry) for entry in chosen], output)
    elif chosen:
        echo_lines(_shown(chosen))
        if found.audit is None:
            click.echo("Who it was is in the audit log, which you may not read: it takes `get` on /homeostat/audit.", err=True)
    else:
        click.echo("nothing is known of it", err=True)


def _shown(entries: list[Entry]) -> list[str]:
    """For people: what it says is wrapped to the terminal, or to 100 columns; what is below each other belongs together."""
    from shutil import get_terminal_size

    width = max(80, min(get_terminal_size((100, 24)).columns, 200))
    whos = min(max(3, *(len(entry.who) for entry in entries)), _WHO_WIDTH)
    revs = max(3, *(len(str(entry.revision)) for entry in entries))
    left = width - 20 - revs - whos - 3 * len("  ")
    head = f"{'TIME'.ljust(20)}  {'REV'.ljust(revs)}  {'WHO'.ljust(whos)}  WHAT"
    lines = [click.style(head, bold=True)]
    for entry in entries:
        mark = [f"[{entry.change_set}]"] if entry.change_set else []
        what, who = mostly([entry.what, *mark], left), mostly([entry.who], whos)
        for at in range(max(len(what), len(who))):
            time = f"{entry.time[:19]}Z" if at == 0 and entry.time else ""
            revision = str(entry.revision or "") if at == 0 else ""
            by, said = who[at] if at < len(who) else "", what[at] if at < len(what) else ""
            lines.append(f"{time.ljust(20)}  {revision.ljust(revs)}  {by.ljust(whos)}  {said}".rstrip())
    return lines


async def _commits(client: Client, found: _Found) -> dict[str, dict[str, Any]]:
    """The commits that Syncs applied lately, by change set: who made each, and what they said."""
    from homeostat.model.errors import ApiError
    from homeostat.sources.kinds import API

    marks = {item.get("changeSet") or "" for item in found.revisions} | {entry.change_set for entry in found.touched}
    commits: dict[str, dict[str, Any]] = {}
    for namespace in sorted({mark.partition("/")[0] for mark in marks if "/" in mark and "@" in mark}):
        try:
            syncs = await client.kind(API, "Sync").list(namespace=namespace)
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            continue
        for sync in syncs:
            commits |= {one["changeSet"]: one for one in (sync.get("status") or {}).get("history") or () if one.get("changeSet")}
    return commits


def _credited(entry: Entry, commits: dict[str, dict[str, Any]]) -> Entry:
    """A write that came out of a commit, with who made that."""
    commit = commits.get(entry.change_set) if entry.source == "write" else None
    if commit is None or (entry.who and not entry.who.startswith(_LOOP)):
        return entry
    subject = f" “{commit['subject']}”" if commit.get("subject") else ""
    return entry._replace(who=f"{commit.get('author', '')} (Git)".strip(), what=f"{entry.what}{subject}")


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
        self.audit: list[dict[str, Any]] | None = None  # None: it is not ours to read
        self.commits: dict[str, dict[str, Any]] = {}

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
    by, _, at = change_set.rpartition("@")  # one that nobody named is called by its writer
    who = by if "T" in at and at.endswith("Z") else ""
    for item in items:
        title = f"{item['kind']} {item['namespace'] + '/' if item['namespace'] else ''}{item['name']}"
        deed = "declared" if item["before"] is None else "changed"
        since = "; declared otherwise since" if item["changedSince"] else ""
        found.touched.append(Entry(item.get("time", ""), "write", who, f"{deed} {title}{since}", change_set, item["revision"]))
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
    applied = bool(now.get("history")) and now.get("commit") != was.get("commit")
    if applied:
        yield _applied(now["history"][0])
    known = {c["type"]: c for c in was.get("conditions") or ()}
    for condition in now.get("conditions") or ():
        told, kind = known.get(condition["type"], {}), condition["type"]
        same = (told.get("status"), told.get("reason")) == (condition.get("status"), condition.get("reason"))
        stopped = condition.get("reason") in _STOPPED and condition.get("status") == "True"
        follows = (kind in _FOLLOWS and not stopped) or (kind == "Ready" and (found or (applied and condition.get("status") == "True")))
        if not same and not follows:
            why = condition.get("message") or condition.get("reason", "")
            yield f"{kind} {condition.get('status', '')}: {why}"


def _applied(one: dict[str, Any]) -> str:
    """What a Sync did of a commit."""
    counts = ", ".join(f"{one.get(word, 0)} to {word}" for word in ("create", "change", "delete"))
    by = f" by {one['author']}" if one.get("author") else ""
    return f"applied {str(one.get('commit', ''))[:12]} “{one.get('subject', '')}”{by}: {counts}"


def _joined(entries: list[Entry], audit: list[Entry]) -> list[Entry]:
    """Writes with the person beside the program, where the audit log tells of the same write; the rest of the log as it is."""
    left = sorted(audit)
    joined = []
    for entry in sorted(entries, key=lambda one: one.revision):
        same = next((record for record in left if _is_same(entry, record)), None)
        if same is not None:
            left.remove(same)
            who = by_name(same.who, entry.who)
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

    from homeostat.cli.audited import has_log

    if data:
        return Path(data).expanduser()
    places = (server.kubeconfig or os.environ.get("KUBECONFIG", "")).split(os.pathsep)
    place = Path(places[0]).expanduser() if places[0] else Path(server.place() or "")
    return place.parent if has_log(place.parent) else None


def _logged(said: dict[str, Any], thing: dict[str, Any]) -> Entry:
    below = "/" + thing["subresource"] if thing.get("subresource") else ""
    where = f"{thing.get('namespace', '')}/" if thing.get("namespace") else ""
    what = f"{said['verb']} {thing['resource']}{below} {where}{thing.get('name', '')}"
    if fields := said.get("fieldsChanged"):
        what += f" ({_named(tuple(fields))})"
    what += f": {said['code']}"
    who = (said.get("user") or {}).get("name", "")
    return Entry(said["time"], "audit", who, what, said.get("changeSet", ""), fields=tuple(fields or ()))
