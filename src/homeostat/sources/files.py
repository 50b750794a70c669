"""The files of one commit, straight from its trees: which there are, and what is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from homeostat.sources.repository import Entry, GitFailure

MOST_BYTES = 3 * 1024 * 1024
"""Of one file."""
DEEPEST = 64


class RenderError(Exception):
    """A commit cannot be rendered, or not be applied as a whole. Says in which file and line, and which field, where that is known."""

    def __init__(self, problem: str, file: str = "", line: int = 0, field: str = "") -> None:
        self.problem, self.file, self.line, self.field = problem, file, line, field
        place = f"{file}:{line}: " if line else f"{file}: " if file else ""
        super().__init__(f"{place}{problem}")


class Trees(Protocol):
    """Where files come from; `Repository` is one."""

    def entries(self, tree: str) -> Sequence[Entry]: ...

    def size(self, blob: str) -> int: ...

    def read(self, blob: str) -> bytes: ...


class File(NamedTuple):
    """A file of a commit: its path from the root of the repository, and which content it has."""

    path: str
    blob: str


def find_tree(trees: Trees, root: str, path: str) -> str:
    """The tree of a directory. RenderError where there is none."""
    tree = root
    for part in filter(None, path.strip("/").split("/")):
        if part == ".":
            continue
        found = next((one for one in trees.entries(tree) if one.name == part), None)
        if found is None or not found.is_tree:
            raise RenderError(f"the commit has no directory {path!r}: correct `path`")
        tree = found.id
    return tree


def list_files(
    trees: Trees,
    tree: str,
    below: str = "",
    *,
    recurse: bool = True,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    most: int = 50_000,
) -> list[File]:
    """The files in a tree and below, by their paths. Links and submodules are left aside. RenderError where there are too many."""
    found: list[File] = []
    for path, entry in _walk(trees, tree, below.strip("/"), recurse, 0):
        if (include and not any(matches(path, one) for one in include)) or any(matches(path, one) for one in exclude):
            continue
        found.append(File(path, entry.id))
        if len(found) > most:
            raise RenderError(f"there are more than {most} files: narrow `path` or `include`, or raise limits.files")
    return found


def _walk(trees: Trees, tree: str, below: str, recurse: bool, depth: int) -> Iterator[tuple[str, Entry]]:
    if depth > DEEPEST:
        raise RenderError(f"directories are nested deeper than {DEEPEST} levels", below)
    for entry in trees.entries(tree):
        path = f"{below}/{entry.name}" if below else entry.name
        if entry.is_file:
            yield path, entry
        elif entry.is_tree and recurse:
            yield from _walk(trees, entry.id, path, recurse, depth + 1)


def read_file(trees: Trees, file: File) -> bytes:
    """The content of a file. RenderError where it is too large."""
    if trees.size(file.blob) > MOST_BYTES:
        raise RenderError(f"it is larger than {MOST_BYTES // 2**20} MiB", file.path)
    try:
        return trees.read(file.blob)
    except GitFailure as error:
        raise RenderError(str(error), file.path) from None


def matches(path: str, pattern: str) -> bool:
    """Whether a path matches: `*` within one name, `**` over any; a pattern without a slash is about the last name."""
    return _pattern(pattern).fullmatch(path) is not None


@lru_cache(1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    text, out = pattern.strip("/"), ""
    if "/" not in text:
        out = "(?:.*/)?"
    i = 0
    while i < len(text):
        if text.startswith("**/", i):
            out, i = out + "(?:.*/)?", i + 3
        elif text.startswith("**", i):
            out, i = out + ".*", i + 2
        elif text[i] == "*":
            out, i = out + "[^/]*", i + 1
        elif text[i] == "?":
            out, i = out + "[^/]", i + 1
        else:
            out, i = out + re.escape(text[i]), i + 1
    return re.compile(out)
