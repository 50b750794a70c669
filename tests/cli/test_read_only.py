"""A file system that turns read-only under a running server, as Linux does it to one on which it met an error."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Up

Start = Callable[..., Up]
Command = Callable[..., subprocess.CompletedProcess[str]]


class Disk:
    """A small ext4 of its own, that can be told to have met an error."""

    def __init__(self, place: Path, image: Path) -> None:
        self.place, self._image = place, image

    def fail(self) -> None:
        device = subprocess.run(["losetup", "-j", self._image, "-n", "-O", "NAME"], capture_output=True, text=True, check=True)
        Path("/sys/fs/ext4", Path(device.stdout.strip()).name, "trigger_fs_error").write_text("1")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    for command in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop,errors=remount-ro", image, place]):
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        if shutil.which(str(command[0]), path=path) is None or subprocess.run(
            command, capture_output=True, check=False, env={**os.environ, "PATH": path}
        ).returncode:
            pytest.skip("needs the right to mount an ext4")
    yield Disk(place, image)
    subprocess.run(["umount", "-l", place], check=True)


def test_writers_are_told_reads_go_on_and_the_loop_does_nothing(
    start: Start, homeostat_command: Command, disk: Disk, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    up = start("--enforce", "--allow", f"file:{site}", data=disk.place / "data")
    manifest = tmp_path / "motd.yaml"
    manifest.write_text(
        "apiVersion: files.homeostat.dev/v1\nkind: File\nmetadata: {name: motd}\n"
        f"spec: {{path: {site}/motd, content: hello}}\n"
    )
    server = {"KUBECONFIG": str(up.kubeconfig)}
    assert homeostat_command("apply", "--yes", "-f", manifest, **server).returncode == 0
    assert homeostat_command("wait", "file", "motd", **server).returncode == 0
    disk.fail()
    (site / "motd").unlink()
    manifest.write_text(manifest.read_text().replace("hello", "goodbye"))
    refused = homeostat_command("apply", "--yes", "-f", manifest, **server)
    assert refused.returncode == 1
    assert f"the file system of {disk.place}/data is read-only: the write was not done" in refused.stderr
    assert "no restart is needed" in refused.stderr
    read = homeostat_command("get", "files", "-o", "yaml", **server)
    assert "content: hello" in read.stdout
    looked = homeostat_command("doctor", **server)
    assert f"the file system of {disk.place}/data is read-only" in looked.stdout
    assert not (site / "motd").exists()
    up.stop()
    assert up.process.returncode == 0
    assert "the store failed" not in up.said
    assert up.said.count("the guards' status could not be written") <= 1, "what goes on is told once"
    assert "Traceback" not in up.said
