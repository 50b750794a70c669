"""The archive keeps what the log lets go of, and nothing that is damaged is told."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import apsw
import pytest

from homeostat.store import StoreError
from homeostat.store.archive import Archive, Past


def past(key: str, since: int, until: int, value: bytes = b"v", *, gone: bool = False, mark: str = "") -> Past:
    return Past(key, until, since, since, since, gone, mark, value)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    found = Archive(tmp_path / "history.db")
    found.start_at(1)
    return found


def test_it_is_for_its_owner_alone(archive: Archive) -> None:
    assert archive.path.stat().st_mode & 0o777 == 0o600


def test_keeping_the_same_twice_keeps_it_once(archive: Archive) -> None:
    """As after a crash between the archive and the compaction."""
    for _ in range(2):
        archive.keep([past("k/a", 2, 5, b"one")], 5)
    assert archive.history("k/a", 9, 9) == [past("k/a", 2, 5, b"one")]
    assert archive.reached == 5


def test_the_newest_of_what_lives_is_never_dropped(archive: Archive) -> None:
    archive.keep([past("k/a", 2, 4), past("k/a", 4, 6), past("k/b", 2, 5, gone=True), past("other/a", 2, 4)], 9)
    assert archive.drop("k/", before=8, most=10) == 2
    assert [row.until for row in archive.history("k/a", 9, 9)] == [6]
    assert archive.history("k/b", 9, 9) == [], "what was deleted long ago goes"
    assert len(archive.history("other/a", 9, 9)) == 1
    assert archive.floor("k/") == 8


def test_no_more_changes_are_kept_than_was_said(archive: Archive) -> None:
    archive.keep([past("k/a", n, n + 1) for n in range(2, 9)], 9)
    assert archive.drop("k/", before=0, most=3) == 4
    assert [row.until for row in archive.history("k/a", 9, 9)] == [9, 8, 7]
    assert archive.floor("k/a") == 6
    assert archive.dropped("k/", 5) == "k/a"
    assert archive.dropped("k/", 6) == ""


def test_marks_say_which_second_had_which_revision(archive: Archive) -> None:
    archive.mark([(100, 5), (101, 8), (110, 9)])
    assert [archive.revision_at(second) for second in (99, 100, 105, 110, 999)] == [0, 5, 8, 9, 9]
    assert [archive.time_of(revision) for revision in (4, 5, 6, 8, 9, 10)] == [0, 100, 101, 101, 110, 0]


def test_old_marks_are_thinned_to_one_a_minute(archive: Archive) -> None:
    archive.mark([(second, second) for second in range(0, 240)])
    archive.thin(86_400 + 120, 30)
    assert archive.revision_at(59) == 59
    assert archive.revision_at(58) == 0
    assert archive.revision_at(118) == 59
    assert archive.revision_at(150) == 150


def test_damage_is_noticed_and_named(archive: Archive) -> None:
    archive.keep([past("k/a", 2, 5, b"one")], 5)
    archive.close()
    with sqlite3.connect(archive.path) as connection:
        connection.execute("UPDATE past SET since = 3")
    again = Archive(archive.path)
    with pytest.raises(StoreError, match=r"is damaged: what 'k/a' held before revision 5"):
        again.at("k/a", 4)
    again.close()


def test_a_file_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history.db").write_bytes(b"not a database at all, but long enough to be looked at" * 10)
    with pytest.raises(StoreError, match=r"the history in .* cannot be used: .*; move it away"):
        Archive(tmp_path / "history.db")


def test_on_a_read_only_file_system_nobody_is_told_to_move_the_history_away(archive: Archive) -> None:
    told = str(archive._explain(apsw.IOError("disk I/O error"), errno.EROFS))
    assert told == f"the file system of the history in {archive.path} is read-only: nothing of it is lost"


def test_on_a_full_disk_nobody_is_told_to_move_the_history_away(archive: Archive) -> None:
    archive.keep([past("k/a", 2, 5, b"one")], 5)
    archive._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StoreError, match=r"no space is left for the history in .*: nothing of it is lost") as told:
        archive.keep([past("k/b", 6, 7, os.urandom(100_000))], 7)
    assert "move" not in str(told.value)
    found = archive.at("k/a", 4)
    assert found is not None
    assert found.value == b"one"
