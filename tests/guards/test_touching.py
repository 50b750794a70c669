"""What harms nothing that exists counts as a creation, whatever it does to the resource; what stands aside is not counted in a fleet."""

from homeostat.guards import admits, decide
from homeostat.loop.fleet import Cause, Op, Phase

from .fleets import ENFORCE, NOW, a_fleet, drift, ref

CHANGES = "mass-drift/update"


def test_a_harmless_change_is_neither_counted_nor_halted_nor_put_into_a_wave():
    fleet = a_fleet(10)
    begun = drift(fleet, range(6))
    for one in begun:
        one.touches = Op.CREATE
    verdict = decide(ENFORCE, fleet, NOW)
    assert verdict.halts == {}
    assert verdict.allowed == begun
    fleet.begin(begun[0], NOW)
    assert fleet.waves == {}
    drift(fleet, range(6, 10))
    verdict = decide(ENFORCE, fleet, NOW)
    assert CHANGES in verdict.halts
    assert verdict.allowed == begun[1:]


def test_a_harmless_change_of_what_is_not_ours_is_not_made():
    fleet = a_fleet(10)
    [one] = drift(fleet, [0])
    one.touches, one.owned = Op.CREATE, False
    assert not admits(ENFORCE, fleet, one, NOW)


def test_what_a_change_set_put_aside_counts_as_it_did_before():
    fleet = a_fleet(14)
    lines = drift(fleet, range(4), cause=Cause.INTENT, change_set="quota")
    assert CHANGES not in decide(ENFORCE, fleet, NOW).halts
    fleet.begin(lines[0], NOW)
    fleet.aside.add(ref(0))
    fleet.size = 13
    lines[0].phase = Phase.SETTLING
    assert CHANGES not in decide(ENFORCE, fleet, NOW).halts
    fleet.verified(ref(0))
    assert CHANGES not in decide(ENFORCE, fleet, NOW).halts
    drift(fleet, [4], cause=Cause.INTENT, change_set="quota")
    assert decide(ENFORCE, fleet, NOW).halts[CHANGES].reason.startswith("5 of 14 would be changed, more than 4")
