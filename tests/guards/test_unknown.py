import pytest

from homeostat.guards import decide
from homeostat.loop.fleet import Cause, Fleet, Op, Ref

from .fleets import ENFORCE, NOW, a_fleet, drift, guards_of, ref, step


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


def made_in_vain(fleet: Fleet, refs: list[Ref]) -> None:
    """They were made again, and are not there when they are looked at."""
    for one in refs:
        fleet.drifts[one].unseen = True
        fleet.failed(one)


def shown(fleet: Fleet, refs: list[Ref]) -> None:
    """They were made again, and are there."""
    fleet.shown_at = NOW
    for one in refs:
        fleet.verified(one)


@pytest.mark.parametrize(("size", "lost", "at_once"), [(10, 2, 2), (10, 3, 1), (4, 1, 1), (4, 2, 1), (100, 20, 20), (100, 21, 1)])
def test_where_more_than_a_fifth_is_read_as_gone_one_is_made_first(size, lost, at_once):
    fleet = a_fleet(size)
    drift(fleet, range(lost), Op.CREATE)
    assert len(step(ENFORCE, fleet)) == at_once


def test_the_others_wait_for_it_and_follow_all_at_once_when_it_shows():
    fleet = a_fleet(10)
    drift(fleet, range(10), Op.CREATE)
    first = step(ENFORCE, fleet)
    assert step(ENFORCE, fleet) == []
    shown(fleet, first)
    assert len(step(ENFORCE, fleet)) == 9


def test_two_that_do_not_show_halt_what_is_read_as_gone_and_nothing_else():
    fleet = a_fleet(10)
    drift(fleet, range(9), Op.CREATE)
    made_in_vain(fleet, step(ENFORCE, fleet))
    assert "unknown/lost" not in decide(ENFORCE, fleet, NOW).halts  # of one by itself something else may be the matter
    made_in_vain(fleet, step(ENFORCE, fleet))
    changed = drift(fleet, [9])
    born = drift(fleet, ["new"], Op.CREATE, Cause.INTENT)
    verdict = decide(ENFORCE, fleet, NOW)
    assert verdict.allowed == [*changed, *born]
    halt = verdict.halts["unknown/lost"]
    assert halt.reason == "9 of 10 are read as gone, and 2 that were made again cannot be seen: the observer is suspected"
    assert halt.what_to_do.endswith(f"If they are gone: homeostat approve {halt.plan}")


def test_the_halt_ends_when_they_are_seen_again():
    fleet = a_fleet(10)
    lost = drift(fleet, range(9), Op.CREATE)
    made_in_vain(fleet, step(ENFORCE, fleet))
    made_in_vain(fleet, step(ENFORCE, fleet))
    fleet.take(decide(ENFORCE, fleet, NOW))
    for one in lost:
        fleet.verified(one.ref)
    assert decide(ENFORCE, fleet, NOW).halts == {}


def test_an_approval_has_them_made_again():
    fleet = a_fleet(10)
    drift(fleet, range(9), Op.CREATE)
    made_in_vain(fleet, step(ENFORCE, fleet))
    made_in_vain(fleet, step(ENFORCE, fleet))
    fleet.approvals = frozenset((decide(ENFORCE, fleet, NOW).halts["unknown/lost"].plan,))
    assert len(step(ENFORCE, fleet)) == 9


def test_what_failed_for_another_reason_says_nothing_of_the_observer():
    fleet = a_fleet(10)
    drift(fleet, range(9), Op.CREATE)
    for _ in range(5):
        (tried,) = step(ENFORCE, fleet)
        fleet.failed(tried, NOW + 60)
    assert decide(ENFORCE, fleet, NOW).halts == {}


def test_what_was_made_and_did_not_show_halts_also_where_others_did():
    fleet = a_fleet(10)
    drift(fleet, range(10), Op.CREATE)
    shown(fleet, step(ENFORCE, fleet))
    made_in_vain(fleet, step(ENFORCE, fleet))
    assert "unknown/lost" in decide(ENFORCE, fleet, NOW).halts
