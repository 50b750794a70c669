"""What the loop has open: the ledger's lines as a plan, with the guards' verdict fleet by fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.kinds import served_kinds
from homeostat.cli.scope import find_scope
from homeostat.cli.show import ago, painted
from homeostat.cli.verdicts import verdict_lines
from homeostat.insight.fleets import View, halted_elsewhere, look
from homeostat.insight.loops import unkept_lines
from homeostat.insight.open import drift_data
from homeostat.insight.planning import SIGNS
from homeostat.insight.verdicts import judge
from homeostat.loop.fleet import Drift, Fleet, Op, Ref, plan_hash

if TYPE_CHECKING:
    from homeostat.client import Client


async def view_of(client: Client, scope: str | None = None) -> View:
    """What the loop keeps, or the part of it that a scope names."""
    if not scope:
        view = await look(client, [kind for kind in await served_kinds(client) if kind.kept])
        halted_elsewhere(view)
        return view
    found = await find_scope(client, scope)
    view = await look(client, dict.fromkeys([*found.guarded(), *found.composers()]))
    halted_elsewhere(view)
    if found.kind is not None and view.composes(found.kind.name):
        return _declared_by(view, found.kind.name, found.name)
    view.uncomposed = {}
    names = {policy["metadata"]["name"] for policy in found.policies}
    for name, fleet in list(view.fleets.items()):
        if not names & {policy["metadata"]["name"] for policy in view.policies_of(fleet)}:
            del view.fleets[name]
        elif found.name:
            fleet.drifts = {ref: drift for ref, drift in fleet.drifts.items() if ref.name == found.name}
            fleet.unknown = {ref: why for ref, why in fleet.unknown.items() if ref.name == found.name}
    return view


def _declared_by(view: View, kind: str, name: str) -> View:
    """Only what the things of a kind declare, or the one of this name."""
    uids = {ref.uid for ref in view.objects if ref.kind == kind and name in ("", ref.name)}
    view.uncomposed = {ref: why for ref, why in view.uncomposed.items() if ref.uid in uids}
    for fleet in view.fleets.values():
        fleet.drifts = {ref: drift for ref, drift in fleet.drifts.items() if ref in view.children and ref.uid in uids}
    view.fleets = {name: fleet for name, fleet in view.fleets.items() if fleet.drifts}
    return view


def title_of(view: View, ref: Ref) -> str:
    """`Lamp default/hall`."""
    kind, name = view.names(ref)
    return f"{kind} {ref.namespace}/{name}" if ref.namespace else f"{kind} {name}"


def drift_lines(view: View, drifts: Iterable[tuple[Ref, Drift]]) -> Iterator[str]:
    """Each with its sign, cause and changes."""
    for ref, drift in drifts:
        by = f", by {' and '.join(drift.by)}" if drift.by else ""
        yield (
            painted(f"{SIGNS[drift.op]} {title_of(view, ref)}")
            + f"   {drift.cause}{by}, {ago(view.now - drift.since)} ago"
        )
        for line in drift.changes:
            yield "    " + painted(line)


def closing(drifts: Iterable[Drift]) -> str:
    """The sum, in the words of every plan."""
    ops = [drift.op for drift in drifts]
    add, change, destroy = (ops.count(op) for op in (Op.CREATE, Op.UPDATE, Op.DELETE))
    return f"Plan: {add} to add, {change} to change, {destroy} to destroy"


def open_lines(view: View) -> Iterator[str]:
    """The whole as text."""
    yield from drift_lines(view, view.open())
    if view.open():
        yield ""
    yield click.style(closing(drift for _, drift in view.open()), bold=True)
    yield from verdict_lines([judge(view, fleet) for fleet in busy(view)])
    yield from unlooked(view)


def unlooked(view: View) -> list[str]:
    """Why what is said of now may be old, or nothing: no loop looks, or none ever did."""
    if not view.policies:
        return ["no loop has run on this server yet: nothing was looked at"]
    return unkept_lines(view.unkept, view.now)


def busy(view: View) -> list[Fleet]:
    """Fleets that have something open or unreadable."""
    return [fleet for fleet in view.fleets.values() if fleet.drifts or fleet.unknown]


def open_data(view: View) -> dict[str, Any]:
    """The whole for programs."""
    return {
        "actions": [drift_data(view, ref, drift) for ref, drift in view.open()],
        "guards": [judge(view, fleet).data() | {"plan": _plan(fleet)} for fleet in busy(view)],
    }


def _plan(fleet: Fleet) -> str:
    return plan_hash(d for d in fleet.drifts.values() if not d.in_flight)
