from homeostat.guards import decide, thresholds
from homeostat.loop.breaker import Breaker, Circuit

from .fleets import ENFORCE, NOW, a_fleet, drift, ref


def test_the_defaults_are_five_failures_in_a_row_and_thirty_seconds():
    assert (thresholds(ENFORCE).failures, thresholds(ENFORCE).open_for) == (5, 30)


def test_an_open_target_is_left_alone_and_others_are_not():
    fleet = a_fleet(20, breakers={"host-a": Breaker(Circuit.OPEN, 5, NOW, "connection refused")})
    drift(fleet, [1], target="host-a")
    other = drift(fleet, [2], target="host-b")
    verdict = decide(ENFORCE, fleet, NOW + 29)
    assert verdict.allowed == other
    assert verdict.held[ref(1)].until == NOW + 30
    assert "connection refused" in verdict.held[ref(1)].reason


def test_after_its_time_one_and_only_one_may_probe():
    fleet = a_fleet(100, breakers={"host-a": Breaker(Circuit.OPEN, 5, NOW)})
    made = drift(fleet, [1, 2, 3], target="host-a")
    assert decide(ENFORCE, fleet, NOW + 30).allowed == made[:1]


def test_while_the_probe_is_under_way_nobody_else_goes():
    fleet = a_fleet(100, breakers={"host-a": Breaker(Circuit.HALF_OPEN, 5, NOW)})
    drift(fleet, [1], target="host-a")
    assert decide(ENFORCE, fleet, NOW + 1).allowed == []


def test_deciding_does_not_use_up_the_probe():
    fleet = a_fleet(100, breakers={"host-a": Breaker(Circuit.OPEN, 5, NOW)})
    made = drift(fleet, [1], target="host-a")
    assert decide(ENFORCE, fleet, NOW + 30).allowed == made
    assert decide(ENFORCE, fleet, NOW + 30).allowed == made


def test_those_behind_an_open_breaker_take_no_places():
    fleet = a_fleet(9, breakers={"host-a": Breaker(Circuit.OPEN, 5, NOW)})
    drift(fleet, [1], target="host-a")
    other = drift(fleet, [2], target="host-b")
    assert decide(ENFORCE, fleet, NOW).allowed == other
