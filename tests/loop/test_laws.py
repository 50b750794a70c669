"""Control laws: bounded, calm within the dead band, without windup, and still when nothing is known."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homeostat.loop.laws import PID, Limits, Loop, OnOff, Sense, Step, Steps, Switch, beyond
from homeostat.loop.observation import Unknown
from homeostat.loop.readings import Metric, Reading, rate

T0 = 1_700_000_000.0
LIMITS = Limits(0, 100)
anything = st.floats(allow_nan=True, allow_infinity=True)
numbers = st.floats(-1e6, 1e6)
gains = st.floats(0, 50)


@st.composite
def pids(draw: st.DrawFn, /, **fixed: Any) -> PID:
    made: dict[str, Any] = {
        "setpoint": draw(st.floats(-100, 100)),
        "kp": draw(gains),
        "ki": draw(gains),
        "kd": draw(gains),
        "band": draw(st.floats(0, 5)),
        "slew": draw(st.one_of(st.just(math.inf), st.floats(0.01, 100))),
        "smoothing": draw(st.floats(0, 10)),
        "tracking": draw(st.floats(0, 60)),
        "sense": draw(st.sampled_from(Sense)),
        "limits": LIMITS,
    }
    return PID(**(made | fixed))


# What is not known moves nothing


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        (Unknown("no route to host"), "no route to host"),
        (Reading(math.nan, T0), "nan"),
        (Reading(math.inf, T0), "inf"),
        (Reading(1e6, T0 - 181), "more than 180 s old"),
    ],
)
def test_without_a_usable_reading_every_law_holds(metric: Metric, why: str) -> None:
    switch = OnOff(10, 20).decide(Switch(True, T0 - 500), metric, T0)
    step = Step(50, 5, LIMITS).decide(Steps(40), metric, T0)
    before = Loop(40, 30, 2, 55, T0 - 10)
    pid = PID(50, 1, LIMITS, ki=1, kd=1).decide(before, metric, T0)
    assert (switch.output, step.output, pid.output) == (True, 40, 40)
    assert pid.state == before
    assert all(one.reason.startswith("held: ") and why in one.reason for one in (switch, step, pid))


def test_a_counter_becomes_a_rate() -> None:
    assert rate(Reading(100, T0), Reading(160, T0 + 30)) == Reading(2, T0 + 30)
    assert rate(Reading(100, T0), Reading(15, T0 + 30)) == Reading(0.5, T0 + 30)  # restarted
    assert isinstance(rate(Reading(100, T0), Reading(100, T0)), Unknown)
    assert isinstance(rate(Unknown("x"), Reading(1, T0)), Unknown)
    assert rate(Reading(1, T0), Unknown("gone")) == Unknown("gone")


# On and off


def switched(law: OnOff, values: list[float], seconds: float = 1.0) -> list[bool]:
    state, outputs = Switch(), []
    for index, value in enumerate(values):
        now = T0 + index * seconds
        state, output, _ = law.decide(state, Reading(value, now), now)
        outputs.append(output)
    return outputs


def test_it_goes_on_at_one_threshold_and_off_at_the_other() -> None:
    assert switched(OnOff(10, 20), [15, 20, 15, 10.1, 10, 15, 21]) == [False, True, True, True, False, False, True]


def test_a_heater_goes_the_other_way() -> None:
    law = OnOff(10, 20, sense=Sense.RAISES)
    assert switched(law, [15, 10, 15, 19.9, 20, 15, 9]) == [False, True, True, True, False, False, True]


def test_it_stays_for_its_least_time_and_says_for_how_long() -> None:
    law = OnOff(10, 20, least_on=60, least_off=30)
    state, _, _ = law.decide(Switch(), Reading(25, T0), T0)
    still = law.decide(state, Reading(5, T0 + 59), T0 + 59)
    assert still.output
    assert "stays on for 1 s more" in still.reason
    off = law.decide(state, Reading(5, T0 + 60), T0 + 60)
    assert not off.output
    assert not law.decide(off.state, Reading(25, T0 + 89), T0 + 89).output
    assert law.decide(off.state, Reading(25, T0 + 90), T0 + 90).output


def test_a_clock_that_is_set_back_does_not_hold_it_for_ever() -> None:
    law = OnOff(10, 20, least_on=60)
    later = law.decide(Switch(True, T0 + 86400), Reading(5, T0), T0)
    assert "for 60 s more" in later.reason


@given(st.lists(st.floats(10.001, 19.999), min_size=1, max_size=50), st.booleans())
def test_between_the_thresholds_it_never_moves(values: list[float], on: bool) -> None:
    state = Switch(on, T0)
    for value in values:
        state = OnOff(10, 20).decide(state, Reading(value, T0), T0).state
    assert state == Switch(on, T0)


# Dead band


@given(numbers, st.floats(0, 1e6))
def test_a_dead_band_swallows_what_is_within_and_shortens_what_is_not(error: float, band: float) -> None:
    left = beyond(error, band)
    assert abs(left) == max(0, abs(error) - band)
    assert left == 0 or math.copysign(1, left) == math.copysign(1, error)


@given(numbers, numbers, st.floats(0, 1e6))
def test_a_dead_band_keeps_the_order(a: float, b: float, band: float) -> None:
    low, high = sorted((a, b))
    assert beyond(low, band) <= beyond(high, band)


# Steps


def test_it_takes_a_step_and_rests() -> None:
    law = Step(50, 5, LIMITS, up=10, down=5, rest_up=60, rest_down=300)
    first = law.decide(Steps(40), Reading(80, T0), T0)
    assert first.output == 50
    resting = law.decide(first.state, Reading(80, T0 + 59), T0 + 59)
    assert resting.output == 50
    assert "1 s more to show" in resting.reason
    assert law.decide(first.state, Reading(80, T0 + 60), T0 + 60).output == 60
    assert law.decide(first.state, Reading(10, T0 + 299), T0 + 299).output == 50
    assert law.decide(first.state, Reading(10, T0 + 300), T0 + 300).output == 45


def test_at_its_limit_it_says_so_and_rests_not() -> None:
    after = Step(50, 5, LIMITS).decide(Steps(100), Reading(80, T0), T0)
    assert after.state == Steps(100)
    assert "at its limit" in after.reason


def test_a_heater_steps_up_when_it_is_cold() -> None:
    assert Step(50, 5, LIMITS, sense=Sense.RAISES).decide(Steps(40), Reading(10, T0), T0).output == 41


@given(st.lists(st.floats(45, 55), max_size=50))
def test_within_the_band_no_step_is_taken(values: list[float]) -> None:
    state = Steps(40)
    for index, value in enumerate(values):
        now = T0 + 1000 * index
        state = Step(50, 5, LIMITS).decide(state, Reading(value, now), now).state
    assert state == Steps(40)


@given(st.floats(-1000, 1000), st.lists(anything, max_size=50))
def test_steps_stay_within_the_limits(start: float, values: list[float]) -> None:
    state = Steps(start)
    for index, value in enumerate(values):
        now = T0 + 1000 * index
        state, output, _ = Step(50, 5, LIMITS, up=7, down=13).decide(state, Reading(value, now), now)
        assert 0 <= output <= 100


# PID


@given(pids(), numbers, st.lists(st.tuples(anything, st.floats(-10, 300)), max_size=40))
def test_the_output_is_bounded_and_no_faster_than_its_slew(
    pid: PID, start: float, steps: list[tuple[float, float]]
) -> None:
    state, now = Loop.at_rest(start), T0
    before = LIMITS.clamp(start)
    for value, seconds in steps:
        now += seconds
        passed = min(now - state.at, pid.longest) if state.at is not None and now > state.at else 0.0
        state, output, _ = pid.decide(state, Reading(value, now), now)
        assert 0 <= output <= 100
        assert math.isinf(pid.slew) or abs(output - before) <= pid.slew * passed + 1e-6
        assert math.isfinite(state.integral)
        before = output


@given(pids(), st.floats(-200, 200), st.floats(0.1, 60), numbers, numbers)
def test_a_larger_measurement_never_moves_the_output_the_wrong_way(
    pid: PID, integral: float, seconds: float, a: float, b: float
) -> None:
    low, high = sorted((a, b))
    state = Loop(50, integral, 0, 20, T0)
    now = T0 + seconds
    at_low, at_high = (pid.decide(state, Reading(value, now), now).output for value in (low, high))
    if pid.sense is Sense.RAISES:
        at_low, at_high = at_high, at_low
    assert at_low <= at_high + 1e-6


@given(
    pids(slew=math.inf, kd=0.0, band=0.0),
    st.floats(0.01, 50),
    st.floats(1, 1000),
    st.lists(st.floats(0.1, 300), min_size=1, max_size=200),
)
def test_it_leaves_saturation_with_the_first_reading_that_turns(
    pid: PID, ki: float, error: float, paces: list[float]
) -> None:
    """Without windup, the time to come back does not depend on the time that was spent at the limit."""
    pid = replace(pid, ki=ki)
    sign = -1 if pid.sense is Sense.RAISES else 1
    state, now = Loop.at_rest(50), T0
    for seconds in paces:
        now += seconds
        state = pid.decide(state, Reading(pid.setpoint + sign * error, now), now).state
        assert state.integral <= 100 + 1e-9
    now += 1
    assert pid.decide(state, Reading(pid.setpoint - sign * 1, now), now).output < 100


def test_an_integral_beyond_the_limits_is_drawn_back_even_without_an_error() -> None:
    pid, state = PID(50, 1, LIMITS, ki=0.1), Loop(100, 180, 0, 50, T0)
    for second in range(1, 51):  # five times its time of ten seconds
        state = pid.decide(state, Reading(50, T0 + second), T0 + second).state
    assert 100 <= state.integral < 101


def test_a_day_at_the_limit_is_left_in_a_second() -> None:
    pid, state, now = PID(50, 1, LIMITS, ki=0.5), Loop.at_rest(50), T0
    for _ in range(86_400):
        now += 1
        state, output, _ = pid.decide(state, Reading(0, now), now)
    assert output == 100
    now += 1
    assert pid.decide(state, Reading(51, now), now).output < 100


@given(pids(band=5.0, kd=0.0, slew=math.inf), st.lists(st.floats(-5, 5), min_size=2, max_size=50))
def test_within_the_dead_band_the_output_does_not_swing(pid: PID, noise: list[float]) -> None:
    state, outputs = Loop.at_rest(40), []
    for index, error in enumerate(noise):
        now = T0 + index
        # the set point is not exact in floating point: stay a hair within the band
        state, output, _ = pid.decide(state, Reading(pid.setpoint + error * 0.999, now), now)
        outputs.append(output)
    assert set(outputs) == {40}


def plant(pid: PID, seconds: float, steps: int, start: float = 20.0) -> list[float]:
    """A room of time constant 60 s that the output heats by up to 100 degrees."""
    state, now, heat, seen = Loop.at_rest(0), T0, start, []
    for _ in range(steps):
        state, output, _ = pid.decide(state, Reading(heat, now), now)
        now += seconds
        heat += (output - heat) * (1 - math.exp(-seconds / 60))
        seen.append(heat)
    return seen


@pytest.mark.parametrize("seconds", [1.0, 5.0, 15.0])
def test_it_reaches_its_set_point_and_stays_there_at_any_pace(seconds: float) -> None:
    heat = plant(PID(70, 2, LIMITS, ki=0.03, kd=5, smoothing=5), seconds, int(1800 / seconds))
    assert max(heat) < 77
    assert all(abs(value - 70) < 0.5 for value in heat[-int(300 / seconds) :])


def test_a_new_set_point_gives_no_kick_by_the_slope() -> None:
    before, after = PID(50, 0, LIMITS, kd=10), PID(90, 0, LIMITS, kd=10)
    state = Loop(40, 40, 0, 50, T0)
    assert before.decide(state, Reading(50, T0 + 1), T0 + 1).output == 40
    assert after.decide(state, Reading(50, T0 + 1), T0 + 1).output == 40


def test_it_takes_over_from_a_hand_without_a_bump() -> None:
    first = PID(50, 2, LIMITS, ki=0.1).decide(Loop.at_rest(33), Reading(45, T0), T0)
    assert first.output == 33
    assert PID(50, 2, LIMITS, ki=0.1).decide(first.state, Reading(45, T0 + 1), T0 + 1).output == pytest.approx(33.5)


def test_a_proportional_law_acts_on_the_first_reading() -> None:
    assert PID(50, 2, LIMITS).decide(Loop.at_rest(30), Reading(45, T0), T0).output == 40


@given(st.floats(0.1, 5), st.floats(0.01, 5), st.floats(0, 5), st.floats(40, 60))
def test_new_settings_do_not_bump(kp: float, ki: float, kd: float, setpoint: float) -> None:
    before = PID(50, 1, LIMITS, ki=0.1, kd=2)
    state = Loop.at_rest(50)
    for second in range(5):
        state = before.decide(state, Reading(45 + second, T0 + second), T0 + second).state
    after = PID(setpoint, kp, LIMITS, ki=ki, kd=kd)
    retuned = after.retuned(state, before)
    assert retuned.output == state.output
    assert retuned.integral + after.kp * (setpoint - 49) - retuned.slope == pytest.approx(state.output)


def test_a_reading_seen_before_says_nothing_new() -> None:
    pid, state = PID(50, 1, LIMITS, ki=1, kd=1), Loop(40, 30, 0, 45, T0)
    again = pid.decide(state, Reading(45, T0), T0 + 30)
    assert again.state == state
    assert again.reason == "held: no newer reading"


def test_a_clock_that_is_set_back_begins_anew() -> None:
    pid = PID(50, 1, LIMITS, ki=1, kd=1)
    after = pid.decide(Loop(40, 30, 3, 45, T0 + 86400), Reading(45, T0), T0)
    assert (after.output, after.state.at, after.state.slope) == (40, T0, 0)


def test_a_long_gap_counts_no_more_than_the_longest_step() -> None:
    pid, state = PID(50, 0, LIMITS, ki=0.01, kd=1, longest=60, stale_after=1e9), Loop(40, 40, 0, 45, T0)
    hour = pid.decide(state, Reading(40, T0 + 3600), T0 + 3600)
    assert hour.output == pytest.approx(40 + 0.01 * 10 * 60)
    assert hour.state.slope == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: PID(50, -1, LIMITS),
        lambda: PID(math.nan, 1, LIMITS),
        lambda: PID(50, 1, LIMITS, slew=0),
        lambda: Limits(5, 1),
        lambda: Limits(0, math.inf),
        lambda: OnOff(5, 5),
        lambda: Step(50, -1, LIMITS),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"need"):
        make()
