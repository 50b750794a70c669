"""The benchmark of the governor's cycles runs: it makes its snapshot by hand, and is to know all that one has."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_cycles_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    benchmark = importlib.import_module("governor")
    monkeypatch.setattr(benchmark, "CYCLES", 2)
    found = benchmark.measure(nodes=20, tenants=10, workloads=500)
    assert found["running"] > 0
    assert found["decisions_a_cycle"] > 0
