import pytest
from msgspec.structs import replace

from homeostat.guards import GuardPolicy, Mode, decide
from homeostat.guards.policy import MassDrift
from homeostat.loop.fleet import Cause, Grant, Op, Phase

from .fleets import ENFORCE, NOW, a_fleet, a_whole_pass, changes, drift, ref, step, verify_all

CHANGES = "mass-drift/update"


@pytest.mark.parametrize(
    ("size", "drifted", "halts"),
    [
        (10, 3, False),
        (10, 4, True),
        (9, 9, False),
        (11, 3, False),
        (11, 4, True),
        (19, 5, False),
        (19, 6, True),
        (100, 30, False),
        (100, 31, True),
    ],
)
@pytest.mark.parametrize("cause", list(Cause))
def test_more_than_the_limit_of_a_fleet_of_ten_halts_it_whatever_the_cause(size, drifted, halts, cause):
    fleet = a_fleet(size)
    drift(fleet, range(drifted), cause=cause, change_set="push-1")
    verdict = decide(ENFORCE, fleet, NOW)
    assert (CHANGES in verdict.halts) is halts
    assert (verdict.allowed == []) is halts


def test_changes_and_deletions_are_counted_apart():
    fleet = a_fleet(10)
    drift(fleet, range(3))
    drift(fleet, range(3, 6), Op.DELETE)
    assert decide(ENFORCE, fleet, NOW).halts == {}
    drift(fleet, [6], Op.DELETE)
    assert list(decide(ENFORCE, fleet, NOW).halts) == ["mass-drift/delete"]


def test_creations_are_neither_counted_nor_halted():
    fleet = a_fleet(10)
    born = drift(fleet, range(10, 20), Op.CREATE, Cause.INTENT)
    assert decide(ENFORCE, fleet, NOW).allowed == born
    drift(fleet, range(4))
    verdict = decide(ENFORCE, fleet, NOW)
    assert CHANGES in verdict.halts
    assert verdict.allowed == born


def test_the_halt_says_how_much_and_names_the_way_out():
    fleet = a_fleet(10)
    drift(fleet, range(5))
    halt = decide(ENFORCE, fleet, NOW).halts[CHANGES]
    assert halt.reason == "5 of 10 would be changed, more than 3: most likely the declaration or the observer is wrong"
    assert f"homeostat approve {halt.plan}" in halt.what_to_do


def test_one_more_after_the_first_wave_began_halts_the_rest():
    fleet = a_fleet(10)
    drift(fleet, range(3))
    assert len(step(ENFORCE, fleet)) == 1
    drift(fleet, [3])
    assert step(ENFORCE, fleet) == []
    assert fleet.halts[CHANGES].since == NOW


@pytest.mark.parametrize(("at_most", "goes"), [(9, 1), (10, 0)])
def test_a_fleet_of_which_few_were_seen_yet_may_be_a_large_one(at_most, goes):
    fleet = a_fleet(2, at_most=at_most)
    fleet.passes_done = 0
    drift(fleet, [0])
    assert len(step(ENFORCE, fleet)) == goes
    a_whole_pass(fleet)
    assert len(step(ENFORCE, fleet)) == 1 - goes


def halted():
    fleet = a_fleet(10)
    drift(fleet, range(5))
    assert step(ENFORCE, fleet) == []
    return fleet


def test_it_leaves_by_a_fix_only_after_a_whole_pass_under_the_limit():
    fleet = halted()
    fleet.pass_begun()  # a pass that began while there was too much is no proof
    for number in (3, 4):
        fleet.forget(ref(number))
    assert step(ENFORCE, fleet) == []
    fleet.pass_done()
    assert step(ENFORCE, fleet) == []
    fleet.pass_begun()
    assert step(ENFORCE, fleet) == []
    fleet.pass_done()
    assert len(step(ENFORCE, fleet)) == 1
    assert fleet.halts == {}


def test_a_limit_that_was_raised_meanwhile_is_told_as_what_it_is():
    fleet = halted()
    raised = replace(ENFORCE, mass_drift=MassDrift(limit="100%"))
    assert step(raised, fleet) == []
    assert fleet.halts[CHANGES].reason == "5 of 10 would be changed, which is no longer more than 10; that is over, and a whole pass has to find it so"
    a_whole_pass(fleet)
    assert step(raised, fleet)


def test_a_pass_in_which_it_came_back_does_not_count():
    fleet = halted()
    for number in (3, 4):
        fleet.forget(ref(number))
    step(ENFORCE, fleet)
    fleet.pass_begun()
    drift(fleet, [3])
    step(ENFORCE, fleet)
    fleet.forget(ref(3))
    step(ENFORCE, fleet)
    fleet.pass_done()
    assert step(ENFORCE, fleet) == []
    a_whole_pass(fleet)
    assert len(step(ENFORCE, fleet)) == 1


def test_what_became_unreadable_is_not_taken_for_fixed():
    fleet = halted()
    for number in (3, 4):
        fleet.forget(ref(number))
        fleet.unknown[ref(number)] = "timed out"
    for _ in range(3):
        assert step(ENFORCE, fleet) == []
        a_whole_pass(fleet)
    assert CHANGES in fleet.halts


def test_while_it_waits_for_a_whole_pass_there_is_no_plan_to_approve():
    fleet = halted()
    for number in (3, 4):
        fleet.forget(ref(number))
    step(ENFORCE, fleet)
    assert fleet.halts[CHANGES].plan == ""
    assert "that is over" in fleet.halts[CHANGES].reason
    fleet.unknown[ref(3)] = "timed out"
    step(ENFORCE, fleet)
    assert fleet.halts[CHANGES].plan == ""
    assert "cannot be read" in fleet.halts[CHANGES].what_to_do
    del fleet.unknown[ref(3)]
    drift(fleet, range(3, 6))
    step(ENFORCE, fleet)
    assert fleet.halts[CHANGES].plan
    assert "6 of 10 would be changed" in fleet.halts[CHANGES].reason


def test_it_leaves_by_an_approval_of_exactly_its_plan_which_is_used_up():
    fleet = halted()
    fleet.approvals = frozenset((fleet.halts[CHANGES].plan,))
    for _ in range(5):  # the cap still holds: wave by wave, under one approval
        assert len(step(ENFORCE, fleet)) == 1
        assert fleet.halts == {}
        verify_all(fleet)
    assert fleet.drifts == {}
    assert fleet.approvals == frozenset()
    drift(fleet, range(5))
    assert step(ENFORCE, fleet) == []
    assert CHANGES in fleet.halts


def test_an_approval_does_not_fit_a_plan_that_changed():
    fleet = halted()
    fleet.approvals = frozenset((fleet.halts[CHANGES].plan,))
    fleet.drifts[ref(0)].made_from = "other facts"
    assert step(ENFORCE, fleet) == []
    assert fleet.approvals  # it waits for its plan; it was good for nothing yet
    assert fleet.halts[CHANGES].plan not in fleet.approvals


def test_an_action_whose_facts_move_loses_its_approval():
    fleet = halted()
    fleet.approvals = frozenset((fleet.halts[CHANGES].plan,))
    step(ENFORCE, fleet)
    for number in range(1, 5):
        fleet.drifts[ref(number)].made_from = "moved"
    verify_all(fleet)
    assert step(ENFORCE, fleet) == []
    assert "4 of 10" in fleet.halts[CHANGES].reason


def test_new_drift_beside_an_approved_plan_is_judged_by_itself():
    fleet = halted()
    fleet.approvals = frozenset((fleet.halts[CHANGES].plan,))
    step(ENFORCE, fleet)
    drift(fleet, [5, 6, 7])
    verify_all(fleet)
    assert len(step(ENFORCE, fleet)) == 1
    drift(fleet, [8])
    verify_all(fleet)
    assert step(ENFORCE, fleet) == []


def test_a_change_set_can_carry_its_approval():
    fleet = a_fleet(10, grants={"push-1": Grant(changes=5)})
    changes(fleet, range(5))
    waves = 0
    while fleet.drifts:
        assert step(ENFORCE, fleet)
        verify_all(fleet)
        waves += 1
    assert waves == 5
    assert fleet.grants["push-1"] == Grant()


def test_a_change_set_that_is_larger_than_it_was_approved_for_is_not_the_one_that_was_approved():
    fleet = a_fleet(10, grants={"push-1": Grant(changes=4)})
    changes(fleet, range(5))
    assert step(ENFORCE, fleet) == []
    assert CHANGES in fleet.halts


def test_an_approval_for_changes_is_none_for_deletions():
    fleet = a_fleet(10, grants={"push-1": Grant(changes=5)})
    drift(fleet, range(5), Op.DELETE, Cause.INTENT, change_set="push-1")
    assert step(ENFORCE, fleet) == []


def test_a_change_set_that_comes_in_drop_by_drop_counts_as_the_whole_that_it_is():
    fleet = a_fleet(10)
    for number in range(3):
        changes(fleet, [number])
        assert step(ENFORCE, fleet) == [ref(number)]
        verify_all(fleet)
    changes(fleet, [3])
    assert step(ENFORCE, fleet) == []
    assert "4 of 10" in fleet.halts[CHANGES].reason


def test_what_was_approved_before_is_not_held_against_the_rest_of_its_change_set():
    fleet = a_fleet(10, grants={"push-1": Grant(changes=4)})
    changes(fleet, range(4))
    while fleet.drifts:
        assert step(ENFORCE, fleet)
        verify_all(fleet)
    changes(fleet, [4])
    assert step(ENFORCE, fleet) == [ref(4)]


def test_nothing_existing_is_touched_before_the_whole_fleet_was_looked_at_once():
    fleet = replace(a_fleet(10), passes_begun=0, passes_done=0)
    drift(fleet, [1])
    born = drift(fleet, [11], Op.CREATE)
    assert decide(ENFORCE, fleet, NOW).allowed == born
    a_whole_pass(fleet)
    assert len(decide(ENFORCE, fleet, NOW).allowed) == 2


def test_what_is_under_way_is_counted_but_not_part_of_the_plan_to_approve():
    fleet = a_fleet(10)
    drift(fleet, range(4))
    fleet.drifts[ref(0)].phase = Phase.SETTLING
    first = decide(ENFORCE, fleet, NOW).halts[CHANGES]
    assert "4 of 10" in first.reason
    fleet.drifts[ref(0)].phase = Phase.ACTING
    assert decide(ENFORCE, fleet, NOW).halts[CHANGES].plan == first.plan


def test_the_limit_may_be_a_count_and_the_smallest_fleet_another():
    policy = GuardPolicy(mode=Mode.ENFORCE, mass_drift=MassDrift(limit=1, fleet_of=2))
    fleet = a_fleet(2)
    drift(fleet, range(1))
    assert decide(policy, fleet, NOW).halts == {}
    drift(fleet, range(1, 2))
    assert CHANGES in decide(policy, fleet, NOW).halts
