"""What is open: the ledger's lines as data, and the plans that an approval can be for."""

from __future__ import annotations

from typing import Any

from homeostat.guards.unknown import GUARD as UNKNOWN
from homeostat.insight.fleets import View, hold_of
from homeostat.loop.fleet import Drift, Fleet, Op, Ref, plan_hash
from homeostat.model.clock import format_time
from homeostat.model.conditions import find_condition


def drift_data(view: View, ref: Ref, drift: Drift) -> dict[str, Any]:
    """A line of the ledger for programs."""
    obj = view.at(ref)
    hold, (kind, name) = hold_of(obj), view.names(ref)
    return {
        "op": str(drift.op),
        "kind": kind,
        "resource": ref.name.partition("/")[0] if ref in view.children else ref.kind,
        "namespace": ref.namespace,
        "name": name,
        "declaredBy": obj.get("declaredBy", ""),
        "cause": str(drift.cause),
        "by": list(drift.by),
        "since": format_time(drift.since),
        "changeSet": drift.change_set,
        "changes": list(drift.changes or drift.paths),
        "heldBy": hold.guard if hold else "",
        "reason": hold.reason if hold else "",
    }


def unknown_data(view: View, ref: Ref, why: str) -> dict[str, Any]:
    """What could not be read, in the same form: it is not known to be as declared."""
    obj, (kind, name) = view.at(ref), view.names(ref)
    return {
        "op": UNKNOWN,
        "kind": kind,
        "resource": ref.name.partition("/")[0] if ref in view.children else ref.kind,
        "namespace": ref.namespace,
        "name": name,
        "declaredBy": obj.get("declaredBy", ""),
        "cause": "",
        "by": [],
        "since": (find_condition(obj, "Ready") or {}).get("lastTransitionTime", ""),
        "changeSet": "",
        "changes": [],
        "heldBy": UNKNOWN,
        "reason": why,
    }


def plans(fleet: Fleet) -> list[list[Drift]]:
    """All that an approval can be for, as the guards count it."""
    waiting = [drift for drift in fleet.drifts.values() if not drift.in_flight]
    sets = {drift.wave for drift in waiting} - {""}
    by_op = [[d for d in waiting if d.op is op and not d.is_approved] for op in (Op.UPDATE, Op.DELETE)]
    lost = [d for d in waiting if d.lost and not d.is_approved]
    alone = [[d] for d in waiting if d.parts is not None]
    return [waiting, *by_op, lost, *([d for d in waiting if d.wave == name] for name in sorted(sets)), *alone]


def plan_named(view: View, name: str) -> tuple[Fleet, list[Drift]] | None:
    """The plan of this hash, where it is open now."""
    for fleet in view.fleets.values():
        for drifts in plans(fleet):
            if drifts and plan_hash(drifts) == name:
                return fleet, drifts
    return None
