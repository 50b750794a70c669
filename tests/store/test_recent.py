"""What was read or written lately is kept as it is committed, as much as there is room for."""

from __future__ import annotations

import pytest

from homeostat.store.base import Entry
from homeostat.store.sqlite import recent
from homeostat.store.sqlite.recent import LARGEST, OVERHEAD, UNKNOWN, Recent


def entry(key: str, size: int = 100) -> Entry:
    return Entry(key, b"x" * size, 1, 1)


def test_a_key_that_does_not_exist_is_something_else_than_one_that_nothing_is_known_of() -> None:
    lately = Recent()
    lately.keep("gone", None)
    assert lately.get("gone") is None
    assert lately.get("never seen") is UNKNOWN


def test_there_is_room_for_so_many_bytes_and_what_was_kept_last_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "BYTES", 3 * (100 + OVERHEAD))
    lately = Recent()
    for key in ("a", "b", "c", "a", "d"):
        lately.keep(key, entry(key))
    assert [key for key in "abcd" if lately.get(key) is not UNKNOWN] == ["a", "c", "d"]
    lately.keep("e", entry("e", 2 * 100 + OVERHEAD))  # as much as two
    assert [key for key in "abcde" if lately.get(key) is not UNKNOWN] == ["d", "e"]


def test_what_grew_too_large_is_not_taken_for_what_it_was() -> None:
    lately = Recent()
    lately.keep("a", entry("a"))
    lately.keep("a", entry("a", LARGEST + 1))
    assert lately.get("a") is UNKNOWN


def test_it_can_be_overwritten_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "BYTES", 10_000)
    lately = Recent()
    for size in range(5000):
        lately.keep("a", entry("a", size % 300))
        lately.keep("b", None)
    assert lately.get("a") == entry("a", 4999 % 300)
    assert lately.get("b") is None
