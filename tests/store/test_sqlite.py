"""The embedded store: the common suite, and what is its own: locks, damage, full disks, batches."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from homeostat.store import Compacted, Compare, Conflict, Corrupt, Entry, Full, Locked, Put, SqliteStore, StoreError
from homeostat.store.sqlite import Inline
from homeostat.store.sqlite import store as store_module

from .conformance import OpenStore, StoreConformance, delete, put

pytestmark = pytest.mark.asyncio


@pytest.fixture(params=["thread", "inline", "small steps"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenStore:
    small = request.param == "small steps"
    if small:  # so that every loop goes round, and the log is read more than memory
        steps = {
            "CHUNK": 4,
            "COUNT_CHUNK": 3,
            "SWEEP_CHUNK": 2,
            "BATCH_EVENTS": 3,
            "WAL_PAGES": 5,
            "WAL_PAGES_BUSY": 20,
        }
        for name, value in steps.items():
            monkeypatch.setattr(store_module, name, value)

    async def open_store() -> SqliteStore:
        runs = None if request.param == "thread" else Inline()
        return await SqliteStore.open(
            tmp_path / "data", commit_on=runs, durable=False, feed_bytes=2000 if small else 8 << 20
        )

    return open_store


class TestSqlite(StoreConformance):
    pass


class Steps:
    """Runs the store's blocking work when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None], /) -> None:
        self.waiting.append(work)

    async def step(self) -> None:
        """Waits for a piece of work, does it, and lets everybody hear of it."""
        while not self.waiting:
            await asyncio.sleep(0)
        self.waiting.pop(0)()
        for _ in range(5):
            await asyncio.sleep(0)

    async def finish(self, work: Any) -> Any:
        task = asyncio.ensure_future(work)
        while not task.done():
            while self.waiting:
                self.waiting.pop(0)()
            await asyncio.sleep(0)
        return await task


@pytest_asyncio.fixture
async def stepwise(tmp_path: Path) -> AsyncIterator[tuple[SqliteStore, Steps]]:
    steps = Steps()
    store = await SqliteStore.open(tmp_path / "stepwise", commit_on=steps, durable=False)
    yield store, steps
    await steps.finish(store.close())


async def started(*work: Any) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.ensure_future(w) for w in work]
    await asyncio.sleep(0)
    return tasks


class TestBatches:
    async def test_a_lone_write_is_handed_on_at_once_and_those_that_come_meanwhile_share_the_next(
        self, stepwise: tuple[SqliteStore, Steps]
    ) -> None:
        store, steps = stepwise
        [first] = await started(put(store, "a"))
        await asyncio.sleep(0)
        assert len(steps.waiting) == 1
        rest = await started(*(put(store, f"b{n}") for n in range(20)))
        assert len(steps.waiting) == 1
        await steps.step()
        assert await first == 2
        assert not any(task.done() for task in rest)
        await steps.step()
        assert [await task for task in rest] == list(range(3, 23))

    async def test_where_many_write_those_who_come_turn_by_turn_share_one_batch(
        self, stepwise: tuple[SqliteStore, Steps], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, steps = stepwise
        monkeypatch.setattr(store_module, "GATHER_SECONDS", 60.0)

        async def write_in(turns: int) -> int:
            for _ in range(turns):
                await asyncio.sleep(0)
            return await put(store, f"k{turns}")

        writing = [asyncio.create_task(write_in(n // 2)) for n in range(2 * 10)]
        writing += [asyncio.create_task(put(store, f"m{n}")) for n in range(2)]
        for _ in range(30):
            await asyncio.sleep(0)
        assert len(steps.waiting) == 1
        await steps.step()
        assert all(task.done() for task in writing)

    async def test_a_batch_that_is_large_enough_waits_for_nobody(
        self, stepwise: tuple[SqliteStore, Steps], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, steps = stepwise
        monkeypatch.setattr(store_module, "GATHER_SECONDS", 60.0)
        writing = []
        while not steps.waiting:
            writing += [asyncio.create_task(put(store, f"k{len(writing)}")) for _ in range(2)]
            await asyncio.sleep(0)
        assert len(writing) <= store_module.GATHERS + 4
        while not all(task.done() for task in writing):
            await steps.step()

    async def test_a_batch_does_not_wait_for_long(
        self, stepwise: tuple[SqliteStore, Steps], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, steps = stepwise
        monkeypatch.setattr(store_module, "GATHER_SECONDS", 0.0)
        writing = await started(*(put(store, f"k{n}") for n in range(3)))
        await asyncio.sleep(0)
        assert len(steps.waiting) == 1
        await steps.step()
        assert all(task.done() for task in writing)

    async def test_those_who_wrote_alike_go_on_one_after_the_other(self, stepwise: tuple[SqliteStore, Steps]) -> None:
        store, steps = stepwise
        await steps.finish(put(store, "pods/a"))
        order: list[str] = []

        async def write(key: str) -> None:
            await put(store, key)
            order.append(key)

        writing = [asyncio.create_task(write(key)) for key in ("pods/b", "nodes/a", "pods/a", "nodes/b", "pods/c")]
        for _ in range(3):
            await asyncio.sleep(0)
        await steps.step()
        await asyncio.gather(*writing)
        assert order == ["nodes/a", "nodes/b", "pods/a", "pods/b", "pods/c"]

    async def test_a_written_batch_is_not_seen_before_it_is_announced(
        self, stepwise: tuple[SqliteStore, Steps]
    ) -> None:
        store, steps = stepwise
        await steps.finish(store.txn([], [Put("a", b"1"), Put("b", b"1")]))
        writing = await started(store.txn([], [Put("a", b"2")]), delete(store, "b"), put(store, "c"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # nobody else joins them
        steps.waiting.pop(0)()  # it is in the file, and the event loop does not know yet
        assert (await store.range("")).entries == [Entry("a", b"1", 2, 2), Entry("b", b"1", 2, 2)]
        assert await store.get("b") == Entry("b", b"1", 2, 2)
        assert await store.since("", 2) == ([], 2)
        assert len(await store.history("a")) == 1
        assert await asyncio.gather(*writing) == [3, 4, 5]
        assert [e.key for e in (await store.range("")).entries] == ["a", "c"]

    async def test_a_conflict_with_a_write_on_its_way_is_told_when_that_is_durable(
        self, stepwise: tuple[SqliteStore, Steps]
    ) -> None:
        store, steps = stepwise
        first, second = await started(
            store.txn([Compare("a", 0)], [Put("a", b"1")]), store.txn([Compare("a", 0)], [Put("a", b"2")])
        )
        await asyncio.sleep(0)
        assert not second.done()
        await steps.step()
        assert await first == 2
        assert await second == Conflict(Compare("a", 0), Entry("a", b"1", 2, 2))

    async def test_one_batch_that_fails_fails_alone_and_the_rest_is_decided_anew(
        self, stepwise: tuple[SqliteStore, Steps], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, steps = stepwise
        await steps.finish(put(store, "old", b"1"))
        heard: list[int] = []
        store.subscribe(lambda _, revision: heard.append(revision))
        failing = await started(store.txn([Compare("a", 0)], [Put("a", b"1")]), delete(store, "old"))
        await asyncio.sleep(0)
        later = await started(
            store.txn([Compare("a", 0)], [Put("a", b"2")]),  # would conflict with what then fails
            store.txn([Compare("old", 0)], [Put("old", b"2")]),  # would hold because of what then fails
            store.txn([], [Put("b", b"1")]),
        )

        def full(*_: object) -> None:
            raise Full("no space")

        with monkeypatch.context() as patched:
            patched.setattr(store._writer, "append", full)
            await steps.step()
        for task in failing:
            with pytest.raises(Full, match="no space"):
                await task
        assert (store.revision, heard) == (2, [])
        assert await store.get("a") is None
        await steps.step()
        assert [await task for task in later] == [3, Conflict(Compare("old", 0), Entry("old", b"1", 2, 2)), 4]
        assert await store.get("a") == Entry("a", b"2", 3, 3)
        assert [e.revision for e in (await store.since("", 2))[0]] == [3, 4]
        assert heard == [4]

    async def test_a_batch_that_was_written_in_spite_of_an_error_counts(
        self, stepwise: tuple[SqliteStore, Steps], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, steps = stepwise
        append = store._writer.append

        def late(rows: list[Any]) -> None:
            append(rows)
            raise MemoryError

        with monkeypatch.context() as patched:
            patched.setattr(store._writer, "append", late)
            assert await steps.finish(put(store, "a")) == 2
        assert await steps.finish(put(store, "a")) == 3

    async def test_a_compaction_that_was_cut_short_goes_on_at_the_next_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_module, "SWEEP_CHUNK", 10)
        steps = Steps()
        store = await SqliteStore.open(tmp_path, commit_on=steps, durable=False)
        for n in range(100):
            await steps.finish(put(store, "a", b"%d" % n))
        [compacting] = await started(store.compact(101))
        for _ in range(4):
            await steps.step()
        assert not compacting.done()
        assert 50 < len(await store.history("a")) < 90
        await steps.finish(store.close())
        again = await SqliteStore.open(tmp_path, commit_on=Inline(), durable=False)
        with pytest.raises(Compacted):
            await again.get("a", 100)
        await again.compact(101)
        assert [e.value for e in await again.history("a")] == [b"99"]
        await again.close()

    async def test_a_compaction_that_had_not_begun_when_the_store_closed_says_so(self, tmp_path: Path) -> None:
        steps = Steps()
        store = await SqliteStore.open(tmp_path, commit_on=steps, durable=False)
        await steps.finish(put(store, "a"))
        [writing] = await started(put(store, "a"))
        await asyncio.sleep(0)
        [compacting] = await started(store.compact(2))
        await steps.finish(store.close())
        assert await writing == 3
        with pytest.raises(StoreError, match="closed before it was compacted"):
            await compacting

    async def test_the_write_ahead_log_stays_small(self, tmp_path: Path) -> None:
        store = await SqliteStore.open(tmp_path, durable=False)
        for _ in range(12):
            await asyncio.gather(*(put(store, f"k{n}", bytes(3000)) for n in range(1000)))
        assert (tmp_path / "store.db-wal").stat().st_size < 40 << 20
        await store.close()
        assert not (tmp_path / "store.db-wal").exists()

    async def test_a_store_in_memory_leaves_nothing_behind(self) -> None:
        store = await SqliteStore.in_memory()
        assert await put(store, "a") == 2
        path = store._place.path
        assert path.exists()
        await store.close()
        assert not path.exists()


PR_CAPBSET_DROP = 24
HOLD = """
import asyncio, sys
from homeostat.store import SqliteStore
asyncio.run(SqliteStore.open(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def obey_permissions() -> None:
    """In a child before it starts: root, too, has no more rights to files than their modes give."""
    if os.geteuid() == 0:
        for override in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, override, 0, 0, 0)


class TestTheDataDirectory:
    async def test_a_second_store_in_this_process_is_refused(self, tmp_path: Path) -> None:
        store = await SqliteStore.open(tmp_path)
        with pytest.raises(Locked, match=re.escape(f"{tmp_path} is in use by this process (pid {os.getpid()})")):
            await SqliteStore.open(tmp_path)
        await store.close()
        await (await SqliteStore.open(tmp_path)).close()

    async def test_a_second_process_is_refused_and_told_who_holds_it(self, tmp_path: Path) -> None:
        command = [sys.executable, "-c", HOLD, str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"open\n"
            with pytest.raises(Locked, match=f"{tmp_path} is in use by process {other.pid}"):
                await SqliteStore.open(tmp_path)
            other.kill()
        store = await SqliteStore.open(tmp_path)
        await store.close()

    async def test_only_its_owner_may_look_inside(self, tmp_path: Path) -> None:
        store = await SqliteStore.open(tmp_path / "deep" / "data")
        await put(store, "a")
        assert (tmp_path / "deep" / "data").stat().st_mode & 0o777 == 0o700
        assert all(f.stat().st_mode & 0o077 == 0 for f in (tmp_path / "deep" / "data").iterdir())
        await store.close()

    async def test_a_file_in_its_place_is_a_clear_error(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("hello")
        with pytest.raises(StoreError, match=r"data directory .*/data cannot be used"):
            await SqliteStore.open(tmp_path / "data")

    async def test_a_path_too_long_for_the_database_is_a_clear_error(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="its path is longer than 480 bytes"):
            await SqliteStore.open(tmp_path.joinpath(*["long" * 20] * 8))

    async def test_a_file_that_cannot_be_written_is_refused_at_once(self, tmp_path: Path) -> None:
        await (await SqliteStore.open(tmp_path)).close()
        (tmp_path / "store.db").chmod(0o400)
        command = [sys.executable, "-c", HOLD, str(tmp_path)]
        done = subprocess.run(command, preexec_fn=obey_permissions, capture_output=True, text=True, check=False)
        assert re.search(r"StoreError: .*store.db cannot be opened for writing .*; check its owner", done.stderr)

    async def test_a_newer_format_is_refused(self, tmp_path: Path) -> None:
        await (await SqliteStore.open(tmp_path)).close()
        with sqlite3.connect(tmp_path / "store.db") as raw:
            raw.execute("PRAGMA user_version = 99")
        raw.close()
        with pytest.raises(StoreError, match="use a newer Homeostat"):
            await SqliteStore.open(tmp_path)


async def filled(path: Path, keys: int = 300) -> None:
    store = await SqliteStore.open(path)
    for start in range(0, keys, 100):
        await store.txn([], [Put(f"k{n:05}", b"value %05d " % n * 30) for n in range(start, start + 100)])
    await store.close()


class TestDamage:
    async def refused(self, path: Path, match: str) -> None:
        before = {f.name: f.read_bytes() for f in path.iterdir() if f.name != "lock"}
        with pytest.raises(Corrupt, match=match) as caught:
            await SqliteStore.open(path)
        assert str(path / "store.db") in str(caught.value)
        assert "restore a copy" in str(caught.value)
        assert {name: (path / name).read_bytes() for name in before} == before

    async def test_a_file_of_something_else_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "store.db").write_bytes(b"these are my memoirs " * 1000)
        await self.refused(tmp_path, "it is not a database")

    async def test_a_database_of_another_program_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "store.db") as raw:
            raw.execute("CREATE TABLE invoices (id)")
        raw.close()
        await self.refused(tmp_path, "another program")

    async def test_a_file_cut_short_is_refused(self, tmp_path: Path) -> None:
        await filled(tmp_path)
        os.truncate(tmp_path / "store.db", 40_000)
        await self.refused(tmp_path, "its end is missing")

    async def test_an_empty_file_is_not_taken_for_a_new_one(self, tmp_path: Path) -> None:
        await filled(tmp_path)
        os.truncate(tmp_path / "store.db", 0)
        await self.refused(tmp_path, "it is empty")

    async def test_a_first_start_that_was_cut_short_does_no_harm(self, tmp_path: Path) -> None:
        (tmp_path / "store.new").write_bytes(b"half")
        (tmp_path / "store.new-journal").write_bytes(b"half")
        await filled(tmp_path)
        assert sorted(f.name for f in tmp_path.iterdir()) == ["lock", "store.db"]

    async def test_a_log_without_its_database_is_not_thrown_away(self, tmp_path: Path) -> None:
        (tmp_path / "store.db-wal").write_bytes(b"x" * 5000)
        await self.refused(tmp_path, "store.db-wal holds data")

    async def test_a_broken_page_is_found_when_a_small_file_is_opened(self, tmp_path: Path) -> None:
        await filled(tmp_path)
        damage_pages(tmp_path / "store.db")
        await self.refused(tmp_path, "damaged")

    async def test_a_changed_value_is_noticed_when_it_is_read(self, tmp_path: Path) -> None:
        await filled(tmp_path)
        data = (tmp_path / "store.db").read_bytes()
        (tmp_path / "store.db").write_bytes(data.replace(b"value 00123 value", b"value 00124 value", 1))
        store = await SqliteStore.open(tmp_path)
        assert await store.get("k00122") is not None
        with pytest.raises(Corrupt, match="the value of 'k00123' at revision 3 is not what was written"):
            await store.get("k00123")
        for use in (store.get("k00122"), store.range("k"), put(store, "new")):  # from then on nothing is believed
            with pytest.raises(Corrupt):
                await use
        await store.close()

    @pytest.mark.parametrize("seed", range(6))
    async def test_bytes_changed_anywhere_give_the_truth_or_an_error(self, tmp_path: Path, seed: int) -> None:
        await filled(tmp_path)
        rng = random.Random(seed)
        file = tmp_path / "store.db"
        data = bytearray(file.read_bytes())
        for _ in range(3):
            data[rng.randrange(100, len(data))] ^= rng.randrange(1, 256)
        file.write_bytes(data)
        try:
            store = await SqliteStore.open(tmp_path)
        except StoreError:
            return
        try:
            for entry in (await store.range("k")).entries:
                assert entry.value == b"value %05d " % int(entry.key[1:]) * 30
        except Corrupt:
            pass
        finally:
            await store.close()

    async def test_damage_while_running_is_an_error_and_no_crash(self, tmp_path: Path) -> None:
        await filled(tmp_path, 3000)
        store = await SqliteStore.open(tmp_path, cache_bytes=1 << 16)
        damage_pages(tmp_path / "store.db")
        with pytest.raises(Corrupt, match="restore a copy"):
            await store.range("k")
        with pytest.raises(Corrupt):
            await put(store, "new")
        await store.close()


def damage_pages(file: Path) -> None:
    """Overwrites the head of every page but the first."""
    with file.open("r+b") as raw:
        for page in range(1, file.stat().st_size // 4096):
            raw.seek(page * 4096)
            raw.write(b"\xff" * 64)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, really full when it is full. Only root may mount one."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(mount)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail("root could not mount a tmpfs")
        pytest.skip("needs the right to mount a tmpfs")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


class TestAFullDisk:
    async def test_writes_fail_clearly_reads_go_on_and_writes_work_again_when_there_is_space(
        self, small_disk: Path
    ) -> None:
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(2 << 20))
        store = await SqliteStore.open(small_disk / "data")
        acknowledged: dict[str, int] = {}
        refused = 0

        async def write(n: int) -> None:
            nonlocal refused
            try:
                acknowledged[f"k{n:04}"] = await put(store, f"k{n:04}", os.urandom(2000))
            except Full:
                refused += 1

        for start in range(0, 2000, 20):
            await asyncio.gather(*(write(n) for n in range(start, start + 20)))
            if refused > 50:
                break
        assert refused > 50
        assert len(acknowledged) > 20
        with pytest.raises(Full, match=r"no space is left for .*/data: the write was not done"):
            await put(store, "large", bytes(1 << 20))
        assert {e.key: e.revision for e in (await store.range("")).entries} == acknowledged
        reached = store.revision
        assert reached == max(acknowledged.values())
        ballast.unlink()
        assert await put(store, "again") == reached + 1
        await store.close()
        store = await SqliteStore.open(small_disk / "data")
        assert store.revision == reached + 1
        assert {e.key: e.revision for e in (await store.range("k")).entries} == acknowledged
        await store.close()

    async def test_opening_on_a_full_disk_is_a_clear_error(self, small_disk: Path) -> None:
        with (small_disk / "ballast").open("wb", buffering=0) as ballast:
            while shutil.disk_usage(small_disk).free:
                ballast.write(bytes(4096))
        with pytest.raises(Full, match="no space is left"):
            await SqliteStore.open(small_disk / "data")
