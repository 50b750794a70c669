"""A thing that consists of many is held to the limits of a fleet by what happens inside of it."""

import pytest

from homeostat.guards import GuardPolicy, Mode, admits, decide, runbook
from homeostat.guards.policy import Deletion
from homeostat.loop.fleet import Grant, Op, Parts, plan_hash

from .fleets import ENFORCE, NOW, a_fleet, drift


def module(parts: Parts, **fields):
    fleet = a_fleet(3)
    (line,) = drift(fleet, [0], parts=parts, **fields)
    return fleet, line


@pytest.mark.parametrize(
    ("parts", "guard"),
    [
        (Parts(10, changes=1), None),
        (Parts(10, changes=2), "cap"),
        (Parts(10, changes=3), "cap"),
        (Parts(10, changes=4), "mass-drift"),
        (Parts(9, changes=9), None),  # what is small is no mass
        (Parts(10, deletions=1), None),
        (Parts(10, deletions=2), "deletion"),
        (Parts(10, deletions=3), "deletion"),
        (Parts(10, deletions=4), "mass-drift"),
        (Parts(9, deletions=2), "deletion"),
        (Parts(2, deletions=1), None),
        (Parts(100, changes=10, deletions=10), None),
        (Parts(100, changes=11), "cap"),
        (Parts(100, changes=31), "mass-drift"),
        (Parts(0, adds=500), None),
        (Parts(0, adds=500, lost=1), "mass-drift"),
    ],
)
def test_it_waits_where_more_happens_inside_than_a_fleet_would_be_let(parts, guard):
    fleet, line = module(parts)
    verdict = decide(ENFORCE, fleet, NOW)
    assert (line in verdict.allowed) is (guard is None)
    assert [hold.guard for hold in verdict.held.values()] == ([guard] if guard else [])
    assert len(verdict.halts) == (guard == "mass-drift")


def test_the_others_of_its_fleet_go_on():
    fleet, _ = module(Parts(10, deletions=4))
    (other,) = drift(fleet, [1])
    assert decide(ENFORCE, fleet, NOW).allowed == [other]


def test_an_approval_of_exactly_this_plan_lets_it_through_and_of_another_does_not():
    fleet, line = module(Parts(10, deletions=4))
    halt = next(iter(decide(ENFORCE, fleet, NOW).halts.values()))
    assert halt.plan == plan_hash([line])
    assert f"homeostat approve {halt.plan}" in halt.what_to_do
    assert any(halt.plan in text for text in runbook(ENFORCE, fleet, decide(ENFORCE, fleet, NOW), NOW))
    fleet.approvals = frozenset([halt.plan])
    verdict = decide(ENFORCE, fleet, NOW)
    assert (verdict.allowed, verdict.used, verdict.halts) == ([line], {halt.plan}, {})
    fleet.take(verdict)
    line.made_from = "another observation"
    fleet.approvals = frozenset([halt.plan])
    assert decide(ENFORCE, fleet, NOW).allowed == []


def test_who_approved_a_change_set_by_its_size_was_not_shown_what_happens_inside():
    fleet, _ = module(Parts(10, deletions=4), change_set="push-1")
    fleet.grants = {"push-1": Grant(5, 5)}
    verdict = decide(ENFORCE, fleet, NOW)
    assert (verdict.allowed, verdict.approved) == ([], set())


def test_the_limits_are_those_of_the_policy():
    policy = GuardPolicy(mode=Mode.ENFORCE, cap=5, deletion=Deletion(confirm_above=3), creations=2)
    for parts, goes in [
        (Parts(20, changes=5), True),
        (Parts(20, deletions=3), True),
        (Parts(20, deletions=4), False),
        (Parts(20, adds=2), True),
        (Parts(20, adds=3), False),
    ]:
        fleet, line = module(parts)
        assert (line in decide(policy, fleet, NOW).allowed) is goes
        (born,) = drift(fleet, [1], Op.CREATE, parts=parts)
        assert admits(policy, fleet, born, NOW) is goes
