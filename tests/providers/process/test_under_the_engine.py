"""Processes under the whole loop: declared through the API, repaired through the gate, cleaned up before they are gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.providers.bench import Bench, condition, running
from tests.providers.process.world import kill, kill_all, replicas

from homeostat.providers.process import Process

SLEEP = {"command": ["sleep", "1000"], "gracefulSeconds": 2, "minReadySeconds": 0.05}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path, lambda: Process(tmp_path / "state", allowed=True)) as bench:
        yield bench
    kill_all(tmp_path / "state")


async def up(bench: Bench, tmp_path: Path, name: str, count: int) -> tuple[dict[str, Any], dict[int, int]]:
    """The resource once it is ready with so many, and their pids."""
    web = await bench.until(name, lambda obj: condition(obj, "Ready") == "True" and obj["status"].get("ready") == count)
    found = replicas(tmp_path / "state", web["metadata"]["uid"])
    assert {index: len(pids) for index, pids in found.items()} == dict.fromkeys(range(count), 1)
    return web, {index: pids[0] for index, pids in found.items()}


def _restarted(obj: dict[str, Any], times: int) -> bool:
    return obj["status"].get("restarts") == times and condition(obj, "Ready") == "True"


async def test_declared_scaled_and_deleted_through_the_api(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", {**SLEEP, "replicas": 2})
    web, pids = await up(bench, tmp_path, "web", 2)
    assert web["status"]["lastApplied"]["replicas"] == 2
    await bench.kind.patch("web", {"spec": {"replicas": 4}}, subresource="scale")
    _, more = await up(bench, tmp_path, "web", 4)
    assert {index: more[index] for index in pids} == pids
    await bench.kind.delete("web")
    await bench.gone("web")
    assert replicas(tmp_path / "state", web["metadata"]["uid"]) == {}
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["lock"]


async def test_every_kill_is_noticed_and_repaired_fast(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", {**SLEEP, "replicas": 3, "restart": {"stableSeconds": 0}})
    web, pids = await up(bench, tmp_path, "web", 3)
    took = []
    for round_ in range(8):  # more often than the flap guard lets others undo our work
        started = time.perf_counter()
        kill(pids[round_ % 3])
        web = await bench.until("web", partial(_restarted, times=round_ + 1))
        took.append(time.perf_counter() - started)
        _, pids = await up(bench, tmp_path, "web", 3)
    assert sorted(took)[len(took) // 2] < 0.25
    assert "drift" not in web["status"]


async def test_a_crash_loop_is_degraded_and_waits(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", {**SLEEP, "command": ["sh", "-c", "exit 3"], "restart": {"firstSeconds": 60}})
    words = await bench.reason("web", "Unhealthy")
    assert "crashed 2 times in a row (exit status 3)" in words


async def test_what_is_not_allowed_is_said_and_can_be_deleted(tmp_path: Path) -> None:
    async with running(tmp_path, lambda: Process(tmp_path / "state", allowed=["/opt/ours"])) as bench:
        await bench.declare("web", SLEEP)
        assert "commands may lie in /opt/ours" in await bench.reason("web", "ActionFailed")
        await bench.kind.delete("web")
        await bench.gone("web")


async def test_the_next_engine_takes_up_what_runs_and_writes_nothing(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", {**SLEEP, "replicas": 3})
    web, pids = await up(bench, tmp_path, "web", 3)
    await bench.stop()
    await bench.start()
    await bench.whole_pass()
    after, same = await up(bench, tmp_path, "web", 3)
    assert same == pids
    assert after["metadata"]["resourceVersion"] == web["metadata"]["resourceVersion"]


async def test_one_killed_while_no_engine_ran_is_put_back_by_the_next(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", {**SLEEP, "replicas": 3})
    _, pids = await up(bench, tmp_path, "web", 3)
    await bench.stop()
    kill(pids[1])
    await bench.start()
    await bench.until("web", lambda obj: obj["status"].get("restarts") == 1)
    _, after = await up(bench, tmp_path, "web", 3)
    assert (after[0], after[2]) == (pids[0], pids[2])


async def test_a_changed_command_is_rolled_out(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", {**SLEEP, "replicas": 2, "env": {"TOKEN": "hush-1"}})
    _, before = await up(bench, tmp_path, "web", 2)
    await bench.declare("web", {**SLEEP, "replicas": 2, "command": ["sleep", "2000"], "env": {"TOKEN": "hush-2"}})
    async with asyncio.timeout(10):
        while set((await up(bench, tmp_path, "web", 2))[1].values()) & set(before.values()):
            await asyncio.sleep(0.005)


async def test_readiness_decides_whether_it_is_ready(bench: Bench, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    probe = {"exec": {"command": ["test", "-e", str(flag)]}, "periodSeconds": 0.02, "failureThreshold": 1}
    await bench.declare("web", {**SLEEP, "readiness": probe})
    assert "replica 0 is not ready" in await bench.reason("web", "Unhealthy")
    flag.touch()
    await up(bench, tmp_path, "web", 1)


async def test_a_probe_must_look_in_one_way(bench: Bench) -> None:
    with pytest.raises(Exception, match="exactly one of exec, httpGet, tcpSocket and grpc"):
        await bench.declare("web", {**SLEEP, "readiness": {"exec": {"command": ["true"]}, "tcpSocket": {"port": 80}}})


async def test_what_is_in_the_environment_is_shown_to_nobody(bench: Bench, tmp_path: Path) -> None:
    spec = {**SLEEP, "restart": {"policy": "Never"}}
    await bench.declare("web", {**spec, "env": {"TOKEN": "hush-1"}})
    web, _ = await up(bench, tmp_path, "web", 1)
    await bench.declare("web", {**spec, "env": {"TOKEN": "hush-2"}, "command": ["false"]})
    failed = await bench.until("web", lambda obj: obj["status"].get("drift", {}).get("failures", 0) > 0)
    assert "(sensitive)" in str(failed["status"]["drift"])
    assert "hush" not in str(failed["status"]["drift"]) + str(failed["status"]["conditions"])
    folder = tmp_path / "state" / web["metadata"]["uid"]
    assert {path.stat().st_mode & 0o077 for path in [folder, *folder.iterdir()]} == {0}
