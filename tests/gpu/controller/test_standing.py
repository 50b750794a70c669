"""How a workload stands by its status and by what agents reported."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.gpu.controller.standing import Wish, carried_out, is_displaced, lagging, meanwhile, settled, state_of
from homeostat.gpu.controller.undone import take_back
from homeostat.gpu.decisions import Constraint, Decision, Memory, Verb

NOW = 1_794_700_000.0
PLACES = [{"replica": 0, "node": "n1", "gpus": [0], "milli": 1000}, {"replica": 1, "node": "n2", "gpus": [3], "milli": 1000}]


def report(replica: int, state: str, **more: Any) -> dict[str, Any]:
    place = PLACES[replica]
    return {"replica": replica, "node": place["node"], "gpus": place["gpus"], "state": state, **more}


def gang(phase: str, *reports: dict[str, Any], mode: str = "Suspend", **status: Any) -> dict[str, Any]:
    spec = {"tenant": "t", "replicas": 2, "preemption": {"mode": mode}}
    return {"metadata": {"name": "g"}, "spec": spec, "status": {"phase": phase, "assignment": PLACES, "reports": list(reports), **status}}


def nowhere(node: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("obj", "phase"),
    [
        (gang("Starting", report(0, "Running")), None),
        (gang("Starting", report(0, "Running"), report(1, "Running")), "Running"),
        (gang("Starting", report(0, "Running"), report(1, "Running", gpus=[7])), None),
        (gang("Starting", report(0, "Running"), report(1, "Running"), attempt=1), None),
        (gang("Running", report(0, "Exited"), report(1, "Running")), None),
        (gang("Running", report(0, "Exited"), report(1, "Exited")), "Succeeded"),
        (gang("Running", report(0, "Running"), report(1, "Failed", reason="exit status 3")), "Failed"),
        (gang("Suspending", report(0, "Suspended", pid=1), report(1, "Running")), None),
        (gang("Suspending", report(0, "Suspended", pid=1), report(1, "Unknown")), None),
        (gang("Suspending", report(0, "Suspended", pid=1), report(1, "Suspended", pid=2)), "Suspended"),
        (gang("Succeeded", report(0, "Running")), None),
    ],
)
def test_a_phase_follows_when_all_replicas_are_there(obj: dict[str, Any], phase: str | None) -> None:
    assert (settled(obj, NOW, nowhere) or {}).get("phase") == phase


def test_who_keeps_its_state_in_memory_keeps_its_place_and_others_do_not() -> None:
    off = (report(0, "Suspended", pid=1), report(1, "Suspended", pid=2))
    assert "assignment" not in (settled(gang("Suspending", *off), NOW, nowhere) or {})
    ended = (report(0, "Suspended"), report(1, "Suspended"))
    assert (settled(gang("Suspending", *ended, mode="Checkpoint"), NOW, nowhere) or {})["assignment"] == []


def test_a_lost_node_is_not_waited_for_and_takes_the_state_with_it() -> None:
    obj = gang("Suspending", report(0, "Suspended", pid=1), report(1, "Running", pid=2))
    assert settled(obj, NOW, lambda node: node == "n2") == {"phase": "Suspended", "assignment": []}
    assert not lagging(obj["status"], lambda node: node == "n2")
    assert is_displaced(gang("Running")["status"], lambda node: node == "n2")
    assert not is_displaced(gang("Suspended")["status"], lambda node: node == "n2")


def test_it_is_not_off_its_gpus_while_a_machine_that_was_lost_and_is_back_still_has_it_there() -> None:
    twin = {"replica": 1, "node": "n9", "gpus": [5], "state": "Running", "pid": 7}
    obj = gang("Suspending", report(0, "Suspended", pid=1), report(1, "Suspended", pid=2), twin)
    assert settled(obj, NOW, nowhere) is None
    assert lagging(obj["status"], nowhere) == "n9 has still to take it off its GPUs"
    assert settled(obj, NOW, lambda node: node == "n9") == {"phase": "Suspended"}
    twin["state"] = "Suspended"
    assert settled(obj, NOW, nowhere) == {"phase": "Suspended"}


def test_what_is_being_written_holds_what_it_had_and_what_it_gets() -> None:
    before, elsewhere = gang("Running")["status"], [{"replica": 0, "node": "n3", "gpus": [0], "milli": 1000}, PLACES[1]]
    moves = meanwhile(before, {"phase": "Starting", "assignment": elsewhere})
    assert (moves["phase"], moves["assignment"]) == ("Starting", [*PLACES, elsewhere[0]])
    for gone in ({"phase": "Failed"}, {"phase": "Suspended", "assignment": []}, {"phase": "Suspending"}):
        counted = meanwhile(before, gone)
        assert (counted["phase"], counted["assignment"]) == ("Suspending", PLACES)
    begins = meanwhile({"phase": "Suspended", "assignment": PLACES}, {"phase": "Starting", "assignment": elsewhere})
    assert begins["assignment"] == elsewhere  # where its state lay, it held nothing


def test_it_says_who_is_waited_for() -> None:
    running = gang("Running", report(0, "Running", pid=1), report(1, "Unknown", reason="the disk is full"))["status"]
    assert lagging(running, nowhere) == "n2 has still to run it: the disk is full"
    assert lagging(gang("Suspending", report(0, "Running"))["status"], nowhere) == "n1 has still to take it off its GPUs"
    assert lagging(running, nowhere, deleting=True) == "n1 has still to end it"
    assert lagging(running, lambda node: node == "n1", deleting=True) == ""


def test_however_much_an_agent_says_a_sentence_stays_one() -> None:
    much = "x" * 100_000 + " is no program"
    failed = settled(gang("Running", report(0, "Running"), report(1, "Failed", reason=much)), NOW, nowhere) or {}
    waits = lagging(gang("Running", report(0, "Running"), report(1, "Unknown", reason=much))["status"], nowhere)
    assert all(len(text) < 600 and text.endswith("x is no program") for text in (failed["reason"], waits))


def test_the_gpu_hours_of_a_run_are_counted_when_it_ends() -> None:
    obj = gang("Running", report(0, "Exited"), report(1, "Exited"), startedAt="2026-11-15T00:00:00Z", gpuHours=1.5)
    later = 1_794_700_800.0 + 3600  # an hour after it started
    assert (settled(obj, later, nowhere) or {})["gpuHours"] == 3.5


def test_a_preemption_that_was_not_carried_out_costs_nothing_of_the_budget() -> None:
    said = Decision(verb=Verb.PREEMPT, kind="Workload", subject="v", name="v", reason="", constraint=Constraint.PRIORITY, beneficiary="b")
    state = state_of(gang("Running")["status"])
    memory = Memory(at=NOW, preemptions=[1.0, NOW], preempted={"v": [1.0, NOW]}, rivals={"v": ["b"]})
    take_back(memory, Wish(state, state, said, NOW))
    assert (memory.preemptions, memory.preempted["v"], memory.rivals["v"]) == ([1.0], [1.0], [])


def test_to_suspend_counts_it_and_says_why() -> None:
    said = Decision(verb=Verb.SUSPEND, kind="Workload", subject="g", name="g", reason="over quota", constraint=Constraint.QUOTA)
    obj = gang("Running", report(0, "Running"), report(1, "Running"), suspensions=1)
    wish = Wish(state_of(obj["status"]), state_of({"phase": "Suspended"}), said, NOW)
    patch = carried_out(obj, wish, NOW, nowhere)
    assert (patch["phase"], patch["suspensions"], patch["reason"]) == ("Suspending", 2, "over quota")


def test_to_take_back_what_is_idle_counts_how_often_in_a_row() -> None:
    said = Decision(verb=Verb.RECLAIM, kind="Workload", subject="g", name="g", reason="idle", constraint=Constraint.IDLE, count=3)
    obj = gang("Running", report(0, "Running"), report(1, "Running"), reclaims=2)
    wish = Wish(state_of(obj["status"]), state_of({"phase": "Suspended"}), said, NOW)
    assert carried_out(obj, wish, NOW, nowhere)["reclaims"] == 3


def test_who_is_stopped_while_it_comes_back_is_off_when_its_agents_say_so_anew() -> None:
    said = Decision(verb=Verb.SUSPEND, kind="Workload", subject="g", name="g", reason="over quota", constraint=Constraint.QUOTA)
    obj = gang("Starting", report(0, "Suspended", pid=1), report(1, "Exited"))
    wish = Wish(state_of(obj["status"]), state_of({"phase": "Suspended"}), said, NOW)
    patch = carried_out(obj, wish, NOW, nowhere)
    assert patch["phase"] == "Suspending"
    left = {**obj["status"], **patch}
    for state, phase in (("Unknown", None), ("Running", None), ("Suspended", "Suspended")):
        told = {**left, "reports": [*left["reports"], report(0, state, pid=1)]}
        assert (settled({**obj, "status": told}, NOW, nowhere) or {}).get("phase") == phase


def test_one_of_two_on_a_machine_that_has_ended_says_nothing_of_the_other() -> None:
    places = [{**place, "node": "n1"} for place in PLACES]
    ended = {**report(1, "Exited"), "node": "n1"}
    assert settled(gang("Suspending", ended, assignment=places), NOW, nowhere) is None


@pytest.mark.parametrize(("state", "stays"), [("Running", False), ("Unknown", False), ("Suspended", True), ("Failed", True)])
def test_who_lost_its_node_and_comes_back_there_runs_when_its_agent_says_so_again(state: str, stays: bool) -> None:
    said = Decision(verb=Verb.RESUME, kind="Workload", subject="g", name="g", reason="", constraint=Constraint.FAILURE)
    obj = gang("Suspended", report(0, state), report(1, state), assignment=[])
    wish = Wish(state_of(obj["status"]), state_of({"phase": "Running", "assignment": PLACES}), said, NOW)
    patch = carried_out(obj, wish, NOW, nowhere)
    assert patch["phase"] == "Starting"
    assert ("reports" not in patch) is stays
    assert settled({**obj, "status": {**obj["status"], **patch}}, NOW, nowhere) is None or stays
