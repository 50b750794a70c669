"""Where a module's code comes from, and how it gets into the directory that the tool runs in. All of this blocks: call it in a thread.

A further kind of source (a Git repository, an archive) is one more way to a `Tree`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import orjson

from homeostat.loop.provider import Refused
from homeostat.providers.dryrun.spec import ModuleSource

SIZE_MOST = 64 * 1024 * 1024
"""Bytes of a module with all its files."""
COUNT_MOST = 20_000
LEFT_OUT = frozenset({".git", ".terraform", ".hg", ".svn", "__pycache__"})
"""Directories of a source that are no code."""
_MANIFEST = "files.json"


@dataclass(frozen=True, slots=True)
class Tree:
    """Code as it was read at one moment: bytes by path, and which of them can be run."""

    files: Mapping[str, bytes] = field(repr=False)
    programs: frozenset[str] = frozenset()


def read_source(source: ModuleSource, allowed: Sequence[str] | None) -> Tree:
    """The code of a module. `allowed` are the roots that paths may lie below; None: anywhere, and inline code too.

    Raises `Refused` where it may not be run, or is no source; OSError where it cannot be read.
    """
    if bool(source.files) == bool(source.path):
        raise Refused("source: give files or a path, one of the two")
    if source.path:
        return _from_path(source.path, allowed)
    if allowed is not None:
        raise Refused(
            f"source.files: code in a declaration may not be run on this host, only what lies in {', '.join(allowed)}; "
            "whoever runs the control plane can allow more"
        )
    return Tree({within(name, "source.files"): text.encode() for name, text in source.files.items()})


def within(path: str, name: str) -> str:
    """A path that stays inside of its source, in its plain form. `Refused` where it does not."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise Refused(f"{name}: {path!r} has to be a path inside of the source")
    return str(pure)


def _from_path(path: str, allowed: Sequence[str] | None) -> Tree:
    root = os.path.realpath(path)
    if allowed is not None and not any(Path(root).is_relative_to(os.path.realpath(one)) for one in allowed):
        raise Refused(
            f"source.path: {path} may not be used on this host (allowed: {', '.join(allowed)}); "
            "whoever runs the control plane can allow more"
        )
    if not os.path.isdir(root):
        raise Refused(f"source.path: {path} is no directory")
    files: dict[str, bytes] = {}
    programs: set[str] = set()
    size = 0
    for folder, folders, names in os.walk(root, onerror=_raise):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in sorted(names):
            full = os.path.join(folder, name)
            if not Path(os.path.realpath(full)).is_relative_to(root):
                raise Refused(f"source.path: {full} is a link that leads out of {path}")
            if not os.path.isfile(full):
                continue
            data = Path(full).read_bytes()
            size += len(data)
            if size > SIZE_MOST or len(files) >= COUNT_MOST:
                raise Refused(f"source.path: {path} holds more than {SIZE_MOST} bytes or {COUNT_MOST} files")
            inside = os.path.relpath(full, root)
            files[inside] = data
            if os.access(full, os.X_OK):
                programs.add(inside)
    return Tree(files, frozenset(programs))


def _raise(error: OSError) -> None:
    raise error


def lay_out(tree: Tree, work: Path) -> None:
    """Makes a directory hold this code. What a tool made there itself (its state, its plug-ins) stays; code that is gone goes."""
    manifest = work.parent / _MANIFEST
    try:
        before = set(orjson.loads(manifest.read_bytes()))
    except (OSError, orjson.JSONDecodeError):
        before = set()
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    manifest.write_bytes(orjson.dumps(sorted(before | tree.files.keys())))  # first: a kill in the midst leaves no code behind
    for name in before - tree.files.keys():
        (work / name).unlink(missing_ok=True)
    for name, data in tree.files.items():
        path = work / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != data:
            path.write_bytes(data)
        path.chmod(0o700 if name in tree.programs else 0o600)
    manifest.write_bytes(orjson.dumps(sorted(tree.files)))
