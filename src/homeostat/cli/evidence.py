"""Evidence: of each thing, what is declared, what was observed, since when, and what stands against it being kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict

from homeostat.cli.fromgit import applied
from homeostat.cli.inventory import health_of, owner_of, source_of
from homeostat.cli.kinds import Kind
from homeostat.guards.freeze import covers, standing
from homeostat.guards.policy import Mode
from homeostat.insight.fleets import View, hold_of, look, ref_of
from homeostat.model.clock import format_time
from homeostat.model.errors import ApiError
from homeostat.model.protocol import CHANGE_SET

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.loop.fleet import Ref

Object = dict[str, Any]

_SYNCS = "syncs.homeostat.dev"
AT_ONCE = 16
"""Things that are asked about at a time."""


class Item(msgspec.Struct):
    """The evidence of one thing. `verdict` is `met`, `not met` or `unknown`."""

    kind: str
    namespace: str
    name: str
    verdict: str
    health: str
    since: str
    message: str
    source: str
    declared: dict[str, Any]
    observed: dict[str, Any]
    exceptions: list[str] = msgspec.field(default_factory=list)
    changes: list[dict[str, Any]] = msgspec.field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


class Evidence(msgspec.Struct):
    """All of one report."""

    selector: str
    time: str
    server: str
    revision: int
    items: list[Item]

    def count(self, verdict: str) -> int:
        return sum(item.verdict == verdict for item in self.items)

    def data(self) -> dict[str, Any]:
        """For programs."""
        counts = {"met": self.count("met"), "notMet": self.count("not met"), "unknown": self.count("unknown")}
        return {
            "selector": self.selector,
            "time": self.time,
            "server": self.server,
            "revision": self.revision,
            **counts,
            "exceptions": sum(bool(item.exceptions) for item in self.items),
            "items": [asdict(item) for item in self.items],
        }


async def gather(client: Client, kinds: Sequence[Kind], selector: str, namespace: str, changes: int) -> Evidence:
    """Looks at everything that the selector selects. `changes` is how many of the last declarations are told of each."""
    from homeostat.cli.past import keeps_past, known_here
    from homeostat.model.selectors import parse_label_selector

    wanted = parse_label_selector(selector)
    view = await look(client, [kind for kind in kinds if kind.kept])
    for kind, obj in await applied(client, kinds, selector, namespace):
        view.kinds[kind.name] = kind
        view.objects[ref_of(kind, obj)] = obj
        view.loops[kind.name] = view.loop(_SYNCS)
    approvals = await _approvals(client)
    past = await keeps_past(client)
    known: dict[str, Any] = {}
    turns = asyncio.Semaphore(AT_ONCE)

    async def tell(ref: Ref, obj: Object) -> Item:
        async with turns:
            item = await _item(client, view, ref, obj, approvals, known)
            if past and changes:
                item.changes = await _changes(client, view.kinds[ref.kind], ref, changes)
            return item

    chosen = [
        (ref, obj)
        for ref, obj in sorted(view.objects.items())
        if wanted.matches(obj["metadata"].get("labels") or {}) and (not namespace or ref.namespace in ("", namespace))
    ]
    items = list(await asyncio.gather(*(tell(ref, obj) for ref, obj in chosen)))
    revision = int((await known_here(client, "/homeostat/revision"))["revision"]) if past else 0
    return Evidence(selector, format_time(view.now), (await client.version()).get("gitVersion", ""), revision, items)


async def _approvals(client: Client) -> list[Object]:
    from homeostat.guards.keeper import APPROVAL_KIND

    try:
        return list(await client.kind(APPROVAL_KIND.api_version, APPROVAL_KIND.kind).list())
    except ApiError:
        return []


async def _item(
    client: Client, view: View, ref: Ref, obj: Object, approvals: Sequence[Object], known: dict[str, Any]
) -> Item:
    metadata, status, kind = obj["metadata"], obj.get("status") or {}, view.kinds[ref.kind]
    health, since, message = health_of(obj)
    drift = status.get("drift") or {}
    verdict = {"Healthy": "met", "Unobserved": "unknown", "Unreadable": "unknown", "Pending": "unknown"}.get(health, "not met")
    return Item(
        kind.kind,
        ref.namespace,
        ref.name,
        verdict,
        health,
        since,
        message,
        source_of(obj),
        {
            "generation": metadata.get("generation", 0),
            "created": metadata.get("creationTimestamp", ""),
            "by": owner_of(obj),
            "changeSet": (metadata.get("annotations") or {}).get(CHANGE_SET, ""),
            "fields": await _fields(client, kind, obj, known),
        },
        {
            "generation": status.get("observedGeneration"),
            "at": status.get("observedAt", ""),
            "lastPass": format_time(looked) if (looked := view.loop(ref.kind).last_pass) else "",
            "differs": [*(drift.get("changes") or drift.get("paths") or ())],
            "differsSince": drift.get("since", ""),
            "cause": drift.get("cause", ""),
            "repairedAt": status.get("repairedAt", ""),
        },
        list(_exceptions(view, ref, obj, approvals)),
    )


async def _fields(client: Client, kind: Kind, obj: Object, known: dict[str, Any]) -> list[str]:
    """What is declared, a line each, secrets masked."""
    from homeostat.insight.planning import Document, Step, creation, sensitive_of

    full = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
    step = Step(Document(full, ""), obj["metadata"].get("namespace", ""), await kind.on(client).served())
    step.diff = creation(full)
    step.sensitive = await sensitive_of(client, step, known)
    return [line.removeprefix("+ ") for line in step.lines()]


def _exceptions(view: View, ref: Ref, obj: Object, approvals: Sequence[Object]) -> list[str]:
    """Why a thing is not, or not by the rule, kept as declared at this moment."""
    fleet = view.fleet_of(ref)
    policy = view.gate.policy(fleet)
    found = []
    if policy.mode is Mode.OBSERVE:
        found.append("observe-only: differences are reported, and nothing is done about them")
    for freeze in standing(policy, view.now):
        if covers(freeze, ref):
            until = f" until {format_time(freeze.until.timestamp())}" if freeze.until else ""
            found.append(f"frozen{until} by {freeze.author}: {freeze.reason}")
    for halt in view.halts(fleet):
        found.append(f"halted by {halt.guard} since {format_time(halt.since)}: {halt.reason}")
    if (hold := hold_of(obj)) is not None and hold.guard not in ("mode", "freeze"):
        found.append(f"held by {hold.guard}: {hold.reason}")
    mark = (obj["metadata"].get("annotations") or {}).get(CHANGE_SET, "")
    for approval in approvals:
        spec = approval.get("spec") or {}
        named = (spec.get("changeSet") or {}).get("name", "")
        if mark and named == mark:
            reason = f": {spec['reason']}" if spec.get("reason") else ""
            found.append(f"change set {mark} was approved ({approval['metadata']['name']}){reason}")
    return found


async def _changes(client: Client, kind: Kind, ref: Ref, most: int) -> list[dict[str, Any]]:
    from homeostat.cli.past import revisions

    try:
        items = await revisions(client, kind, ref.namespace, ref.name, most, declared=True)
    except ApiError:
        return []
    return [
        {
            "revision": i["revision"],
            "time": i.get("time", ""),
            "change": i["change"],
            "by": i.get("manager", ""),
            "changeSet": i.get("changeSet", ""),
            "fields": [f for f in i.get("fields") or () if not f.startswith("status") and CHANGE_SET not in f],
        }
        for i in items
    ]


