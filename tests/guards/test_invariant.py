from homeostat.guards import GuardPolicy, Mode, decide
from homeostat.guards.policy import Deletion, MassDrift
from homeostat.loop.fleet import Op

from .fleets import NOW, a_fleet, drift, guards_of, ref, step, verify_all

POLICY = GuardPolicy(mode=Mode.ENFORCE, mass_drift=MassDrift(limit="100%"), deletion=Deletion(confirm_above="100%"))


def at_least(count):
    return lambda before, after: None if len(after) >= count else f"{len(after)} would be left, of at least {count}"


def ten(*invariants):
    return a_fleet(10, observed={ref(n): {"weight": 10} for n in range(10)}, invariants=invariants)


def test_a_plan_that_ends_below_the_minimum_never_begins():
    fleet = ten(at_least(5))
    drift(fleet, range(6), Op.DELETE)
    verdict = decide(POLICY, fleet, NOW)
    assert verdict.allowed == []
    assert verdict.held[ref(0)].reason == (
        "the plan is refused: it would break an invariant: 4 would be left, of at least 5"
    )


def test_a_plan_that_ends_at_the_minimum_goes():
    fleet = ten(at_least(5))
    drift(fleet, range(5), Op.DELETE)
    assert len(step(POLICY, fleet)) == 1


def test_what_breaks_nothing_goes_on_beside_it():
    fleet = ten(at_least(5))
    drift(fleet, range(7), Op.DELETE)
    fine = [*drift(fleet, [9], desired={"weight": 11}), *drift(fleet, [10], Op.CREATE, desired={"weight": 10})]
    assert decide(POLICY, fleet, NOW).allowed == fine


def test_the_old_is_not_deleted_before_the_new_exists():
    fleet = ten(at_least(10))
    drift(fleet, [0], Op.DELETE)
    limited = GuardPolicy(mode=Mode.ENFORCE, creations=0)
    drift(fleet, [10], Op.CREATE, desired={"weight": 10})
    verdict = decide(limited, fleet, NOW)
    assert verdict.allowed == []
    assert "this part of it by itself" in verdict.held[ref(0)].reason
    assert len(decide(POLICY, fleet, NOW).allowed) == 2


def test_what_is_under_way_is_part_of_what_will_be():
    roomy = GuardPolicy(mode=Mode.ENFORCE, cap=5)
    fleet = ten(at_least(9))
    drift(fleet, [0], Op.DELETE)
    step(roomy, fleet)
    drift(fleet, [1], Op.DELETE)
    assert guards_of(decide(roomy, fleet, NOW)) == {"invariant"}
    verify_all(fleet)
    del fleet.observed[ref(0)]
    assert guards_of(decide(roomy, fleet, NOW)) == {"invariant"}


def test_it_sees_the_fleet_as_it_is_and_as_it_would_be():
    seen = []
    fleet = ten(lambda before, after: seen.append((before[ref(1)], after[ref(1)])))
    drift(fleet, [1], desired={"weight": 20})
    assert decide(POLICY, fleet, NOW).allowed
    assert seen[0] == ({"weight": 10}, {"weight": 20})


def test_it_is_not_asked_where_nothing_may_be_done_anyway():
    asked = []
    fleet = ten(lambda before, after: asked.append(1))
    drift(fleet, [1])
    decide(GuardPolicy(), fleet, NOW)
    assert asked == []
