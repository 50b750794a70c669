"""The gate when something is the matter with the guards themselves: nothing is done then, and it is said."""

from __future__ import annotations

from datetime import timedelta

import pytest

from homeostat.guards import GuardPolicy, Mode, parse_policy
from homeostat.guards.gate import UNDECIDED, PolicyGate
from homeostat.guards.policy import Breaker, Freeze, Selection
from homeostat.loop.fleet import Cause, Drift, Op, Ref
from homeostat.model.kinds import InvalidSpec

from .fleets import KIND, NOW, a_fleet, drift

IMPOSSIBLE = GuardPolicy(fleet=Selection(kinds=(KIND,)), mode=Mode.ENFORCE, breaker=Breaker(open_for=timedelta()))


def test_guards_that_cannot_decide_halt_the_fleet_and_say_so():
    gate = PolicyGate({"shop": IMPOSSIBLE})
    fleet = a_fleet(3)
    fleet.name = gate.fleet_of(KIND, "shop", {})
    under_way, _ = drift(fleet, range(2))
    fleet.begin(under_way, NOW)
    verdict = gate.judge(fleet, NOW)
    assert verdict.allowed == []
    assert "the guards cannot decide: a breaker needs" in verdict.halts[UNDECIDED].reason
    assert under_way.ref not in verdict.held
    fleet.take(verdict)
    assert gate.judge(fleet, NOW + 60).halts[UNDECIDED].since == NOW


def test_nor_do_they_let_a_creation_pass():
    gate = PolicyGate({"shop": IMPOSSIBLE})
    fleet = a_fleet(3)
    fleet.name = gate.fleet_of(KIND, "shop", {})
    [creation] = drift(fleet, [0], op=Op.CREATE)
    assert gate.admits(fleet, creation, NOW) is False


FREEZE = Freeze(reason="migration", author="ada")


def test_a_freeze_in_the_default_of_a_kind_is_not_lifted_by_writing_another_policy_for_it():
    gate = PolicyGate(mode=Mode.ENFORCE)
    gate.built_in[KIND] = GuardPolicy(fleet=Selection(kinds=(KIND,)), mode=Mode.ENFORCE, freezes=(FREEZE,))
    gate.policies["lax"] = GuardPolicy(fleet=Selection(kinds=(KIND, "others.shop.example.com")), mode=Mode.ENFORCE)
    fleet = a_fleet(3)
    fleet.name = gate.fleet_of(KIND, "shop", {})
    assert fleet.name == "lax"
    [changed] = drift(fleet, [0])
    [creation] = drift(fleet, [1], op=Op.CREATE)
    beside = Drift(Ref("others.shop.example.com", "shop", "one", "uid"), Op.UPDATE, Cause.DRIFT, since=NOW, made_from="facts")
    fleet.drifts[beside.ref] = beside
    verdict = gate.judge(fleet, NOW)
    assert verdict.allowed == [beside]
    assert verdict.held[changed.ref].reason == "frozen by ada: migration"
    assert gate.admits(fleet, creation, NOW) is False


def test_a_freeze_of_what_a_composer_declares_holds_it_in_whatever_fleet_it_is():
    gate = PolicyGate(mode=Mode.ENFORCE)
    gate.built_in["children.houses.example.com"] = GuardPolicy(mode=Mode.ENFORCE, freezes=(FREEZE,))
    fleet = a_fleet(3)
    fleet.name = gate.fleet_of("configmaps", "shop", {})
    ours, theirs = (
        Drift(Ref(f"children.{kind}.example.com", "shop", f"configmaps/{kind}", "uid"), Op.CREATE, Cause.INTENT, since=NOW, made_from=kind)
        for kind in ("houses", "gardens")
    )
    fleet.drifts = {ours.ref: ours, theirs.ref: theirs}
    assert gate.judge(fleet, NOW).allowed == [theirs]
    assert [gate.admits(fleet, one, NOW) for one in (ours, theirs)] == [False, True]


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"breaker": {"openFor": "0s"}}, "spec.breaker.openFor"),
        ({"canary": {"verifyWithin": "-5m"}}, "spec.canary.verifyWithin"),
        ({"flap": {"within": "0s"}}, "spec.flap.within"),
        ({"deletion": {"grace": "-1h"}}, "spec.deletion.grace"),
        ({"backoff": {"first": "-1s"}}, "spec.backoff.first"),
        ({"alerts": [{"webhook": "https://a.example.com", "remindAfter": "-4h"}]}, "spec.alerts[0].remindAfter"),
    ],
)
def test_a_time_that_cannot_be_is_no_policy(spec, where):
    with pytest.raises(InvalidSpec, match=where.replace("[", r"\[").replace("]", r"\]")):
        parse_policy({"spec": spec})


def test_what_nobody_has_to_wait_for_may_be_nothing():
    policy = parse_policy({"spec": {"deletion": {"grace": "0s"}, "backoff": {"first": "0s", "most": "0s"}}})
    assert policy.deletion.grace == timedelta()
