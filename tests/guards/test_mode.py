from homeostat.guards import GuardPolicy, decide
from homeostat.loop.fleet import Op

from .fleets import ENFORCE, NOW, a_fleet, drift


def test_a_new_policy_observes_and_acts_on_nothing_not_even_creations():
    fleet = a_fleet(5)
    drift(fleet, [1])
    drift(fleet, [2], Op.CREATE)
    verdict = decide(GuardPolicy(), fleet, NOW)
    assert verdict.allowed == []
    assert {h.reason.split(":")[0] for h in verdict.held.values()} == {"observe-only"}
    assert "homeostat enforce shop" in next(iter(verdict.held.values())).reason


def test_enforce_lets_it_act():
    fleet = a_fleet(5)
    made = drift(fleet, [1])
    assert decide(ENFORCE, fleet, NOW).allowed == made


def test_what_is_under_way_is_neither_allowed_again_nor_held():
    fleet = a_fleet(5)
    (one,) = drift(fleet, [1])
    fleet.begin(one, NOW)
    verdict = decide(ENFORCE, fleet, NOW)
    assert verdict.allowed == []
    assert verdict.held == {}
