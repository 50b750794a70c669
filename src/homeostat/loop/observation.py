"""What was seen of the world, and when. A thing that is not there and a thing that could not be read are never the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, final

import msgspec


@final
class Absent:
    """Looked, and it is not there. There is one of it: `ABSENT`, which `Absent()` gives too."""

    __slots__ = ()
    _one: ClassVar[Absent | None] = None

    def __new__(cls) -> Absent:
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"  # copies and pickles are the same one


ABSENT = Absent()


@final
@dataclass(frozen=True, slots=True)
class Unknown:
    """Could not look, or saw only a part. Nothing is created, changed or deleted on it; `compare` does not take it."""

    reason: str

    def __bool__(self) -> bool:
        raise TypeError(f"unknown is neither there nor absent ({self.reason}): ask isinstance(state, Unknown)")


State: TypeAlias = Mapping[str, Any] | Absent
"""What a successful read gives: the state as JSON has it, or that there is none."""


class Observation(msgspec.Struct, gc=False):
    """One look at one thing. `at` is when the look ended (wall seconds), `took` how long it was (seconds), `source` who looked."""

    state: State | Unknown
    at: float
    took: float = 0.0
    source: str = ""

    @property
    def known(self) -> bool:
        """Whether a decision may rest on it."""
        return not isinstance(self.state, Unknown)

    def age(self, now: float) -> float:
        """Seconds since what it shows may have changed: counted from before the look, and never less than 0."""
        return max(0.0, now - self.at + self.took)
