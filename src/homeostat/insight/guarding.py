"""A policy and the fleets that it guards: how near they are to its limits, what it refuses and why, and what a person could say yes to."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from msgspec import structs

from homeostat.client import Client
from homeostat.client.kinds import served_kinds
from homeostat.guards import runbook
from homeostat.guards.policy import GuardPolicy, Mode
from homeostat.insight.fleets import View, halted_elsewhere, hold_of, look
from homeostat.insight.open import drift_data, plan_named
from homeostat.insight.verdicts import judge
from homeostat.loop.fleet import Fleet, Op, Verdict, share

SHOWN = 500
"""Lines of a plan that are told; how many there are in all is told beside them."""


async def guarded(client: Client, policy: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every fleet that a policy guards, with all that is open in it."""
    names = set((policy["spec"].get("fleet") or {}).get("kinds") or ())
    kept = [kind for kind in await served_kinds(client) if kind.kept]
    others = names - {kind.name for kind in kept}  # what Syncs and other composers declare
    policies = await look(client, [])
    view = await look(client, [kind for kind in kept if kind.name in names or (others and policies.composes(kind.name))])
    halted_elsewhere(view)
    name = policy["metadata"]["name"]
    return [
        fleet_data(view, fleet)
        for _, fleet in sorted(view.fleets.items())
        if name in {one["metadata"]["name"] for one in view.policies_of(fleet)}
    ]


async def as_if(client: Client, names: Set[str], *, thawed: bool = False, enforced: bool = False) -> list[dict[str, Any]]:
    """What would be done if these policies were not frozen any more, or acted: every fleet of theirs in which something is open."""
    view = await look(client, [kind for kind in await served_kinds(client) if kind.kept])
    for known in (view.gate.policies, view.gate.built_in):
        for name in names & known.keys():
            known[name] = structs.replace(known[name], freezes=() if thawed else known[name].freezes, mode=Mode.ENFORCE if enforced else known[name].mode)
    guarded_by = {name: {one["metadata"]["name"] for one in view.policies_of(fleet)} for name, fleet in view.fleets.items()}
    busy = [fleet for name, fleet in sorted(view.fleets.items()) if names & guarded_by[name] and (fleet.drifts or fleet.unknown)]
    return [
        {
            "fleet": fleet.name,
            "size": fleet.size,
            "open": len(fleet.drifts),
            "words": [line.strip() for line in judge(view, fleet).lines()],
            "drifts": [drift_data(view, ref, drift) for ref, drift in sorted(fleet.drifts.items())[:SHOWN]],
        }
        for fleet in busy
    ]


def fleet_data(view: View, fleet: Fleet) -> dict[str, Any]:
    """One fleet: what is open in it, what the guards say of that, and the plans that wait for a person."""
    policy = view.gate.policy(fleet)
    halts = {str(number): halt for number, halt in enumerate(view.halts(fleet))}
    held = {ref: hold for ref in fleet.drifts if (hold := hold_of(view.at(ref))) is not None}
    open_now = sorted(fleet.drifts.items())
    return {
        "fleet": fleet.name,
        "size": fleet.size,
        "verdict": judge(view, fleet).data(),
        "limits": limits(policy, fleet),
        "runbook": runbook(policy, fleet, Verdict(held=held, halts=halts), view.now, view.asks(fleet)),
        "open": len(open_now),
        "drifts": [drift_data(view, ref, drift) for ref, drift in open_now[:SHOWN]],
        "halts": [
            {"guard": halt.guard, "reason": halt.reason, "plan": halt.plan, "changeSet": halt.change_set, "whatToDo": halt.what_to_do, "actions": _actions(view, halt.plan)}
            for halt in halts.values()
        ],
    }


def limits(policy: GuardPolicy, fleet: Fleet) -> list[dict[str, Any]]:
    """Each limit of a policy that counts: how much there is now, and from how much on it trips."""
    changes = sum(d.op is Op.UPDATE for d in fleet.drifts.values())
    deletions = sum(d.op is Op.DELETE for d in fleet.drifts.values())
    looks = fleet.size >= policy.mass_drift.fleet_of
    mass = share(policy.mass_drift.limit, fleet.size)
    above = policy.cap if policy.deletion.confirm_above is None else policy.deletion.confirm_above
    found = [
        ("mass drift, changes", changes, mass, str(policy.mass_drift.limit), looks),
        ("mass drift, deletions", deletions, mass, str(policy.mass_drift.limit), looks),
        ("unknown", len(fleet.unknown), share(policy.unknown, fleet.size), str(policy.unknown), True),
        ("deletion, to be confirmed", deletions, share(above, fleet.size), str(above), True),
    ]
    return [{"guard": name, "now": now, "limit": limit, "said": said, "watches": watches} for name, now, limit, said, watches in found]


def _actions(view: View, plan: str) -> list[dict[str, Any]]:
    """What exactly an approval of this plan would let through; nothing where it has moved on."""
    found = plan_named(view, plan) if plan else None
    return [drift_data(view, drift.ref, drift) for drift in found[1][:SHOWN]] if found is not None else []
