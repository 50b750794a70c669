import pytest

from homeostat.guards import decide
from homeostat.loop.fleet import Op, plan_hash

from .fleets import ENFORCE, NOW, a_fleet, drift, ref


@pytest.mark.parametrize("op", [Op.UPDATE, Op.DELETE])
def test_what_is_not_owned_is_never_changed_or_deleted_approved_or_not(op):
    fleet = a_fleet(9)
    made = drift(fleet, [1], op, owned=False)
    fleet.approvals = frozenset((plan_hash(made),))
    verdict = decide(ENFORCE, fleet, NOW)
    assert verdict.allowed == []
    assert "homeostat.dev/adopt=true" in verdict.held[ref(1)].reason


def test_what_does_not_exist_yet_can_be_created():
    fleet = a_fleet(9)
    assert decide(ENFORCE, fleet, NOW).allowed == drift(fleet, [], Op.CREATE)
    made = drift(fleet, [1], Op.CREATE, owned=False)
    assert decide(ENFORCE, fleet, NOW).allowed == made
