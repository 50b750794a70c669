from datetime import timedelta

import pytest

from homeostat.guards import GuardPolicy, Mode, decide, definition, parse_policy, status
from homeostat.guards.policy import Hours
from homeostat.loop.fleet import Op
from homeostat.model.encoding import encode_yaml
from homeostat.model.errors import ApiError
from homeostat.model.kinds import InvalidSpec, decode, encode

from .fleets import ENFORCE, NOW, a_fleet, changes, drift, ref, step, verify_all

FULL = """
apiVersion: homeostat.dev/v1alpha1
kind: GuardPolicy
metadata: {name: shop}
spec:
  fleet: {kinds: [servers.shop.example.com], selector: {matchLabels: {tier: web}}}
  mode: Enforce
  cap: 3
  creations: 50%
  massDrift: {limit: 25%, fleetOf: 4}
  canary: {steps: [2, 20%], verifyWithin: 90s, onFailure: Return}
  freezes: [{reason: migration, author: ada, until: "2026-03-02T12:00:00Z"}]
  invariants: [{name: enough, expression: "after.size() >= 5"}]
  windows: [{allow: [{days: Mon-Fri, hours: "08:00-18:00", timezone: Europe/Zurich}]}]
"""


def test_every_field_has_a_default_and_it_is_the_careful_one():
    assert encode(GuardPolicy(), defaults=False) == {}
    assert parse_policy({}) == GuardPolicy()
    assert encode(GuardPolicy()) == {
        "fleet": {"kinds": [], "namespaces": [], "selector": {"matchLabels": {}, "matchExpressions": []}},
        "mode": "Observe",
        "freezes": [],
        "cap": "10%",
        "massDrift": {"limit": "30%", "fleetOf": 10},
        "unknown": "20%",
        "canary": {"steps": [1, "10%", "50%", "100%"], "verifyWithin": "5m0s", "rest": "0s", "onFailure": "Halt"},
        "breaker": {"failures": 5, "openFor": "30s"},
        "backoff": {"first": "1s", "factor": 2.0, "most": "5m0s"},
        "flap": {"reversals": 3, "within": "10m0s"},
        "invariants": [],
        "health": [],
        "windows": [],
        "deletion": {"grace": "0s"},
        "domains": 1,
        "alerts": [],
    }


def test_the_server_takes_the_definition_fills_in_defaults_and_shows_columns(homeostat):
    homeostat.apply(encode_yaml(definition()).decode())
    (stored,) = homeostat.apply(FULL)
    policy = parse_policy(stored)
    assert policy.mode is Mode.ENFORCE
    assert (policy.cap, policy.creations, policy.mass_drift.limit) == (3, "50%", "25%")
    assert policy.canary.verify_within == timedelta(seconds=90)
    assert policy.windows[0].allow == (Hours(days="Mon-Fri", hours="08:00-18:00", timezone="Europe/Zurich"),)
    assert stored["spec"]["unknown"] == "20%"
    assert decode(GuardPolicy, encode(policy)) == policy


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("{cap: lots}", "spec.cap"),
        ("{cap: 101%}", "spec.cap"),
        ("{cap: -1}", "spec.cap"),
        ("{mode: Sometimes}", "spec.mode"),
        ("{canary: {steps: [1, half]}}", "spec.canary.steps"),
        ("{windows: [{allow: [{days: Someday}]}]}", "spec.windows[0].allow[0].days"),
        ('{windows: [{allow: [{hours: "25:00-26:00"}]}]}', "spec.windows[0].allow[0].hours"),
        ("{freezes: [{author: ada}]}", "spec.freezes[0].reason"),
        ("{flap: {within: soon}}", "spec.flap.within"),
    ],
)
def test_the_server_refuses_what_makes_no_sense(homeostat_session, spec, path):
    homeostat_session.apply(encode_yaml(definition()).decode())
    with pytest.raises(ApiError) as refused:
        homeostat_session.apply(
            f"{{apiVersion: homeostat.dev/v1alpha1, kind: GuardPolicy, metadata: {{name: bad}}, spec: {spec}}}"
        )
    assert path in str(refused.value)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"cap": "lots"},
            'spec.cap: Invalid value: "lots": a limit is a count such as 3, or a share of the fleet such as 10%',
        ),
        ({"canary": {"steps": [1, "x"]}}, "spec.canary.steps[1]"),
        ({"windows": [{"deny": [{"timezone": "Mars/Olympus"}]}]}, "spec.windows[0].deny[0].timezone"),
        (
            {"fleet": {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
            "spec.fleet.selector.matchExpressions[0]",
        ),
    ],
)
def test_what_cannot_be_read_names_the_field(spec, message):
    with pytest.raises(InvalidSpec) as refused:
        parse_policy({"spec": spec})
    assert message in str(refused.value)


def test_the_columns_and_descriptions_are_there():
    version = definition()["spec"]["versions"][0]
    assert [c["name"] for c in version["additionalPrinterColumns"]] == [
        "Mode", "Fleet", "Drifted", "Unknown", "Halted", "Ready", "Age",
    ]  # fmt: skip
    properties = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert properties["cap"]["description"].startswith("How many existing things")
    assert properties["cap"]["default"] == "10%"


def test_the_status_shows_sizes_waves_and_halts_and_fits_its_schema():
    fleet = a_fleet(10)
    drift(fleet, [1])
    step(ENFORCE, fleet)
    drift(fleet, range(2, 7))
    verdict = decide(ENFORCE, fleet, NOW)
    found = status({"metadata": {"generation": 4}}, ENFORCE, [(fleet, verdict)], NOW)
    assert (found["fleetSize"], found["drifted"], found["actedInWave"], found["halted"]) == (10, 6, 1, "mass-drift")
    assert found["halts"][0]["plan"] == verdict.halts["mass-drift/update"].plan
    wave = {"changeSet": "", "number": 1, "members": 1, "verified": 0, "failed": 0, "started": "2027-01-15T08:00:00Z"}
    assert found["waves"] == [{**wave, "fleet": "shop"}]
    conditions = {c["type"]: (c["status"], c["reason"]) for c in found["conditions"]}
    assert conditions == {"Halted": ("True", "GuardsHalt"), "Ready": ("False", "Halted")}
    again = status({"metadata": {"generation": 4}, "status": found}, ENFORCE, [(fleet, verdict)], NOW + 60)
    assert again == found, "nothing changed, so nothing is to be written"
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert found.keys() <= schema.keys()


def test_the_status_shows_what_waits_for_a_word_though_nothing_is_halted():
    fleet = a_fleet(10)
    drift(fleet, range(3), Op.DELETE)
    verdict = decide(ENFORCE, fleet, NOW)
    found = status({}, ENFORCE, [(fleet, verdict)], NOW)
    plan = verdict.held[ref(0)].plan
    reason = f"3 of 10 would be deleted, more than 1: homeostat approve {plan}"
    assert found["asks"] == [{"guard": "deletion", "reason": reason, "plan": plan, "count": 3, "fleet": "shop"}]
    drift(fleet, range(3, 9), Op.DELETE)
    halted = status({}, ENFORCE, [(fleet, decide(ENFORCE, fleet, NOW))], NOW)
    assert (halted["halted"], halted["asks"]) == ("mass-drift", []), "one question at a time"


def test_waves_that_came_and_went_between_two_looks_are_told_and_outlive_a_restart():
    fleet = a_fleet(100)
    changes(fleet, range(20))
    while fleet.drifts:
        step(ENFORCE, fleet)
        verify_all(fleet)
    found = status({}, ENFORCE, [(fleet, decide(ENFORCE, fleet, NOW))], NOW)
    assert found["waves"] == []
    told = [(wave["number"], wave["members"], wave["verified"], wave["fleet"]) for wave in found["pastWaves"]]
    assert [number for number, *_ in told] == list(range(1, len(told) + 1))
    assert sum(members for _, members, *_ in told) == 20
    assert all(members == verified for _, members, verified, _ in told)
    fresh = a_fleet(100)  # as a loop that was started again has it
    again = status({"status": found}, ENFORCE, [(fresh, decide(ENFORCE, fresh, NOW))], NOW + 60)
    assert again["pastWaves"] == found["pastWaves"]


def test_the_status_of_a_quiet_fleet_says_whether_it_is_enforced():
    fleet = a_fleet(3)
    for policy, reason in ((ENFORCE, "Enforcing"), (GuardPolicy(), "Observing")):
        found = status({}, policy, [(fleet, decide(policy, fleet, NOW))], NOW)
        assert [c["reason"] for c in found["conditions"]] == ["NothingToHalt", reason]


def test_a_policy_that_guards_several_fleets_shows_their_sum_and_whose_each_halt_is():
    calm, halted = a_fleet(12), a_fleet(10)
    calm.name, halted.name = "shop", "shop+night"
    drift(calm, [1])
    drift(halted, range(6))
    judged = [(fleet, decide(ENFORCE, fleet, NOW)) for fleet in (calm, halted)]
    found = status({}, ENFORCE, judged, NOW)
    assert (found["fleetSize"], found["drifted"], found["halted"]) == (22, 7, "mass-drift")
    assert [halt["fleet"] for halt in found["halts"]] == ["shop+night"]
    message = next(c["message"] for c in found["conditions"] if c["type"] == "Halted")
    assert message.startswith("shop+night: 6 of 10 would be changed")
