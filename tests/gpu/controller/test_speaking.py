"""What is said of a workload: the short way, of one that was placed just now, gives what the long way would."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from homeostat.client import Client
from homeostat.gpu.controller.speaking import Speaker
from homeostat.gpu.decisions import Constraint, Decision, Memory, Plan, Verb
from homeostat.gpu.explain import Pending
from homeostat.gpu.kinds import Phase
from homeostat.model.clock import Clock, format_micro_time

NOW = 1_794_700_000.0
CONDITION = st.sampled_from(("Ready", "Idle", "SlaMet", "Suspendable")).flatmap(
    lambda kind: st.builds(dict, type=st.just(kind), status=st.sampled_from(("True", "False")), lastTransitionTime=st.just("2026-11-18T00:00:00Z"))
)
CONDITIONS = st.lists(CONDITION, max_size=3, unique_by=lambda one: one["type"])
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(sorted(Phase)),
        "conditions": CONDITIONS,
        "startedAt": st.floats(-3.0, 0.0).map(lambda ago: format_micro_time(NOW + ago)),
        "decision": st.builds(dict, verb=st.sampled_from(sorted(Verb)), constraint=st.sampled_from(sorted(Constraint)), reason=st.just("so")),
    },
)
SAID = st.fixed_dictionaries({"conditions": CONDITIONS}, optional={"drift": st.just({"op": "update"})})
WARNED = st.lists(st.sampled_from((Constraint.SLA, Constraint.IDLE, Constraint.BUDGET)), max_size=2, unique=True)


class Still(Clock):
    def now(self) -> float:
        return NOW


class Nowhere:
    def kind(self, *_: Any, **__: Any) -> None: ...


def _speaker(warned: list[Constraint]) -> Speaker:
    speaker = Speaker(cast(Client, Nowhere()), Still(), "governor", {}, lambda uid: None)
    said = [Decision(verb=Verb.WARN, kind="Workload", subject="u", name="w", reason="so", constraint=one) for one in warned]
    memory = Memory(warned={"u": NOW} if Constraint.IDLE in warned else {})
    speaker._notices.of(Plan(decisions=said, memory=memory, pending=cast(Pending, None)), lambda decision: None)
    return speaker


@given(STATUS, SAID, WARNED)
def test_who_is_kept_silent_about_would_be_told_nothing_whatever_the_loop_says(
    status: dict[str, Any], said: dict[str, Any], warned: list[Constraint]
) -> None:
    obj = {"metadata": {"name": "w", "uid": "u", "generation": 1}, "spec": {}, "status": status}
    loop_says = {**said, "conditions": said["conditions"] if status.get("conditions") else [one for one in said["conditions"] if one["type"] == "Ready"]}
    if _speaker(warned).keeps_silent(obj):
        assert _speaker(warned).words(obj, loop_says, None) is None


def test_who_was_placed_just_now_is_kept_silent_about_and_after_a_moment_is_not() -> None:
    status = {"phase": "Starting", "startedAt": format_micro_time(NOW - 0.5), "decision": {"verb": "admit", "constraint": "none"}}
    obj = {"metadata": {"name": "w", "uid": "u"}, "spec": {}, "status": status}
    assert _speaker([]).keeps_silent(obj)
    assert not _speaker([Constraint.SLA]).keeps_silent(obj)
    assert not _speaker([]).keeps_silent({**obj, "status": {**status, "startedAt": format_micro_time(NOW - 1.5)}})
    assert not _speaker([]).keeps_silent({**obj, "status": {**status, "conditions": [{"type": "Ready", "status": "False"}]}})
