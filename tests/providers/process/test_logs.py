"""Rotation of logs under a writer that never pauses: no line is lost, none is torn."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from homeostat.providers.process import logs
from homeostat.providers.process.kind import Logs

WRITER = """
import os
for number in range(60000):
    os.write(1, b"line %d of the log that is never long enough\\n" % number)
"""


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that can cut files, and on one that can only make holes in them."""
    if request.param == "disk":
        yield tmp_path
        return
    memory = Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("no /dev/shm")
    with tempfile.TemporaryDirectory(dir=memory) as found:
        yield Path(found)


def lines_of(folder: Path) -> list[bytes]:
    """All lines, the oldest first, without what stands in for what was cut off."""
    rotated = sorted(folder.glob("0.out.*"), key=lambda path: -int(path.suffix[1:]))
    text = b"".join(path.read_bytes().lstrip(b"\0") for path in [*rotated, folder / "0.out"])
    return [line for line in text.split(b"\n") if line.strip()]


def test_no_line_is_lost_or_torn_while_the_writer_goes_on(folder: Path) -> None:
    path, policy = folder / "0.out", Logs(max_bytes=64 * 1024, keep=100)
    descriptor = logs.open_log(path)
    writer = subprocess.Popen([sys.executable, "-S", "-c", WRITER], stdout=descriptor)
    os.close(descriptor)
    rotations = 0
    while writer.poll() is None:
        rotations += logs.rotate(path, policy)
    rotations += logs.rotate(path, policy)
    assert rotations >= 3
    assert rotations <= 100
    expected = [b"line %d of the log that is never long enough" % number for number in range(60000)]
    assert lines_of(folder) == expected
    assert min(path.stat().st_size, path.stat().st_blocks * 512) <= 64 * 1024 + 8192


def test_only_so_many_are_kept(folder: Path) -> None:
    path, policy = folder / "0.out", Logs(max_bytes=4096, keep=2)
    for number in range(5):
        with path.open("ab") as file:
            file.write(b"%d" % number + b"x" * 98 + b"\n")
            file.write((b"y" * 99 + b"\n") * 99)
        assert logs.rotate(path, policy)
    assert sorted(found.name for found in folder.iterdir()) == ["0.out", "0.out.1", "0.out.2"]
    assert b"4xxx" in (folder / "0.out.1").read_bytes()
    assert b"3xxx" in (folder / "0.out.2").read_bytes()


def test_of_one_that_outgrew_all_that_is_kept_only_the_newest_lines_are_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_OVERGROWN", 64 * 1024)
    path, policy = folder / "0.out", Logs(max_bytes=4096, keep=2)
    lines = [b"line %d" % number for number in range(20_000)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    assert logs.rotate(path, policy)
    kept = lines_of(folder)
    assert kept == lines[-len(kept) :], "the newest lines, none of them torn"
    assert 4096 < (folder / "0.out.1").stat().st_blocks * 512 <= 2 * 4096 + 8192
    assert path.stat().st_blocks * 512 <= 8192


def test_with_none_kept_the_room_is_given_back(folder: Path) -> None:
    path = folder / "0.out"
    path.write_bytes(b"z" * 99 + b"\n" * 100_000)
    assert logs.rotate(path, Logs(max_bytes=4096, keep=0))
    assert [found.name for found in folder.iterdir()] == ["0.out"]
    assert path.stat().st_blocks * 512 <= 8192


def test_a_small_log_and_one_that_is_not_there_are_left_alone(folder: Path) -> None:
    assert not logs.rotate(folder / "0.out", Logs())
    (folder / "0.out").write_bytes(b"short\n")
    assert not logs.rotate(folder / "0.out", Logs())
    assert (folder / "0.out").read_bytes() == b"short\n"


def test_on_a_full_disk_the_oldest_make_room_and_the_log_is_cut_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, policy = folder / "0.out", Logs(max_bytes=4096, keep=3)
    room, send = 25_000, os.sendfile

    def full(out: int, source: int, offset: int, count: int) -> int:
        used = sum(found.stat().st_size for found in folder.glob("0.out.*"))
        if used >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return send(out, source, offset, min(count, room - used))

    monkeypatch.setattr(os, "sendfile", full)
    for number in range(4):
        with path.open("ab") as file:
            file.write(b"%d" % number + b"x" * 98 + b"\n")
            file.write((b"y" * 99 + b"\n") * 99)
        assert logs.rotate(path, policy)
    assert sorted(found.name for found in folder.iterdir()) == ["0.out", "0.out.1", "0.out.2"]
    assert b"3xxx" in (folder / "0.out.1").read_bytes()
    assert b"2xxx" in (folder / "0.out.2").read_bytes()
    room = 0
    with path.open("ab") as file:
        file.write((b"z" * 99 + b"\n") * 99)
    assert logs.rotate(path, policy)
    assert [found.name for found in folder.iterdir()] == ["0.out"]
    assert path.stat().st_blocks * 512 <= 8192


@pytest.mark.parametrize("at", ["_copy", "_cut_off", "_shift"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_in_the_midst_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, at: str, when: str) -> None:
    path, policy = folder / "0.out", Logs(max_bytes=4096, keep=9)
    lines = [b"line %d" % number for number in range(5000)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    true = getattr(logs, at)

    def killed(*args: object) -> None:
        if when == "after":
            true(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(logs, at, killed)
    with pytest.raises(KeyboardInterrupt):
        logs.rotate(path, policy)
    monkeypatch.setattr(logs, at, true)
    logs.rotate(path, policy)
    assert lines_of(folder) == lines
