"""Counts of a kind, kept up as its resources change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from homeostat.client import Key
from homeostat.web.standing import Resource
from homeostat.web.tally import Tally


def lamp(name: str, ready: str = "True", drift: str = "", took: float | None = None) -> Resource:
    conditions = [{"type": "Ready", "status": ready, "reason": "AsDeclared" if ready == "True" else "Held"}]
    status: dict[str, Any] = {"conditions": conditions, "convergedSeconds": took}
    if drift:
        status["drift"] = {"op": "update", "cause": "drift", "since": drift}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, Resource)


def test_a_kind_says_what_is_in_the_queue_and_how_long_it_takes_as_far_as_one_sees() -> None:
    tally = Tally()
    for number in range(99):
        tally.put(Key("house", f"l{number}"), lamp(f"l{number}", took=0.2))
    tally.put(Key("house", "slow"), lamp("slow", ready="False", drift="2026-11-15T03:00:00Z", took=90.0))
    tally.put(Key("garden", "far"), lamp("far", ready="False", drift="2026-11-15T02:00:00Z"))
    assert tally.queue("house".__eq__) == {"open": 1, "oldest": "2026-11-15T03:00:00Z"}
    assert tally.queue(lambda _: True) == {"open": 2, "oldest": "2026-11-15T02:00:00Z"}
    assert tally.convergence("house".__eq__) == pytest.approx({"half": 0.2, "most": 0.2}, rel=0.15)
    assert tally.convergence("garden".__eq__) is None
    assert tally.total("house".__eq__) == {"converged": 99, "progressing": 0, "held": 1, "degraded": 0, "unknown": 0}

    tally.put(Key("house", "slow"), lamp("slow", took=3.0))
    for number in range(99):
        tally.put(Key("house", f"l{number}"), None)
    assert tally.queue("house".__eq__) == {"open": 0, "oldest": ""}
    assert tally.convergence("house".__eq__) == pytest.approx({"half": 3.0, "most": 3.0}, rel=0.15)
