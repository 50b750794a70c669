"""Semantic versions."""

from __future__ import annotations

import re
from typing import Any

from homeostat.model.cel.overloads import overload, per_character
from homeostat.model.cel.values import CelError, declare_opaque

_NUMBER = r"(0|[1-9]\d{0,19})"
_SHAPE = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
).fullmatch
_LARGEST = 2**64


class Semver:
    """major.minor.patch-pre; what follows a plus sign says nothing about order."""

    __slots__ = ("key", "numbers")

    def __init__(self, numbers: tuple[int, int, int], pre: str) -> None:
        self.numbers = numbers
        # A release follows all its pre-releases; numbers come before words; fewer parts before more.
        # Numbers without leading zeros compare by length, then by digits.
        parts = tuple((0, len(p), p) if p.isdigit() else (1, 0, p) for p in pre.split(".")) if pre else ()
        self.key: Any = (numbers, not pre, parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


declare_opaque(Semver, "kubernetes.Semver")


def _normalized(text: str) -> str:
    """Forgives a leading v, missing minor and patch, and leading zeros."""
    text = text.removeprefix("v")
    cut = min((i for i in (text.find("-"), text.find("+")) if i >= 0), default=len(text))
    core, rest = text[:cut], text[cut:]
    parts = core.split(".")
    if len(parts) < 3 and rest:
        return text
    numbers = [p.lstrip("0") or "0" if p.isdigit() else p for p in parts]
    return ".".join(numbers + ["0"] * (3 - len(numbers))) + rest


def _parse(text: str, normalize: bool) -> Semver | None:
    found = _SHAPE(_normalized(text) if normalize else text)
    if found is None:
        return None
    numbers = (int(found[1]), int(found[2]), int(found[3]))
    return Semver(numbers, found[4] or "") if max(numbers) < _LARGEST else None


def _problem(text: str) -> str:
    """Why a text is no version."""
    if not text:
        return "Version string empty"
    parts = text.split(".", 2)
    if len(parts) != 3:
        return "No Major.Minor.Patch elements found"
    patch_number = re.split(r"[-+]", parts[2], maxsplit=1)[0]
    for name, part in zip(("Major", "Minor", "Patch"), (parts[0], parts[1], patch_number), strict=True):
        if not (part.isascii() and part.isdigit()):
            return f'Invalid character(s) found in {name.lower()} number "{part}"'
        if len(part) > 1 and part[0] == "0":
            return f'{name} number must not contain leading zeroes "{part}"'
    return "Invalid character(s) found in prerelease or build meta data"


@overload("semver(string): kubernetes.Semver", "semver(string, bool): kubernetes.Semver", cost=per_character)
def semver(text: str, normalize: bool = False) -> Semver:
    version = _parse(text, normalize)
    if version is None:
        raise CelError(_problem(text))
    return version


@overload("isSemver(string): bool", "isSemver(string, bool): bool", cost=per_character)
def is_semver(text: str, normalize: bool = False) -> bool:
    return _parse(text, normalize) is not None


@overload("kubernetes.Semver.major(): int")
def major(v: Semver) -> int:
    return v.numbers[0]


@overload("kubernetes.Semver.minor(): int")
def minor(v: Semver) -> int:
    return v.numbers[1]


@overload("kubernetes.Semver.patch(): int")
def patch(v: Semver) -> int:
    return v.numbers[2]


@overload("kubernetes.Semver.isGreaterThan(kubernetes.Semver): bool")
def is_greater(v: Semver, other: Semver) -> bool:
    return bool(v.key > other.key)


@overload("kubernetes.Semver.isLessThan(kubernetes.Semver): bool")
def is_less(v: Semver, other: Semver) -> bool:
    return bool(v.key < other.key)


@overload("kubernetes.Semver.compareTo(kubernetes.Semver): int")
def compare(v: Semver, other: Semver) -> int:
    return int(v.key > other.key) - int(v.key < other.key)
