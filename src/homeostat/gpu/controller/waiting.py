"""Why something waits, told to all that do: at a bounded pace, and again only when it has become something else.

Once it has waited for a moment, each is told what binds it, in figures, where it stands, who is ahead and when it will likely start; and
anew when any of that is something else. Where a crowd waits, that would be old before it is read: the queue moves all the time, and most
of that means nothing to those who are far back in it. Then they are told in words without figures, and nobody is named; and anew when
another thing binds, or when position or start have moved by more than a part of what is left. The front is looked at every time, the rest
in turn. `homeostat gpu explain` says all of it to the moment.
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
CROWD, NO_CROWD = 100, 50
"""More than so many are a crowd, until they are fewer than that: they could not all be kept from saying what is no longer so."""
EVERY_SECONDS = 1.0
AGAIN_SECONDS = 10.0
"""Who was to be told and was not by then, such as one that was only just leaving its GPUs, is to be told again."""
EXACT = 10
"""Up to this position each step is told; further back a step is a fifth of it."""
ROUND_SECONDS = 60
"""Starts are told in whole minutes, and anew when they move by more than that and a tenth of the wait."""


class Waiting:
    """What those that wait were last told, and who is to be told now."""

    def __init__(self) -> None:
        self._told: dict[str, Gist] = {}
        self._due: dict[str, float] = {}  # since when, until they were told
        self._pending: Pending | None = None
        self._calm, self._busy = Bucket(AT_ONCE, 1 / PER_SECOND), Bucket(AT_ONCE, 1 / PER_SECOND_BUSY)
        self._turn = 0
        self._at = -math.inf
        self._crowd = False
        self.owes = False
        """Whether there may be news that nobody was asked to tell yet: it was too soon after the last."""

    def renew(self, pending: Pending, now: float, *, busy: bool = False) -> list[str]:
        """The uids of those that are to be told by this: ask `words` for each. `busy`: there is more important work."""
        soon = now - self._at < EVERY_SECONDS
        self.owes = soon and len(pending) > 0
        if soon:
            return []
        self._at, self._pending = now, pending
        self._crowd = len(pending) > (NO_CROWD if self._crowd else CROWD)
        busy = busy and self._crowd
        for uid in [uid for uid, since in self._due.items() if now - since >= AGAIN_SECONDS]:
            self.forget(uid)
        due = []
        news: tuple[list[Gist], list[Gist]] = ([], [])
        for place in self._places(len(pending), IN_TURN_BUSY if busy else IN_TURN):
            gist = pending.gist(place, whole=not self._crowd)
            told = self._told.get(gist.uid)
            if told is None and gist.waited < FIRST_AFTER:
                self.owes = True
            elif told is None or _is_news(told, gist, now):
                news[told is not None].append(gist)
        for gist in chain(*news):  # first who knows nothing yet
            if not (self._busy if busy else self._calm).take(now):
                self.owes = True
                break
            due.append(gist.uid)
            self._told[gist.uid] = gist
        if len(self._told) > 2 * len(pending) + AT_ONCE:
            there = {pending.gist(place).uid for place in range(len(pending))}
            self._told = {uid: told for uid, told in self._told.items() if uid in there}
        self._due.update(dict.fromkeys(due, now))
        self.owes |= bool(self._due)
        return due

    def _places(self, count: int, in_turn: int) -> Iterator[int]:
        yield from range(min(FRONT, count))
        rest = count - FRONT
        for step in range(min(rest, in_turn)):
            yield FRONT + (self._turn + step) % rest
        self._turn = (self._turn + in_turn) % rest if rest > 0 else 0

    def words(self, obj: Mapping[str, Any], now: float) -> Object | None:
        """What is new for a workload that is to be told; None where it is not, or waits no more."""
        status, uid = obj.get("status") or {}, obj["metadata"]["uid"]
        if uid not in self._due or self._pending is None or status.get("phase", "Pending") not in ("Pending", "Suspended"):
            return None
        why = self._pending.why(uid)
        said = {} if why is None else waiting(why, status, now, crowd=self._crowd)
        news = {name: value for name, value in said.items() if status.get(name) != value}
        if not news:
            self._due.pop(uid, None)
        return news

    def forget(self, uid: str) -> None:
        """It is no more."""
        self._due.pop(uid, None)
        self._told.pop(uid, None)


def _is_news(told: Gist, gist: Gist, now: float) -> bool:
    if told.constraint is not gist.constraint or (told.start is None) != (gist.start is None):
        return True
    if (told.reason, told.ahead) != (gist.reason, gist.ahead) or (gist.reason and told.start is not None and _rounded(told.start) < now):
        return True
    nearer = min(gist.position, told.position)
    if abs(gist.position - told.position) > (0 if nearer <= EXACT else nearer // 5):
        return True
    return gist.start is not None and told.start is not None and abs(gist.start - told.start) > _slack(gist.start, now)


def waiting(why: Why, before: Mapping[str, Any], now: float, *, crowd: bool = False) -> Object:
    """What is said to one that waits, or to one of a crowd; an estimate that hardly moved stays as it was said `before`."""
    return {
        "reason": why.brief if crowd else why.reason,
        "constraint": str(why.constraint),
        "position": why.position,
        "ahead": [] if crowd else [encode(one) for one in why.ahead],
        "estimatedStart": _estimate(why.estimated_start, before.get("estimatedStart"), now),
    }


def _estimate(start: float | None, said: str | None, now: float) -> str | None:
    if start is None:
        return None
    if said is not None and parse_time(said) >= now and abs(parse_time(said) - start) <= _slack(start, now):
        return said
    return format_time(_rounded(start))


def _rounded(start: float) -> float:
    return -(-start // ROUND_SECONDS) * ROUND_SECONDS


def _slack(start: float, now: float) -> float:
    return max(ROUND_SECONDS, (start - now) / 10)
