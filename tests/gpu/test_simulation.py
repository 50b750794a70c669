"""Random weeks on the simulator: what must never happen does not, whatever is submitted and whichever nodes fail.

`HOMEOSTAT_GPU_WEEKS` says how many weeks (8); `make gpu-weeks` runs a thousand.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Search
from hypothesis import strategies as st
from msgspec.structs import replace

from homeostat.gpu.decisions import Decision, Plan, Verb
from homeostat.gpu.governor import decide
from homeostat.gpu.kinds import WHOLE, Ageing, GpuPolicySpec, Preempting, TimeSharing
from homeostat.gpu.simulator import (
    BASELINES,
    Cluster,
    Job,
    Outage,
    Simulation,
    Timing,
    Trace,
    compare,
    even_cluster,
    generate,
    make_nodes,
    make_tenants,
    simulate,
    table,
)
from homeostat.gpu.simulator.engine import Scheduler
from homeostat.gpu.snapshot import NEVER, Mode, Phase

WEEKS = int(os.environ.get("HOMEOSTAT_GPU_WEEKS", "8"))
DAY = 86_400.0
TIMING = Timing(every=120.0, tick=1800.0)
PER_WORKLOAD = 3


def crowded(seed: int) -> tuple[Trace, Cluster]:
    """More than the fleet can do for days on end."""
    trace = generate(
        seed, jobs=90, tenants=3, seconds=2 * DAY, mean=5 * 3600.0, sizes=(250, 500, 1000, 1000, 2000, 4000, 8000)
    )
    return trace, even_cluster(trace.tenants, 4)


def outages(seed: int) -> list[Outage]:
    dice = Random(seed)
    starts = [dice.random() * 2 * DAY for _ in range(dice.randrange(3))]
    return [Outage(dice.randrange(4), start, start + dice.uniform(600, 20_000)) for start in starts]


class Watcher:
    """Looks at the fleet after every cycle."""

    def __init__(self) -> None:
        self.preempted: list[tuple[float, str, str]] = []

    def __call__(self, run: Simulation, plan: Plan) -> None:
        assert (run.free >= 0).all(), "a GPU is given to more than it has room for"
        for at, held in run.held.items():
            if run.rows["phase"][at] == Phase.RUNNING:
                assert len(set(held[:, 1])) == run.rows["replicas"][at], "a gang runs in part"
        holds = np.isin(run.rows["phase"], (Phase.RUNNING, Phase.SUSPENDING)) & run.here
        used = np.bincount(
            run.rows["tenant"][holds],
            weights=(run.rows["replicas"] * run.rows["milli"])[holds],
            minlength=len(run.cluster.tenants),
        )
        assert used.sum() <= run.cluster.tenants.nominal.sum(), "more is used than all quotas together"
        for decision in plan.of(Verb.PREEMPT):
            self.preempted.append((run.now, decision.subject, decision.beneficiary))

    def check(self) -> None:
        pairs = {(victim, rival) for _, victim, rival in self.preempted}
        assert not any((rival, victim) in pairs for victim, rival in pairs), "two workloads preempted each other"
        for uid, count in Counter(victim for _, victim, _ in self.preempted).items():
            times = sorted(when for when, victim, _ in self.preempted if victim == uid)
            crowd = max(sum(1 for other in times if when <= other < when + DAY) for when in times)
            assert crowd <= PER_WORKLOAD, f"{uid} was preempted {crowd} times in a day, {count} in all"


@settings(
    max_examples=WEEKS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Search.explicit, Search.reuse, Search.generate),
)
@given(seed=st.integers(0, 2**32), sharing=st.booleans(), lends=st.sampled_from([0.0, 0.5, 1.0]), defragment=st.booleans())
def test_no_week_breaks_an_invariant_and_everybody_gets_done(seed: int, sharing: bool, lends: float, defragment: bool) -> None:
    trace, fleet = crowded(seed)
    policy = GpuPolicySpec(
        time_sharing=TimeSharing(enabled=sharing, lends=lends),
        preemption=Preempting(per_workload=PER_WORKLOAD),
        ageing=Ageing(overdue_after=timedelta(hours=6)),
        defragment=defragment,
    )
    watcher = Watcher()
    result = simulate(trace, policy, fleet, timing=TIMING, outages=outages(seed), watch=watcher)
    watcher.check()
    assert result.finished == result.jobs, "somebody never got done"


def test_the_same_week_runs_the_same_way_twice() -> None:
    trace, fleet = crowded(3)
    assert simulate(trace, None, fleet, timing=TIMING) == simulate(trace, None, fleet, timing=TIMING)


def test_what_is_decided_by_a_moment_does_not_depend_on_how_long_the_work_of_that_moment_goes_on() -> None:
    trace = crowded(5)[0].changed(lambda job: replace(job, replicas=1, maximum=NEVER))
    fleet = even_cluster(trace.tenants, 1)
    policy, half = GpuPolicySpec(time_sharing=TimeSharing(enabled=True, lends=0.5), defragment=True), 1.5 * DAY
    for scheduler in (decide, *BASELINES.values()):
        first, again = (_decided(other, fleet, policy, scheduler, half) for other in (trace, _longer(trace, fleet, policy, scheduler, half)))
        assert first == again
        assert len(first) > 20


def _longer(trace: Trace, fleet: Cluster, policy: GpuPolicySpec, scheduler: Scheduler, until: float) -> Trace:
    """The same with three times the duration for all that is not done by then."""
    run = Simulation(trace, fleet, policy, scheduler, TIMING)
    run.run(until)
    done = {run.uids[at] for at in np.flatnonzero(~np.isnan(run.meter.finished)).tolist()}
    return trace.changed(lambda job: job if job.uid in done else replace(job, duration=3 * job.duration))


def _decided(trace: Trace, fleet: Cluster, policy: GpuPolicySpec, scheduler: Scheduler, until: float) -> list[tuple[float, Decision]]:
    found: list[tuple[float, Decision]] = []
    run = Simulation(trace, fleet, policy, scheduler, TIMING, watch=lambda run, plan: found.extend((run.now, made) for made in plan.decisions))
    run.run(until)
    return found


def test_a_large_gang_is_not_starved_by_a_stream_of_small_work() -> None:
    small = [Job(f"small-{i:04}", "a", i * 200.0, 3000.0) for i in range(1500)]
    trace = Trace("stream", (*small, Job("zz-gang", "a", 4000.0, 3600.0, 2, 8 * WHOLE)))
    fleet = even_cluster(["a"], 2)
    policy = GpuPolicySpec(preemption=Preempting(enabled=False), ageing=Ageing(overdue_after=timedelta(hours=6)))
    result = simulate(trace, policy, fleet, timing=TIMING)
    assert result.longest_stretch < 8 * 3600


def test_work_survives_the_loss_of_its_node() -> None:
    trace = Trace("one", (Job("w", "a", 0.0, 7200.0, 1, 8 * WHOLE),))
    result = simulate(
        trace, None, even_cluster(["a"], 3), timing=Timing(every=10.0), outages=[Outage(0, 3600.0, 90_000.0)]
    )
    assert result.finished == 1
    assert 7200 + 600 < result.makespan < 7200 + 600 + 40 + 30  # what was not written down, the lease, two cycles


@pytest.mark.parametrize("replicas", [1, 2])
def test_work_goes_on_where_its_nodes_are_back_before_they_are_missed(replicas: int) -> None:
    trace = Trace("one", (Job("w", "a", 0.0, 7200.0, replicas, 8 * WHOLE),))
    away = [Outage(node, 3600.0, 3620.0) for node in range(3)]
    result = simulate(trace, None, even_cluster(["a"], 3), timing=Timing(every=10.0), outages=away)
    assert result.finished == 1
    assert result.makespan == pytest.approx(7200 + 600 + 20, abs=30)  # what was not written down, and the time that they were away


def test_what_was_lost_with_a_node_is_not_lost_again_with_the_next() -> None:
    trace = Trace("one", (Job("w", "a", 0.0, 7200.0, 1, 8 * WHOLE, mode=Mode.RESTART),))
    away = [Outage(node, start, start + 20.0) for start in (3600.0, 4000.0) for node in range(3)]
    result = simulate(trace, None, even_cluster(["a"], 3), timing=Timing(every=10.0), outages=away)
    assert result.makespan == pytest.approx(4020 + 7200, abs=30)


def test_tenants_that_want_more_than_there_is_get_equal_parts() -> None:
    jobs = [Job(f"{of}-{i:03}", of, 0.0, 3600.0) for of, count in (("a", 400), ("b", 100)) for i in range(count)]
    result = simulate(Trace("two", tuple(jobs)), None, even_cluster(["a", "b"], 2), timing=TIMING)
    assert result.fairness > 0.999
    unfair = simulate(
        Trace("two", tuple(jobs)), None, even_cluster(["a", "b"], 2), scheduler=BASELINES["fifo"], timing=TIMING
    )
    assert unfair.fairness < 0.95


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_the_others_run_on_the_same_simulator(name: str) -> None:
    trace, fleet = crowded(1)
    result = simulate(
        trace.changed(lambda job: replace(job, milli=min(job.milli, 8 * WHOLE))),
        None,
        fleet,
        scheduler=BASELINES[name],
        timing=TIMING,
    )
    assert result.finished == result.jobs


def test_compared_side_by_side_ours_waits_less_and_is_fairer() -> None:
    trace = generate(
        6,
        jobs=400,
        tenants=5,
        seconds=2 * DAY,
        mean=2 * 3600.0,
        sizes=(1000, 1000, 1000, 2000, 4000, 8000),
        gangs=False,
    )
    trace = trace.changed(lambda job: replace(job, mode=Mode.CHECKPOINT, priority=0, maximum=NEVER))
    fleet = even_cluster(trace.tenants, 5)
    policy = GpuPolicySpec(
        time_sharing=TimeSharing(enabled=True),
        preemption=Preempting(per_hour=600, per_workload=20),
        ageing=Ageing(overdue_after=timedelta(hours=6)),
        defragment=True,
    )
    results = compare(trace, fleet, {"ours": policy}, timing=TIMING)
    ours = results.pop("ours")
    assert ours.starved == 0
    assert all(ours.wait_mean < other.wait_mean for other in results.values()), table(results | {"ours": ours})
    assert all(ours.fairness >= other.fairness for other in results.values()), table(results | {"ours": ours})


def test_the_governor_is_what_simulates() -> None:
    assert Simulation(*crowded(1), GpuPolicySpec()).scheduler is decide


def test_what_is_held_costs_what_its_node_costs() -> None:
    nodes = make_nodes([8, 8], model=[0, 1])
    nodes.cost[:] = (80.0, 8.0)
    fleet = Cluster(["dear", "cheap"], nodes, make_tenants(["a"], np.array([16 * WHOLE]), models=2))
    for model, hourly in (("dear", 80.0), ("cheap", 8.0)):
        trace = Trace("t", (Job("j", "a", 0.0, 3600.0, milli=8 * WHOLE, models=(model,)),))
        assert simulate(trace, None, fleet).cost == pytest.approx(hourly)


def test_what_is_all_submitted_at_once_is_looked_at_to_its_end() -> None:
    trace = Trace("t", tuple(Job(f"j{i}", "a", 0.0, 3600.0, milli=8 * WHOLE) for i in range(4)))
    found = simulate(trace, None, even_cluster(["a"], 2))
    assert found.finished == 4
    assert 0.9 < found.utilisation <= 1.0
