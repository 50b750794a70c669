"""Whatever is declared, some things never happen: fleets, tenants and work are drawn at random, and each plan is carried out for a while."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.gpu.facts import NOW, Object, node, stamp, tenant, workload

from homeostat.gpu.decisions import Decision, Memory, Plan, Verb
from homeostat.gpu.governor import decide
from homeostat.gpu.kinds import Cost, GpuPolicySpec, Preempting, TimeSharing, milli
from homeostat.gpu.snapshot import Snapshot

CYCLE = 60.0
OFF = (Verb.SUSPEND, Verb.PREEMPT, Verb.RECLAIM)
ON = (Verb.ADMIT, Verb.RESUME, Verb.MIGRATE)
EVERYTHING = GpuPolicySpec(time_sharing=TimeSharing(enabled=True, lends=0.5), defragment=True, cost=Cost(consolidate=True))


def nodes() -> st.SearchStrategy[list[Object]]:
    one = st.tuples(
        st.sampled_from([2, 4, 8]),
        st.sampled_from([0, 8_000, 64_000]),
        st.sampled_from(["", "r1", "r2"]),
        st.sampled_from(["", "d1", "d2"]),
        st.sampled_from([0, 2, 2.05, 9]),
        st.booleans(),
    )
    return st.lists(one, min_size=1, max_size=6).map(
        lambda drawn: [
            node(f"n{i}", gpus, cpuMilli=cpu, memoryMib=cpu, rack=rack, nvlinkDomain=domain, costPerHour=cost, spot=spot)
            for i, (gpus, cpu, rack, domain, cost, spot) in enumerate(drawn)
        ]
    )


def tenants() -> st.SearchStrategy[list[Object]]:
    one = st.tuples(st.integers(0, 12), st.sampled_from([None, 0, 4]), st.sampled_from([None, 0, 2]), st.sampled_from(["", "x"]))
    return st.lists(one, min_size=2, max_size=3).map(
        lambda drawn: [
            tenant("abc"[i], nominal, borrowing=borrowing, lending=lending, cohort=cohort)
            for i, (nominal, borrowing, lending, cohort) in enumerate(drawn)
        ]
    )


def work() -> st.SearchStrategy[list[Object]]:
    one = st.fixed_dictionaries(
        {
            "gpus": st.sampled_from(["0.25", "0.3", "0.5", "0.81", 1, 1, 2, 4, 8]),
            "of": st.sampled_from("abc"),
            "replicas": st.sampled_from([1, 1, 1, 2, 3, 5]),
            "priority": st.sampled_from([0, 0, 10]),
            "topology": st.sampled_from(["", "", "Node", "NvlinkDomain", "Rack"]),
            "spot": st.sampled_from(["Allow", "Allow", "Avoid", "Require"]),
            "mode": st.sampled_from(["Suspend", "Checkpoint", "Restart", "Never"]),
            "cpu": st.sampled_from([0, 0, 1_000, 5_000]),
            "submitted": st.integers(-200_000, -10),
        }
    )

    def made(drawn: list[dict[str, Any]]) -> list[Object]:
        found = []
        for i, each in enumerate(drawn):
            mode, cpu, gpus = each.pop("mode"), each.pop("cpu"), each.pop("gpus")
            obj = workload(f"w{i}", gpus, preemption={"mode": mode}, **each)
            obj["spec"]["resources"] |= {"cpuMilli": cpu, "memoryMib": cpu}
            found.append(obj)
        return found

    return st.lists(one, min_size=1, max_size=24).map(made)


class World:
    """Carries out what is decided: who is taken off is gone at the next cycle, who is placed runs at once."""

    def __init__(self, *objects: list[Object]) -> None:
        self.objects = [obj for some in objects for obj in some]
        self.memory, self.now = Memory(), 0.0
        self.preempted: list[tuple[str, str]] = []
        self.work = {obj["metadata"]["uid"]: obj for obj in self.objects if obj["kind"] == "Workload"}
        self.nodes = {obj["metadata"]["name"]: obj for obj in self.objects if obj["kind"] == "GpuNode"}

    def cycle(self, policy: GpuPolicySpec = EVERYTHING) -> Plan:
        for one in self.nodes.values():
            one["status"]["reportedAt"] = stamp(self.now)
        for obj in self.work.values():
            status = obj["status"]
            if status.get("phase") == "Suspending":
                status["phase"] = "Suspended"
                if obj["spec"]["preemption"]["mode"] not in ("Suspend", "Never"):
                    status.pop("assignment")
        plan = decide(Snapshot.from_objects(self.objects, NOW + self.now), policy, self.memory)
        self.memory = plan.memory
        for decision in plan.decisions:
            if decision.kind == "Workload":
                self._carry_out(decision)
        self.now += CYCLE
        return plan

    def _carry_out(self, decision: Decision) -> None:
        status = self.work[decision.subject]["status"]
        if decision.verb in ON:
            placed = [{"replica": p.replica, "node": p.node, "gpus": list(p.gpus), "milli": p.milli} for p in decision.places]
            status |= {"phase": "Running", "assignment": placed, "startedAt": stamp(self.now)}
        elif decision.verb in OFF:
            status |= {"phase": "Suspending", "waitingSince": stamp(self.now)}
        if decision.verb is Verb.PREEMPT:
            self.preempted.append((decision.subject, decision.beneficiary))

    def holding(self) -> list[Object]:
        return [obj for obj in self.work.values() if obj["status"].get("phase") in ("Running", "Suspending")]

    def used(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for obj in self.holding():
            if obj["status"]["phase"] == "Running":
                found[obj["spec"]["tenant"]] += obj["spec"].get("replicas", 1) * milli(obj["spec"]["resources"]["gpus"])
        return found


def check_room(world: World) -> None:
    """No GPU, no CPU and no memory is given to more than there is."""
    gpus: dict[tuple[str, int], int] = defaultdict(int)
    cpu: dict[str, int] = defaultdict(int)
    for obj in world.holding():
        for place in obj["status"]["assignment"]:
            cpu[place["node"]] += obj["spec"]["resources"]["cpuMilli"]
            for gpu in place["gpus"]:
                gpus[place["node"], gpu] += place["milli"]
    assert all(amount <= 1000 for amount in gpus.values())
    for name, amount in cpu.items():
        assert amount <= world.nodes[name]["spec"]["cpuMilli"] or not world.nodes[name]["spec"]["cpuMilli"]


def check_gangs(world: World) -> None:
    """All replicas run, each with all that it asked for, as near to each other and on such nodes as was asked."""
    for obj in world.holding():
        spec, places = obj["spec"], obj["status"]["assignment"]
        assert sorted(place["replica"] for place in places) == list(range(spec["replicas"]))
        assert all(len(place["gpus"]) * place["milli"] == milli(spec["resources"]["gpus"]) for place in places)
        assert all(len(set(place["gpus"])) == len(place["gpus"]) for place in places)
        on = [world.nodes[place["node"]] for place in places]
        near = {"Node": "costPerHour", "NvlinkDomain": "nvlinkDomain", "Rack": "rack"}.get(spec["topology"])
        if near and len({one["metadata"]["name"] for one in on}) > 1:
            assert spec["topology"] != "Node"
            assert len({one["spec"][near] for one in on}) == 1
            assert on[0]["spec"][near]
        wants = "Avoid" if spec["spot"] == "Allow" and spec["preemption"]["mode"] == "Never" else spec["spot"]
        assert all(wants == "Allow" or one["spec"]["spot"] == (wants == "Require") for one in on)


def check_quotas(world: World, declared: list[Object]) -> None:
    """Nobody uses more than its quota and what it may borrow, and a cohort no more than all of it together."""
    used = world.used()
    together: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for obj in declared:
        quota, name = obj["spec"]["quotas"][0], obj["metadata"]["name"]
        cohort = obj["spec"]["cohort"] or f"only {name}"
        nominal = milli(quota["nominal"])
        if not obj["spec"]["cohort"] or quota["borrowingLimit"] is not None:
            most = nominal + (milli(quota["borrowingLimit"]) if obj["spec"]["cohort"] else 0)
            assert used[name] <= most
        together[cohort][0] += used[name]
        together[cohort][1] += nominal
    assert all(amount <= whole for amount, whole in together.values())


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(fleet=nodes(), declared=tenants(), jobs=work())
def test_nothing_is_given_twice_no_gang_in_part_and_no_quota_passed(
    fleet: list[Object], declared: list[Object], jobs: list[Object]
) -> None:
    world = World(fleet, declared, jobs)
    for _ in range(6):
        world.cycle()
        check_room(world)
        check_gangs(world)
        check_quotas(world, declared)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(fleet=nodes(), declared=tenants(), jobs=work(), lowered=st.integers(0, 4))
def test_after_a_quota_was_lowered_use_settles_within_it(
    fleet: list[Object], declared: list[Object], jobs: list[Object], lowered: int
) -> None:
    for obj in jobs:
        if obj["spec"]["preemption"]["mode"] == "Never":
            obj["spec"]["preemption"]["mode"] = "Restart"
    world = World(fleet, declared, jobs)
    world.cycle()
    declared[0]["spec"]["quotas"][0]["nominal"] = lowered
    for _ in range(3):
        world.cycle()
        check_room(world)
    check_quotas(world, declared)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(fleet=nodes(), declared=tenants(), jobs=work())
def test_nobody_is_preempted_in_a_circle(fleet: list[Object], declared: list[Object], jobs: list[Object]) -> None:
    world, often = World(fleet, declared, jobs), msgspec.structs.replace(EVERYTHING, preemption=Preempting(per_workload=20))
    for _ in range(40):
        world.cycle(often)
        world.now += 900.0
    pairs = set(world.preempted)
    assert not any((rival, victim) in pairs for victim, rival in pairs)
    assert len(world.preempted) == len(pairs)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(fleet=nodes(), declared=tenants(), jobs=work(), seed=st.integers(0, 2**32))
def test_the_same_facts_in_any_order_give_the_same_decisions(
    fleet: list[Object], declared: list[Object], jobs: list[Object], seed: int
) -> None:
    world = World(fleet, declared, jobs)
    world.cycle()
    memory, mixed = world.memory, list(world.objects)
    random.Random(seed).shuffle(mixed)
    plans = [decide(Snapshot.from_objects(objects, NOW + CYCLE), EVERYTHING, memory) for objects in (world.objects, mixed)]
    assert plans[0].decisions == plans[1].decisions
    assert plans[0].memory == plans[1].memory
