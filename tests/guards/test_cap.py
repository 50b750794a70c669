import pytest

from homeostat.guards import GuardPolicy, Mode, decide
from homeostat.loop.fleet import Cause, Op, Phase

from .fleets import ENFORCE, NOW, a_fleet, changes, drift, in_flight, ref, step, verify_all


@pytest.mark.parametrize(("size", "wave"), [(1, 1), (9, 1), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3), (105, 10)])
def test_a_tenth_of_the_fleet_rounded_down_and_at_least_one_goes_in_a_wave(size, wave):
    fleet = a_fleet(size)
    drift(fleet, range(min(size, max(1, size * 3 // 10))))
    assert len(step(ENFORCE, fleet)) == min(wave, len(fleet.drifts))


def test_the_oldest_go_first_and_the_others_are_told_to_wait():
    fleet = a_fleet(20)
    drift(fleet, [1, 2, 3])
    verdict = decide(ENFORCE, fleet, NOW)
    assert [d.ref for d in verdict.allowed] == [ref(1), ref(2)]
    assert verdict.held[ref(3)].reason == "the wave is full: at most 2 of 20 at once; it goes in one of the next"


def test_a_wave_ends_when_all_of_it_is_verified_and_the_next_begins_at_once():
    fleet = a_fleet(20)
    drift(fleet, range(6))
    assert step(ENFORCE, fleet) == [ref(0), ref(1)]
    fleet.verified(ref(0))
    assert step(ENFORCE, fleet) == []  # one of two: the wave is not over
    fleet.verified(ref(1))
    assert step(ENFORCE, fleet) == [ref(2), ref(3)]
    assert fleet.waves[""].number == 2


def test_what_drifts_while_a_wave_has_places_left_joins_it():
    fleet = a_fleet(20)
    drift(fleet, [1])
    step(ENFORCE, fleet)
    drift(fleet, [2, 3])
    assert step(ENFORCE, fleet) == [ref(2)]


def test_changes_and_deletions_have_places_apart():
    fleet = a_fleet(10)
    drift(fleet, [1, 2])
    drift(fleet, [3], Op.DELETE)
    assert step(ENFORCE, fleet) == [ref(1), ref(3)]


def test_creations_take_no_places_and_have_no_limit_unless_given():
    fleet = a_fleet(10)
    drift(fleet, range(1, 3))
    drift(fleet, range(10, 40), Op.CREATE, Cause.INTENT)
    assert len(step(ENFORCE, fleet)) == 31
    limited = a_fleet(10)
    drift(limited, range(10, 40), Op.CREATE, Cause.INTENT)
    policy = GuardPolicy(mode=Mode.ENFORCE, creations=4)
    assert len(step(policy, limited)) == 4
    assert step(policy, limited) == []
    verify_all(limited)
    assert len(step(policy, limited)) == 4


def test_a_cap_of_zero_touches_nothing_that_exists():
    fleet = a_fleet(10)
    drift(fleet, [1])
    born = drift(fleet, [11], Op.CREATE)
    assert decide(GuardPolicy(mode=Mode.ENFORCE, cap=0), fleet, NOW).allowed == born


def test_places_are_shared_in_turn_between_repairs_and_change_sets():
    fleet = a_fleet(40)
    drift(fleet, ["a", "b", "c", "d"])
    changes(fleet, ["x"], "push-1")
    changes(fleet, ["y"], "push-2")
    assert step(ENFORCE, fleet) == [ref("a"), ref("b"), ref("x"), ref("y")]


def test_what_failed_keeps_its_place():
    fleet = a_fleet(100)
    drift(fleet, range(20))
    for number in range(3):
        fleet.drifts[ref(number)].phase = Phase.FAILED
        fleet.drifts[ref(number)].retry_at = NOW + 60
    assert len(step(ENFORCE, fleet)) == 7


def test_and_takes_it_once_also_while_its_wave_goes_on():
    fleet = a_fleet(40)
    drift(fleet, [1, 2])
    step(ENFORCE, fleet)
    fleet.failed(ref(1), retry_at=NOW + 60)
    drift(fleet, [3, 4, 5])
    assert step(ENFORCE, fleet) == [ref(3), ref(4)]  # four places: one failed, one under way


def test_one_that_fails_does_not_stop_the_others_of_a_fleet_whose_cap_is_one():
    fleet = a_fleet(9)
    drift(fleet, range(3))
    assert step(ENFORCE, fleet) == [ref(0)]
    fleet.failed(ref(0), retry_at=NOW + 60)
    assert step(ENFORCE, fleet) == [ref(1)]


def test_automation_that_makes_things_worse_stops_at_the_cap_and_one():
    fleet = a_fleet(100)
    drift(fleet, range(30))
    for _ in range(50):
        for one in step(ENFORCE, fleet):
            fleet.failed(one, retry_at=NOW + 60)
    assert sum(d.attempts > 0 for d in fleet.drifts.values()) == 11
    verdict = decide(ENFORCE, fleet, NOW)
    assert "11 that were acted on failed, more than the cap of 10" in verdict.held[ref(29)].reason


def stuck():
    fleet = a_fleet(9)
    drift(fleet, range(4))
    for _ in range(2):
        for one in step(ENFORCE, fleet):
            fleet.failed(one, retry_at=NOW + 60)
    assert step(ENFORCE, fleet) == []
    return fleet


def test_then_only_what_failed_is_tried_again_and_its_recovery_lets_the_rest_go_on():
    fleet = stuck()
    assert step(ENFORCE, fleet, NOW + 60) == [ref(0)]
    verify_all(fleet)
    assert step(ENFORCE, fleet, NOW + 60) == [ref(2)]


def test_who_approved_it_before_it_failed_is_asked_again():
    fleet = a_fleet(30)
    drift(fleet, range(30))
    step(ENFORCE, fleet)
    fleet.approvals = frozenset((fleet.halts["mass-drift/update"].plan,))
    for _ in range(10):
        for one in step(ENFORCE, fleet):
            fleet.drifts[one].error = "no route"
            fleet.failed(one, retry_at=NOW + 60)
    assert sum(d.attempts > 0 for d in fleet.drifts.values()) == 4
    halt = fleet.halts["mass-drift/update"]
    assert halt.reason.endswith("4 that went first failed, so that what was approved wants a word anew (no route)")
    fleet.approvals = frozenset((halt.plan,))
    touched = set()
    for _ in range(60):
        touched.update(step(ENFORCE, fleet, NOW + 60))
        verify_all(fleet)
    assert len(touched) == 30, "it is good for all that is left, those that failed included"


def test_or_a_person_approves_the_rest():
    fleet = stuck()
    fleet.approvals = frozenset((decide(ENFORCE, fleet, NOW).held[ref(3)].plan,))
    assert step(ENFORCE, fleet) == [ref(2)]
    verify_all(fleet)
    assert step(ENFORCE, fleet) == [ref(3)]


def test_one_that_always_fails_does_not_keep_newer_ones_from_their_turn():
    fleet = a_fleet(9)
    drift(fleet, range(3))
    assert step(ENFORCE, fleet) == [ref(0)]
    fleet.failed(ref(0))  # no wait at all
    assert step(ENFORCE, fleet) == [ref(1)]
    verify_all(fleet)
    assert step(ENFORCE, fleet) == [ref(2)]


def test_what_is_under_way_after_a_restart_still_counts():
    fleet = a_fleet(10)
    drift(fleet, [1, 2])
    fleet.drifts[ref(1)].phase = Phase.SETTLING  # its wave was not kept
    assert step(ENFORCE, fleet) == []
    assert in_flight(fleet, Op.UPDATE) == 1


def test_what_a_loop_made_worse_before_it_was_restarted_keeps_its_place():
    fleet = a_fleet(20, in_doubt={ref("ill-1"), ref("ill-2"), ref("ill-3")})
    drift(fleet, [1, 2])
    verdict = decide(ENFORCE, fleet, NOW)
    assert verdict.allowed == []
    assert verdict.held[ref(1)].reason.startswith("3 that were acted on failed, more than the cap of 2")
    fleet.in_doubt.discard(ref("ill-3"))
    assert len(decide(ENFORCE, fleet, NOW).allowed) == 1  # one place always stays
