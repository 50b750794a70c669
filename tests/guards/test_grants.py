"""The approval that a change set carries: shared out between fleets, good once, and for no more than was shown."""

from __future__ import annotations

from typing import Any

from homeostat.guards import GuardPolicy, Mode
from homeostat.guards.gate import PolicyGate
from homeostat.guards.grants import Carried
from homeostat.guards.policy import Selection
from homeostat.loop.fleet import Cause, Drift, Fleet, Grant, Op, Ref, Verdict

from .fleets import KIND, NOW, a_whole_pass, verify_all

OTHER = "disks.shop.example.com"


def a_gate(**left: Grant) -> PolicyGate:
    """One with an approval of the change set `push-1` for so much of each kind: `servers`, `disks`."""
    kinds = {"servers": KIND, "disks": OTHER}
    gate = PolicyGate({"shop": GuardPolicy(fleet=Selection(kinds=(KIND, OTHER)), mode=Mode.ENFORCE)})
    gate.grants.carried["uid"] = Carried("push-1", {kinds[name]: grant for name, grant in left.items()})
    return gate


def a_fleet(gate: PolicyGate, size: int = 10, name: str = "") -> Fleet:
    fleet = Fleet(name or gate.fleet_of(KIND, "", {}), size, passes_begun=1, passes_done=1)
    gate._names[fleet.name] = ("shop",)
    return fleet


def change(fleet: Fleet, count: int, kind: str = KIND, op: Op = Op.UPDATE, start: int = 0, **fields: Any) -> None:
    for number in range(start, start + count):
        ref = Ref(kind, "", f"{kind}-{number}", f"uid-{number}")
        given = {"since": NOW + number, "made_from": f"facts-{number}", "change_set": "push-1", **fields}
        fleet.drifts[ref] = Drift(ref, op, Cause.INTENT, **given)


def decide(gate: PolicyGate, fleet: Fleet) -> Verdict:
    verdict = gate.judge(fleet, NOW)
    fleet.take(verdict)
    gate.taken(fleet, verdict)
    for drift in verdict.allowed:
        fleet.begin(drift, NOW)
    return verdict


def to_the_end(gate: PolicyGate, fleet: Fleet) -> list[int]:
    """How many go in each wave, until no more go."""
    waves = []
    while allowed := decide(gate, fleet).allowed:
        waves.append(len(allowed))
        verify_all(fleet)
    return waves


def test_an_approved_change_set_goes_out_in_waves_and_nobody_is_asked_again() -> None:
    gate = a_gate(servers=Grant(changes=10))
    fleet = a_fleet(gate)
    change(fleet, 10)
    waves = to_the_end(gate, fleet)
    assert sum(waves) == 10
    assert len(waves) > 3
    assert not fleet.halts


def test_without_it_the_same_change_set_is_halted() -> None:
    gate = a_gate()
    fleet = a_fleet(gate)
    change(fleet, 10)
    assert to_the_end(gate, fleet) == []
    assert {halt.guard for halt in fleet.halts.values()} == {"mass-drift"}


def test_what_comes_in_drop_by_drop_is_covered_up_to_what_was_shown_and_not_beyond() -> None:
    gate = a_gate(servers=Grant(changes=8))
    fleet = a_fleet(gate)
    change(fleet, 4)
    assert sum(to_the_end(gate, fleet)) == 4
    change(fleet, 4, start=4)
    assert sum(to_the_end(gate, fleet)) == 4
    change(fleet, 4, start=0)
    assert to_the_end(gate, fleet) == []
    assert fleet.halts


def test_a_change_set_that_turns_out_larger_is_not_covered_at_all() -> None:
    gate = a_gate(servers=Grant(changes=9))
    fleet = a_fleet(gate)
    change(fleet, 10)
    assert to_the_end(gate, fleet) == []


def test_each_kind_has_its_own_count() -> None:
    gate = a_gate(servers=Grant(changes=10))
    fleet = a_fleet(gate, size=20)
    change(fleet, 10, kind=OTHER)
    assert to_the_end(gate, fleet) == []
    assert fleet.halts


def test_deletions_are_not_covered_by_changes() -> None:
    gate = a_gate(servers=Grant(changes=10))
    fleet = a_fleet(gate)
    change(fleet, 5, op=Op.DELETE)
    assert to_the_end(gate, fleet) == []
    gate = a_gate(servers=Grant(deletions=5))
    fleet = a_fleet(gate)
    change(fleet, 5, op=Op.DELETE)
    assert sum(to_the_end(gate, fleet)) == 5


def test_two_fleets_share_what_was_shown() -> None:
    gate = a_gate(servers=Grant(changes=12))
    first, second = a_fleet(gate, name="first"), a_fleet(gate, name="second")
    change(first, 8)
    change(second, 8)
    assert sum(to_the_end(gate, first)) == 8
    assert to_the_end(gate, second) == []


def test_each_fleet_is_covered_though_another_has_used_of_it() -> None:
    gate = a_gate(servers=Grant(changes=16))
    first, second = a_fleet(gate, name="first"), a_fleet(gate, name="second")
    change(first, 8)
    assert sum(to_the_end(gate, first)) == 8
    change(second, 8)
    assert sum(to_the_end(gate, second)) == 8


def test_what_is_left_is_forgotten_with_the_change_set() -> None:
    gate = a_gate(servers=Grant(changes=9))
    fleet = a_fleet(gate)
    change(fleet, 4)
    to_the_end(gate, fleet)
    a_whole_pass(fleet)
    change(fleet, 5, start=4)
    assert to_the_end(gate, fleet) == []


def test_one_that_is_withdrawn_covers_nothing_any_more() -> None:
    gate = a_gate(servers=Grant(changes=10))
    fleet = a_fleet(gate)
    change(fleet, 4)
    decide(gate, fleet)
    gate.grants.carried.clear()
    change(fleet, 5, start=4)
    assert not any(d.is_approved for d in fleet.drifts.values() if d.made_from in ("facts-5", "facts-8"))
    decide(gate, fleet)
    assert not any(d.is_approved for d in fleet.drifts.values() if d.made_from in ("facts-5", "facts-8"))
    assert fleet.grants == {}


def test_a_verdict_that_is_not_taken_uses_nothing_up() -> None:
    gate = a_gate(servers=Grant(changes=10))
    fleet = a_fleet(gate)
    change(fleet, 10)
    gate.approvals = {"0123456789abcdef"}
    for _ in range(3):
        assert gate.judge(fleet, NOW).approved
    assert not gate.grants.carried["uid"].used
    assert gate.grants.carried["uid"].left[KIND] == Grant(changes=10)
    assert sum(to_the_end(gate, fleet)) == 10
