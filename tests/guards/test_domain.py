from homeostat.guards import GuardPolicy, Mode, decide
from homeostat.guards.policy import MassDrift
from homeostat.loop.fleet import Op

from .fleets import NOW, a_fleet, drift, ref, step, verify_all

WIDE = GuardPolicy(mode=Mode.ENFORCE, cap="100%", mass_drift=MassDrift(limit="100%"))


def three_zones():
    fleet = a_fleet(30)
    for number in range(9):
        drift(fleet, [number], domain="abc"[number % 3])
    return fleet


def test_one_fault_domain_at_a_time_the_one_that_waited_longest_first():
    fleet = three_zones()
    order = []
    while fleet.drifts:
        acted = step(WIDE, fleet)
        order.append([one.name for one in acted])
        verify_all(fleet)
    assert order == [[f"server-{n}" for n in (z, z + 3, z + 6)] for z in (0, 1, 2)]


def test_another_waits_until_the_first_is_verified():
    fleet = three_zones()
    step(WIDE, fleet)
    verdict = decide(WIDE, fleet, NOW)
    assert verdict.allowed == []
    assert verdict.held[ref(1)].reason == "its fault domain waits while a is at work"


def test_a_domain_in_which_something_else_is_at_work_counts():
    fleet = three_zones()
    fleet.domains_busy = frozenset("b")
    assert {d.domain for d in decide(WIDE, fleet, NOW).allowed} == set()
    fleet.drifts = {r: d for r, d in fleet.drifts.items() if d.domain == "b"}
    assert {d.domain for d in decide(WIDE, fleet, NOW).allowed} == {"b"}


def test_new_work_in_a_busy_domain_does_not_keep_the_others_out():
    fleet = three_zones()
    step(WIDE, fleet)
    drift(fleet, [20], domain="a")
    assert step(WIDE, fleet) == []
    verify_all(fleet)
    assert {fleet.drifts[r].domain for r in step(WIDE, fleet)} == {"b"}


def test_creations_and_what_has_no_domain_are_not_held():
    fleet = three_zones()
    step(WIDE, fleet)
    free = [*drift(fleet, [40]), *drift(fleet, [41], Op.CREATE, domain="c")]
    assert decide(WIDE, fleet, NOW).allowed == free


def test_more_than_one_may_be_chosen():
    fleet = three_zones()
    policy = GuardPolicy(mode=Mode.ENFORCE, cap="100%", mass_drift=MassDrift(limit="100%"), domains=2)
    assert {fleet.drifts[r].domain for r in step(policy, fleet)} == {"a", "b"}
