"""Storms over the whole GPU service by seed: the governor under the gate, agents and machines, with crashes of all of them.

HOMEOSTAT_SIM_GPU_SEEDS says how many (default 40).
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest
from tests.sim import gpu_bugs as bugs
from tests.sim.again import printed

from homeostat.sim.gpu import GpuStorm, run
from homeostat.sim.gpu.machine import Wear
from homeostat.sim.gpu.storm import CUT, GpuWeathering
from homeostat.sim.network import FINE

SEEDS = int(os.environ.get("HOMEOSTAT_SIM_GPU_SEEDS", "40"))
BATCH = 10

CROWDED = GpuStorm(
    seconds=60,
    machines=(4, 4, 2),
    nominal=4,
    jobs=20,
    settings={"every": "5s", "preemption": {"perHour": 60, "perWorkload": 3}},
    policy={"cap": 1, "massDrift": {"limit": "100%"}},
    weather=FINE,
    far=FINE,
    wear=Wear(),
    pause=1.0,
)
"""More is asked for than there is, and quotas go up and down."""
FORGETFUL = replace(CROWDED, settings={"every": "5s", "preemption": {"perHour": 2, "perWorkload": 1}}, crashes=(300, 500, 700))
"""Few may be taken off GPUs, and who counts them dies."""


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
@pytest.mark.timeout(600)
def test_whatever_fails_nothing_is_over_committed_lost_or_run_twice_and_all_work_gets_done(first: int) -> None:
    failed = [str(report) for seed in range(first, min(first + BATCH, SEEDS)) if not (report := run(seed)).fine]
    assert not failed, "\n".join(failed)


def test_what_could_not_be_told_of_for_a_while_is_looked_at_again_though_it_waits_or_has_ended() -> None:
    assert run(143).fine  # else the loop suspects its observer for ever


def test_a_machine_that_is_heard_of_again_ends_at_once_what_was_begun_elsewhere() -> None:
    took: list[float] = []

    async def cut_off(weathering: GpuWeathering) -> None:
        hall = weathering.hall
        await hall.submit("job", {"tenant": "solo", "preemption": {"mode": "Restart", "grace": "1s"}, "command": ["/bin/sleep", "0", "0"]})
        await asyncio.sleep(5.0)
        (first,) = [one for one in hall.stations.values() if list(one.machine.alive())]
        first.machine.weather = CUT
        if first.network is not None:
            first.network.cut()
        while sum(len(list(one.machine.alive())) for one in hall.stations.values()) < 2:
            await asyncio.sleep(1.0)  # until it runs elsewhere as well
        await asyncio.sleep(60.0)  # all that failed is tried every half a minute by now
        first.machine.weather = FINE
        while hall.witness.silent(first.machine.name):
            await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        while list(first.machine.alive()):
            await asyncio.sleep(0.1)
        took.append(asyncio.get_running_loop().time() - began)

    quiet = replace(CROWDED, seconds=0, machines=(2, 2, 2), jobs=0)
    assert all(run(seed, quiet, cut_off).fine for seed in range(4))
    assert max(took) < 3.0  # of which one is its grace


TRACES = """
import logging
logging.disable(logging.CRITICAL)
from homeostat.sim.gpu import run
for seed in (3, 4):
    print(run(seed))
"""


def test_a_seed_gives_the_same_again_in_another_process_with_other_hashes() -> None:
    told = printed(TRACES)
    assert len(told) == 1, "\n".join(told)
    assert "trace" in told.pop()


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bugs.it_places_half_a_gang(monkeypatch)
    failed = next(report for seed in range(20) if not (report := run(seed, CROWDED)).fine)
    assert f"python -m homeostat.sim --gpu --seed {failed.seed}\n" in str(failed)


CAUGHT: dict[bugs.Bug, tuple[tuple[int, ...], GpuStorm | None]] = {
    bugs.it_never_takes_a_node_for_lost: (tuple(range(10)), replace(CROWDED, acts=("perish",) * 3)),
    bugs.it_reads_a_quota_once: (tuple(range(10)), CROWDED),
    bugs.it_places_half_a_gang: (tuple(range(10)), CROWDED),
    bugs.it_loses_its_memory_when_it_dies: ((1, 9, 13), FORGETFUL),
    bugs.it_tells_what_it_had_only_meant_to_do: ((31, 53, 62), None),
    bugs.it_does_not_wait_for_who_has_to_leave: ((42, 89), None),
    bugs.it_takes_back_what_living_machines_reported: (tuple(range(10)), replace(CROWDED, acts=("drain",) * 3, wear=Wear(slow_end=10.0))),
    bugs.it_forgets_how_processes_ended_while_no_agent_was_there: ((124, 254), None),
    bugs.it_waits_for_ever_for_where_its_state_lies: ((282, 307, 427, 535), None),
}
"""Which seeds to look in for each bug, and in which storm."""


@pytest.mark.parametrize("bug", CAUGHT, ids=lambda bug: bug.__name__)
@pytest.mark.timeout(300)
def test_a_known_bug_is_found(bug: bugs.Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds, storm = CAUGHT[bug]
    bug(monkeypatch)
    assert any(not run(seed, storm).fine for seed in seeds)
