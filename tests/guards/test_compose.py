from datetime import timedelta

from homeostat.guards import GuardPolicy, Mode, OnFailure, combine, decide, default_policy, matching, selects
from homeostat.guards.policy import Canary, Flap, Freeze, Hours, LabelExpression, MassDrift, Selection, Selector, Window

from .fleets import KIND, NOW, a_fleet, changes, drift, ref, step

ENFORCE = GuardPolicy(mode=Mode.ENFORCE)


def policy(**fields):
    return GuardPolicy(mode=Mode.ENFORCE, **fields)


def test_one_policy_is_taken_as_it_is():
    assert combine([ENFORCE], 100) is ENFORCE


def test_the_strictest_limit_wins_whether_it_is_a_count_or_a_share():
    both = [policy(cap="10%", unknown=5), policy(cap=3, unknown="20%")]
    assert (combine(both, 20).cap, combine(both, 100).cap) == (2, 3)
    assert (combine(both, 20).unknown, combine(both, 100).unknown) == (4, 5)


def test_one_that_observes_is_stricter_than_one_that_enforces():
    assert combine([ENFORCE, GuardPolicy()], 10).mode is Mode.OBSERVE
    assert combine([ENFORCE, ENFORCE], 10).mode is Mode.ENFORCE


def test_every_freeze_and_window_counts():
    freeze, office = Freeze(reason="r", author="a"), Window(allow=(Hours(days="Mon-Fri"),))
    both = combine([policy(freezes=(freeze,)), policy(windows=(office,))], 10)
    assert both.freezes == (freeze,)
    assert both.windows == (office,)


def test_mass_drift_looks_as_soon_as_one_of_them_looks():
    both = [
        policy(mass_drift=MassDrift(limit="50%", fleet_of=4)),
        policy(mass_drift=MassDrift(limit="10%", fleet_of=10)),
    ]
    for size, trips_at in ((3, None), (4, 3), (9, 5), (10, 2)):
        fleet = a_fleet(size)
        for number in range(size):
            drift(fleet, [number])
            halted = bool(decide(combine(both, size), fleet, NOW).halts)
            assert halted is (trips_at is not None and number + 1 >= trips_at), (size, number + 1)


def test_the_steps_of_both_canaries_are_taken():
    wide = {"cap": "100%", "mass_drift": MassDrift(limit="100%")}
    both = combine(
        [policy(canary=Canary(steps=(1, "50%")), **wide), policy(canary=Canary(steps=(5, "20%")), **wide)], 100
    )
    fleet = a_fleet(100)
    changes(fleet, range(100))
    sizes = []
    while fleet.drifts:
        acted = step(both, fleet)
        sizes.append(len(acted))
        for one in acted:
            fleet.verified(one)
    assert sizes == [1, 4, 15, 30, 50]


def test_halting_is_stricter_than_returning_and_shorter_patience_than_longer():
    returning = policy(canary=Canary(on_failure=OnFailure.RETURN, verify_within=timedelta(seconds=9)))
    both = combine([returning, ENFORCE], 10)
    assert both.canary.on_failure is OnFailure.HALT
    assert both.canary.verify_within == timedelta(seconds=9)
    assert combine([returning, returning], 10).canary.on_failure is OnFailure.RETURN


def test_a_longer_rest_is_stricter():
    hours = [policy(canary=Canary(rest=timedelta(hours=count))) for count in (1, 2)]
    assert combine(hours, 10).canary.rest == timedelta(hours=2)


def test_fewer_reversals_in_a_longer_time_are_stricter():
    both = combine([policy(flap=Flap(reversals=2)), policy(flap=Flap(within=timedelta(hours=1)))], 10)
    assert both.flap == Flap(reversals=2, within=timedelta(hours=1))


def test_an_empty_selection_selects_nothing():
    assert not selects(GuardPolicy(), KIND, "shop", {})
    assert not selects(GuardPolicy(fleet=Selection(namespaces=("shop",))), KIND, "shop", {})


def test_a_selection_is_by_kind_namespace_and_labels():
    fleet = Selection(
        kinds=(KIND,),
        namespaces=("shop",),
        selector=Selector(
            match_labels={"tier": "web"}, match_expressions=(LabelExpression(key="gone", operator="DoesNotExist"),)
        ),
    )
    one = GuardPolicy(fleet=fleet)
    assert selects(one, KIND, "shop", {"tier": "web"})
    assert not selects(one, "other.example.com", "shop", {"tier": "web"})
    assert not selects(one, KIND, "else", {"tier": "web"})
    assert not selects(one, KIND, "shop", {"tier": "db"})
    assert not selects(one, KIND, "shop", {"tier": "web", "gone": ""})
    assert not selects(one, KIND, "shop", None)


def test_a_fleet_is_what_the_same_policies_select():
    policies = {
        "web": GuardPolicy(fleet=Selection(kinds=(KIND,), selector=Selector(match_labels={"tier": "web"}))),
        "all": GuardPolicy(fleet=Selection(kinds=(KIND,))),
    }
    assert matching(policies, KIND, "shop", {"tier": "web"}) == ("all", "web")
    assert matching(policies, KIND, "shop", {"tier": "db"}) == ("all",)
    assert matching(policies, "other.example.com", "shop", {}) == ()


def test_a_kind_that_no_policy_selects_is_observed_with_every_default():
    one = default_policy(KIND)
    assert one == GuardPolicy(fleet=Selection(kinds=(KIND,)))
    assert one.mode is Mode.OBSERVE
    fleet = a_fleet(5)
    drift(fleet, [1])
    assert ref(1) in decide(one, fleet, NOW).held
    assert decide(default_policy(KIND, Mode.ENFORCE), fleet, NOW).allowed
