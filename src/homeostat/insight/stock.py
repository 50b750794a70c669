"""What there is of a fleet, for its invariants, as far as the API shows it: so a plan is told what the loop will say of it.

The state of a thing is the one that the loop last made; what others changed in it since is not in the API. Where an invariant asks for
that, what the loop says on each object is what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from homeostat.loop.fleet import Drift, Fleet, Op

if TYPE_CHECKING:
    from homeostat.client.kinds import Kind
    from homeostat.insight.fleets import View
    from homeostat.loop.fleet import Ref

Object = Mapping[str, Any]


def companions(view: View, chosen: Sequence[Kind], served: Sequence[Kind]) -> list[Kind]:
    """Kinds that have to be looked at as well, for an invariant is about them and one of these together."""
    names = {kind.name for kind in chosen}
    beside = {name for kinds in _asked_together(view) if kinds & names for name in kinds - names}
    return [kind for kind in served if kind.kept and kind.name in beside]


def needs_companions(view: View, chosen: Sequence[Kind]) -> bool:
    """Whether there are any."""
    names = {kind.name for kind in chosen}
    return any(kinds & names and kinds - names for kinds in _asked_together(view))


def _asked_together(view: View) -> list[set[str]]:
    return [set(policy.fleet.kinds) for policy in view.gate.policies.values() if policy.invariants]


def take_stock(view: View, fleet: Fleet) -> None:
    """Gives a fleet its invariants, and what there is of it. Fleets of what Syncs declare have none here: the API has but what is open."""
    if any(ref in view.children for ref in fleet.drifts) or not view.gate.policy(fleet).invariants:
        return
    view.gate.equip(fleet)
    fleet.passes_begun = fleet.passes_done = fleet.stock_since + 1
    for ref, obj in view.objects.items():
        if view.fleet_of(ref) is not fleet:
            continue
        drift = fleet.drifts.get(ref)
        if _exists(obj, drift):
            fleet.observed[ref] = thing(ref, obj, _state(obj))
        if drift is not None and drift.op is not Op.DELETE:
            fleet.drifts[ref] = replace(drift, desired=outcome(ref, obj))


def outcome(ref: Ref, obj: Object) -> dict[str, Any]:
    """What an object is once it is as declared."""
    return thing(ref, obj, {**_state(obj), **(obj.get("spec") or {})})


def thing(ref: Ref, obj: Object, state: Mapping[str, Any]) -> dict[str, Any]:
    """A thing as invariants see it."""
    metadata = obj["metadata"]
    return {
        "kind": ref.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata.get("namespace", ""),
            "labels": metadata.get("labels") or {},
            "annotations": metadata.get("annotations") or {},
        },
        "spec": obj.get("spec") or {},
        "state": state,
    }


def _exists(obj: Object, drift: Drift | None) -> bool:
    status = obj.get("status") or {}
    return "lastApplied" in status or bool(status.get("identity")) or (drift is not None and drift.op is not Op.CREATE)


def _state(obj: Object) -> dict[str, Any]:
    return dict((obj.get("status") or {}).get("lastApplied") or {})
