"""Which commit of a repository counts, by what it has under which name. Nothing here reads anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from homeostat.sources.kinds import Revision

_VERSION = re.compile(
    r"v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?:-([0-9A-Za-z.-]{1,64}))?(?:\+[0-9A-Za-z.-]+)?"
).fullmatch
_TERM = re.compile(
    r"(>=|<=|>|<|=|\^|~)?\s*v?(\d{1,9}|[xX*])(?:\.(\d{1,9}|[xX*]))?(?:\.(\d{1,9}|[xX*]))?(?:-([0-9A-Za-z.-]{1,64}))?"
).fullmatch


class NoSuchRevision(LookupError):
    """The repository has nothing of the name that was asked for."""


class Chosen(NamedTuple):
    """What to fetch (a reference, or a commit) and what the remote says that it is."""

    what: str
    id: str
    shown: str


class Version(NamedTuple):
    """A semantic version, in the order that they have: a pre-release comes before its release."""

    major: int
    minor: int
    patch: int
    final: bool
    pre: tuple[tuple[int, int, str], ...] = ()


def choose(heads: Mapping[str, str], revision: Revision) -> Chosen:
    """The reference that counts. NoSuchRevision where there is none, and says what there is."""
    if revision.commit:
        return Chosen(revision.commit, revision.commit, revision.commit[:12])
    if revision.branch:
        return _named(heads, f"refs/heads/{revision.branch}", f"branch {revision.branch}")
    if revision.tag:
        return _named(heads, f"refs/tags/{revision.tag}", f"tag {revision.tag}")
    if revision.semver:
        return _newest(heads, revision.semver)
    if "HEAD" not in heads:
        raise NoSuchRevision("the repository is empty, or its HEAD names no branch that it has")
    same = sorted(name for name, id in heads.items() if name.startswith("refs/heads/") and id == heads["HEAD"])
    preferred = [name for name in same if name in ("refs/heads/main", "refs/heads/master")] + same
    what = preferred[0] if preferred else "HEAD"
    return Chosen(what, heads["HEAD"], what.removeprefix("refs/heads/"))


def _named(heads: Mapping[str, str], name: str, words: str) -> Chosen:
    if name not in heads:
        kind = name.rpartition("/")[0] + "/"
        there = sorted(one.removeprefix(kind) for one in heads if one.startswith(kind) and not one.endswith("^{}"))
        shown = ", ".join(there[:5]) + (f" and {len(there) - 5} more" if len(there) > 5 else "")
        raise NoSuchRevision(f"there is no {words} (there is: {shown or 'none'})")
    return Chosen(name, heads[name], words)


def _newest(heads: Mapping[str, str], wanted: str) -> Chosen:
    found = []
    for name in heads:
        tag = name.removeprefix("refs/tags/")
        if tag != name and not tag.endswith("^{}") and (version := parse_version(tag)) is not None:
            found.append((version, tag))
    fitting = [(version, tag) for version, tag in found if in_range(version, wanted)]
    if not fitting:
        raise NoSuchRevision(f"no tag is in the range {wanted} (of {len(found)} that are versions)")
    tag = max(fitting)[1]
    return Chosen(f"refs/tags/{tag}", heads[f"refs/tags/{tag}"], f"tag {tag}")


def parse_version(text: str) -> Version | None:
    """A version such as `v1.2.3-rc.1`; None where it is none."""
    found = _VERSION(text)
    if found is None or (found[2] is None and found[4]):
        return None
    return Version(int(found[1]), int(found[2] or 0), int(found[3] or 0), not found[4], _pre(found[4]))


def _pre(text: str | None) -> tuple[tuple[int, int, str], ...]:
    parts = text.split(".") if text else ()
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


def in_range(version: Version, wanted: str) -> bool:
    """Whether a version is in a range. NoSuchRevision where the range cannot be read."""
    return any(_fits(version, part) for part in wanted.split("||"))


def _fits(version: Version, part: str) -> bool:
    words = re.sub(r"(>=|<=|>|<|=|\^|~)\s+", r"\1", part.replace(",", " ")).split()
    if not words:
        raise NoSuchRevision(f"{part!r} is no range of versions, such as 1.x or >=1.2.0 <2.0.0")
    pre = False
    for word in words:
        found = _TERM(word)
        if found is None:
            raise NoSuchRevision(f"{word!r} is no range of versions, such as 1.x or >=1.2.0 <2.0.0")
        low, high = _bounds(found[1] or "", [found[2], found[3], found[4]], found[5])
        pre = pre or bool(found[5])
        if (low is not None and version < low) or (high is not None and version >= high):
            return False
    return version.final or pre


def _bounds(sign: str, parts: list[str | None], pre: str | None) -> tuple[Version | None, Version | None]:
    """From (with it) and to (without it)."""
    numbers: list[int] = []
    for part in parts:
        if part is None or part in "xX*":
            break
        numbers.append(int(part))
    padded = [*numbers, 0, 0, 0][:3]
    low = Version(padded[0], padded[1], padded[2], not pre, _pre(pre))
    if not pre and len(numbers) < 3 and sign != ">":
        low = low._replace(final=False)  # `>=1.2` and `1.x` leave pre-releases to who asks for them
    if sign == "^":
        at = next((i for i, n in enumerate(numbers) if n), max(0, len(numbers) - 1))
        return low, _above(numbers[: at + 1])
    if sign == "~":
        return low, _above(numbers[:2] or numbers)
    above = _above(numbers) if len(numbers) < 3 or pre is None else low._replace(pre=(*low.pre, (0, 0, "")))
    if sign in ("", "="):
        return low, above
    if sign == ">=":
        return low, None
    if sign == ">":
        return above, None
    return None, (low if sign == "<" else above)


def _above(numbers: list[int]) -> Version | None:
    """The first version that does not begin so; without numbers there is none."""
    if not numbers:
        return None
    following = [*numbers[:-1], numbers[-1] + 1, 0, 0][:3]
    return Version(following[0], following[1], following[2], False)
