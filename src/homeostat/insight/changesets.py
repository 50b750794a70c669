"""A change set: what it changed, field by field; what of it is open, how far the guards let it, and what an approval would touch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from homeostat.client import Client
from homeostat.client.kinds import Kind
from homeostat.insight.fleets import View, look
from homeostat.insight.guarding import SHOWN, fleet_data
from homeostat.insight.open import drift_data
from homeostat.insight.planning import Document, Step, creation, difference, sensitive_of
from homeostat.insight.returning import Target
from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Cause, Drift, Fleet, Op
from homeostat.loop.render import Pattern
from homeostat.model.errors import ApiError

Object = dict[str, Any]


async def touched(client: Client, name: str) -> list[Object]:
    """Every object of a change set that one may read: `before` and `after` it, and `now`. `ApiError` where the path is not one's to ask."""
    reply = (await client.request("GET", f"/homeostat/changesets/{quote(name)}")).json()
    items: list[Object] = reply["items"]
    return items


async def latest(client: Client) -> list[Object]:
    """The last change sets, newest first: `name`, `time`, `objects`; nothing for who may not ask."""
    try:
        items: list[Object] = (await client.request("GET", "/homeostat/changesets")).json()["items"]
    except ApiError as error:
        if error.code != 403:
            raise
        return []
    return items


def targets_before(name: str, items: Sequence[Object]) -> list[Target]:
    """What each has to be again so that the change set never was."""
    return [Target(i["apiVersion"], i["kind"], i["namespace"], i["name"], i["before"], f"before change set {name}") for i in items]


async def changes(client: Client, items: Sequence[Object]) -> list[Object]:
    """What a change set did to each of its objects, a line a field, secrets masked."""
    known: dict[str, frozenset[Pattern]] = {}
    return [await _change(client, item, known) for item in items]


async def _change(client: Client, item: Object, known: dict[str, frozenset[Pattern]]) -> Object:
    before, after = item["before"], item["after"]
    some = after or before or item["now"]
    step = Step(Document(some, ""), item["namespace"], diff=_did(before, after))
    try:
        step.served = await client.kind(item["apiVersion"], item["kind"]).served()
        step.sensitive = await sensitive_of(client, step, known)
    except ApiError:
        pass  # its kind is gone: of what is secret in it nothing is known
    lines = step.lines() if step.served is not None else []
    told = {key: item[key] for key in ("apiVersion", "kind", "namespace", "name", "revision", "changedSince")}
    resource = "" if step.served is None else _resource(step)
    return told | {"op": str(step.op or ""), "changes": lines, "resource": resource, "time": item.get("time", "")}


def _did(before: Object | None, after: Object | None) -> Diff:
    if after is None:
        return Diff(Op.DELETE, (), Cause.INTENT)
    return creation(after) if before is None else difference(before, after)


def _resource(step: Step) -> str:
    assert step.served is not None
    group = step.document.api_version.rpartition("/")[0]
    return f"{step.served.plural}.{group}" if group else step.served.plural


async def reach(client: Client, kinds: Sequence[Kind], name: str) -> list[Object]:
    """Every fleet in which something of a change set is open: how much of how many, what the guards say, and what halts it."""
    view = await look(client, kinds)
    found = []
    for _, fleet in sorted(view.fleets.items()):
        ours = sorted((ref, drift) for ref, drift in fleet.drifts.items() if drift.change_set == name)
        halts = any(halt.change_set == name for halt in view.halts(fleet))
        if ours or halts:
            found.append(_reach(view, fleet, name, [drift for _, drift in ours]))
    return found


def _reach(view: View, fleet: Fleet, name: str, ours: Sequence[Drift]) -> Object:
    data = fleet_data(view, fleet)
    halts = [halt for halt in data["halts"] if halt["changeSet"] in ("", name)]
    verdict = data["verdict"]
    return {
        "fleet": fleet.name,
        "size": fleet.size,
        "policies": [policy["metadata"]["name"] for policy in view.policies_of(fleet)],
        "verdict": verdict,
        "halts": halts,
        "open": len(ours),
        "counts": {str(op): sum(drift.op is op for drift in ours) for op in Op},
        "drifts": [drift_data(view, drift.ref, drift) for drift in ours[:SHOWN]],
    }
