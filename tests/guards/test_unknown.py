import pytest

from homeostat.guards import decide
from homeostat.loop.fleet import Op

from .fleets import ENFORCE, NOW, a_fleet, drift, guards_of, ref


@pytest.mark.parametrize(
    ("size", "unreadable", "halts"),
    [
        (10, 2, False),
        (10, 3, True),
        (9, 1, False),
        (9, 2, True),
        (4, 1, False),
        (4, 2, True),
        (1, 1, False),
        (100, 20, False),
        (100, 21, True),
    ],
)
def test_more_than_a_fifth_unreadable_halts_the_fleet(size, unreadable, halts):
    fleet = a_fleet(size, unknown={ref(f"u{i}"): "timed out" for i in range(unreadable)})
    drift(fleet, ["new"], Op.CREATE)
    verdict = decide(ENFORCE, fleet, NOW)
    assert ("unknown" in verdict.halts) is halts
    assert (verdict.allowed == []) is halts


def test_the_halt_says_why_and_keeps_the_time_it_began():
    fleet = a_fleet(10, unknown={ref(i): "connection refused" for i in range(3)})
    fleet.take(decide(ENFORCE, fleet, NOW))
    halt = decide(ENFORCE, fleet, NOW + 60).halts["unknown"]
    assert halt.since == NOW
    assert halt.reason == "3 of 10 could not be read, more than 2: the observer is suspected (connection refused)"


def test_it_ends_by_itself_when_enough_can_be_read_again():
    fleet = a_fleet(10, unknown={ref(i): "?" for i in range(3)})
    made = drift(fleet, ["a"])
    fleet.take(decide(ENFORCE, fleet, NOW))
    del fleet.unknown[ref(0)]
    verdict = decide(ENFORCE, fleet, NOW)
    assert verdict.halts == {}
    assert verdict.allowed == made


@pytest.mark.parametrize("op", list(Op))
def test_nothing_is_done_to_a_resource_that_is_itself_unreadable(op):
    fleet = a_fleet(10, unknown={ref(1): "permission denied"})
    drift(fleet, [1], op)
    verdict = decide(ENFORCE, fleet, NOW)
    assert verdict.allowed == []
    assert guards_of(verdict) == {"unknown"}
    assert verdict.held[ref(1)].reason == "it could not be read: permission denied"
