"""A plan of writes: what the guards will say of it, and the whole as data."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from homeostat.client import Client
from homeostat.client.kinds import served_kinds
from homeostat.guards.grants import counted
from homeostat.insight.below import Below, Foresight
from homeostat.insight.fleets import View, look
from homeostat.insight.foreseeing import foresee
from homeostat.insight.planning import Plan, Step
from homeostat.insight.stock import outcome, take_stock
from homeostat.insight.verdicts import FleetVerdict, judge
from homeostat.loop.changesets import last_write
from homeostat.loop.children import CHILDREN
from homeostat.loop.fleet import Cause, Drift, Fleet, Grant, Op, Ref


async def guards_on(client: Client, plan: Plan, own: Foresight | None = None) -> list[FleetVerdict]:
    """What the guards say of a plan, and of what it leads to by composers, which is entered in it. `own` are composers at hand."""
    types = {(step.document.api_version, step.document.kind) for step in plan.changes}
    served = [kind for kind in await served_kinds(client) if kind.kept]
    kept = [kind for kind in served if (kind.api_version, kind.kind) in types]
    for step in plan.changes:
        step.kept = any((k.api_version, k.kind) == _type(step) for k in kept)
    view = await look(client, kept)
    composing = {(kind.api_version, kind.kind): kind.name for kind in kept if view.composes(kind.name)}
    parents = [step for step in plan.changes if _type(step) in composing or (own is not None and own.knows(*_type(step)))]
    if not parents:
        return judge_plan(view, plan)
    mode = await foresee(client, plan, parents, own)
    below = {(one.api_version, one.kind) for one in plan.below if one.kept} - types
    if below:
        view = await look(client, [*kept, *(kind for kind in served if (kind.api_version, kind.kind) in below)])
    if mode is None:  # of a loop elsewhere: most likely as it made the policies that it declared
        mode = next((view.gate.built_in[CHILDREN + name].mode for name in composing.values()), None)
    view.gate.mode = mode or view.gate.mode
    return judge_plan(view, plan)


def judge_plan(view: View, plan: Plan) -> list[FleetVerdict]:
    """The guards' verdict on what the loop will have to do once the plan is written. `view` is changed by it.

    Objects that the loop does not keep take effect by being written, and no guard is asked. What is below the plan is judged as what
    composers declare; where it cannot be told, when it is composed.
    """
    touched: dict[str, Fleet] = {}
    if not plan.notes:
        _compose_anew(view, plan)
    for step in plan.changes:
        if (fleet := _declare(view, plan, step)) is not None:
            touched[fleet.name] = fleet
    there = {(ref.kind, ref.namespace, ref.name): ref for ref in view.objects} if plan.below else {}
    for one in plan.below:
        for fleet in _enter_below(view, plan, one, touched, there):
            touched[fleet.name] = fleet
            fleet.size = max(fleet.size, len(fleet.drifts))  # a policy may not have counted yet what was made just now
    unasked = [fleet.name for fleet in touched.values() if not fleet.invariants and view.gate.policy(fleet).invariants]
    plan.notes += [f"{name}: its invariants are asked when it is composed: the API does not show all that is declared in it" for name in unasked]
    return [_judge_with(view, fleet, plan.change_set) for fleet in touched.values()]


def _judge_with(view: View, fleet: Fleet, change_set: str) -> FleetVerdict:
    """The verdict, and whether it is another one where the change set carries its approval."""
    found = judge(view, fleet)
    found.begins = not view.policies_of(fleet)
    found.asked = counted(drift for drift in fleet.drifts.values() if drift.change_set == change_set)
    if found.asked and found.stopped:
        fleet.grants[change_set] = Grant(*map(sum, zip(*found.asked.values(), strict=True)))
        found.approvable = judge(view, fleet).stopped < found.stopped
        del fleet.grants[change_set]
    return found


def _declare(view: View, plan: Plan, step: Step) -> Fleet | None:
    """Enters a step in the ledger as the engine will find it; None where there is nothing for the loop in it."""
    assert step.op is not None
    kind = next((k for k in view.kinds.values() if (k.api_version, k.kind) == _type(step)), None)
    if kind is None or view.composes(kind.name) or (step.op is Op.UPDATE and not step.diff.touches("spec")):
        return None
    metadata = step.document.obj["metadata"]
    uid = (step.live or {}).get("metadata", {}).get("uid", "")
    fleet = view.fleet(kind.name, step.namespace, metadata.get("labels") or {})
    fleet.size += step.op is Op.CREATE
    ref = Ref(kind.name, step.namespace, step.document.name, uid)
    known = fleet.drifts.get(ref)
    op = Op.CREATE if known is not None and known.op is Op.CREATE else step.op
    if not fleet.invariants:
        take_stock(view, fleet)  # one that begins with this plan
    if known is not None and _goes_back(step, known):
        del fleet.drifts[ref]
        return fleet
    desired = None if op is Op.DELETE else outcome(ref, _would(step))
    fleet.drifts[ref] = Drift(ref, op, Cause.INTENT, view.now, f"plan:{ref}", desired=desired, change_set=plan.change_set)
    return fleet


def _compose_anew(view: View, plan: Plan) -> None:
    """Takes out what is open of the children of parents that the plan declares anew: what will be is in `plan.below`, and nothing else."""
    anew = {step.live["metadata"]["uid"] for step in plan.changes if step.live is not None}
    for ref in [ref for ref in view.children if ref.uid in anew]:
        drifts = view.fleet_of(ref).drifts
        if ref in drifts and not drifts[ref].in_flight:
            del drifts[ref]


def _goes_back(step: Step, known: Drift) -> bool:
    """Whether it declares what is there, again: all was well before the last declaration, and nothing was done yet about that."""
    live = step.live or {"metadata": {}}
    written, made = last_write(live["metadata"]).at, (live.get("status") or {}).get("lastApplied") or {}
    untouched = known.op is step.op is Op.UPDATE and known.cause is Cause.INTENT and not known.attempts and not known.in_flight
    if not untouched or not made or not 0.0 < written <= known.since:
        return False
    spec = _would(step)["spec"]
    return all(name in spec and spec[name] == value for name, value in made.items())


def _enter_below(view: View, plan: Plan, one: Below, touched: Container[str], there: Mapping[tuple[str, str, str], Ref]) -> Iterator[Fleet]:
    """Enters a child as the engine will find it: as a child of its composer, and where a loop keeps its kind, there as well."""
    if one.problem:
        return
    ref = Ref(CHILDREN + one.by_kind, one.namespace, f"{one.resource}/{one.name}", one.by_uid)
    fleet = view.fleet(CHILDREN + one.by_kind if one.kept else one.resource, one.namespace, one.labels)
    if fleet.name not in touched:  # the children that there are stand nowhere but in the policy's own count
        fleet.size = max([fleet.size, *((policy.get("status") or {}).get("fleetSize", 0) for policy in view.policies_of(fleet))])
    fleet.size += one.op is Op.CREATE and ref not in fleet.drifts
    fleet.drifts[ref] = Drift(
        ref,
        one.op,
        Cause.INTENT,
        view.now,
        f"plan:{ref}",
        owned=one.owned,
        change_set=one.change_set or plan.change_set,
        part_of=one.by_uid if one.with_parent else "",
    )
    yield fleet
    kind = next((k for k in view.kinds.values() if (k.api_version, k.kind) == (one.api_version, one.kind)), None)
    if kind is not None and not view.composes(kind.name) and one.owned:
        yield _enter_kept(view, there.get((kind.name, one.namespace, one.name)), kind.name, one)


def _enter_kept(view: View, live: Ref | None, kind: str, one: Below) -> Fleet:
    """Enters what a composer declares of a kind that a loop keeps. It is no part of the plan's change set: composers do not pass it on."""
    fleet, ref = view.fleet(kind, one.namespace, one.labels), live or Ref(kind, one.namespace, one.name, "")
    known = fleet.drifts.get(ref)
    fleet.size += live is None
    if not fleet.invariants:
        take_stock(view, fleet)
    obj = {"metadata": {"name": one.name, "namespace": one.namespace, "labels": one.labels}, "spec": one.spec or {}}
    op = Op.CREATE if known is not None and known.op is Op.CREATE and one.op is Op.UPDATE else one.op
    desired = None if op is Op.DELETE else outcome(ref, {**view.objects.get(ref, {}), **obj})
    fleet.drifts[ref] = Drift(ref, op, Cause.INTENT, view.now, f"plan:{ref}", desired=desired, change_set=one.change_set)
    return fleet


def _would(step: Step) -> dict[str, Any]:
    """The object as it is once the step is written: fields that it does not declare stay."""
    live = step.live or {}
    spec = {**(live.get("spec") or {}), **(step.document.obj.get("spec") or {})}
    return {**live, **step.document.obj, "spec": spec, "status": live.get("status") or {}}


def _type(step: Step) -> tuple[str, str]:
    return step.document.api_version, step.document.kind


def plan_data(plan: Plan, verdicts: Sequence[FleetVerdict]) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "changeSet": plan.change_set,
        "actions": [
            {
                "op": str(step.op),
                "apiVersion": step.document.api_version,
                "kind": step.document.kind,
                "namespace": step.namespace,
                "name": step.document.name,
                "changes": step.lines(),
            }
            for step in plan.changes
        ]
        + [
            {
                "op": str(one.op),
                "apiVersion": one.api_version,
                "kind": one.kind,
                "namespace": one.namespace,
                "name": one.name,
                "declaredBy": one.declared_by,
                "changes": one.changes,
                **({"problem": one.problem} if one.problem else {}),
            }
            for one in plan.below
        ],
        "notes": plan.notes,
        "add": plan.count(Op.CREATE),
        "change": plan.count(Op.UPDATE),
        "destroy": plan.count(Op.DELETE),
        "guards": [verdict.data() for verdict in verdicts],
    }
