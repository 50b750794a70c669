"""A checkpoint holds everything, says when it does not, and comes back as it was."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from homeostat.store import Delete, Entry, Put, SqliteStore, StoreError
from homeostat.store.checkpoint import Damaged, Draft, Unpacker, pack, verify
from homeostat.store.sqlite.fill import fill

TIME = "2026-01-31T12:00:00Z"


async def packed(store: SqliteStore, path: Path, revision: int | None = None) -> Path:
    draft = Draft(path)
    async for piece in pack(store, revision or store.revision, TIME, "1.0", asyncio.to_thread):
        draft.write(piece)
    draft.finish()
    return path


async def filled(path: Path, count: int = 500) -> SqliteStore:
    """Objects of many sizes, some written together, some overwritten, some deleted."""
    store = await SqliteStore.open(path, durable=False)
    for n in range(0, count, 5):
        await store.txn([], [Put(f"kind/{i:06}", os.urandom(1 + i * 37 % 9000)) for i in range(n, n + 5)])
    for n in range(0, count, 7):
        await store.txn([], [Put(f"kind/{n:06}", b"again"), Delete(f"kind/{n + 1:06}")])
    return store


async def everything(store: SqliteStore) -> list[Entry]:
    return (await store.range("")).entries


def restored(path: Path, to: Path) -> int:
    with path.open("rb") as file:
        reader = Unpacker(file, str(path))
        return fill(to, reader.head["revision"], reader.entries())


async def test_what_is_restored_is_equal_to_the_original(tmp_path: Path) -> None:
    store = await filled(tmp_path / "one")
    path = await packed(store, tmp_path / "it.checkpoint")
    expected, revision = await everything(store), store.revision
    await store.close()
    assert restored(path, tmp_path / "two") == len(expected)
    again = await SqliteStore.open(tmp_path / "two")
    assert (again.revision, again.compacted) == (revision, revision)
    assert await everything(again) == expected
    assert await again.txn([], [Put("kind/new", b"n")]) == revision + 1
    copy = await packed(again, tmp_path / "copy.checkpoint", revision)
    assert copy.read_bytes() == path.read_bytes()
    await again.close()


async def test_it_is_of_one_revision_whatever_is_written_meanwhile(tmp_path: Path) -> None:
    store = await filled(tmp_path / "one", 3000)
    expected, revision = await everything(store), store.revision
    draft = Draft(tmp_path / "it.checkpoint")
    async for piece in pack(store, revision, TIME, "1.0", asyncio.to_thread):
        draft.write(piece)
        await store.txn([], [Put("kind/000002", b"later"), Put(f"kind/{store.revision}", b"new")])
    summary = draft.finish()
    assert (summary.revision, summary.objects) == (revision, len(expected))
    restored(tmp_path / "it.checkpoint", tmp_path / "two")
    again = await SqliteStore.open(tmp_path / "two")
    assert await everything(again) == expected
    await again.close()
    await store.close()


async def test_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    store = await filled(tmp_path / "one", 10)
    path = await packed(store, tmp_path / "it.checkpoint")
    assert path.stat().st_mode & 0o777 == 0o600
    await store.close()


async def test_damage_is_named_with_its_place_and_nothing_is_restored(tmp_path: Path) -> None:
    store = await filled(tmp_path / "one", 400)
    path = await packed(store, tmp_path / "it.checkpoint")
    await store.close()
    whole = path.read_bytes()
    bad = tmp_path / "bad.checkpoint"
    for at in [*range(0, 60), *range(60, len(whole), max(1, len(whole) // 150))]:
        bad.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        with pytest.raises(Damaged, match=r"bad\.checkpoint (is damaged at byte \d+: |is no checkpoint|is a checkpoint of)"):
            verify(bad)
        bad.write_bytes(whole[:at])
        with pytest.raises(Damaged, match=r"is no checkpoint|cut off"):
            verify(bad)
    with pytest.raises(Damaged):
        restored(bad, tmp_path / "two")
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == ["lock"]
    bad.write_bytes(whole + b"x")
    with pytest.raises(Damaged, match="something follows its tail"):
        verify(bad)


async def test_a_directory_with_a_store_is_left_alone(tmp_path: Path) -> None:
    store = await filled(tmp_path / "one", 10)
    path = await packed(store, tmp_path / "it.checkpoint")
    await store.close()
    before = (tmp_path / "one" / "store.db").read_bytes()
    with pytest.raises(StoreError, match="has a store already"):
        restored(path, tmp_path / "one")
    assert (tmp_path / "one" / "store.db").read_bytes() == before


CHILD = """
import sys
from pathlib import Path
from homeostat.store import Entry
from homeostat.store.sqlite.fill import fill
def entries():
    for n in range(2000):
        if n == 1500:
            print("half", flush=True)
            sys.stdin.read()
        yield Entry(f"k/{n:06}", b"v" * 5000, n + 2, n + 2)
fill(Path(sys.argv[1]), 3000, entries())
"""


async def test_a_restore_that_is_killed_is_not_taken_for_a_store(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "two")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"half\n"
        child.send_signal(signal.SIGKILL)
    with pytest.raises(StoreError, match="was cut short: do it again"):
        await SqliteStore.open(tmp_path / "two")
    store = await filled(tmp_path / "one", 10)
    path = await packed(store, tmp_path / "it.checkpoint")
    await store.close()
    restored(path, tmp_path / "two")
    again = await SqliteStore.open(tmp_path / "two")
    assert len(await everything(again)) == len(await packed_entries(path))
    await again.close()


async def packed_entries(path: Path) -> list[Entry]:
    with path.open("rb") as file:
        return list(Unpacker(file, str(path)).entries())


async def test_entries_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot have been written at revision 9"):
        fill(tmp_path / "two", 5, [Entry("k", b"v", 9, 9)])
