"""Full passes: everything is looked at once a period, evenly, and never by two passes at once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeostat.loop.passes import Batch, KindOfPass, PassPolicy, first_pass, next_pass, plan_pass


def test_the_first_pass_after_a_start_comes_anywhere_in_the_first_period() -> None:
    source = random.Random(1)
    delays = [first_pass(PassPolicy(), 100.0, source) - 100 for _ in range(1000)]
    assert 0 <= min(delays) < 1
    assert 59 < max(delays) <= 60


def test_passes_come_a_period_apart_give_or_take_a_tenth() -> None:
    source = random.Random(1)
    due = [next_pass(PassPolicy(), 100.0, 101.0, source) - 100 for _ in range(1000)]
    assert 54 <= min(due) < 54.5
    assert 65.5 < max(due) <= 66


def test_a_pass_that_takes_too_long_is_followed_at_once() -> None:
    assert next_pass(PassPolicy(), 100.0, 500.0, random.Random(1)) == 500


def test_nothing_is_asked_about_nothing() -> None:
    assert list(plan_pass(PassPolicy(), [KindOfPass("File", [], together=True)], 0)) == []


def test_kinds_are_spread_evenly_beside_each_other() -> None:
    policy = PassPolicy(every=60, spread=0.5, batch=2)
    kinds = [KindOfPass("A", list("abcdef"), together=True), KindOfPass("B", ["x"])]
    assert list(plan_pass(policy, kinds, 100.0)) == [
        Batch(100.0, "A", ["a", "b"], True),
        Batch(100.0, "B", ["x"], False),
        Batch(110.0, "A", ["c", "d"], True),
        Batch(120.0, "A", ["e", "f"], True),
    ]


@given(
    st.lists(st.integers(0, 40), max_size=4),
    st.integers(1, 9),
    st.floats(0, 0.8),
)
def test_every_key_goes_in_exactly_one_batch_before_the_next_pass(sizes: list[int], batch: int, spread: float) -> None:
    policy = PassPolicy(batch=batch, spread=spread)
    kinds = [KindOfPass(f"K{kind}", [(kind, n) for n in range(size)]) for kind, size in enumerate(sizes)]
    plan = list(plan_pass(policy, kinds, 1000.0))
    assert sorted(key for one in plan for key in one.keys) == [key for kind in kinds for key in kind.keys]
    assert all(1 <= len(one.keys) <= batch for one in plan)
    assert [one.due for one in plan] == sorted(one.due for one in plan)
    assert all(1000 <= one.due < 1000 + 54 for one in plan)


@pytest.mark.parametrize("bad", [{"every": 0}, {"jitter": 1}, {"spread": 0.95}, {"batch": 0}])
def test_settings_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a pass needs"):
        PassPolicy(**bad)  # type: ignore[arg-type]
