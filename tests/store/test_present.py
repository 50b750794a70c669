"""What is known of keys without asking the file: it may only spare work, never change an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from homeostat.store import Compare, Conflict, Delete, Put, SqliteStore
from homeostat.store.sqlite import log, recent
from homeostat.store.sqlite.present import Present
from homeostat.store.sqlite.store import Reader

KEYS = [f"things/{n}" for n in range(50)]


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly every key is looked for in the file, and the keys of the file are read in several steps."""
    monkeypatch.setattr(recent, "BYTES", 0)
    monkeypatch.setattr(log, "_KEYS_AT_ONCE", 7)


def test_a_key_that_was_added_is_never_denied() -> None:
    present = Present(KEYS[:25])
    for key in KEYS[25:]:
        present.add(key)
    assert all(key in present for key in KEYS)


def test_hardly_any_other_key_is_held_for_present() -> None:
    present = Present(KEYS)
    assert sum(f"others/{n}" in present for n in range(10_000)) < 10


@pytest.mark.asyncio
async def test_what_was_written_is_found_now_and_after_a_restart(tmp_path: Path) -> None:
    for reopened in (False, True):
        store = await SqliteStore.open(tmp_path, durable=False)
        for key in KEYS:
            if not reopened:
                await store.txn([Compare(key, 0)], [Put(key, key.encode())])
        for key in KEYS:
            entry = await store.get(key)
            assert entry is not None
            assert entry.value == key.encode()
            assert isinstance(await store.txn([Compare(key, 0)], [Put(key, b"")]), Conflict)
        await store.close()


@pytest.mark.asyncio
async def test_what_was_deleted_can_be_created_again(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, durable=False)
    await store.txn([], [Put(key, b"old") for key in KEYS])
    await store.txn([], [Delete(key) for key in KEYS])
    for key in KEYS:
        assert await store.get(key) is None
        assert isinstance(await store.txn([Compare(key, 0)], [Put(key, b"new")]), int)
    await store.close()


@pytest.mark.asyncio
async def test_a_key_that_never_was_costs_no_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SqliteStore.open(tmp_path, durable=False)
    monkeypatch.setattr(Reader, "get", lambda *_: pytest.fail("the file was asked"))
    assert await store.get("things/new") is None
    assert isinstance(await store.txn([Compare("things/new", 0)], [Put("things/new", b"")]), int)
    await store.close()
