from datetime import UTC, datetime

from homeostat.guards import GuardPolicy, Mode, decide, explain, runbook
from homeostat.guards.policy import Freeze
from homeostat.loop.fleet import Op, Verdict

from .fleets import ENFORCE, NOW, a_fleet, changes, drift, ref, step


def lines(policy, fleet, now=NOW):
    return runbook(policy, fleet, decide(policy, fleet, now), now)


def test_where_nothing_needs_a_person_there_are_no_lines():
    fleet = a_fleet(20)
    drift(fleet, range(4))  # two go, two wait for the next wave
    assert lines(ENFORCE, fleet) == []


def test_mass_drift_says_what_happened_what_to_look_at_and_both_ways_out():
    fleet = a_fleet(10)
    drift(fleet, range(5))
    plan = decide(ENFORCE, fleet, NOW).halts["mass-drift/update"].plan
    assert lines(ENFORCE, fleet) == [
        "shop: halted by mass-drift since 2027-01-15T08:00:00Z",
        "  what happened: 5 of 10 would be changed, more than 3: most likely the declaration or the observer is wrong",
        "  look at: homeostat explain servers.shop.example.com server-0 -n shop",
        "  look at: homeostat explain servers.shop.example.com server-1 -n shop",
        "  look at: homeostat explain servers.shop.example.com server-2 -n shop",
        "  look at: homeostat plan shop",
        "  way out, if it is wrong: correct the declaration or the observer; it goes on after a whole pass under the limit",
        f"  way out, if it is meant: homeostat approve {plan}",
    ]


def test_what_waits_for_a_word_has_its_way_out_also_where_nobody_knows_which_it_is():
    fleet = a_fleet(10)
    drift(fleet, range(3), Op.DELETE)
    verdict = decide(ENFORCE, fleet, NOW)
    hold = verdict.held[ref(0)]
    way_out = f"  way out, if it is meant: homeostat approve {hold.plan}"
    known = runbook(ENFORCE, fleet, verdict, NOW, {hold: 3})
    assert known[0] == "shop: servers.shop.example.com/shop/server-0 and 2 more held by deletion"
    assert known.count(way_out) == 1
    assert runbook(ENFORCE, a_fleet(10), Verdict(), NOW, {hold: 3}) == ["shop: 3 held by deletion", f"  what happened: {hold.reason}", way_out]


def test_a_failed_canary_names_its_change_set():
    fleet = a_fleet(10)
    changes(fleet, range(3))
    step(ENFORCE, fleet)
    fleet.failed(ref(0))
    found = lines(ENFORCE, fleet)
    assert "  look at: homeostat history --change-set push-1" in found
    assert any(line.startswith("  way out, if it is meant: homeostat approve ") for line in found)


def test_a_freeze_is_shown_also_where_nothing_drifts():
    policy = GuardPolicy(
        mode=Mode.ENFORCE,
        freezes=(
            Freeze(reason="migration", author="ada", until=datetime(2027, 1, 16, tzinfo=UTC), namespaces=("shop",)),
        ),
    )
    assert lines(policy, a_fleet(10)) == [
        "shop: frozen until 2027-01-16T00:00:00Z (namespace shop)",
        "  what happened: ada froze it: migration",
        "  look at: homeostat drift shop",
        "  way out: ask ada, then homeostat unfreeze shop",
    ]


def test_held_deletions_name_the_plan_to_approve():
    fleet = a_fleet(9)
    drift(fleet, range(2), Op.DELETE)
    plan = decide(ENFORCE, fleet, NOW).held[ref(0)].plan
    assert f"  way out, if it is meant: homeostat approve {plan}" in lines(ENFORCE, fleet)


def test_an_unreadable_fleet_shows_why():
    fleet = a_fleet(10, unknown={ref(n): "connection refused" for n in range(5)})
    found = lines(ENFORCE, fleet)
    assert "  look at: homeostat explain servers.shop.example.com server-0 -n shop   # connection refused" in found
    assert found[-1] == "  way out: make them readable again; it goes on by itself"


def test_observe_only_names_the_command_that_ends_it():
    fleet = a_fleet(3)
    drift(fleet, [1, 2])
    found = lines(GuardPolicy(), fleet)
    assert found[0] == f"shop: {ref(1)} and 1 more held by mode"
    assert "  way out: homeostat enforce shop" in found


def test_explain_tells_what_each_guard_by_itself_says():
    fleet = a_fleet(10)
    drift(fleet, range(5))
    drift(fleet, [7], retry_at=NOW + 9, failures=1)
    chain = explain(GuardPolicy(), fleet, ref(7), NOW)
    assert [name for name, _ in chain][:3] == ["mode", "freeze", "window"]
    assert [name for name, hold in chain if hold] == ["mode", "mass-drift", "backoff", "cap"]


def test_a_halt_of_deletions_shows_what_would_be_deleted_and_how_to_keep_it():
    fleet = a_fleet(20)
    drift(fleet, [0])
    drift(fleet, range(10, 17), Op.DELETE)
    found = lines(ENFORCE, fleet)
    assert "  look at: homeostat explain servers.shop.example.com server-10 -n shop" in found
    assert not any("server-0 " in line for line in found)
    assert found[-3:-1] == [
        "  way out, to keep what was deleted: let each declaration go without its thing, then declare it anew with homeostat.dev/adopt=true:",
        """    kubectl patch servers.shop.example.com server-10 -n shop --type=merge -p '{"metadata":{"finalizers":null}}'""",
    ]


def test_a_push_that_is_halted_has_a_command_that_takes_it_back():
    fleet = a_fleet(10)
    changes(fleet, range(5), by=("kubectl-edit",))
    found = lines(ENFORCE, fleet)
    assert "  look at: homeostat history --change-set push-1" in found
    assert "  way out, by the server's history: homeostat rollback changeset push-1" in found
    changes(fleet, [5], "push-2", by=("kubectl-edit",))
    assert not any("rollback" in line for line in lines(ENFORCE, fleet))


def test_what_is_read_as_gone_is_approved_only_if_it_is():
    fleet = a_fleet(10)
    drift(fleet, range(5), Op.CREATE, unseen=True)
    found = lines(ENFORCE, fleet)
    assert found[0].startswith("shop: halted by unknown")
    assert "  way out, if they are there: see why they cannot be seen; it goes on by itself when they are" in found
    assert found[-1].startswith("  way out, if they are gone: homeostat approve ")


def test_a_halt_whose_cause_is_gone_offers_nothing_to_approve():
    fleet = a_fleet(10)
    drift(fleet, range(5))
    step(ENFORCE, fleet)
    for number in range(5):
        fleet.forget(ref(number))
    assert lines(ENFORCE, fleet) == [
        "shop: halted by mass-drift since 2027-01-15T08:00:00Z",
        "  what happened: more than 3 of 10 would have been changed; that is over, and a whole pass has to find it so",
        "  look at: homeostat drift shop",
        "  way out: wait; it goes on by itself",
    ]


def test_a_freeze_of_one_thing_is_lifted_alone():
    freeze = Freeze(reason="under investigation", author="ada", kinds=("servers.shop.example.com",), names=("server-1",), namespaces=("shop",))
    found = lines(GuardPolicy(mode=Mode.ENFORCE, freezes=(freeze,)), a_fleet(10))
    assert found[-1] == "  way out: ask ada, then homeostat unfreeze servers.shop.example.com/server-1 -n shop"


def test_what_cannot_be_read_or_does_not_work_is_told_also_where_nothing_is_halted():
    fleet = a_fleet(10, unknown={ref(1): "connection refused", ref(2): "timed out"}, unhealthy={ref(3): "push-1"})
    assert lines(ENFORCE, fleet) == [
        f"shop: {ref(1)} and 1 more could not be read, and nothing is done there",
        "  what happened: connection refused",
        "  look at: homeostat explain servers.shop.example.com server-1 -n shop",
        "  way out: make it readable again; it goes on by itself",
        f"shop: {ref(3)} not healthy",
        "  what happened: it is as declared, and does not do its work; declared last by push-1",
        "  look at: homeostat explain servers.shop.example.com server-3 -n shop",
        "  way out: mend what it says; if the declaration made it so, correct that, or apply the last good one",
    ]
