"""Why something waits, told to all that do: at a bounded pace, and again only when it has become something else.

A queue moves all the time, and most of that means nothing to those who are far back in it. So each is told what binds it, where it stands
and when it will likely start once it has waited for a moment; and anew when another thing binds it, or when position or start have moved
by more than a part of what is left. The front is looked at every time, the rest in turn. `homeostat gpu explain` says it to the moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from homeostat.gpu.controller.standing import Object
from homeostat.gpu.explain import Gist, Pending, Why
from homeostat.loop.events import Bucket
from homeostat.model.clock import format_time, parse_time
from homeostat.model.kinds import encode

FIRST_AFTER = 1.0
"""Seconds that something has waited when it is first told: most has its place before."""
AT_ONCE, PER_SECOND, PER_SECOND_BUSY = 100, 100, 10
"""How many are told: so many at once, then so many in a second, and fewer while others are being placed. Each is a write."""
FRONT, IN_TURN, IN_TURN_BUSY = 200, 5000, 500
"""How many of the front, and of the rest, are looked at each time; fewer while others are being placed, for few are told then."""
EVERY_SECONDS = 1.0
EXACT = 10
"""Up to this position each step is told; further back a step is a fifth of it."""
ROUND_SECONDS = 60
"""Starts are told in whole minutes, and anew when they move by more than that and a tenth of the wait."""


class Waiting:
    """What those that wait were last told, and who is to be told now."""

    def __init__(self) -> None:
        self._told: dict[str, Gist] = {}
        self._due: set[str] = set()  # until they were told
        self._pending: Pending | None = None
        self._calm, self._busy = Bucket(AT_ONCE, 1 / PER_SECOND), Bucket(AT_ONCE, 1 / PER_SECOND_BUSY)
        self._turn = 0
        self._at = -math.inf

    def renew(self, pending: Pending, now: float, *, busy: bool = False) -> list[str]:
        """The uids of those that are to be told by this: ask `words` for each. `busy`: there is more important work."""
        if now - self._at < EVERY_SECONDS:
            return []
        self._at, self._pending = now, pending
        due = []
        news: tuple[list[Gist], list[Gist]] = ([], [])
        for place in self._places(len(pending), IN_TURN_BUSY if busy else IN_TURN):
            gist = pending.gist(place)
            told = self._told.get(gist.uid)
            if gist.waited >= FIRST_AFTER and (told is None or _is_news(told, gist, now)):
                news[told is not None].append(gist)
        for gist in chain(*news):  # first who knows nothing yet
            if not (self._busy if busy else self._calm).take(now):
                break
            due.append(gist.uid)
            self._told[gist.uid] = gist
        if len(self._told) > 2 * len(pending) + AT_ONCE:
            there = {pending.gist(place).uid for place in range(len(pending))}
            self._told = {uid: told for uid, told in self._told.items() if uid in there}
        self._due.update(due)
        return due

    def _places(self, count: int, in_turn: int) -> Iterator[int]:
        yield from range(min(FRONT, count))
        rest = count - FRONT
        for step in range(min(rest, in_turn)):
            yield FRONT + (self._turn + step) % rest
        self._turn = (self._turn + in_turn) % rest if rest > 0 else 0

    def words(self, obj: Object, now: float) -> Object | None:
        """What is new for a workload that is to be told; None where it is not, or waits no more."""
        status, uid = obj.get("status") or {}, obj["metadata"]["uid"]
        if uid not in self._due or self._pending is None or status.get("phase", "Pending") not in ("Pending", "Suspended"):
            return None
        why = self._pending.why(uid)
        said = {} if why is None else waiting(why, status, now)
        news = {name: value for name, value in said.items() if status.get(name) != value}
        if not news:
            self._due.discard(uid)
        return news

    def forget(self, uid: str) -> None:
        """It is no more."""
        self._due.discard(uid)
        self._told.pop(uid, None)


def _is_news(told: Gist, gist: Gist, now: float) -> bool:
    if told.constraint is not gist.constraint or (told.start is None) != (gist.start is None):
        return True
    nearer = min(gist.position, told.position)
    if abs(gist.position - told.position) > (0 if nearer <= EXACT else nearer // 5):
        return True
    return gist.start is not None and told.start is not None and abs(gist.start - told.start) > _slack(gist.start, now)


def waiting(why: Why, before: Mapping[str, Any], now: float) -> Object:
    """What is said to one that waits; an estimate that hardly moved stays as it was said `before`."""
    return {
        "reason": why.reason,
        "constraint": str(why.constraint),
        "position": why.position,
        "ahead": [encode(one) for one in why.ahead],
        "estimatedStart": _estimate(why.estimated_start, before.get("estimatedStart"), now),
    }


def _estimate(start: float | None, said: str | None, now: float) -> str | None:
    if start is None:
        return None
    if said is not None and abs(parse_time(said) - start) <= _slack(start, now):
        return said
    return format_time(-(-start // ROUND_SECONDS) * ROUND_SECONDS)


def _slack(start: float, now: float) -> float:
    return max(ROUND_SECONDS, (start - now) / 10)
