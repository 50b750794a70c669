"""Replicas of real commands: started, ended, replaced, limited, and found again."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.providers.process.world import REF, SLEEP, Hand, gone, kill, one_each, python, replicas, spec_of

from homeostat.loop.fleet import Op
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Refused
from homeostat.providers.process import Process, kernel, launch, record
from homeostat.providers.process.record import Identity, Mark


async def test_so_many_replicas_run_as_are_declared(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(replicas=3)
    assert await hand.observe(spec) is ABSENT
    await hand.converge(spec)
    one_each(tmp_path, 3)
    state = await hand.observe(spec)
    assert not isinstance(state, Absent)
    assert (state.replicas, state.ready, state.restarts) == (3, 3, 0)


async def test_what_is_as_declared_is_left_alone(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(replicas=2)
    await hand.converge(spec)
    before = one_each(tmp_path, 2)
    await hand.apply(spec)
    assert one_each(tmp_path, 2) == before


async def test_the_count_goes_up_and_down_and_the_highest_go_first(hand: Hand, tmp_path: Path) -> None:
    await hand.converge(spec_of(replicas=2))
    two = one_each(tmp_path, 2)
    await hand.converge(spec_of(replicas=4))
    four = one_each(tmp_path, 4)
    assert {index: four[index] for index in two} == two
    diff = await hand.diff(spec_of(replicas=1))
    assert [(change.path, change.old, change.new) for change in diff.changes] == [(("replicas",), 4, 1)]
    await hand.converge(spec_of(replicas=1))
    assert one_each(tmp_path, 1) == {0: two[0]}
    await hand.converge(spec_of(replicas=0))
    assert replicas(tmp_path) == {}


async def test_one_that_is_killed_is_noticed_and_put_back(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(replicas=3)
    await hand.converge(spec)
    before = one_each(tmp_path, 3)
    kill(before[1])
    state = await hand.until(spec, lambda state: state.replicas == 2)
    assert state.ready == 2
    await hand.converge(spec)
    after = one_each(tmp_path, 3)
    assert after[1] != before[1]
    assert (after[0], after[2]) == (before[0], before[2])
    assert (await hand.observe(spec)).restarts == 1  # type: ignore[union-attr]
    assert kernel.stat_of(before[1]) is None  # reaped


async def test_a_new_definition_goes_out_one_by_one(hand: Hand, tmp_path: Path) -> None:
    await hand.converge(spec_of(replicas=3))
    before = one_each(tmp_path, 3)
    new = spec_of(replicas=3, env={"COLOUR": "blue"})
    diff = await hand.diff(new)
    assert {change.path[0] for change in diff.changes} == {"env"}
    fewest = 3

    async def count() -> None:
        nonlocal fewest
        while True:
            fewest = min(fewest, len(replicas(tmp_path)))
            await asyncio.sleep(0.002)

    counting = asyncio.create_task(count())
    await hand.converge(new)
    counting.cancel()
    after = one_each(tmp_path, 3)
    assert not set(after.values()) & set(before.values())
    assert fewest == 2
    assert b"COLOUR=blue" in Path(f"/proc/{after[0]}/environ").read_bytes()


async def test_a_broken_definition_stops_at_the_first_replica(hand: Hand, tmp_path: Path) -> None:
    await hand.converge(spec_of(replicas=3))
    before = one_each(tmp_path, 3)
    broken = spec_of(replicas=3, command=["sh", "-c", "exit 3"])
    with pytest.raises(RuntimeError, match=r"replica 0 did not stay up .*exit status 3"):
        await hand.apply(broken)
    assert {index: pids[0] for index, pids in replicas(tmp_path).items()} == {1: before[1], 2: before[2]}
    with pytest.raises(RuntimeError, match="replica 0"):
        await hand.apply(broken)  # and again: still no other is touched
    assert set(replicas(tmp_path)) == {1, 2}
    await hand.converge(spec_of(replicas=3, command=["sleep", "2000"]))
    one_each(tmp_path, 3)


async def test_the_roll_waits_for_readiness(hand: Hand, tmp_path: Path) -> None:
    await hand.converge(spec_of(replicas=2))
    before = one_each(tmp_path, 2)
    never = {"exec": {"command": ["false"]}, "periodSeconds": 0.02, "failureThreshold": 1}
    new = spec_of(replicas=2, command=["sleep", "2000"], readiness=never, readyWithinSeconds=0.2)
    with pytest.raises(RuntimeError, match=r"not ready within 0\.2 s"):
        await hand.apply(new)
    assert one_each(tmp_path, 2)[1] == before[1]


async def test_deleting_ends_all_and_leaves_no_file(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(replicas=3)
    await hand.converge(spec)
    await hand.delete(spec)
    assert replicas(tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    await hand.delete(spec)


async def test_it_is_asked_to_end_before_it_is_killed(hand: Hand, tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = f"""
import signal, sys, time
def end(*_):
    open({str(said)!r}, "w").write("goodbye"); sys.exit()
signal.signal(signal.SIGUSR1, end)
print("up", flush=True)
time.sleep(1000)
"""
    spec = spec_of(command=python(code), stopSignal="SIGUSR1")
    await hand.converge(spec)
    await _says(tmp_path, "0.out", "up")
    await hand.delete(spec)
    assert said.read_text() == "goodbye"


async def test_one_that_will_not_end_is_killed_with_all_it_started(hand: Hand, tmp_path: Path) -> None:
    script = 'trap "" TERM; sleep 1000 & (setsid sleep 1001 & echo $!) & env -i sleep 1002 & echo $!; wait; wait; wait'
    spec = spec_of(command=["sh", "-c", script], gracefulSeconds=0.1)
    await hand.converge(spec)
    started = [int(pid) for pid in (await _says(tmp_path, "0.out", "\n", lines=2)).split()]
    await hand.delete(spec)
    assert all(gone(pid) for pid in started)


async def test_what_a_dead_replica_left_behind_does_not_run_beside_the_next(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(command=["sh", "-c", "sleep 1000 & echo $!; wait"])
    await hand.converge(spec)
    left = int(await _says(tmp_path, "0.out", "\n"))
    kill(one_each(tmp_path, 1)[0])
    await hand.until(spec, lambda state: state.replicas == 0)
    assert not gone(left)
    await hand.converge(spec)
    assert gone(left)


async def test_it_has_its_limits_its_place_and_nothing_of_our_environment(hand: Hand, tmp_path: Path) -> None:
    os.environ["HOMEOSTAT_TEST_SECRET"] = "do not pass on"
    code = """
import os, resource
print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_AS)[0], os.nice(0), os.getcwd())
print(os.getsid(0) == os.getpid(), os.path.realpath("/proc/self/fd/0"), sorted(os.listdir("/proc/self/fd")))
print(sorted(set(os.environ) - {"LC_CTYPE", "PWD"}), flush=True)
import time; time.sleep(1000)
"""
    limits = {"openFiles": 77, "addressSpace": "1Gi", "nice": 5}
    try:
        await hand.converge(spec_of(command=python(code), env={"A": "1"}, workingDir="/usr", limits=limits))
    finally:
        del os.environ["HOMEOSTAT_TEST_SECRET"]
    first, second, third = (await _says(tmp_path, "0.out", "\n", lines=3)).splitlines()
    assert first == f"(77, 77) {1024**3} 5 /usr"
    assert second == "True /dev/null ['0', '1', '2', '3']"  # 3 is the list of descriptors itself
    assert third == "['A', 'HOMEOSTAT_INDEX', 'HOMEOSTAT_REPLICA', 'PATH']"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run processes as others")
async def test_root_may_run_it_as_another_user(hand: Hand, tmp_path: Path) -> None:
    await hand.converge(spec_of(user="nobody"))
    status = Path(f"/proc/{one_each(tmp_path, 1)[0]}/status").read_text()
    assert "Uid:\t65534\t65534" in status


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"command": ["no-such-program"]}, "no-such-program is not a program"),
        ({"command": ["/etc/passwd"]}, "not executable"),
        ({"workingDir": "/no/such/place"}, "/no/such/place does not exist"),
        ({"user": "no-such-user"}, "no-such-user"),
        ({"env": {"a-b": "1"}}, "'a-b' cannot be the name"),
        ({"env": {"HOMEOSTAT_REPLICA": "1"}}, "HOMEOSTAT_REPLICA"),
        ({"readiness": {"exec": {"command": ["no-such-probe"]}}}, "no-such-probe"),
    ],
)
async def test_what_cannot_be_started_is_refused_in_words(hand: Hand, tmp_path: Path, fields: dict, words: str) -> None:
    with pytest.raises(Refused, match=words):
        await hand.apply(spec_of(**fields))
    assert replicas(tmp_path) == {}


async def test_nothing_runs_until_it_is_allowed(tmp_path: Path) -> None:
    hand = Hand(Process(tmp_path))
    with pytest.raises(Refused, match="--allow process"):
        await hand.apply(spec_of())
    assert await hand.observe(spec_of()) is ABSENT
    await hand.provider.close()


async def test_only_commands_from_allowed_folders_run_also_behind_links(tmp_path: Path) -> None:
    bin_, state = tmp_path / "bin", tmp_path / "state"
    bin_.mkdir()
    (bin_ / "mine").write_text("#!/bin/sh\nexec sleep 1000\n")
    (bin_ / "mine").chmod(0o755)
    (bin_ / "link").symlink_to("/bin/sleep")
    hand = Hand(Process(state, allowed=[bin_]))
    for command in (["sleep", "1"], [str(bin_ / "link"), "1"], [str(bin_ / ".." / ".." / "bin" / "sleep"), "1"]):
        with pytest.raises(Refused, match=r"not allowed|not a program"):
            await hand.apply(spec_of(command=command))
    with pytest.raises(Refused, match="not allowed"):
        await hand.apply(spec_of(command=[str(bin_ / "mine")], liveness={"exec": {"command": ["true"]}}))
    assert replicas(state) == {}
    spec = spec_of(command=[str(bin_ / "mine")])
    await hand.converge(spec)
    one_each(state, 1)
    await hand.delete(spec)
    await hand.provider.close()


# Another control plane takes over


async def test_survivors_are_taken_up_again(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(replicas=3)
    await hand.converge(spec)
    before = one_each(tmp_path, 3)
    await hand.provider.close()
    kill(before[2])
    hand.provider = Process(tmp_path, allowed=True)
    state = await hand.observe(spec)
    assert not isinstance(state, Absent)
    assert state.replicas == 2
    await hand.converge(spec)
    after = one_each(tmp_path, 3)
    assert (after[0], after[1]) == (before[0], before[1])
    kill(after[0])  # one that was taken up is watched as those that were started here
    await hand.until(spec, lambda state: state.replicas == 2)


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 4, 8, 16])
async def test_an_action_that_is_cut_off_is_over_when_the_provider_is_closed(
    hand: Hand, tmp_path: Path, milliseconds: int
) -> None:
    spec = spec_of(replicas=4)
    action = asyncio.create_task(hand.apply(spec))
    await asyncio.sleep(milliseconds / 1000)
    action.cancel()
    await asyncio.wait([action])
    await hand.provider.close()
    begun = replicas(tmp_path)
    hand.provider = Process(tmp_path, allowed=True)
    await hand.converge(spec)
    after = one_each(tmp_path, 4)
    assert all(after[index] in pids for index, pids in begun.items())


def test_one_is_found_also_while_it_becomes_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = Mark(REF.uid, 0, "nonce")
    for _ in range(40):
        with (tmp_path / "out").open("w") as out:
            command = ["/bin/sh", "-c", "read line; exec sleep 1000"]
            starting = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, env={record.MARK: str(mark)})
        monkeypatch.setattr(kernel, "_pids", lambda pid=starting.pid: iter([pid]))
        assert starting.stdin is not None
        starting.stdin.close()
        try:
            while starting.poll() is None and kernel.command_line(starting.pid)[0] != b"sleep":
                assert [one.mark for one in kernel.marked(tmp_path, lambda found: True)] == [mark]
        finally:
            starting.kill()
            starting.wait()


def test_who_does_not_write_to_our_logs_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(kernel, "stat_of", asked.append)
    assert kernel.marked(tmp_path, lambda found: True) == []
    assert asked == []


async def test_a_reused_pid_is_another_process(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of()
    await hand.converge(spec)
    pid = one_each(tmp_path, 1)[0]
    await hand.provider.close()
    path = tmp_path / REF.uid / "0.json"
    kept = record.load(path)
    assert kept is not None
    stranger = await asyncio.create_subprocess_exec(*SLEEP)
    stat = kernel.stat_of(stranger.pid)
    assert stat is not None
    other = Identity(stranger.pid, stat.start - 1, kept.process.boot)  # who had this pid before
    record.save(path, kept.but(process=other, nonce=kept.nonce + "x"))
    kill(pid)
    hand.provider = Process(tmp_path, allowed=True)
    await hand.converge(spec)
    await hand.delete(spec)
    assert stranger.returncode is None
    assert not gone(stranger.pid)
    stranger.kill()
    await stranger.wait()


async def test_a_replica_without_a_record_is_found_by_its_mark(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of(replicas=2)
    await hand.converge(spec)
    before = one_each(tmp_path, 2)
    await hand.provider.close()
    (tmp_path / REF.uid / "1.json").unlink()
    hand.provider = Process(tmp_path, allowed=True)
    assert not await hand.diff(spec)
    assert one_each(tmp_path, 2) == before
    assert {change.path[0] for change in (await hand.diff(spec_of(replicas=2, env={"A": "1"}))).changes} >= {"env"}


async def test_a_record_that_cannot_be_read_is_unknown_and_nothing_is_doubled(hand: Hand, tmp_path: Path) -> None:
    spec = spec_of()
    await hand.converge(spec)
    before = one_each(tmp_path, 1)
    await hand.provider.close()
    (tmp_path / REF.uid / "0.json").write_text("{")
    hand.provider = Process(tmp_path, allowed=True)
    with pytest.raises(ValueError, match=r"0\.json cannot be read"):
        await hand.observe(spec)
    with pytest.raises(ValueError, match="cannot be read"):
        await hand.apply(spec)
    assert one_each(tmp_path, 1) == before


async def test_a_full_disk_does_not_keep_what_fills_it_from_being_ended(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = spec_of(replicas=2)
    await hand.converge(two)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        await hand.converge(spec_of(replicas=1))
        one_each(tmp_path, 1)
        with pytest.raises(OSError, match=rf"the record {tmp_path}/.*/1\.json cannot be written: No space left on device"):
            await hand.apply(two)
        one_each(tmp_path, 1)
        await hand.converge(spec_of(replicas=0))
        assert replicas(tmp_path) == {}
    await hand.converge(two)
    one_each(tmp_path, 2)


async def test_an_end_that_could_not_be_written_is_written_later(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = tmp_path / "ends"
    spec = spec_of(command=["sh", "-c", f"until [ -e {ends} ]; do sleep 0.01; done"], restart={"policy": "OnFailure"})
    await hand.converge(spec)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        ends.touch()
        await hand.until(spec, lambda state: state.ready == 0)
        assert not await hand.diff(spec), "it ended well, and is done"
    await hand.observe(spec)
    kept = record.load(tmp_path / REF.uid / "0.json")
    assert kept is not None
    assert kept.ended is not None
    assert kept.ended.status == 0


async def test_two_control_planes_do_not_share_a_state_directory(hand: Hand, tmp_path: Path) -> None:
    await hand.converge(spec_of())
    other = Hand(Process(tmp_path, allowed=True))
    with pytest.raises(RuntimeError, match="another control plane"):
        await other.observe(spec_of())
    await other.provider.close()


async def test_a_replica_whose_gate_never_opened_never_ran(hand: Hand, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    spec = spec_of(command=["touch", str(ran)], restart={"policy": "Never"})
    provider_died_here = RuntimeError("killed")

    def die(before: int) -> None:
        raise provider_died_here

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_open_gate", die)
        with pytest.raises(RuntimeError, match="killed"):
            await hand.apply(spec)
    await hand.provider.close()
    hand.provider = Process(tmp_path, allowed=True)
    diff = await hand.diff(spec)
    assert diff.op is Op.UPDATE
    assert not ran.exists()
    await hand.converge(spec)  # though it is never restarted: it had not been started
    await hand.until(spec, lambda state: state.ready == 0)
    assert ran.exists()


async def test_what_a_killed_launch_wrote_is_no_replica(tmp_path: Path) -> None:
    """The record is written, then the gate opens: whoever dies in between leaves a process that ends by itself."""
    behind, before = os.pipe()
    shell = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", launch.GATE, "gate", "touch", str(tmp_path / "ran"), stdin=behind
    )
    os.close(behind)
    os.close(before)
    assert await shell.wait() != 0
    assert not (tmp_path / "ran").exists()


def test_elsewhere_than_on_linux_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RuntimeError, match="only Linux"):
        Process(tmp_path)


def test_signals_that_can_be_declared_exist() -> None:
    from typing import get_args, get_type_hints

    from homeostat.providers.process import ProcessSpec

    for name in get_args(get_type_hints(ProcessSpec)["stop_signal"]):
        assert signal.Signals[name]


async def _says(state_dir: Path, log: str, what: str, lines: int = 1) -> str:
    path = state_dir / REF.uid / log
    async with asyncio.timeout(5):
        while not (path.exists() and path.read_text().count(what) >= 1 and path.read_text().count("\n") >= lines):
            await asyncio.sleep(0.005)
    return path.read_text()
