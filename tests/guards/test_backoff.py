import random

import pytest

from homeostat.guards import decide, default_policy, delays

from .fleets import ENFORCE, NOW, a_fleet, drift, ref


@pytest.mark.parametrize(("wait", "held"), [(0.001, True), (0, False), (-1, False)])
def test_it_is_not_tried_before_its_time_and_is_at_its_time(wait, held):
    fleet = a_fleet(9)
    drift(fleet, [1], retry_at=NOW + wait, failures=2)
    verdict = decide(ENFORCE, fleet, NOW)
    assert (ref(1) in verdict.held) is held
    if held:
        assert verdict.held[ref(1)].until == NOW + wait
        assert "failed 2 in a row" in verdict.held[ref(1)].reason


def test_what_did_not_fail_but_moved_again_and_again_says_so():
    fleet = a_fleet(9)
    drift(fleet, [1], retry_at=NOW + 1)
    assert decide(ENFORCE, fleet, NOW).held[ref(1)].reason.startswith("something moved each time")


def test_nobody_waits_with_it():
    fleet = a_fleet(9)
    drift(fleet, [1], retry_at=NOW + 60)
    other = drift(fleet, [2])
    assert decide(ENFORCE, fleet, NOW).allowed == other


def test_the_waits_double_from_a_second_to_five_minutes_with_full_jitter():
    waits = delays(default_policy("servers.shop.example.com"))
    assert [waits.ceiling(n) for n in (1, 2, 3, 20)] == [1, 2, 4, 300]
    drawn = [waits.delay(20, random.Random(seed)) for seed in range(200)]
    assert min(drawn) < 30
    assert max(drawn) > 270
