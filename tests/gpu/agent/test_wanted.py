"""What is wanted of a replica, and the next step: as tables, and as promises that hold for every state there can be."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homeostat.gpu.agent.journal import Note
from homeostat.gpu.agent.wanted import Aim, Declared, Off, Standing, Step, Wish, next_step, wish_for
from homeostat.gpu.kinds import Phase, Place, Preemption, ReplicaState, WhenPreempted, WorkloadSpec

HERE = Place(replica=0, node="n1", gpus=(0,))
THERE = Place(replica=0, node="n2", gpus=(0,))
RUN = Wish(Aim.RUN, "", HERE)


def workload(phase: Phase, place: Place | None = HERE, mode: Preemption = Preemption.SUSPEND) -> Declared:
    spec = WorkloadSpec(tenant="t", preemption=WhenPreempted(mode=mode))
    return Declared("u", "default", "job", spec, phase, 0, {0: place} if place else {})


@pytest.mark.parametrize(
    ("declared", "aim", "forget"),
    [
        (None, Aim.END, True),
        (workload(Phase.STARTING), Aim.RUN, False),
        (workload(Phase.RUNNING), Aim.RUN, False),
        (workload(Phase.PENDING), Aim.OFF, False),
        (workload(Phase.SUSPENDING), Aim.OFF, False),
        (workload(Phase.SUSPENDED), Aim.OFF, False),
        (workload(Phase.SUSPENDED, None), Aim.OFF, False),
        (workload(Phase.RUNNING, None), Aim.OFF, False),
        (workload(Phase.RUNNING, THERE), Aim.END, True),
        (workload(Phase.SUSPENDED, THERE), Aim.END, True),
        (workload(Phase.SUCCEEDED, None), Aim.END, False),
        (workload(Phase.FAILED), Aim.END, False),
    ],
)
def test_what_is_wanted(declared: Declared | None, aim: Aim, forget: bool) -> None:
    wish = wish_for(declared, 0, "n1")
    assert (wish.aim, wish.forget) == (aim, forget)


def test_a_replica_beyond_those_declared_ends_and_not_while_it_has_a_place() -> None:
    assert wish_for(workload(Phase.RUNNING), 1, "n1").aim is Aim.END
    placed = replace(workload(Phase.RUNNING), places={0: HERE, 1: Place(replica=1, node="n1", gpus=(1,))})
    assert wish_for(placed, 1, "n1").aim is Aim.RUN, "to take its place away is the governor's, behind the guards"


@pytest.mark.parametrize(
    ("wish", "now", "step"),
    [
        (RUN, Standing(), Step.START),
        (RUN, Standing(running=True, known=True, devices="0"), None),
        (RUN, Standing(running=True, known=True, devices="1"), Step.STOP),
        (RUN, Standing(running=True, known=True, devices=None), None),
        (RUN, Standing(running=True, known=True, devices="0", off=Off.YES), Step.RESUME),
        (RUN, Standing(running=True, known=True, devices="0", off=Off.LEAVING), Step.RESUME),
        (RUN, Standing(running=True, known=True, devices="1", off=Off.YES), Step.KILL),
        (RUN, Standing(known=True), None),
        (RUN, Standing(known=True, stopping=True), Step.START),
        (Wish(Aim.RUN, "", HERE, attempt=1), Standing(known=True), Step.START),
        (Wish(Aim.OFF, ""), Standing(running=True, known=True), Step.SUSPEND),
        (Wish(Aim.OFF, ""), Standing(running=True, known=True, off=Off.RETURNING), Step.SUSPEND),
        (Wish(Aim.OFF, ""), Standing(running=True, known=True, off=Off.YES), None),
        (Wish(Aim.OFF, "", by=Preemption.NEVER), Standing(running=True, known=True), Step.SUSPEND),
        (Wish(Aim.OFF, "", by=Preemption.RESTART), Standing(running=True, known=True), Step.STOP),
        (Wish(Aim.OFF, "", by=Preemption.CHECKPOINT), Standing(running=True, known=True), Step.STOP),
        (Wish(Aim.OFF, "", by=Preemption.RESTART), Standing(running=True, known=True, off=Off.YES), None),
        (Wish(Aim.END, ""), Standing(running=True, known=True), Step.STOP),
        (Wish(Aim.END, ""), Standing(running=True, known=True, off=Off.YES), Step.KILL),
        (Wish(Aim.END, "", forget=True), Standing(known=True), Step.FORGET),
        (Wish(Aim.END, ""), Standing(known=True), None),
        (Wish(Aim.OFF, ""), Standing(), None),
    ],
)
def test_the_next_step(wish: Wish, now: Standing, step: Step | None) -> None:
    assert next_step(wish, now, "0") is step


AFTER: dict[Step, dict[str, Any]] = {
    Step.START: {"running": True, "known": True, "off": Off.NO, "stopping": False, "devices": "0"},
    Step.SUSPEND: {"off": Off.YES},
    Step.RESUME: {"off": Off.NO},
    Step.STOP: {"running": False, "stopping": True, "off": Off.NO},
    Step.KILL: {"running": False, "stopping": True, "off": Off.NO},
}

standings = st.builds(
    Standing,
    running=st.booleans(),
    off=st.sampled_from(Off),
    known=st.booleans(),
    attempt=st.integers(0, 2),
    stopping=st.booleans(),
    devices=st.sampled_from(["0", "1", None]),
)
wishes = st.builds(
    Wish,
    st.sampled_from(Aim),
    st.just(""),
    place=st.just(HERE),
    attempt=st.integers(0, 2),
    by=st.sampled_from(Preemption),
    forget=st.booleans(),
)


@given(wish=wishes, now=standings)
def test_every_wish_is_reached_in_a_few_steps_and_then_nothing_is_done(wish: Wish, now: Standing) -> None:
    for _ in range(4):
        step = next_step(wish, now, "0")
        if step is None or step is Step.FORGET:
            break
        assert step is not Step.START or not now.running  # never doubled
        changes = AFTER[step] | ({"attempt": wish.attempt} if step is Step.START else {})
        now = Standing(**{name: getattr(now, name) for name in Standing.__struct_fields__} | changes)
    else:
        raise AssertionError(f"{wish} is not reached: {now}")
    if wish.aim is Aim.END:
        assert not now.running
    if wish.aim is Aim.OFF and now.running:
        assert now.off is Off.YES
    if wish.aim is Aim.RUN and now.running:
        assert now.off is Off.NO


def test_gpu_time_counts_only_while_it_runs() -> None:
    note = Note("default", "job", 0, ReplicaState.RUNNING, since=100.0, gpus=(0, 1), milli=500)
    note = note.turned(ReplicaState.SUSPENDED, 110.0)
    assert note.gpu_seconds == 10.0
    note = note.turned(ReplicaState.RUNNING, 500.0).turned(ReplicaState.RUNNING, 501.0, reason="still")
    assert (note.since, note.gpu_seconds) == (500.0, 10.0)
    assert note.turned(ReplicaState.EXITED, 502.0).gpu_seconds == 12.0


def test_no_phase_and_place_are_left_without_an_answer() -> None:
    for phase, place, mode in product(Phase, (HERE, THERE, None), Preemption):
        assert wish_for(workload(phase, place, mode), 0, "n1").why
