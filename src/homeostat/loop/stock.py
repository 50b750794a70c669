"""What there is of a fleet, for those who ask about the whole of it: kept only where somebody does.

An invariant sees each thing as its declaration, and its state beside it:

    {kind, metadata: {name, namespace, labels, annotations}, spec, state}

`kind` is that by which policies select it (`servers.shop.example.com`); labels and annotations are always there, though
they may be empty. `state` is what the provider observed, and what else it knows (`Provider.facts`). What could not be read
stands as it was last seen, or as we last made it; and so does the `spec` of what was declared anew and is not made so yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from homeostat.loop.controller import Controller, Seen
from homeostat.loop.fleet import Cause, Fleet, State
from homeostat.loop.observation import Absent, Unknown


def take_stock(fleet: Fleet, controller: Controller, seen: Seen) -> None:
    """Enters what was seen of one resource into what exists."""
    if not fleet.invariants:
        return
    state = seen.observation.state
    if isinstance(state, Absent):
        fleet.observed.pop(seen.ref, None)
    elif not isinstance(state, Unknown):
        thing = _thing(controller, seen, _facts(controller, seen, state))
        # What is declared anew is no fact yet: else each invariant about it would be broken before its plan is judged.
        if seen.diff and (known := fleet.observed.get(seen.ref)) is not None:
            thing |= {"metadata": known["metadata"], "spec": known["spec"]}
        elif seen.diff and seen.diff.cause is not Cause.DRIFT and seen.record.last_applied is not None:
            thing["spec"] = _over(seen.record.last_applied, thing["spec"])
        fleet.observed[seen.ref] = thing
    elif seen.ref not in fleet.observed and seen.record.last_applied is not None:
        fleet.observed[seen.ref] = _thing(controller, seen, seen.record.last_applied)


def outcome(fleet: Fleet, controller: Controller, seen: Seen) -> State | None:
    """What the action on a difference leads to; None where it deletes, or where nobody asks."""
    if not fleet.invariants or isinstance(seen.declared, Absent):
        return None
    state = seen.observation.state
    there = _facts(controller, seen, state) if isinstance(state, Mapping) else {}
    return _thing(controller, seen, _over(seen.declared, there))


def examined(fleet: Fleet, controller: Controller, seen: Seen) -> Seen:
    """What was seen, with what the fleet's policies say of its health. Only what is as declared has any."""
    state = seen.observation.state
    if not fleet.health or seen.diff or seen.unhealthy or not isinstance(state, Mapping):
        return seen
    facts = _facts(controller, seen, state)
    sick = "; ".join(said for check in fleet.health if (said := check(seen.obj, facts)))
    return replace(seen, unhealthy=sick) if sick else seen


def _facts(controller: Controller, seen: Seen, state: Mapping[str, Any]) -> Mapping[str, Any]:
    known = controller.provider.facts(seen.ref)
    return state if known is None else known


def _thing(controller: Controller, seen: Seen, state: Mapping[str, Any]) -> dict[str, Any]:
    metadata = seen.obj["metadata"]
    return {
        "kind": controller.fleet_kind(seen.ref),
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata.get("namespace", ""),
            "labels": metadata.get("labels") or {},
            "annotations": metadata.get("annotations") or {},
        },
        "spec": seen.obj.get("spec") or {},
        "state": state,
    }


def _over(declared: Mapping[str, Any], observed: Mapping[str, Any]) -> dict[str, Any]:
    """The observed state with the declared fields in it; what nobody declared stays."""
    merged = dict(observed)
    for name, value in declared.items():
        below = merged.get(name)
        merged[name] = _over(value, below) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged
