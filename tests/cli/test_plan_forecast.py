"""What a plan says the loop will have to do: a declaration that goes back to what is there leaves nothing to do."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.client.kinds import Kind
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.insight.fleets import View, drift_of, ref_of
from homeostat.insight.planned import judge_plan
from homeostat.insight.planning import Document, Plan, Step, difference
from homeostat.model.clock import format_time

NOW = 1_800_000_000.0
LAMPS = Kind("lamps.example.com/v1", "Lamp", "lamps", "lamp", namespaced=True)


def lamp(number: int, colour: str, **status: Any) -> dict[str, Any]:
    entry = {"manager": "ci", "operation": "Apply", "time": format_time(NOW - 60), "fieldsV1": {"f:spec": {"f:colour": {}}}}
    metadata = {"name": f"lamp-{number}", "namespace": "default", "uid": f"uid-{number}", "managedFields": [entry]}
    return {"apiVersion": LAMPS.api_version, "kind": "Lamp", "metadata": metadata, "spec": {"colour": colour}, "status": status}


def held(declared: str, cause: str = "intent", since: float = NOW - 60, attempts: int = 0, made: str = "red") -> int:
    """Twelve lamps were `made`, then declared black, and nothing was done about it; now a plan declares something else. How many does it hold?"""
    line = {"op": "update", "cause": cause, "since": format_time(since), "attempts": attempts, "changeSet": "push-1"}
    view, plan = View(PolicyGate(mode=Mode.ENFORCE), NOW, kinds={LAMPS.name: LAMPS}), Plan("apply-1")
    for number in range(12):
        live, wanted = lamp(number, "black", drift=line, lastApplied={"colour": made}), lamp(number, declared)
        ref = ref_of(LAMPS, live)
        view.objects[ref] = live
        fleet = view.fleet_of(ref)
        fleet.size += 1
        known = drift_of(ref, live)
        assert known is not None
        fleet.drifts[ref] = known
        plan.steps.append(Step(Document(wanted, "a file"), "default", live=live, diff=difference(live, wanted)))
    (verdict,) = judge_plan(view, plan)
    return verdict.stopped


def test_a_plan_that_declares_what_is_there_leaves_nothing_to_do() -> None:
    assert held("red") == 0


@pytest.mark.parametrize(
    "otherwise",
    [
        {"declared": "green"},
        {"cause": "both"},
        {"attempts": 1},
        {"since": NOW - 120},  # it was not as declared before the push
        {"made": "blue"},
    ],
)
def test_a_plan_whose_outcome_cannot_be_told_is_judged_as_a_change(otherwise: dict[str, Any]) -> None:
    assert held(**{"declared": "red", **otherwise}) == 12
