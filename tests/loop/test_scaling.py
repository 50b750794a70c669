"""Scaling in proportion: up at once, down slowly, and not at all on half of the truth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeostat.loop.observation import Unknown
from homeostat.loop.readings import Reading
from homeostat.loop.scaling import Pace, Ratio, Scaled, Target

T0 = 1_700_000_000.0
AT_ONCE = Pace(window=0, percent=1e9)


def law(*targets: Target, **settings: Any) -> Ratio:
    made: dict[str, Any] = {"targets": targets or (Target(50),), "most": 100, "up": AT_ONCE, "down": AT_ONCE}
    return Ratio(**(made | settings))


def decide(ratio: Ratio, current: int, *values: float | str, state: Scaled | None = None, now: float = T0) -> Any:
    metrics = [Unknown(value) if isinstance(value, str) else Reading(value, now) for value in values]
    return ratio.decide(state or Scaled(), metrics, current, now)


@pytest.mark.parametrize(
    ("current", "value", "wanted"),
    [(4, 100, 8), (4, 25, 2), (4, 55, 4), (4, 45, 4), (4, 55.1, 5), (4, 0, 1), (3, 50, 3), (10, 1e9, 100), (3, -5, 1)],
)
def test_replicas_follow_the_ratio_outside_of_the_tolerance(current: int, value: float, wanted: int) -> None:
    assert decide(law(), current, value).output == wanted


@pytest.mark.parametrize(
    ("current", "value", "wanted"), [(4, 100, 2), (0, 101, 3), (0, 0, 0), (2, 105, 2), (2, 111, 3)]
)
def test_a_total_is_divided_among_them(current: int, value: float, wanted: int) -> None:
    assert decide(law(Target(50, total=True), least=0), current, value).output == wanted


def test_the_largest_demand_counts() -> None:
    both = law(Target(50), Target(10))
    assert decide(both, 4, 25, 20).output == 8
    assert decide(both, 4, 100, 5).output == 8


def test_idleness_needs_every_signal() -> None:
    both = law(Target(50), Target(10))
    held = decide(both, 4, 5, "no route to host")
    assert held.output == 4
    assert "not all metrics can be read: no route to host" in held.reason
    assert decide(both, 4, 100, "no route to host").output == 8


def test_without_any_signal_nothing_moves() -> None:
    held = decide(law(), 4, "no route to host")
    assert (held.output, held.reason) == (4, "held: no route to host")


def test_limits_hold_even_then() -> None:
    assert decide(law(least=5), 4, "no route to host").output == 5
    assert decide(law(most=3), 4, "no route to host").output == 3


def test_it_comes_down_only_after_a_whole_window() -> None:
    ratio, state = law(down=Pace(window=300)), Scaled()
    for seconds in range(0, 300, 15):
        state, output, reason = decide(ratio, 8, 10, state=state, now=T0 + seconds)
        assert output == 8
        assert "8 now" in reason
    assert decide(ratio, 8, 10, state=state, now=T0 + 300).output == 2


def test_a_peak_in_the_window_keeps_it_up() -> None:
    ratio, state = law(down=Pace(window=300)), Scaled()
    state, output, _ = decide(ratio, 8, 50, state=state)
    state, output, _ = decide(ratio, 8, 100, state=state, now=T0 + 60)
    assert output == 16
    assert decide(ratio, 16, 10, state=state, now=T0 + 359).output == 16
    assert decide(ratio, 16, 10, state=state, now=T0 + 361).output == 4


def test_a_restart_shrinks_nothing_at_once() -> None:
    assert decide(law(down=Pace(window=300)), 8, 1).output == 8


def test_a_swing_shorter_than_the_window_moves_nothing() -> None:
    ratio, state = law(up=Pace(window=60, percent=1e9), down=Pace(window=60)), Scaled()
    for turn in range(40):
        state, output, _ = decide(ratio, 8, 100 if turn % 2 else 20, state=state, now=T0 + 15 * turn)
        assert output == 8


def test_it_goes_up_no_faster_than_its_pace() -> None:
    ratio, state, current, path = law(up=Pace(window=0, percent=100, count=4, period=15)), Scaled(), 1, []
    for turn in range(9):
        state, current, _ = decide(ratio, current, 5000, state=state, now=T0 + 5 * turn)
        path.append(current)
    assert path == [5, 5, 5, 5, 10, 10, 10, 10, 20]  # the period runs from when a change is seen


def test_it_comes_down_no_faster_than_its_pace() -> None:
    ratio, state, current, path = law(down=Pace(window=0, percent=10, count=1, period=60)), Scaled(), 40, []
    for turn in range(5):
        state, current, _ = decide(ratio, current, 1, state=state, now=T0 + 30 * turn)
        path.append(current)
    assert path == [36, 36, 36, 32, 32]


def test_a_decision_that_was_not_carried_out_is_made_again() -> None:
    ratio = law(up=Pace(window=0, percent=100))
    state, first, _ = decide(ratio, 4, 5000)
    assert (first, decide(ratio, 4, 5000, state=state, now=T0 + 1).output) == (8, 8)


@given(
    st.lists(st.tuples(st.floats(0.1, 400), st.one_of(st.floats(), st.just("lost"))), max_size=40),
    st.integers(0, 5),
    st.integers(5, 20),
)
def test_it_stays_within_limits_and_remembers_little(
    steps: list[tuple[float, float | str]], least: int, most: int
) -> None:
    ratio, state, current, now = Ratio((Target(50),), most, least), Scaled(), 5, T0
    for seconds, value in steps:
        now += seconds
        state, current, _ = decide(ratio, current, value, state=state, now=now)
        assert least <= current <= most
        assert len(state.highs) + len(state.lows) <= 45


@given(st.integers(1, 50), st.floats(0, 1000), st.floats(0, 1000))
def test_more_load_never_asks_for_fewer(current: int, a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert decide(law(), current, low).output <= decide(law(), current, high).output


@given(st.integers(1, 60), st.floats(1, 2000))
def test_a_load_that_divides_among_them_settles_and_stays(current: int, load: float) -> None:
    state, now, ratio = Scaled(), T0, law()
    path = []
    for _ in range(6):
        state, current, _ = decide(ratio, current, load / current, state=state, now=now)
        path.append(current)
        now += 15
    assert len(set(path[2:])) == 1
