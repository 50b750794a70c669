"""Storms over the whole GPU service by seed: the governor under the gate, agents and machines, with crashes of all of them.

HOMEOSTAT_SIM_GPU_SEEDS says how many (default 40).
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from msgspec.structs import replace
from tests.sim import gpu_bugs as bugs
from tests.sim.again import printed

from homeostat.sim.gpu import GpuStorm, run
from homeostat.sim.gpu.blocked import is_blocked
from homeostat.sim.gpu.machine import Wear
from homeostat.sim.gpu.storm import CUT, GpuWeathering
from homeostat.sim.gpu.witness import WORKLOADS
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


def test_a_machine_that_is_back_and_the_governor_do_not_take_turns_in_a_report() -> None:
    """What was taken out of its reports, for it was lost, it tells again: from that on it is heard, and no longer lost."""
    assert run(130146).fine


def _job(name: str, command: str = "0", **spec: Any) -> dict[str, Any]:
    of = {"tenant": "red", "priority": 0, "preemption": {"mode": "Never"}, "command": ["/bin/sleep", command, "0"], **spec}
    return {"metadata": {"name": name}, "spec": of, "status": {"assignment": [{"node": name, "gpus": [0]}]}}


def test_nobody_is_asked_to_place_what_work_that_never_ends_lies_in_the_way_of() -> None:
    machines, gang = {"a": 2, "b": 2, "c": 2}, _job("gang", "9", replicas=2, resources={"gpus": 2}, tenant="blue", priority=50)

    def blocked(*running: dict[str, Any], tidies: bool = False, waits: dict[str, Any] = gang) -> bool:
        return is_blocked(waits, running, machines, tidies=tidies)

    assert blocked(_job("a"), _job("b"))
    assert not blocked(_job("a"))
    assert not blocked(_job("a"), _job("b", "60"))
    assert not blocked(_job("a"), _job("b", preemption={"mode": "Suspend"}, tenant="blue"))
    assert blocked(_job("a"), _job("b", preemption={"mode": "Checkpoint"}))
    assert not blocked(_job("a"), _job("b", preemption={"mode": "Checkpoint"}), tidies=True)
    assert not blocked(_job("a"), _job("b"), waits=_job("half", "9", replicas=8, resources={"gpus": "0.5"}))
    assert run(40329).fine


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


def test_what_can_never_be_suspended_runs_on_and_others_make_room() -> None:
    took: list[float] = []

    async def insist(weathering: GpuWeathering) -> None:
        hall = weathering.hall
        await hall.submit("job", {"tenant": "solo", "preemption": {"mode": "Suspend"}, "command": ["/bin/sleep", "0", "0"]})
        await asyncio.sleep(5.0)
        (process,) = [one for station in hall.stations.values() for one in station.machine.alive()]
        await hall.edit("job", {"suspended": True})
        began = asyncio.get_running_loop().time()
        while (hall.witness.objects[WORKLOADS]["job"]["status"].get("decision") or {}).get("verb") != "keep":
            await asyncio.sleep(0.1)
        took.append(asyncio.get_running_loop().time() - began)
        assert process.on_gpu

    stuck = replace(CROWDED, wear=Wear(stuck=1.0))
    assert all(run(seed, replace(stuck, seconds=0, jobs=0), insist).fine for seed in range(2))
    assert max(took) < 30.0
    assert all((report := run(seed, stuck)).fine and report.preemptions for seed in (1, 3))


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


async def its_gpus_are_taken_for_good(weathering: GpuWeathering) -> None:
    """One is suspended with its state; others that never end get its GPUs, and only elsewhere is one free when it may go on."""
    hall, never = weathering.hall, {"preemption": {"mode": "Never"}, "command": ["/bin/sleep", "0", "0"]}

    def places(name: str) -> list[dict[str, Any]]:
        return (hall.witness.objects[WORKLOADS][name].get("status") or {}).get("assignment") or []

    await hall.submit("job", {"tenant": "red", "priority": 0, "preemption": {"mode": "Suspend"}, "command": ["/bin/sleep", "60", "0"]})
    await asyncio.sleep(10.0)
    await hall.edit("job", {"suspended": True})
    await asyncio.sleep(10.0)
    (home,) = places("job")
    for number in range(4):
        await hall.submit(f"other-{number}", {"tenant": "red", "priority": 0, **never})
    await asyncio.sleep(20.0)
    await hall.withdraw(next(f"other-{number}" for number in range(4) if places(f"other-{number}")[0]["node"] != home["node"]))
    await asyncio.sleep(10.0)


STORIES = {bugs.it_waits_for_ever_for_where_its_state_lies: its_gpus_are_taken_for_good}
"""What happens first, where a bug needs it."""
CAUGHT: dict[bugs.Bug, tuple[tuple[int, ...], GpuStorm | None]] = {
    bugs.it_never_takes_a_node_for_lost: (tuple(range(1, 11)), replace(CROWDED, acts=("perish",) * 3)),
    bugs.it_reads_a_quota_once: (tuple(range(1, 11)), CROWDED),
    bugs.it_places_half_a_gang: (tuple(range(10)), CROWDED),
    bugs.it_loses_its_memory_when_it_dies: ((9, 13, 1), FORGETFUL),
    bugs.it_tells_what_it_had_only_meant_to_do: ((53, 62, 31), None),
    bugs.it_does_not_wait_for_who_has_to_leave: ((42, 89), None),
    bugs.it_takes_back_what_living_machines_reported: (tuple(range(2, 12)), replace(CROWDED, acts=("drain",) * 3, wear=Wear(slow_end=10.0))),
    bugs.it_forgets_how_processes_ended_while_no_agent_was_there: ((124, 254), None),
    bugs.it_lets_tenants_go_while_their_work_runs: (tuple(range(10)), replace(CROWDED, acts=("dismiss",) * 3)),
    bugs.it_waits_for_ever_for_where_its_state_lies: ((0,), replace(CROWDED, seconds=0, machines=(2, 2), jobs=0)),
}
"""Which seeds to look in for each bug, and in which storm."""


@pytest.mark.parametrize("bug", CAUGHT, ids=lambda bug: bug.__name__)
@pytest.mark.timeout(300)
def test_a_known_bug_is_found(bug: bugs.Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds, storm = CAUGHT[bug]
    story = STORIES.get(bug)
    assert story is None or all((report := run(seed, storm, story)).fine for seed in seeds), str(report)
    bug(monkeypatch)
    found = next((report for seed in seeds if not (report := run(seed, storm, story)).fine), None)
    assert found is not None
    assert "Traceback" not in str(found)  # it did wrong, and did not merely break
