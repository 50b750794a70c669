import pytest

from homeostat.guards import decide

from .fleets import ENFORCE, NOW, a_fleet, drift, ref


@pytest.mark.parametrize(
    ("reversals", "held"),
    [
        ((NOW - 20, NOW - 10), False),
        ((NOW - 20, NOW - 10, NOW), True),
        ((NOW - 600, NOW - 10, NOW), False),
        ((NOW - 599, NOW - 10, NOW), True),
        ((NOW - 5000, NOW - 4000, NOW - 20, NOW - 10, NOW), True),
    ],
)
def test_three_reversals_in_ten_minutes_hold_the_resource(reversals, held):
    fleet = a_fleet(9)
    drift(fleet, [1], reversals=reversals, by=("autoscaler",))
    assert (ref(1) in decide(ENFORCE, fleet, NOW).held) is held


def test_it_names_both_writers_and_the_field_and_looks_again_when_it_is_calm():
    fleet = a_fleet(9)
    drift(fleet, [1], reversals=(NOW - 100, NOW - 50, NOW), by=("autoscaler",), paths=("spec.replicas",))
    hold = decide(ENFORCE, fleet, NOW).held[ref(1)]
    assert hold.reason == "homeostat and autoscaler undo each other spec.replicas: 3 reversals within 10m0s"
    assert hold.until == NOW - 100 + 600
    assert decide(ENFORCE, fleet, hold.until).allowed


def test_others_are_not_held():
    fleet = a_fleet(9)
    drift(fleet, [1], reversals=(NOW, NOW, NOW))
    other = drift(fleet, [2])
    assert decide(ENFORCE, fleet, NOW).allowed == other
