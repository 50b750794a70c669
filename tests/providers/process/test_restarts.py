"""What follows when a replica ends: restarts with a growing wait, or none; and what probes say."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.providers.process.world import Hand, kill, one_each, replicas, spec_of

from homeostat.providers.process import Process
from homeostat.providers.process.kind import Restart
from homeostat.providers.process.places import Place, Seat, after_end, place_of, wait_after
from homeostat.providers.process.record import Ended, Identity, Replica

DIGEST = "d" * 64


def replica(**fields: object) -> Replica:
    return Replica(f"{'d' * 16}-1", Identity(1, 1, "b"), began=100.0, through=True).but(**fields)


@pytest.mark.parametrize(
    ("policy", "status", "place"),
    [
        ("Always", 0, Place.DUE),
        ("Always", 1, Place.DUE),
        ("OnFailure", 0, Place.DONE),
        ("OnFailure", -9, Place.DUE),
        ("OnFailure", None, Place.DUE),
        ("Never", 0, Place.DONE),
        ("Never", 1, Place.FAILED),
        ("Never", None, Place.FAILED),
    ],
)
def test_the_policy_says_what_follows_an_end(policy: str, status: int | None, place: Place) -> None:
    restart = Restart(policy=policy)  # type: ignore[arg-type]
    ended = after_end(replica(), status, restart, now=200.0)
    assert place_of(Seat(ended), DIGEST, restart, now=200.0) is place


def test_crashes_in_a_row_wait_longer_each_time_up_to_a_limit() -> None:
    restart = Restart(first_seconds=1, most_seconds=10)
    assert [wait_after(crashes, restart) for crashes in range(1, 8)] == [0, 1, 2, 4, 8, 10, 10]
    assert wait_after(10**6, restart) == 10


def test_one_that_ran_long_enough_begins_anew() -> None:
    restart = Restart(stable_seconds=10)
    assert after_end(replica(crashes=7), 1, restart, now=109.9).crashes == 8
    assert after_end(replica(crashes=7), 1, restart, now=110.0).crashes == 1


def test_an_end_that_we_asked_for_is_no_crash() -> None:
    ended = after_end(replica(stopping=True), -15, Restart(), now=101.0)
    assert ended.crashes == 0
    assert place_of(Seat(ended), DIGEST, Restart(), now=101.0) is Place.VACANT


def test_one_that_waits_is_due_when_its_time_has_come() -> None:
    waiting = replica(ended=Ended(100.0, 1), crashes=3, retry_at=102.0)
    assert place_of(Seat(waiting), DIGEST, Restart(), now=101.9) is Place.WAITING
    assert place_of(Seat(waiting), DIGEST, Restart(), now=102.0) is Place.DUE


def test_a_clock_that_is_set_back_by_hours_keeps_nothing_waiting_for_hours() -> None:
    waiting = replica(ended=Ended(10_000.0, 1), crashes=3, retry_at=10_002.0)
    assert place_of(Seat(waiting), DIGEST, Restart(), now=10_001.0) is Place.WAITING
    assert place_of(Seat(waiting), DIGEST, Restart(), now=2_801.0) is Place.DUE


def test_another_definition_is_outdated_whether_it_runs_or_not() -> None:
    for seat in (Seat(replica(), running=True), Seat(replica(ended=Ended(1.0, 0)))):
        assert place_of(seat, "e" * 64, Restart(policy="Never"), now=200.0) is Place.OUTDATED


async def test_a_crash_loop_is_reported_and_not_hammered(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(command=["sh", "-c", "echo started; exit 7"], restart={"firstSeconds": 0.3})
    await hand.apply(spec)
    await hand.until(spec, lambda state: state.replicas == 0)  # the first crash is followed at once
    await hand.apply(spec)
    state = await hand.until(spec, lambda state: state.replicas == 1 and state.ready == 0)
    assert state.restarts == 1
    assert not await hand.diff(spec)
    words = await hand.unhealthy(spec)
    assert "replica 0 crashed 2 times in a row (exit status 7); it is not started again before" in words
    await hand.until(spec, lambda state: state.replicas == 0)  # a hint comes when it is due
    await hand.apply(spec)
    await hand.until(spec, lambda state: state.replicas == 1 and state.ready == 0)
    assert "crashed 3 times" in await hand.unhealthy(spec)
    assert (tmp_path / hand.ref.uid / "0.out").read_text() == "started\n" * 3


async def test_a_crash_loop_is_remembered_by_the_next_control_plane(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(command=["false"], restart={"firstSeconds": 60})
    for _ in range(2):
        await hand.apply(spec)
        await hand.until(spec, lambda state: state.ready == 0)
    await hand.provider.close()
    hand.provider = Process(tmp_path, allowed=True)
    assert not await hand.diff(spec)
    assert "crashed 2 times" in await hand.unhealthy(spec)


async def test_what_is_done_is_done_also_after_a_restart(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(command=["sh", "-c", "echo once"], restart={"policy": "OnFailure"})
    await hand.apply(spec)
    await hand.until(spec, lambda state: state.ready == 0)
    assert not await hand.diff(spec)
    assert await hand.unhealthy(spec) == ""
    await hand.provider.close()
    hand.provider = Process(tmp_path, allowed=True)
    assert not await hand.diff(spec)
    again = spec_of(command=["sh", "-c", "echo twice"], restart={"policy": "OnFailure"})
    assert {change.path for change in (await hand.diff(again)).changes} == {("command",)}
    await hand.apply(again)
    await hand.until(again, lambda state: state.ready == 0)
    assert (tmp_path / hand.ref.uid / "0.out").read_text() == "once\ntwice\n"


async def test_never_means_never_and_says_how_it_ended(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(command=["sh", "-c", "exit 5"], restart={"policy": "Never"})
    await hand.apply(spec)
    await hand.until(spec, lambda state: state.ready == 0)
    assert not await hand.diff(spec)
    assert "replica 0 ended badly (exit status 5), and restart is Never" in await hand.unhealthy(spec)


async def test_readiness_is_counted_and_turns_with_the_probe(hand: Hand, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    probe = {
        "exec": {"command": ["sh", "-c", f"test -e {flag}.$HOMEOSTAT_INDEX"]},
        "periodSeconds": 0.02,
        "failureThreshold": 1,
    }
    spec = spec_of(replicas=2, readiness=probe)
    await hand.converge(spec)
    assert "replica 0 is not ready" in await hand.unhealthy(spec)
    Path(f"{flag}.1").touch()
    await hand.until(spec, lambda state: state.ready == 1)
    Path(f"{flag}.0").touch()
    await hand.until(spec, lambda state: state.ready == 2)
    assert await hand.unhealthy(spec) == ""
    while '"ready":true' not in (tmp_path / hand.ref.uid / "0.json").read_text():
        await asyncio.sleep(0.005)
    await hand.provider.close()
    hand.provider = Process(tmp_path, allowed=True)
    state = await hand.observe(spec)
    assert state.ready == 2  # type: ignore[union-attr]  # known from before, until the probe says otherwise
    Path(f"{flag}.0").unlink()
    await hand.until(spec, lambda state: state.ready == 1)


async def test_one_that_is_not_alive_is_drift_and_is_replaced(hand: Hand, tmp_path: Path) -> None:
    sick = tmp_path / "sick"
    probe = {"exec": {"command": ["sh", "-c", f"! test -e {sick}"]}, "periodSeconds": 1.0, "failureThreshold": 1}
    spec = spec_of(replicas=2, liveness=probe)  # a second, so that none is well again before it is replaced
    await hand.converge(spec)
    before = one_each(tmp_path, 2)
    sick.touch()
    await hand.until(spec, lambda state: state.replicas == 0)
    assert one_each(tmp_path, 2) == before  # seen, and not yet acted on
    sick.unlink()
    await hand.converge(spec)
    after = one_each(tmp_path, 2)
    assert not set(before.values()) & set(after.values())
    assert (await hand.observe(spec)).restarts == 2  # type: ignore[union-attr]


async def test_an_adopted_one_that_fails_is_known_to_have_failed(tmp_path: Path) -> None:
    """Started by a process that is no more: its end is not ours to wait for, and yet the kernel tells how it was."""
    import subprocess
    import sys

    starter = f"""
import asyncio
from pathlib import Path
from homeostat.providers.process import Process
from tests.providers.process.world import Hand, spec_of
hand = Hand(Process({str(tmp_path)!r}, allowed=True))
asyncio.run(hand.apply(spec_of(command=["sh", "-c", "while test ! -e {tmp_path}/end; do sleep 0.01; done; exit 9"], restart={{"policy": "Never"}})))
"""
    subprocess.run([sys.executable, "-c", starter], check=True, timeout=20)
    hand = Hand(Process(tmp_path, allowed=True))
    spec = spec_of(
        command=["sh", "-c", f"while test ! -e {tmp_path}/end; do sleep 0.01; done; exit 9"],
        restart={"policy": "Never"},
    )
    assert not await hand.diff(spec)
    one_each(tmp_path, 1)
    (tmp_path / "end").touch()
    await hand.until(spec, lambda state: state.ready == 0)
    assert "ended badly" in await hand.unhealthy(spec)
    assert replicas(tmp_path) == {}
    await hand.delete(spec)
    await hand.provider.close()


async def test_kills_far_apart_are_each_followed_at_once(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(restart={"stableSeconds": 0})
    await hand.converge(spec)
    for _ in range(5):
        kill(one_each(tmp_path, 1)[0])
        await hand.until(spec, lambda state: state.replicas == 0)
        await hand.converge(spec)
    assert (await hand.observe(spec)).restarts == 5  # type: ignore[union-attr]
