"""Files below the allowed roots that nobody declared."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from homeostat.loop.provider import Refused, Undeclared
from homeostat.providers.file.kind import FileSpec
from homeostat.providers.file.tree import TEMPORARY, Roots, well_formed


def undeclared(roots: Roots, specs: Iterable[FileSpec]) -> Iterator[Undeclared]:
    """Every file below the roots but those that are declared, by path or as part of a directory. Links are named, not followed.

    A directory in which nothing is declared is named as a whole, with how many files it has.
    """
    files, directories = set[str](), set[str]()
    for spec in specs:
        try:
            place = roots.place(spec.path)
        except Refused:
            continue  # of another host's roots
        if spec.kind == "directory":
            directories.add(str(place))
            files |= {str(place.below(name)) for name in spec.files if well_formed(name.split("/"))}
        else:
            files.add(str(place))
    above = {str(part) for path in (*files, *directories) for part in _parents(path)}
    for root in roots.real():
        yield from _walk(root, files, directories, above)


def _parents(path: str) -> Iterator[str]:
    while (path := os.path.dirname(path)) not in ("/", ""):
        yield path


def _walk(path: str, files: set[str], directories: set[str], above: set[str]) -> Iterator[Undeclared]:
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        yield Undeclared(path, f"cannot be read: {error.strerror}")
        return
    for entry in entries:
        if entry.path in files or entry.name.startswith(TEMPORARY):
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield Undeclared(entry.path, "a link" if entry.is_symlink() else "a file")
        elif entry.path in above or entry.path in directories:
            yield from _walk(entry.path, files, directories, above)
        else:
            yield Undeclared(f"{entry.path}/", f"a directory of {sum(len(names) for _, _, names in os.walk(entry.path))} files")
