"""Scaling in proportion: up at once, down slowly, and not at all on half of the truth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeostat.loop.observation import Unknown
from homeostat.loop.scaling import Pace, Proportion, Scaled, Scaling

T0 = 1_700_000_000.0
AT_ONCE = Pace(window=0, percent=1e9)


class Law:
    """Replicas in proportion to some metrics."""

    def __init__(self, *targets: Proportion, **settings: Any) -> None:
        self.targets = targets or (Proportion(50),)
        self.scaling = Scaling(**({"most": 100, "up": AT_ONCE, "down": AT_ONCE} | settings))


def decide(law: Law, current: int, *values: float | str, state: Scaled | None = None, now: float = T0) -> Any:
    asked = [
        Unknown(value) if isinstance(value, str) else target.demand(value, current)
        for target, value in zip(law.targets, values, strict=True)
    ]
    return law.scaling.decide(state or Scaled(), asked, current, now)


@pytest.mark.parametrize(
    ("current", "value", "wanted"),
    [(4, 100, 8), (4, 25, 2), (4, 55, 4), (4, 45, 4), (4, 55.1, 5), (4, 0, 1), (3, 50, 3), (10, 1e9, 100), (3, -5, 1)],
)
def test_replicas_follow_the_ratio_outside_of_the_tolerance(current: int, value: float, wanted: int) -> None:
    assert decide(Law(), current, value).output == wanted


@pytest.mark.parametrize(
    ("current", "value", "wanted"), [(4, 100, 2), (0, 101, 3), (0, 0, 0), (2, 105, 2), (2, 111, 3)]
)
def test_a_total_is_divided_among_them(current: int, value: float, wanted: int) -> None:
    assert decide(Law(Proportion(50, total=True), least=0), current, value).output == wanted


def test_the_largest_demand_counts() -> None:
    both = Law(Proportion(50), Proportion(10))
    assert decide(both, 4, 25, 20).output == 8
    assert decide(both, 4, 100, 5).output == 8


def test_idleness_needs_every_signal() -> None:
    both = Law(Proportion(50), Proportion(10))
    held = decide(both, 4, 5, "no route to host")
    assert held.output == 4
    assert held.reason == "held: no route to host"
    assert decide(both, 4, 100, "no route to host").output == 8


def test_without_any_signal_nothing_moves() -> None:
    held = decide(Law(), 4, "no route to host")
    assert (held.output, held.reason) == (4, "held: no route to host")


def test_limits_hold_even_then() -> None:
    assert decide(Law(least=5), 4, "no route to host").output == 5
    assert decide(Law(most=3), 4, "no route to host").output == 3


def test_a_value_that_is_no_number_asks_for_nothing() -> None:
    assert isinstance(Proportion(50).demand(float("nan"), 4), Unknown)
    assert isinstance(Proportion(50, total=True).demand(float("inf"), 4), Unknown)


def test_a_load_is_measured_over_the_replicas_that_run() -> None:
    assert Proportion(50).demand(100, current=10, running=3) == (6, "100 measured, 50 wanted: 6 replicas")
    assert Proportion(50).demand(52, current=10, running=3)[0] == 10  # near enough: what is coming up may come


def test_it_comes_down_only_after_a_whole_window() -> None:
    ratio, state = Law(down=Pace(window=300)), Scaled()
    for seconds in range(0, 300, 15):
        state, output, reason = decide(ratio, 8, 10, state=state, now=T0 + seconds)
        assert output == 8
        assert "8 now" in reason
    assert decide(ratio, 8, 10, state=state, now=T0 + 300).output == 2


def test_a_peak_in_the_window_keeps_it_up() -> None:
    ratio, state = Law(down=Pace(window=300)), Scaled()
    state, output, _ = decide(ratio, 8, 50, state=state)
    state, output, _ = decide(ratio, 8, 100, state=state, now=T0 + 60)
    assert output == 16
    assert decide(ratio, 16, 10, state=state, now=T0 + 359).output == 16
    assert decide(ratio, 16, 10, state=state, now=T0 + 361).output == 4


def test_a_restart_shrinks_nothing_at_once() -> None:
    assert decide(Law(down=Pace(window=300)), 8, 1).output == 8


def test_when_sight_comes_back_a_whole_window_passes_before_it_shrinks() -> None:
    ratio, state = Law(down=Pace(window=300)), Scaled()
    state, _, _ = decide(ratio, 8, 50, state=state)
    for seconds in range(15, 900, 15):
        state, output, _ = decide(ratio, 8, "no route to host", state=state, now=T0 + seconds)
        assert output == 8
    state, output, _ = decide(ratio, 8, 1, state=state, now=T0 + 900)
    assert output == 8
    assert decide(ratio, 8, 1, state=state, now=T0 + 1186).output == 1


def test_it_knows_when_it_last_moved() -> None:
    ratio = Law()
    state, output, _ = decide(ratio, 4, 100)
    assert state.moved is None
    state, _, _ = decide(ratio, output, 50, state=state, now=T0 + 15)
    state, _, _ = decide(ratio, output, 50, state=state, now=T0 + 30)
    assert state.moved == T0 + 15


def test_a_swing_shorter_than_the_window_moves_nothing() -> None:
    ratio, state = Law(up=Pace(window=60, percent=1e9), down=Pace(window=60)), Scaled()
    for turn in range(40):
        state, output, _ = decide(ratio, 8, 100 if turn % 2 else 20, state=state, now=T0 + 15 * turn)
        assert output == 8


def test_it_goes_up_no_faster_than_its_pace() -> None:
    ratio, state, current, path = Law(up=Pace(window=0, percent=100, count=4, period=15)), Scaled(), 1, []
    for turn in range(9):
        state, current, _ = decide(ratio, current, 5000, state=state, now=T0 + 5 * turn)
        path.append(current)
    assert path == [5, 5, 5, 5, 10, 10, 10, 10, 20]  # the period runs from when a change is seen


def test_it_comes_down_no_faster_than_its_pace() -> None:
    ratio, state, current, path = Law(down=Pace(window=0, percent=10, count=1, period=60)), Scaled(), 40, []
    for turn in range(5):
        state, current, _ = decide(ratio, current, 1, state=state, now=T0 + 30 * turn)
        path.append(current)
    assert path == [36, 36, 36, 32, 32]


def test_a_decision_that_was_not_carried_out_is_made_again() -> None:
    ratio = Law(up=Pace(window=0, percent=100))
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
    ratio = Law(most=most, least=least, up=Pace(window=0, count=4), down=Pace(window=300))
    state, current, now = Scaled(), 5, T0
    for seconds, value in steps:
        now += seconds
        state, current, _ = decide(ratio, current, value, state=state, now=now)
        assert least <= current <= most
        assert len(state.highs) + len(state.lows) <= 45


@given(st.integers(1, 50), st.floats(0, 1000), st.floats(0, 1000))
def test_more_load_never_asks_for_fewer(current: int, a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert decide(Law(), current, low).output <= decide(Law(), current, high).output


@given(st.integers(1, 60), st.floats(1, 2000))
def test_a_load_that_divides_among_them_settles_and_stays(current: int, load: float) -> None:
    state, now, ratio = Scaled(), T0, Law()
    path = []
    for _ in range(6):
        state, current, _ = decide(ratio, current, load / current, state=state, now=now)
        path.append(current)
        now += 15
    assert len(set(path[2:])) == 1
