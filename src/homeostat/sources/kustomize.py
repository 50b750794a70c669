"""Kustomizations, built by the program of that name or by kubectl, which carries one.

It gets the files of the commit in a directory of its own, and neither the network nor git: a base stands in the same repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from homeostat.sources.files import File, RenderError, Trees, read_file

NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
SECONDS = 60.0
MOST_OUTPUT = 64 * 1024 * 1024
_NOWHERE = "http://127.0.0.1:9"


def is_kustomization(path: str, below: str) -> bool:
    """Whether a file is that of a directory."""
    directory, _, name = path.rpartition("/")
    return name in NAMES and directory == below.strip("/")


def build(trees: Trees, files: Sequence[File], below: str) -> str:
    """What a directory comes to, as YAML. RenderError where it cannot be built, with what the program says."""
    command = _program()
    with tempfile.TemporaryDirectory(prefix="homeostat-kustomize-") as place:
        root = Path(place).resolve()
        for file in files:
            target = root / "files" / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(read_file(trees, file))
        (root / "home").mkdir()
        quiet = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _NOWHERE)
        environment = {"PATH": str(root / "home"), "HOME": str(root / "home"), "TMPDIR": str(root / "home"), **quiet}
        where = root / "files" / below.strip("/")
        try:
            with (root / "out").open("wb") as out:
                done = subprocess.run(
                    [*command, str(where)], stdout=out, stderr=subprocess.PIPE, env=environment, cwd=root,
                    timeout=SECONDS, check=False, stdin=subprocess.DEVNULL,
                )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise RenderError(f"kustomize took more than {SECONDS:g} s", below) from None
        except OSError as error:
            raise RenderError(f"kustomize cannot be run: {error.strerror}", below) from None
        if done.returncode != 0:
            said = reason_of(done.stderr.decode(errors="replace").replace(f"{root}/files/", ""))
            raise RenderError(
                f"kustomize: {said[-2000:]}",
                f"{below.strip('/')}/{NAMES[0]}".lstrip("/"),
            )
        if os.path.getsize(root / "out") > MOST_OUTPUT:
            raise RenderError(f"kustomize gives more than {MOST_OUTPUT // 2**20} MiB", below)
        return (root / "out").read_text()


def reason_of(text: str) -> str:
    """What kustomize says is wrong: without its warnings, and without the time and process that kubectl puts before it."""
    lines = [line for line in text.strip().splitlines() if not line.startswith("# Warning")]
    said = "\n".join(lines).strip()
    if logged := re.fullmatch(r'E\d{4} [\d:.]+ +\d+ \S+\] "[^"]*" err="(.*)"', said, re.DOTALL):
        said = logged[1].replace('\\"', '"')
    return said.removeprefix("error: ").removeprefix("Error: ")


def _program() -> list[str]:
    if found := shutil.which("kustomize"):
        return [found, "build"]
    if found := shutil.which("kubectl"):
        return [found, "kustomize"]
    raise RenderError("it is a kustomization, and neither kustomize nor kubectl is on the PATH of the loop")
