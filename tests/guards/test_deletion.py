from datetime import timedelta

import pytest

from homeostat.guards import GuardPolicy, Mode, decide
from homeostat.guards.policy import Deletion
from homeostat.loop.fleet import Cause, Grant, Op

from .fleets import ENFORCE, NOW, a_fleet, drift, guards_of, ref, step, verify_all


@pytest.mark.parametrize(
    ("size", "deletions", "held"),
    [(100, 10, False), (100, 11, True), (9, 1, False), (9, 2, True), (1, 1, False), (20, 2, False), (20, 3, True)],
)
def test_more_deletions_than_the_cap_want_a_word(size, deletions, held):
    fleet = a_fleet(size)
    drift(fleet, range(deletions), Op.DELETE)
    verdict = decide(ENFORCE, fleet, NOW)
    assert (verdict.allowed == []) is held
    assert ("deletion" in guards_of(verdict)) is held
    assert verdict.halts == {}


def test_changes_go_on_meanwhile():
    fleet = a_fleet(20)
    drift(fleet, range(3), Op.DELETE)
    change = drift(fleet, [10])
    assert decide(ENFORCE, fleet, NOW).allowed == change


def test_the_word_is_an_approval_of_exactly_these():
    fleet = a_fleet(20)
    drift(fleet, range(3), Op.DELETE)
    hold = decide(ENFORCE, fleet, NOW).held[ref(0)]
    assert hold.reason == f"3 of 20 would be deleted, more than 2: homeostat approve {hold.plan}"
    fleet.approvals = frozenset((hold.plan,))
    assert len(step(ENFORCE, fleet)) == 2
    verify_all(fleet)
    assert len(step(ENFORCE, fleet)) == 1


def test_or_comes_with_the_change_set():
    fleet = a_fleet(20, grants={"push-1": Grant(deletions=3)})
    drift(fleet, range(3), Op.DELETE, Cause.INTENT, change_set="push-1")
    assert len(step(ENFORCE, fleet)) == 1  # the canary


def test_a_change_set_that_deletes_drop_by_drop_is_counted_together():
    fleet = a_fleet(20)
    for number in range(2):
        drift(fleet, [number], Op.DELETE, Cause.INTENT, change_set="push-1")
        assert step(ENFORCE, fleet) == [ref(number)]
        verify_all(fleet)
    drift(fleet, [2], Op.DELETE, Cause.INTENT, change_set="push-1")
    assert step(ENFORCE, fleet) == []


def test_what_goes_with_its_parent_was_deleted_once():
    fleet = a_fleet(9)
    for line in drift(fleet, range(3), Op.DELETE, Cause.INTENT, change_set="push-1"):
        line.part_of = "a parent"
    assert len(step(ENFORCE, fleet)) == 1
    other = drift(fleet, [5], Op.DELETE, Cause.INTENT, change_set="push-1")
    assert decide(ENFORCE, fleet, NOW).held[other[0].ref].guard == "deletion"


def test_where_to_ask_can_be_chosen():
    fleet = a_fleet(100)
    drift(fleet, range(2), Op.DELETE)
    assert decide(GuardPolicy(mode=Mode.ENFORCE, deletion=Deletion(confirm_above=1)), fleet, NOW).allowed == []
    assert decide(GuardPolicy(mode=Mode.ENFORCE, deletion=Deletion(confirm_above="5%")), fleet, NOW).allowed


KEEPING = GuardPolicy(mode=Mode.ENFORCE, deletion=Deletion(grace=timedelta(hours=1)))


def test_what_is_deleted_is_kept_for_its_grace_and_no_longer():
    fleet = a_fleet(20)
    drift(fleet, [1], Op.DELETE, since=NOW)
    hold = decide(KEEPING, fleet, NOW + 3599).held[ref(1)]
    assert (hold.guard, hold.until) == ("deletion", NOW + 3600)
    assert "it is kept until 2027-01-15T09:00:00Z" in hold.reason
    assert len(decide(KEEPING, fleet, NOW + 3600).allowed) == 1


def test_a_grace_is_for_deletions_only():
    fleet = a_fleet(20)
    change = drift(fleet, [1], since=NOW)
    assert decide(KEEPING, fleet, NOW).allowed == change


def test_no_approval_cuts_a_grace_short():
    fleet = a_fleet(20)
    drift(fleet, range(3), Op.DELETE, since=NOW)
    fleet.approvals = frozenset((decide(KEEPING, fleet, NOW).held[ref(0)].plan,))
    assert step(KEEPING, fleet) == []
    assert step(KEEPING, fleet, NOW + 3600) != []
