"""GPUs are stranded where CPU runs out first, and the table says how many to expect."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from homeostat.gpu.placement import stranding
from homeostat.gpu.placement.stranding import stranded
from homeostat.gpu.snapshot import Floats

NEED, GPUS, WEIGHT = np.array([3, 1, 4, 9]), np.array([2, 1, 4, 3]), np.array([0.5, 0.2, 0.2, 0.1])


def table(rows: int = 12, columns: int = 9) -> Floats:
    return stranded(NEED, GPUS, WEIGHT, rows, columns, whole=4)


def test_with_cpu_for_nothing_all_gpus_are_stranded() -> None:
    assert table()[0].tolist() == list(range(9))


def test_nothing_is_stranded_where_nothing_is_free() -> None:
    assert table()[:, 0].tolist() == [0] * 12


def test_more_cpu_never_strands_more() -> None:
    one = stranded(np.array([2]), np.array([1]), np.array([1.0]), 12, 5, whole=1)
    assert (np.diff(one, axis=0) <= 1e-9).all()


def test_a_single_request_strands_what_is_left_of_the_division() -> None:
    one = stranded(np.array([2]), np.array([3]), np.array([1.0]), 20, 11, whole=4)
    assert one[19].round(9).tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]
    assert one[2].round(9).tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7]


def test_by_pure_chance_it_is_the_mean_over_all_ways_to_fill_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stranding, "CHOICE", 1e-5)

    @cache
    def left(row: int, column: int) -> float:
        fits = [at for at in range(len(NEED)) if NEED[at] <= row and GPUS[at] <= column]
        if not fits:
            return column
        ways = [WEIGHT[at] * left(row - int(NEED[at]), column - int(GPUS[at])) for at in fits]
        return float(sum(ways) / WEIGHT[fits].sum())

    expected = np.array([[left(row, column) for column in range(9)] for row in range(12)])
    assert table() == pytest.approx(expected, abs=1e-3)


def test_with_choice_less_is_stranded_than_by_chance_but_never_less_than_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = table()
    monkeypatch.setattr(stranding, "CHOICE", 1e-5)
    chance = table()
    assert (chosen <= chance + 1e-6).all()
    assert (chosen >= -1e-9).all()


def test_a_node_with_very_many_gpus_does_not_overflow() -> None:
    assert np.isfinite(stranded(np.array([1]), np.array([20]), np.array([1.0]), 50, 20 * 256 + 1, whole=20)).all()
