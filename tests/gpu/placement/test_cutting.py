"""A rest of a shared device is worth what the best plan would cut out of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.placement.cutting import worth
from homeostat.gpu.snapshot import Floats


def plan(**counts: float) -> Floats:
    """By sizes in thousandths, as `_470=2`."""
    return worth(np.array([int(size[1:]) for size in counts]), np.array(list(counts.values()), dtype=float))


def test_half_a_device_is_worth_half_where_halves_are_asked_for() -> None:
    value = plan(_500=10)
    assert value[[0, 499, 500, 999, 1000]].tolist() == [0, 0, 0.5, 0.5, 1]


def test_a_size_that_leaves_no_partner_costs_a_whole_device() -> None:
    value = plan(_810=100, _160=5)
    assert value[810] == pytest.approx(1)
    assert value[190] == pytest.approx(0)  # there are far too few pods for it


def test_a_rest_is_worth_something_where_many_wait_for_it() -> None:
    value = plan(_810=5, _160=100)
    assert value[190] == pytest.approx(1 / 6)


def test_thirds_that_are_a_little_less_fit_three_times() -> None:
    assert plan(_333=7)[[332, 333, 666]].tolist() == pytest.approx([0, 1 / 3, 2 / 3])


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.integers(1, WHOLE - 1), st.integers(1, 1000), min_size=1, max_size=12))
def test_no_cut_of_a_device_is_worth_more_than_the_device(counts: dict[int, int]) -> None:
    sizes = np.array(sorted(counts))
    value = worth(sizes, np.array([counts[int(size)] for size in sizes], dtype=float))
    assert value[WHOLE] == pytest.approx(1)
    assert (np.diff(value) >= -1e-9).all()
    for size in sizes.tolist():
        parts = value[size] + value[: WHOLE + 1 - size]
        assert (parts <= value[size:] + 1e-6).all(), "two parts are worth more than the whole that holds both"
