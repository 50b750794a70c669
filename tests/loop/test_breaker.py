"""Breakers and rate limits: a target that fails is left alone, and tried again by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeostat.loop.breaker import Breaker, BreakerPolicy, Breakers, Circuit, Permit, Refusal, TokenBucket

POLICY = BreakerPolicy()


def permitted(breakers: Breakers, now: float, target: str = "t") -> Permit:
    answer = breakers.ask(target, now)
    assert isinstance(answer, Permit)
    return answer


def refused(breakers: Breakers, now: float, target: str = "t") -> Refusal:
    answer = breakers.ask(target, now)
    assert isinstance(answer, Refusal)
    return answer


def broken(now: float = 100.0) -> Breakers:
    """Breakers of which that of "t" has just opened."""
    breakers = Breakers(POLICY)
    for _ in range(5):
        breakers.failed("t", permitted(breakers, now), now, "connection refused")
    return breakers


def test_the_fifth_failure_in_a_row_opens_it() -> None:
    breakers = Breakers()
    for _ in range(4):
        breakers.failed("t", permitted(breakers, 100), 100)
    assert breakers.get("t").circuit is Circuit.CLOSED
    breakers.failed("t", permitted(breakers, 100), 100)
    assert breakers.get("t").circuit is Circuit.OPEN
    assert [target for target, _ in breakers.tripped()] == ["t"]


def test_a_success_in_between_begins_the_count_anew() -> None:
    breakers = Breakers()
    for _ in range(20):
        for _ in range(4):
            breakers.failed("t", permitted(breakers, 100), 100)
        breakers.succeeded("t", permitted(breakers, 100), 100)
    assert breakers.get("t") == Breaker()


def test_one_target_says_nothing_of_another() -> None:
    breakers = broken()
    permitted(breakers, 101, "other")


def test_an_open_one_refuses_and_says_until_when() -> None:
    refusal = refused(broken(100), 129.9)
    assert refusal == Refusal(130, "the circuit is open after 5 failures in a row; nothing is tried")


def test_then_one_may_try_and_no_other() -> None:
    breakers = broken(100)
    assert permitted(breakers, 130).probe
    assert "a probe is under way" in refused(breakers, 131).reason


def test_a_probe_that_works_closes_it() -> None:
    breakers = broken(100)
    breakers.succeeded("t", permitted(breakers, 130), 131)
    assert breakers.get("t").circuit is Circuit.CLOSED
    assert not permitted(breakers, 131).probe


def test_a_probe_that_fails_opens_it_for_as_long_again() -> None:
    breakers = broken(100)
    breakers.failed("t", permitted(breakers, 130), 135)
    assert refused(breakers, 136).until == 165
    assert permitted(breakers, 165).probe


def test_a_probe_that_is_never_heard_of_is_followed_by_another() -> None:
    breakers = broken(100)
    lost = permitted(breakers, 130)
    second = permitted(breakers, 160)
    breakers.succeeded("t", lost, 161)
    assert breakers.get("t").circuit is Circuit.HALF_OPEN
    breakers.failed("t", second, 162)
    assert breakers.get("t").circuit is Circuit.OPEN


def test_a_probe_that_was_not_made_leaves_it_to_the_next() -> None:
    breakers = broken(100)
    breakers.dropped("t", permitted(breakers, 130))
    assert permitted(breakers, 131).probe


def test_what_was_begun_before_says_nothing_of_now() -> None:
    breakers = Breakers()
    early = [permitted(breakers, 99) for _ in range(10)]
    for permit in early[:5]:
        breakers.failed("t", permit, 100)
    probe = permitted(breakers, 130)
    breakers.succeeded("t", early[5], 131)  # neither closes it
    breakers.failed("t", early[6], 131)  # nor opens it
    assert breakers.get("t").circuit is Circuit.HALF_OPEN
    breakers.succeeded("t", probe, 132)
    for permit in early[5:]:
        breakers.failed("t", permit, 133)
    assert breakers.get("t").failures == 0


def test_targets_that_never_failed_take_no_room() -> None:
    breakers = Breakers()
    for n in range(100):
        breakers.succeeded(n, permitted(breakers, 1, str(n)), 1)
    assert not breakers._breakers


@given(st.lists(st.tuples(st.sampled_from(["ask", "ok", "fail", "drop"]), st.floats(0, 40)), max_size=60))
def test_it_never_lets_two_probes_through_at_once_nor_stays_shut_for_ever(steps: list[tuple[str, float]]) -> None:
    breaker, now, permits = Breaker(), 1000.0, []
    probed = -1e9
    for what, seconds in steps:
        now += seconds
        if what == "ask":
            breaker, answer = breaker.ask(POLICY, now)
            if isinstance(answer, Permit):
                permits.append(answer)
                if answer.probe:
                    assert now >= probed + POLICY.open_for
                    probed = now
            else:
                assert now < answer.until <= now + POLICY.open_for
        elif permits:
            permit = permits.pop(0)
            if what == "ok":
                breaker = breaker.succeeded(permit, now)
            elif what == "fail":
                breaker = breaker.failed(permit, POLICY, now)
            else:
                breaker = breaker.dropped(permit, POLICY)
                probed = -1e9
    _, answer = breaker.ask(POLICY, now + POLICY.open_for)
    assert isinstance(answer, Permit)


# Rate limits


def test_a_burst_goes_through_and_then_the_rate() -> None:
    bucket = TokenBucket.full(rate=2, burst=3, now=100)
    for _ in range(3):
        bucket, wait = bucket.take(100)
        assert wait == 0
    bucket, wait = bucket.take(100)
    assert wait == 0.5
    bucket, wait = bucket.take(100.5)
    assert wait == 0


def test_reservations_queue_up() -> None:
    bucket, waits = TokenBucket.full(rate=2, burst=1, now=100), []
    for _ in range(4):
        bucket, wait = bucket.reserve(100)
        waits.append(wait)
    assert waits == [0, 0.5, 1, 1.5]


def test_what_never_fits_is_refused() -> None:
    with pytest.raises(ValueError, match="never fit"):
        TokenBucket.full(rate=2, burst=3, now=0).take(0, 4)


@given(
    st.floats(0.01, 1000),
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(-5, 20), st.booleans()), max_size=80),
)
def test_no_more_than_burst_and_rate_ever_pass(rate: float, burst: int, steps: list[tuple[float, bool]]) -> None:
    start = now = latest = 1.7e9
    bucket, taken = TokenBucket.full(rate, burst, now), 0
    for seconds, wait_for_it in steps:
        now += seconds
        bucket, wait = bucket.take(now)
        if wait and wait_for_it and now >= bucket.at:
            now += wait + 1e-6
            bucket, wait = bucket.take(now)
            assert wait < 1e-3 / rate
        latest = max(latest, now)
        taken += wait == 0
        assert taken <= burst + (latest - start) * rate + 1e-3
