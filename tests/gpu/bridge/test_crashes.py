"""A bridge that is killed at any call, and a cluster that loses questions and answers: nothing runs twice, nothing is forgotten."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.gpu.agent.world import QUICK, World, install_kinds, place, report_of

from homeostat.gpu.agent.origin import OtherServer
from homeostat.gpu.bridge import Bridge, Unreadable
from homeostat.gpu.bridge.cluster import Job, Mark, Member, Order, Sight, Stage
from homeostat.testing import TestPlane, control_plane

SEEDS = int(os.environ.get("HOMEOSTAT_BRIDGE_SEEDS", "3"))
LOOKS_TO_BEGIN, LOOKS_TO_RUN, LOOKS_TO_END = 2, 25, 2


@dataclass
class Run:
    """A job in the books of the cluster, and how many looks it has to go."""

    job: Job
    left: int = LOOKS_TO_BEGIN
    begun: bool = False


@dataclass
class Books:
    """What the cluster has, whoever asks. `unique`: a mark is taken in once, as a name is by Kubernetes; else as often as it comes, as by Slurm."""

    unique: bool
    runs: list[Run] = field(default_factory=list)
    begun: list[Mark] = field(default_factory=list)
    done: list[Mark] = field(default_factory=list)
    noted: set[str] = field(default_factory=set)
    empty: bool = False
    """It shows no machine and no job."""

    def step(self) -> None:
        for run in self.runs:
            if run.job.stage is Stage.OVER:
                continue
            run.left -= 1
            if run.left > 0:
                continue
            if run.job.stage is Stage.ON:
                self.done += [run.job.mark] if not run.job.taken else []
                run.job = replace(run.job, stage=Stage.OVER, status=0 if not run.job.taken else 143, taken=False, holds=0)
            elif run.job.mark in self.begun:  # what a script finds out
                run.job = replace(run.job, stage=Stage.OVER, taken=True)
            elif not any(other.job.stage is Stage.ON for other in self.runs):  # singleton
                run.begun, run.left = True, LOOKS_TO_RUN
                run.job = replace(run.job, stage=Stage.ON, holds=1)
                self.begun.append(run.job.mark)
                assert sum(other.job.stage is Stage.ON for other in self.runs) == 1


class Shaky:
    """The way to the books: each call may get lost before it is done, or after, or be the last of its bridge."""

    what, queues = "the test's cluster", True

    def __init__(self, books: Books, source: random.Random, kill: Callable[[], None]) -> None:
        self._books, self._random, self._kill = books, source, kill
        self.calm = False

    async def open(self, wake: Callable[[], None]) -> None:
        pass

    async def close(self) -> None:
        pass

    async def look(self) -> Sight:
        await self._fate(0.1, 0.03)
        self._books.step()
        if self._books.empty:
            return Sight()
        used = sum(run.job.holds for run in self._books.runs)
        return Sight({"n1": Member("n1", "n1", "H100", 8, used=used)}, [run.job for run in self._books.runs])

    async def start(self, order: Order) -> None:
        await self._fate(0.3, 0.15)
        if not (self._books.unique and any(run.job.mark == order.mark for run in self._books.runs)):
            number = len(self._books.runs) + 1
            self._books.runs.append(Run(Job(order.mark, str(number), Stage.WAITING, number, words=f"job {number}")))
        await self._fate(0.3, 0.15)

    async def ask_to_end(self, job: Job, signal: str, grace: float) -> None:
        await self._fate(0.3, 0.15)
        self._end(job)
        await self._fate(0.3, 0.15)

    async def end(self, job: Job) -> None:
        await self.ask_to_end(job, "SIGKILL", 0.0)

    def _end(self, job: Job) -> None:
        for run in self._books.runs:
            if run.job.id == job.id and run.job.stage is Stage.WAITING:
                run.job = replace(run.job, stage=Stage.OVER)
            elif run.job.id == job.id and run.job.stage is Stage.ON and not run.job.taken:
                run.job, run.left = replace(run.job, taken=True), LOOKS_TO_END

    async def left(self, mark: Mark) -> Job | None:
        await self._fate(0.2, 0.1)
        return None

    async def noted(self, job: Job) -> None:
        if job.id not in self._books.noted:
            await self._fate(0.4, 0.2)
            self._books.noted.add(job.id)

    async def forget(self, mark: Mark) -> None:
        await self._fate(0.2, 0.1)

    async def said(self, mark: Mark) -> str:
        return ""

    async def _fate(self, lost: float, killed: float) -> None:
        await asyncio.sleep(0)
        if self.calm:
            return
        if self._random.random() < killed:
            self._kill()
            await asyncio.Event().wait()
        if self._random.random() < lost:
            raise Unreadable("it got lost")


@pytest.fixture
async def plain(homeostat: TestPlane, tmp_path: Path) -> AsyncIterator[World]:
    async with homeostat.client() as client:
        await install_kinds(client)
        yield World(homeostat, client, tmp_path)


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_gets_lost_and_whenever_it_dies_each_start_is_made_once(
    plain: World, seed: int, unique: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homeostat.gpu.bridge.sent.FIRST_PAUSE", 0.01)
    monkeypatch.setattr("homeostat.gpu.bridge.sent.LONGEST_PAUSE", 0.05)
    source, books = random.Random(seed), Books(unique)
    life: list[asyncio.Task[None]] = []
    shaky = Shaky(books, source, lambda: life[-1].cancel() and None)  # type: ignore[func-returns-value]

    async def live() -> None:
        """One bridge after the other."""
        while True:
            async with plain.plane.client() as client:
                bridge = Bridge(client, shaky, plain.folder, "bridge", every=0.02, blind_after=0.2, timing=QUICK)
                life.append(asyncio.create_task(bridge.run()))
                await asyncio.wait({life[-1]})
                if not life[-1].cancelled():
                    life[-1].result()

    keeping = asyncio.create_task(live())
    try:
        preemption = {"mode": "Checkpoint", "grace": "0.1s"}
        await plain.submit("job", ["run"], places=[place(gpus=[0])], phase="Running", preemption=preemption)
        for _ in range(3):
            await asyncio.sleep(source.uniform(0, 0.6))
            await plain.govern("job", phase="Suspending")
            found = await plain.until("job", lambda obj: report_of(obj).get("state") in ("Suspended", "Exited"), 30)
            if report_of(found)["state"] == "Exited":
                break
            await plain.govern("job", phase="Running")
        shaky.calm = source.random() < 0.5
        await plain.until("job", lambda obj: report_of(obj).get("state") == "Exited", 30)
        shaky.calm = True
        async with asyncio.timeout(30):
            while not {run.job.id for run in books.runs if run.begun} <= books.noted:
                await asyncio.sleep(0.02)
        await plain.workloads.delete("job")
        async with asyncio.timeout(30):
            while list(plain.folder.glob("nodes/*/*/*.note")):
                await asyncio.sleep(0.02)
    finally:
        keeping.cancel()
        life[-1].cancel()
        await asyncio.gather(keeping, *life, return_exceptions=True)
    assert len(books.begun) == len(set(books.begun))
    assert books.begun[-1] == books.done[-1]
    assert all(run.job.stage is Stage.OVER for run in books.runs)


async def test_a_node_that_an_agent_keeps_is_left_to_it(plain: World) -> None:
    books = Books(unique=True)
    shaky = Shaky(books, random.Random(0), lambda: None)
    shaky.calm = True
    looks = 0
    step = books.step

    def count() -> None:
        nonlocal looks
        looks += 1
        step()

    books.step = count  # type: ignore[method-assign]
    async with plain.agent("n1"), plain.plane.client() as client:
        await plain.submit("job", ["sleep", "1000"], places=[place(gpus=[0])])
        before = await plain.reported("job", "Running")
        keeping = asyncio.create_task(Bridge(client, shaky, plain.folder / "bridge", "bridge", every=0.02, timing=QUICK).run())
        try:
            async with asyncio.timeout(30):
                while looks < 50:
                    await asyncio.sleep(0.02)
            assert not books.runs
            assert report_of(await plain.workloads.get("job")) == before
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
    plain.clean()


async def test_a_cluster_that_shows_nothing_any_more_is_not_believed(plain: World) -> None:
    books = Books(unique=True)
    shaky = Shaky(books, random.Random(0), lambda: None)
    shaky.calm = True
    async with plain.plane.client() as client:
        keeping = asyncio.create_task(Bridge(client, shaky, plain.folder, "bridge", every=0.02, blind_after=0.1, timing=QUICK).run())
        try:
            await plain.submit("job", ["run"], places=[place(gpus=[0])])
            await plain.reported("job", "Running")
            books.empty = True
            found = await plain.reported("job", "Unknown")
            assert "no machine with GPUs, where there were 1" in found["reason"]
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


async def test_a_bridge_that_comes_to_another_server_ends_no_job(plain: World) -> None:
    books = Books(unique=True)
    shaky = Shaky(books, random.Random(0), lambda: None)
    shaky.calm = True
    async with plain.plane.client() as client:
        keeping = asyncio.create_task(Bridge(client, shaky, plain.folder, "bridge", every=0.02, timing=QUICK).run())
        try:
            await plain.submit("job", ["run"], places=[place(gpus=[0])])
            await plain.reported("job", "Running")
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
    books.runs[0].left = 10_000
    with control_plane() as plane:
        async with plane.client() as client:
            await install_kinds(client)
            with pytest.raises(ExceptionGroup) as caught:
                async with asyncio.timeout(30):
                    await Bridge(client, shaky, plain.folder, "bridge", every=0.02, timing=QUICK).run()
    assert caught.group_contains(OtherServer, match="another server")
    assert (books.runs[0].job.stage, books.runs[0].job.taken) == (Stage.ON, False)
