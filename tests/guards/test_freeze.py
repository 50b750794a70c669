from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from homeostat.guards import GuardPolicy, Mode, decide
from homeostat.guards.freeze import covers
from homeostat.guards.policy import Freeze
from homeostat.loop.fleet import Op, Ref, plan_hash

from .fleets import KIND, NOW, a_fleet, drift, ref


def frozen(**fields):
    return GuardPolicy(mode=Mode.ENFORCE, freezes=(Freeze(reason="migration", author="ada", **fields),))


def test_a_freeze_holds_everything_and_names_reason_and_author():
    fleet = a_fleet(5)
    drift(fleet, [1])
    drift(fleet, [2], Op.CREATE)
    verdict = decide(frozen(), fleet, NOW)
    assert verdict.allowed == []
    assert verdict.held[ref(1)].reason == "frozen by ada: migration"


def test_it_ends_at_its_end_and_not_a_second_before():
    fleet = a_fleet(5)
    made = drift(fleet, [1])
    policy = frozen(until=datetime.fromtimestamp(NOW, UTC))
    before = decide(policy, fleet, NOW - 1)
    assert before.allowed == []
    assert before.held[ref(1)].until == NOW
    assert "until 2027-01-15T08:00:00Z" in before.held[ref(1)].reason
    assert decide(policy, fleet, NOW).allowed == made


@pytest.mark.parametrize(
    ("scope", "held"),
    [
        ({"names": ("server-1",)}, True),
        ({"names": ("server-2",)}, False),
        ({"namespaces": ("shop",)}, True),
        ({"namespaces": ("other",)}, False),
        ({"kinds": (KIND,)}, True),
        ({"kinds": (KIND,), "names": ("server-2",)}, False),
    ],
)
def test_its_scope_is_what_all_its_fields_say(scope, held):
    fleet = a_fleet(5)
    drift(fleet, [1])
    assert (ref(1) in decide(frozen(**scope), fleet, NOW).held) is held


def test_no_approval_lifts_it():
    fleet = a_fleet(5)
    made = drift(fleet, [1])
    fleet.approvals = frozenset((plan_hash(made),))
    assert decide(frozen(), fleet, NOW).allowed == []


@pytest.mark.parametrize("scope", [{"kinds": ("configmaps",), "names": ("till",)}, {"kinds": ("children.shops.example.com",)}])
def test_what_is_composed_is_frozen_as_what_it_is_and_as_what_composes_it(scope):
    child = Ref("children.shops.example.com", "shop", "configmaps/till", "uid-of-the-shop")
    assert covers(Freeze(reason="migration", author="ada", **scope), child)
    assert not covers(Freeze(reason="migration", author="ada", **scope), replace(child, kind="children.gardens.example.com", name="secrets/till"))
