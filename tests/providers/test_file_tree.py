"""How the disk is read and written: never over links, never half, never what is not ours."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from homeostat.loop.provider import Refused
from homeostat.providers.file.content import Digest, substitute
from homeostat.providers.file.tree import (
    STRAYS_MOST,
    DiskTrouble,
    GivenUp,
    Look,
    Roots,
    look_at,
    opened,
    put,
    remove_directory,
    strays,
)
from homeostat.providers.references import MissingValue, Values

LOOK = Look(0o644)
LIMIT = 1 << 20


@contextmanager
def directory(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def write(path: Path, content: bytes, new: bool = False, given_up: threading.Event | None = None) -> None:
    with directory(path.parent) as fd:
        put(fd, path.name, content, LOOK, new=new, by="me", given_up=given_up)


def names(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir())


# Writing


def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            write(path, b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


def test_a_disk_that_is_full_when_it_counts_leaves_nothing_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "f", b"new", new=True)
    assert names(tmp_path) == []


def test_the_file_is_durable_before_it_has_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def fsync(fd: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"
        synced.append(f"{kind}, {'named' if (tmp_path / 'f').exists() else 'not named'}")

    monkeypatch.setattr(os, "fsync", fsync)
    write(tmp_path / "f", b"new", new=True)
    assert synced == ["file, not named", "directory, named"]


def test_a_new_file_replaces_nothing_that_has_come_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        write(path, b"mine", new=True)
    assert path.read_bytes() == b"theirs"
    assert names(tmp_path) == ["f"]


def test_a_hard_link_to_another_file_does_not_change_that_file(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "f"
    victim.write_bytes(b"theirs")
    victim.chmod(0o600)
    os.link(victim, path)
    write(path, b"mine")
    assert victim.read_bytes() == b"theirs"
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600


def test_who_is_not_waited_for_any_more_changes_nothing(tmp_path: Path) -> None:
    path, given_up = tmp_path / "f", threading.Event()
    path.write_bytes(b"old")
    given_up.set()
    with pytest.raises(GivenUp):
        write(path, b"too late", given_up=given_up)
    assert path.read_bytes() == b"old"
    write(path, b"new")  # and what it left beside is no hindrance
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["f"]


def test_a_directory_with_something_in_it_stays(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"")
    with directory(tmp_path) as fd:
        assert not remove_directory(fd, "d")
        (tmp_path / "d" / "f").unlink()
        assert remove_directory(fd, "d")
        assert remove_directory(fd, "d")


# Looking


def test_what_is_no_file_is_told_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")  # to open it would wait for ever
    (tmp_path / "link").symlink_to("/etc/passwd")
    with directory(tmp_path) as fd:
        fifo, link = look_at(fd, "fifo", Digest(), LIMIT), look_at(fd, "link", Digest(), LIMIT)
        assert look_at(fd, "none", Digest(), LIMIT) is None
    assert fifo is not None
    assert link is not None
    assert (fifo.kind, fifo.digest) == ("other", "other")
    assert (link.kind, link.digest) == ("link", "link")


def test_a_special_bit_shows(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"")
    path.chmod(0o4755)
    with directory(tmp_path) as fd:
        found = look_at(fd, "f", Digest(), LIMIT)
    assert found is not None
    assert found.mode == "4755"


def test_the_way_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"")
    roots = Roots([tmp_path])
    place = roots.place(f"{tmp_path}/a/b/c")
    with opened(place, 2) as (_, depth):
        assert depth == 1
    with pytest.raises(Refused, match="no directory"), opened(roots.place(f"{tmp_path}/a/file/x"), 2):
        pass
    with (
        pytest.raises(DiskTrouble, match="allowed root"),
        opened(Roots([tmp_path / "gone"]).place(f"{tmp_path}/gone/x"), 0),
    ):
        pass


def test_an_operators_own_link_may_be_a_root(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    roots = Roots([tmp_path / "link"])
    assert roots.place(f"{tmp_path}/link/f") == roots.place(f"{tmp_path}/real/f")


def test_too_many_strays_are_taken_for_a_mistake(tmp_path: Path) -> None:
    for number in range(STRAYS_MOST + 1):
        (tmp_path / str(number)).touch()
    with directory(tmp_path) as fd, pytest.raises(Refused, match="looks like a mistake"):
        strays(fd, lambda path: False, str(tmp_path), lambda fd, name: None)


def test_what_is_mounted_below_is_never_a_stray(tmp_path: Path) -> None:
    mounted = tmp_path / "disk"
    mounted.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(["mount", "-t", "tmpfs", "none", mounted], check=False, capture_output=True).returncode
    ):
        pytest.skip("mounting is not allowed here")
    try:
        (mounted / "precious").touch()
        (tmp_path / "stray").touch()
        with directory(tmp_path) as fd:
            assert strays(fd, lambda path: False, str(tmp_path), lambda fd, name: None) == ["stray"]
    finally:
        subprocess.run(["umount", mounted], check=True)


def test_a_stray_name_that_cannot_be_written_down_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "a\nb").touch()
    with directory(tmp_path) as fd, pytest.raises(Refused, match="by hand"):
        strays(fd, lambda path: False, str(tmp_path), lambda fd, name: None)


# Content


def test_values_are_put_in_as_they_are_and_not_looked_into() -> None:
    values = Values({"a": {"k": b"{{ a.other }}", "other": b"x", "b.in": b"\xff"}})
    assert substitute("<{{a.k}}>{{ a.b.in }}", values) == b"<{{ a.other }}>\xff"


@pytest.mark.parametrize("template", ["{{ a }}", "{{ }}", "{{ a.k", "{{ a.k | upper }}", "{{ a. k }}"])
def test_what_is_no_place_is_refused(template: str) -> None:
    with pytest.raises(Refused):
        substitute(template, Values({"a": {"k": b"v"}}))


def test_a_source_that_is_not_named_is_missing() -> None:
    with pytest.raises(MissingValue, match="there is: a"):
        substitute("{{ b.k }}", Values({"a": {"k": b"v"}}))


def test_a_sealed_digest_tells_nothing_to_who_does_not_have_the_seal() -> None:
    plain, sealed = Digest().of(b"1234"), Digest(b"uid").of(b"1234")
    assert plain.removeprefix("sha256:") != sealed.removeprefix("hmac-sha256:")
    assert sealed == Digest(b"uid").of(b"1234")
    assert "1234" not in repr(Values({"a": {"k": b"1234"}}, b"uid", (b"1234",)))


# Crashes


CRASHES = """
import os, sys
from homeostat.providers.file.tree import Look, put

folder, crashed = sys.argv[1], 0
names = [n for n in ("open", "unlink", "stat", "fstat", "fsync", "fchmod", "fchown", "rename")]
real = {name: getattr(os, name) for name in names}


def write(content, left=-1):
    def counted(name):
        def call(*args, **options):
            nonlocal left
            if left == 0:
                os._exit(9)  # as if killed: nothing is cleaned up
            left -= 1
            return real[name](*args, **options)
        return call

    for name in names:
        setattr(os, name, counted(name))
    fd = real["open"](folder, os.O_PATH | os.O_DIRECTORY)
    put(fd, "f", content, Look(0o644), new=False, by="me")


write(b"old" * 5000)
while True:
    pid = os.fork()
    if pid == 0:
        write(b"new" * 5000, left=crashed)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    found = open(folder + "/f", "rb").read()
    assert found in (b"old" * 5000, b"new" * 5000), f"half-written after {crashed} calls"
    if status == 0:
        break
    assert status == 9, status
    crashed += 1
assert os.listdir(folder) == ["f"], os.listdir(folder)
print(crashed)
"""


def test_killed_at_any_step_the_file_is_whole_and_the_next_write_leaves_nothing_beside(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CRASHES, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 7  # it was killed at that many places
