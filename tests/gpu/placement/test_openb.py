"""The published experiment on the real trace, one seed of it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
SEED = 42


@pytest.fixture
def openb(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import openb

    if not openb.DATA.is_dir():
        pytest.skip(f"the trace is not at {openb.DATA}")
    return openb


def test_more_is_given_out_than_published_however_ties_are_settled(openb: ModuleType) -> None:
    fleet = openb.read_fleet()
    pods = openb.read_pods("default", fleet.models)
    sequence = openb.arrivals(pods, openb.DEMAND * fleet.total, SEED)
    first, redrawn = (openb.ours(sequence, fleet, SEED, ties).shares for ties in ("first", "redrawn"))
    assert first > (96.0, 96.2)
    assert redrawn == pytest.approx(first, abs=0.1)
    assert openb.published("default") == [95.23, 95.39]
