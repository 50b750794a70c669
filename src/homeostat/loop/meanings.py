"""Two who declare the same thing, each otherwise: what one had made true is declared again after the other replaced it.

Kept in memory, of what was changed last: a fight goes on, and shows again after a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from homeostat.loop.compare import fingerprint
from homeostat.loop.fleet import Ref
from homeostat.loop.observation import ABSENT

REMEMBERED = 16_384
"""Of so many changes it is remembered what was there before."""
OURS = "homeostat"
"""How the names of our own writers begin. To go back is not to fight."""


class _Replaced(NamedTuple):
    before: bytes
    by: str


class Meanings:
    """What was replaced by whom."""

    def __init__(self) -> None:
        self._replaced: OrderedDict[Ref, _Replaced] = OrderedDict()

    def replaced(self, ref: Ref, before: Mapping[str, Any], by: tuple[str, ...]) -> None:
        """What was applied `before` is so no more, because somebody declared something else."""
        self._replaced.pop(ref, None)
        if not by or by[0].startswith(OURS):
            return
        self._replaced[ref] = _Replaced(_digest(before), by[0])
        if len(self._replaced) > REMEMBERED:
            self._replaced.popitem(last=False)

    def undone(self, ref: Ref, declared: Mapping[str, Any], by: tuple[str, ...]) -> str:
        """Whose change is taken back by somebody else who declares this; empty where nobody's is."""
        last = self._replaced.get(ref)
        if last is None or not by or by[0] == last.by or by[0].startswith(OURS) or _digest(declared) != last.before:
            return ""
        return last.by

    def forget(self, ref: Ref) -> None:
        """It is declared no more."""
        self._replaced.pop(ref, None)


def _digest(declared: Mapping[str, Any]) -> bytes:
    return fingerprint(declared, None, ABSENT)
