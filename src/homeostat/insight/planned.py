"""A plan of writes: what the guards will say of it, and the whole as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from homeostat.client import Client
from homeostat.client.kinds import served_kinds
from homeostat.guards.grants import counted
from homeostat.insight.fleets import View, look
from homeostat.insight.planning import Plan, Step
from homeostat.insight.stock import outcome, take_stock
from homeostat.insight.verdicts import FleetVerdict, judge
from homeostat.loop.fleet import Cause, Drift, Fleet, Grant, Op, Ref


async def guards_on(client: Client, plan: Plan) -> list[FleetVerdict]:
    """What the guards say of a plan."""
    types = {(step.document.api_version, step.document.kind) for step in plan.changes}
    kept = [k for k in await served_kinds(client) if k.kept and (k.api_version, k.kind) in types]
    for step in plan.changes:
        step.kept = any((k.api_version, k.kind) == (step.document.api_version, step.document.kind) for k in kept)
    return judge_plan(await look(client, kept), plan)


def judge_plan(view: View, plan: Plan) -> list[FleetVerdict]:
    """The guards' verdict on what the loop will have to do once the plan is written. `view` is changed by it.

    Objects that the loop does not keep take effect by being written, and no guard is asked. What a Sync or another composer leads to
    is judged when it is composed.
    """
    touched: dict[str, Fleet] = {}
    for step in plan.changes:
        if (fleet := _declare(view, plan, step)) is not None:
            touched[fleet.name] = fleet
    return [_judge_with(view, fleet, plan.change_set) for fleet in touched.values()]


def _judge_with(view: View, fleet: Fleet, change_set: str) -> FleetVerdict:
    """The verdict, and whether it is another one where the change set carries its approval."""
    found = judge(view, fleet)
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
    desired = None if op is Op.DELETE else outcome(ref, _would(step))
    fleet.drifts[ref] = Drift(ref, op, Cause.INTENT, view.now, f"plan:{ref}", desired=desired, change_set=plan.change_set)
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
        ],
        "add": plan.count(Op.CREATE),
        "change": plan.count(Op.UPDATE),
        "destroy": plan.count(Op.DELETE),
        "guards": [verdict.data() for verdict in verdicts],
    }
