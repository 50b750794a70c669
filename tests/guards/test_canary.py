from datetime import timedelta

import pytest

from homeostat.guards import GuardPolicy, Mode, OnFailure, decide
from homeostat.guards.policy import Canary, Freeze, MassDrift
from homeostat.loop.fleet import Cause, Fleet, Op, Return, Taken

from .fleets import NOW, a_fleet, a_whole_pass, changes, drift, ref, step, verify_all

WIDE = GuardPolicy(mode=Mode.ENFORCE, cap="100%", mass_drift=MassDrift(limit="100%"))
LATE = WIDE.canary.verify_within.total_seconds()


def waves(policy: GuardPolicy, fleet: Fleet) -> list[int]:
    sizes = []
    while fleet.drifts:
        sizes.append(len(step(policy, fleet)))
        assert sizes[-1] > 0
        verify_all(fleet)
    return sizes


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, [1]),
        (2, [1, 1]),
        (3, [1, 2]),
        (4, [1, 1, 2]),
        (10, [1, 4, 5]),
        (19, [1, 8, 10]),
        (20, [1, 1, 8, 10]),
        (40, [1, 3, 16, 20]),
        (100, [1, 9, 40, 50]),
    ],
)
def test_a_change_set_goes_out_as_one_then_a_tenth_a_half_and_all_of_it(size, expected):
    fleet = a_fleet(100)
    changes(fleet, range(size))
    assert waves(WIDE, fleet) == expected


def test_the_cap_makes_more_waves_of_a_step():
    fleet = a_fleet(100)
    changes(fleet, range(30))
    assert waves(GuardPolicy(mode=Mode.ENFORCE), fleet) == [1, 2, 10, 2, 10, 5]


def test_each_change_set_has_steps_of_its_own_and_repairs_and_creations_have_none():
    fleet = a_fleet(100)
    changes(fleet, range(5), "push-1")
    changes(fleet, range(5, 10), "push-2")
    drift(fleet, range(10, 14))
    drift(fleet, range(200, 203), Op.CREATE, Cause.INTENT, change_set="push-1")
    assert len(step(WIDE, fleet)) == 1 + 1 + 4 + 3


def test_each_wave_rests_before_the_next_where_the_policy_wants_it():
    resting = GuardPolicy(
        mode=Mode.ENFORCE, cap="100%", mass_drift=MassDrift(limit="100%"), canary=Canary(rest=timedelta(minutes=10))
    )
    fleet = a_fleet(100)
    changes(fleet, range(10))
    now, sizes = NOW, []
    while fleet.drifts:
        sizes.append(len(step(resting, fleet, now)))
        verify_all(fleet)
        if fleet.drifts:
            assert step(resting, fleet, now + 599) == []
            assert {hold.until for hold in decide(resting, fleet, now + 599).held.values()} == {now + 600}
        now += 600
    assert sizes == [1, 4, 5]


def test_what_falls_ill_during_the_rest_halts_what_is_left():
    resting = GuardPolicy(
        mode=Mode.ENFORCE, cap="100%", mass_drift=MassDrift(limit="100%"), canary=Canary(rest=timedelta(minutes=10))
    )
    fleet = a_fleet(100)
    changes(fleet, range(10))
    (first,) = step(resting, fleet)
    verify_all(fleet)
    fleet.unhealthy[first] = "push-1"
    assert [halt.guard for halt in decide(resting, fleet, NOW + 300).halts.values()] == ["canary"]
    assert step(resting, fleet, NOW + 3600) == []


def test_a_halt_with_nothing_left_to_do_names_no_plan_to_approve():
    fleet = a_fleet(10)
    changes(fleet, [1])
    step(WIDE, fleet)
    (halt,) = decide(WIDE, fleet, NOW + LATE + 1).halts.values()
    assert halt.plan == ""
    assert halt.what_to_do == "Correct the declaration, or go back to the last good one."


def test_the_next_step_waits_for_the_verdict_of_the_one_before():
    fleet = a_fleet(100)
    changes(fleet, range(5))
    assert step(WIDE, fleet) == [ref(0)]
    verdict = decide(WIDE, fleet, NOW + 1)
    assert verdict.allowed == []
    assert verdict.held[ref(1)].reason == "it waits until what its change set touched before is verified healthy"


def failed_canary(policy=WIDE):
    fleet = a_fleet(100)
    changes(fleet, range(5))
    assert step(policy, fleet) == [ref(0)]
    fleet.failed(ref(0))
    assert step(policy, fleet) == []
    return fleet


def test_the_halt_says_how_the_canary_failed():
    fleet = failed_canary()
    fleet.drifts[ref(0)].error = "no space left on device"
    step(WIDE, fleet)
    assert fleet.halts["canary/push-1"].reason == f"{ref(0)} failed in wave 1 of change set push-1: no space left on device"


def test_a_failure_halts_the_change_set_after_one():
    fleet = failed_canary()
    halt = fleet.halts["canary/push-1"]
    assert halt.reason == f"{ref(0)} failed in wave 1 of change set push-1"
    assert halt.change_set == "push-1"
    assert sum(d.attempts for d in fleet.drifts.values()) == 1


def test_other_change_sets_and_repairs_go_on():
    fleet = failed_canary()
    changes(fleet, [50], "push-2")
    drift(fleet, [60])
    assert step(WIDE, fleet) == [ref(50), ref(60)]


def test_its_creations_are_halted_too():
    fleet = failed_canary()
    drift(fleet, [200], Op.CREATE, Cause.INTENT, change_set="push-1")
    assert step(WIDE, fleet) == []


@pytest.mark.parametrize(("seconds", "halts"), [(LATE, False), (LATE + 0.001, True)])
def test_a_verdict_that_does_not_come_in_time_is_a_failure(seconds, halts):
    fleet = a_fleet(100)
    changes(fleet, range(5))
    step(WIDE, fleet)
    verdict = decide(WIDE, fleet, NOW + seconds)
    assert ("canary/push-1" in verdict.halts) is halts
    if halts:
        assert "gave no verdict in time" in verdict.halts["canary/push-1"].reason


def test_a_verdict_that_got_lost_with_its_ledger_line_is_a_failure_too():
    fleet = a_fleet(100)
    changes(fleet, range(5))
    step(WIDE, fleet)
    del fleet.drifts[ref(0)]
    a_whole_pass(fleet)
    assert step(WIDE, fleet, NOW + 1) == []
    assert step(WIDE, fleet, NOW + LATE + 1) == []
    assert "canary/push-1" in fleet.halts


def test_a_late_recovery_does_not_restart_it_by_itself():
    fleet = failed_canary()
    fleet.verified(ref(0))
    assert step(WIDE, fleet, NOW + 60) == []
    assert "canary/push-1" in fleet.halts


def test_it_leaves_when_nothing_of_the_change_set_is_open_any_more():
    fleet = failed_canary()
    for number in range(5):
        fleet.forget(ref(number))
    changes(fleet, range(5), "push-2")
    assert step(WIDE, fleet) == [ref(0)]
    assert fleet.halts == {}


def test_or_by_an_approval_of_what_is_left_which_is_good_once():
    fleet = failed_canary()
    fleet.approvals = frozenset((fleet.halts["canary/push-1"].plan,))
    assert step(WIDE, fleet) == [ref(1)]  # from the first step again, and what was never tried first
    assert fleet.halts == {}
    assert fleet.approvals == frozenset()
    fleet.failed(ref(1))
    assert step(WIDE, fleet) == []
    assert "canary/push-1" in fleet.halts


def test_an_approval_of_another_plan_does_not_open_it():
    fleet = failed_canary()
    fleet.approvals = frozenset((fleet.halts["canary/push-1"].plan,))
    changes(fleet, [5])
    assert step(WIDE, fleet) == []


RETURNING = GuardPolicy(mode=Mode.ENFORCE, canary=Canary(on_failure=OnFailure.RETURN))


def test_a_policy_may_want_the_last_good_revision_back():
    fleet = failed_canary(RETURNING)
    verdict = decide(RETURNING, fleet, NOW)
    assert verdict.returns == [Return("push-1", f"{ref(0)} failed in wave 1 of change set push-1")]
    assert verdict.allowed == []
    assert decide(WIDE, fleet, NOW).returns == []


def test_a_return_is_asked_for_once_and_the_halt_says_what_became_of_it():
    fleet = failed_canary(RETURNING)
    fleet.returned = {"push-1": Taken("could not be taken back: nobody knows how it was", NOW)}
    for _ in range(2):
        verdict = decide(RETURNING, fleet, NOW)
        fleet.take(verdict)
        assert verdict.returns == []
        assert fleet.halts["canary/push-1"].reason == (
            f"{ref(0)} failed in wave 1 of change set push-1; it could not be taken back: nobody knows how it was"
        )


def test_while_it_is_being_taken_back_the_rest_of_it_does_not_go_on_though_a_crash_forgot_the_halt():
    fleet = a_fleet(100, returned={"push-1": Taken("is being taken back as return-of/push-1", NOW, under_way=True)})
    changes(fleet, range(5))
    assert step(RETURNING, fleet) == []
    assert fleet.halts["canary/push-1"].reason == "change set push-1 failed; it is being taken back as return-of/push-1"
    fleet.returned = {"push-1": Taken("was taken back as return-of/push-1", NOW)}
    fleet.halts = {}
    assert step(RETURNING, fleet) == [ref(0)], "the same name may be meant again, and has a canary again"


def test_behind_a_gate_that_a_person_closed_nothing_is_taken_back():
    fleet = failed_canary(RETURNING)
    frozen = GuardPolicy(mode=Mode.ENFORCE, canary=RETURNING.canary, freezes=(Freeze(reason="wait", author="ann"),))
    assert decide(frozen, fleet, NOW).returns == []
    assert decide(GuardPolicy(canary=RETURNING.canary), fleet, NOW).returns == []


def test_a_restarted_loop_takes_back_what_is_not_well_when_its_verdict_is_due():
    fleet = a_fleet(100, unhealthy={ref(0): "push-1"})
    changes(fleet, range(1, 5))
    verdict = decide(RETURNING, fleet, NOW)
    fleet.take(verdict)
    assert verdict.returns == []
    assert {hold.until for hold in verdict.held.values()} == {NOW + LATE}
    assert decide(RETURNING, fleet, NOW + LATE).returns == [
        Return("push-1", f"{ref(0)} of change set push-1 is as declared and not healthy")
    ]
    assert decide(WIDE, fleet, NOW + LATE).returns == []


def test_and_so_it_does_where_the_last_of_a_change_set_was_touched_before_the_crash():
    fleet = a_fleet(100, unhealthy={ref(0): "push-1"}, interrupted={"push-1": NOW})
    assert decide(RETURNING, fleet, NOW + LATE).returns == []
    verdict = decide(RETURNING, fleet, NOW + LATE + 1)
    assert [one.change_set for one in verdict.returns] == ["push-1"]
    assert verdict.halts["canary/push-1/lost"].change_set == "push-1"
    fleet.interrupted = {}
    assert decide(RETURNING, fleet, NOW + LATE + 1).returns == []


def test_a_return_that_fails_is_not_returned_in_its_turn():
    fleet = a_fleet(100)
    changes(fleet, range(2), "return-of/push-1")
    step(RETURNING, fleet)
    fleet.failed(ref(0))
    verdict = decide(RETURNING, fleet, NOW)
    assert verdict.returns == []
    assert "canary/return-of/push-1" in verdict.halts


def test_a_change_set_that_is_still_coming_in_waits_to_be_judged_as_a_whole():
    fleet = a_fleet(100, gathering={"push-1": NOW + 1})
    changes(fleet, range(3))
    assert step(WIDE, fleet) == []
    fleet.gathering = {}
    assert step(WIDE, fleet) == [ref(0)]


def test_what_was_verified_and_changes_again_in_the_same_change_set_gets_its_turn():
    fleet = a_fleet(100)
    changes(fleet, [1])
    waves(WIDE, fleet)
    changes(fleet, [1], made_from="newer")
    assert step(WIDE, fleet) == [ref(1)]


def test_steps_and_patience_can_be_chosen():
    policy = GuardPolicy(
        mode=Mode.ENFORCE,
        cap="100%",
        mass_drift=MassDrift(limit="100%"),
        canary=Canary(steps=(2, "50%"), verify_within=timedelta(seconds=10)),
    )
    fleet = a_fleet(100)
    changes(fleet, range(10))
    assert waves(policy, fleet) == [2, 3, 5]
    changes(fleet, range(10), "push-2")
    step(policy, fleet)
    assert decide(policy, fleet, NOW + 11).halts


def a_sick_one(policy=WIDE, change_set="push-1"):
    """What a loop finds after a restart: one is as declared and does not work, the rest of its change set is open."""
    fleet = a_fleet(100, unhealthy={ref(0): change_set})
    changes(fleet, range(1, 5))
    return fleet


def test_what_a_change_set_made_is_asked_again_by_who_never_heard_the_verdict():
    fleet = a_sick_one()
    assert step(WIDE, fleet) == []
    assert fleet.halts["canary/push-1/health"].reason == f"{ref(0)} of change set push-1 is as declared and not healthy"


def test_it_goes_on_by_itself_when_that_recovers():
    fleet = a_sick_one()
    step(WIDE, fleet)
    fleet.unhealthy.clear()
    assert step(WIDE, fleet) == [ref(1)]
    assert fleet.halts == {}


def test_or_by_an_approval_of_what_is_left_of_it():
    fleet = a_sick_one()
    step(WIDE, fleet)
    fleet.approvals = frozenset((fleet.halts["canary/push-1/health"].plan,))
    assert waves(WIDE, fleet) == [1, 1, 2]


def test_an_approval_from_before_somebody_fell_ill_is_no_word_on_that():
    fleet = a_sick_one()
    for one in fleet.drifts.values():
        one.approved = one.made_from
    assert step(WIDE, fleet) == []
    fleet.approvals = frozenset((fleet.halts["canary/push-1/health"].plan,))
    assert step(WIDE, fleet) == [ref(1)]
    verify_all(fleet)
    fleet.unhealthy[ref(1)] = "push-1"
    assert step(WIDE, fleet) == [], "nobody has said yet to go on in spite of another one"


def test_what_another_change_set_made_ill_is_none_of_its_business():
    assert step(WIDE, a_sick_one(change_set="push-0")) == [ref(1)]
    assert step(WIDE, a_sick_one(change_set="")) == [ref(1)]


def test_repairs_and_creations_do_not_wait_for_the_sick():
    fleet = a_sick_one()
    repair = drift(fleet, [20])
    creation = drift(fleet, [21], Op.CREATE, Cause.INTENT, change_set="push-1")
    assert step(WIDE, fleet) == [repair[0].ref, creation[0].ref]


def test_who_waits_for_a_verdict_is_decided_on_again_when_it_is_late():
    fleet = a_fleet(100)
    changes(fleet, range(5))
    step(WIDE, fleet)
    until = decide(WIDE, fleet, NOW + 1).held[ref(1)].until
    assert until > NOW + LATE
    assert "canary/push-1" in decide(WIDE, fleet, until).halts
