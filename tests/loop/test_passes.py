"""When full passes are due: once a period, and never two at once."""

from __future__ import annotations

import random

import pytest

from homeostat.loop.passes import PassPolicy, first_pass, next_pass


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


@pytest.mark.parametrize("bad", [{"every": 0}, {"jitter": 1}])
def test_settings_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="passes need"):
        PassPolicy(**bad)  # type: ignore[arg-type]
