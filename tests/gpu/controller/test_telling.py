"""What the governor says: why something waits, what it warns about, how tenants and nodes stand; and that it does not say it all the time."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from tests.gpu import facts
from tests.gpu.agent.world import python, until
from tests.gpu.controller.world import Object, World

from homeostat.gpu.agent import Machine
from homeostat.gpu.agent.simulated import Simulated
from homeostat.gpu.controller.standing import settled
from homeostat.gpu.controller.waiting import AGAIN_SECONDS, AT_ONCE, CROWD, EVERY_SECONDS, Waiting
from homeostat.gpu.kinds import POLICY, WORKLOAD
from homeostat.model.clock import format_time, parse_time
from homeostat.model.conditions import condition_is, find_condition
from homeostat.model.errors import ApiError
from homeostat.model.protocol import FINALIZER

SLEEP = python("import time; time.sleep(1000)")
SPIN = python("while True: pass")


async def _events(world: World, kind: str, reason: str) -> list[Object]:
    found = await world.client.kind("v1", "Event").list(namespace="default")
    return [one for one in found if one["involvedObject"]["kind"] == kind and one["reason"] == reason]


async def _some(world: World, kind: str, reason: str) -> list[Object]:
    async with asyncio.timeout(30):
        while not (found := await _events(world, kind, reason)):
            await asyncio.sleep(0.05)
    return found


async def _policy(world: World, **spec: Any) -> None:
    await world.client.kind(POLICY.api_version, POLICY.kind).patch("default", {"spec": spec})


async def test_gpus_are_reclaimed_when_gpu_memory_and_cpu_are_idle_and_not_while_a_process_works(world: World) -> None:
    still = {"utilisation": 0.0, "memoryTraffic": 0.0}  # of both GPUs: what is left to tell them apart is the CPU of real processes
    readings = world.folder / "readings.json"
    readings.write_text(json.dumps({"0": still, "1": still}))
    await _policy(world, idle={"window": "2s", "grace": "2s", "cpuBelow": 0.1})
    async with world.agent("n1", Simulated.parse("2xH100", readings)):
        await world.quota(2)
        for name, command in (("sleeps", SLEEP), ("works", SPIN)):
            await world.workloads.create({"metadata": {"name": name}, "spec": {"tenant": "t", "command": command}})
            await world.phase(name, "Running")
        warned = await world.until("sleeps", lambda obj: condition_is(obj, "Idle"))
        assert "has not used them" in (find_condition(warned, "Idle") or {})["message"]
        [event] = await _some(world, "Workload", "Idle")
        assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "sleeps")
        off = await world.phase("sleeps", "Suspended")
        assert (off["status"]["constraint"], off["status"]["reclaims"]) == ("idle", 1)
        waits = await world.until("sleeps", lambda obj: bool(obj["status"].get("estimatedStart")))
        assert waits["status"]["reason"].startswith("it did not use its GPUs and was taken off them")
        works = await world.workloads.get("works")
        assert works["status"]["phase"] == "Running"
        assert not condition_is(works, "Idle")
        node = await world.nodes.get("n1")
        assert node["status"]["gpus"][works["status"]["assignment"][0]["gpus"][0]]["cpu"] > 0.1
        assert (await world.workloads.get("sleeps"))["status"]["phase"] == "Suspended", "it comes and goes while nobody waits"
        await world.workloads.patch("sleeps", {"spec": {"idle": {"mode": "Warn"}}})
        await world.phase("sleeps", "Running")


async def test_a_wait_beyond_what_was_promised_is_told_on_the_workload_and_counted_for_its_tenant(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(0)
        await world.tenants.patch("t", {"spec": {"sla": {"maxWait": "1s"}}})
        await world.declare("late")
        late = await world.until("late", lambda obj: condition_is(obj, "SlaMet", "False"))
        assert "was promised at most 1 s" in (find_condition(late, "SlaMet") or {})["message"]
        assert late["status"]["phase"] == "Pending"
        [event] = await _some(world, "Workload", "SlaMissed")
        assert event["involvedObject"]["uid"] == late["metadata"]["uid"]
        await until(world.tenants, "t", lambda obj: obj.get("status", {}).get("slaMisses") == 1)


async def test_who_ends_after_its_deadline_is_told_so_also_where_nothing_was_decided_in_between(world: World) -> None:
    await _policy(world, every="1h")
    async with world.node("n1", 1):
        await world.quota(1)
        spec = {"tenant": "t", "command": python("import time; time.sleep(6)"), "deadline": format_time(time.time() + 5)}  # it begins before that on any machine
        await world.workloads.create({"metadata": {"name": "late"}, "spec": spec})
        await world.phase("late", "Succeeded")
        late = await world.until("late", lambda obj: condition_is(obj, "SlaMet", "False"))
        assert "after its deadline" in (find_condition(late, "SlaMet") or {})["message"]
        [event] = await _some(world, "Workload", "SlaMissed")
        assert event["involvedObject"]["uid"] == late["metadata"]["uid"]
        await world.tenants.patch("t", {"spec": {"weight": 2}})  # something to decide on, and to tell the tenant with
        await until(world.tenants, "t", lambda obj: obj.get("status", {}).get("slaMisses") == 1)


async def test_a_tenant_that_is_made_again_begins_without_what_the_one_before_cost(world: World) -> None:
    async with world.agent("n1", Simulated.parse("1xH100"), machine=Machine("n1", cost_per_hour=720000.0)):
        await world.quota(1)
        await world.workloads.create({"metadata": {"name": "job"}, "spec": {"tenant": "t", "command": python("import time; time.sleep(2)")}})
        await until(world.tenants, "t", lambda obj: obj.get("status", {}).get("cost", 0) > 0)
        await world.phase("job", "Succeeded")
        await world.tenants.delete("t")
        async with asyncio.timeout(30):
            while [one for one in await world.tenants.list() if one["metadata"]["name"] == "t"]:
                await asyncio.sleep(0.05)
        await world.quota(1)
        made = await until(world.tenants, "t", lambda obj: "usage" in obj.get("status", {}))
        assert not made["status"].get("cost")


async def test_a_budget_that_is_used_up_is_told_on_the_tenant(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(1)
        await world.tenants.patch("t", {"spec": {"budget": {"gpuHours": 0.0001}}})
        await world.declare("job")
        await world.phase("job", "Running")
        [event] = await _some(world, "Tenant", "BudgetUsedUp")
        assert event["involvedObject"]["name"] == "t"


async def test_all_that_wait_are_told_why_however_long_the_queue(world: World) -> None:
    count = AT_ONCE + 120
    await world.quota(1)  # and there is no node
    await asyncio.gather(*(world.declare(f"w{number}") for number in range(count)))
    async with asyncio.timeout(60):
        while len(told := [one for one in await world.workloads.list() if one.get("status", {}).get("reason")]) < count:
            await asyncio.sleep(0.1)
    assert {one["status"]["constraint"] for one in told} == {"type"}
    assert all(one["status"]["phase"] == "Pending" and one["status"]["submittedAt"] for one in told)
    assert not any("finalizers" in one["metadata"] for one in told)  # nothing of them is anywhere


async def let_in(world: World, field: str) -> None:
    """From now on the server takes any text that is a duration to it, as an older definition may have."""
    path = f"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{field}"
    loose = [{"op": "replace", "path": path, "value": {"type": "string", "format": "duration"}}]
    await world.client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").patch(WORKLOAD.name, loose, kind="json")


async def test_one_that_cannot_be_read_is_told_so_and_holds_up_no_other(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(1)
        await let_in(world, "maximumRuntime")
        await world.declare("odd", maximumRuntime="99999999999h")
        await world.declare("job")
        await world.phase("job", "Running")
        odd = await world.until("odd", lambda obj: condition_is(obj, "Ready", "Unknown"))
        assert "spec.maximumRuntime" in (find_condition(odd, "Ready") or {})["message"]
        assert not odd["status"].get("reason"), "something is said of it that it does not declare"


@pytest.mark.parametrize(
    "asked", [{"cpuMilli": 2**63 - 1}, {"gpuMemoryMib": 2**62}, {"gpus": 2**60}, {"gpus": "9" * 30}, {"gpus": "1" + "0" * 12 + "m"}]
)
async def test_what_no_machine_can_reckon_with_is_refused(world: World, asked: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match=f"spec.resources.{next(iter(asked))}"):
        await world.declare("odd", resources=asked)


@pytest.mark.parametrize("asked", [{"maximumRuntime": "99999999999h"}, {"minimumRuntime": "9999999h"}, {"maximumRuntime": "1.2.3h"}, {"minimumRuntime": "1ns"}])
async def test_a_length_of_time_that_cannot_be_reckoned_with_is_refused(world: World, asked: dict[str, str]) -> None:
    with pytest.raises(ApiError, match=f"spec.{next(iter(asked))}"):
        await world.declare("odd", **asked)


@pytest.mark.parametrize("signal", ["SIGUSRR1", "SIGKILL", "SIGSTOP", "SIGRTMIN+3"])
async def test_a_signal_that_no_program_would_hear_is_refused(world: World, signal: str) -> None:
    with pytest.raises(ApiError, match=r"spec\.preemption\.signal.*take one of SIGTERM, SIGUSR1"):
        await world.declare("odd", preemption={"mode": "Checkpoint", "signal": signal})


async def test_submissions_of_one_second_are_told_apart(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(0)
        for name in ("first", "second"):
            await world.declare(name)
        at = [(await world.until(name, lambda obj: "submittedAt" in obj.get("status", {})))["status"]["submittedAt"] for name in ("first", "second")]
        assert parse_time(at[0]) < parse_time(at[1])


async def test_how_tenants_and_nodes_stand_is_told_with_what_it_costs(world: World) -> None:
    async with world.agent("n1", Simulated.parse("2xH100"), machine=Machine("n1", cost_per_hour=7200.0)):
        await world.quota(1)
        await world.declare("job")
        await world.phase("job", "Running")
        await world.declare("next")
        told = await until(world.tenants, "t", lambda obj: obj.get("status", {}).get("cost", 0) > 0 and obj["status"]["pending"] == 1)
        status = told["status"]
        assert (status["used"], status["running"]) == ("1", 1)
        assert status["usage"] == [{"model": "H100", "nominal": "1", "used": "1", "borrowed": "0", "lent": "0"}]
        assert status["dominantShare"] > 0
        await until(world.nodes, "n1", lambda obj: obj["status"].get("allocated") == "1")


async def test_a_start_is_one_write_for_those_who_act_on_it_and_one_when_they_have(world: World) -> None:
    seen: list[Object] = []
    async with world.node("n1", 1), world.plane.client() as client:
        await world.quota(1)
        informer = client.kind(WORKLOAD.api_version, WORKLOAD.kind).informer()
        async with informer:
            await informer.wait_synced()
            informer.subscribe(lambda key: seen.append(informer.get(key.name, key.namespace) or {}))
            await world.declare("job")
            made = await world.until("job", lambda obj: obj.get("status", {}).get("phase") == "Running" and condition_is(obj, "Ready"))
            await informer.reached(made["metadata"]["resourceVersion"])
    placed = [one["status"] for one in seen if one.get("status", {}).get("assignment")]
    told = [(status["phase"], len(status["reports"]), condition_is({"status": status}, "Ready")) for status in placed]
    assert told == [("Starting", 0, False), ("Starting", 1, False), ("Running", 1, True)]  # the second is by its agent
    held = [FINALIZER in one["metadata"].get("finalizers", ()) for one in seen]
    assert held == [bool(one.get("status", {}).get("assignment")) for one in seen]  # by the write that places it


def test_a_queue_that_stands_still_is_told_once() -> None:
    objects = [facts.tenant("a", 0), facts.node("n"), *(facts.workload(f"w{number}") for number in range(20))]
    waiting = Waiting()
    assert len(waiting.renew(facts.plan_of(*objects).pending, facts.NOW)) == 20
    for job in objects[2:]:
        job["status"] |= waiting.words(job, facts.NOW) or {}
        assert waiting.words(job, facts.NOW) == {}
    later = 10 * EVERY_SECONDS
    assert waiting.renew(facts.plan_of(*objects, after=later).pending, facts.NOW + later) == []
    others = [facts.workload(f"w{number}") for number in range(10, 20)]
    assert len(waiting.renew(facts.plan_of(*objects[:2], *others, after=2 * later).pending, facts.NOW + 2 * later)) == 10


def _of_quota(used: int, *waiting: Object, after: float, quota: int = 8) -> Any:
    holds = facts.workload("holds", used, on=[("n", list(range(used)))])
    return facts.plan_of(facts.tenant("a", quota), facts.node("n", heard=after), holds, *waiting, after=after).pending


def test_what_one_that_waits_was_told_in_figures_is_told_anew_when_they_are_others() -> None:
    waiting, job = Waiting(), facts.workload("w", 8)
    for step, used in enumerate((2, 3)):
        now = facts.NOW + step * EVERY_SECONDS
        assert waiting.renew(_of_quota(used, job, after=step * EVERY_SECONDS), now) == ["uid-w"]
        said = waiting.words(job, now)
        assert said is not None
        assert said["reason"] == f"it wants 8 of H100, and a uses {used} of its 8"
        job["status"] |= said


def test_who_is_ahead_is_told_anew_when_it_is_another_in_the_same_place() -> None:
    waiting, job = Waiting(), facts.workload("w", 8)
    for step, ahead in enumerate(("one", "another")):
        now = facts.NOW + step * EVERY_SECONDS
        first = facts.workload(ahead, 8, submitted=-90.0)
        assert "uid-w" in waiting.renew(_of_quota(2, first, job, after=step * EVERY_SECONDS), now)
        said = waiting.words(job, now)
        assert said is not None
        assert said.get("position", 2) == 2
        assert [one["name"] for one in said["ahead"]] == [f"team/{ahead}"]
        job["status"] |= said


def test_one_that_could_not_be_told_for_it_was_still_leaving_its_gpus_is_told_later() -> None:
    waiting, job = Waiting(), facts.workload("w", 8)
    pending = _of_quota(2, job, after=0)
    assert waiting.renew(pending, facts.NOW) == ["uid-w"]
    assert waiting.words({**job, "status": {"phase": "Suspending"}}, facts.NOW) is None
    assert waiting.owes
    later = facts.NOW + AGAIN_SECONDS
    assert waiting.renew(pending, later) == ["uid-w"]
    said = waiting.words({**job, "status": {"phase": "Suspended"}}, later)
    assert said is not None
    assert waiting.words({**job, "status": {"phase": "Suspended", **said}}, later) == {}
    assert waiting.renew(pending, later + AGAIN_SECONDS) == []
    assert not waiting.owes


def test_an_estimate_is_told_anew_when_it_is_over() -> None:
    waiting, job = Waiting(), facts.workload("w", 8)
    late = 3600.0
    for after in (0.0, late):
        waiting.renew(_of_quota(2, job, after=after), facts.NOW + after)
        said = waiting.words(job, facts.NOW + after)
        assert said is not None
        assert parse_time(said["estimatedStart"]) >= facts.NOW + after
        job["status"] |= said


def test_a_crowd_is_told_in_words_that_stay_true_and_not_each_time_that_a_figure_moves() -> None:
    waiting, crowd = Waiting(), [facts.workload(f"w{number}", 8) for number in range(CROWD + 1)]
    due = waiting.renew(_of_quota(2, *crowd, after=0), facts.NOW)
    for number, job in enumerate(crowd):
        if job["metadata"]["uid"] in due:
            said = waiting.words(job, facts.NOW)
            assert said is not None
            assert (said["reason"], said["constraint"]) == ("it wants 8, and a has not as much left of its quota", "quota"), number
            assert not said.get("ahead")
    waiting.renew(_of_quota(2, *crowd, after=EVERY_SECONDS), facts.NOW + EVERY_SECONDS)  # who was left
    again = waiting.renew(_of_quota(2, *crowd, after=2 * EVERY_SECONDS, quota=9), facts.NOW + 2 * EVERY_SECONDS)
    assert len(again) <= 1, "none but whose start is another"


async def test_what_stands_in_a_status_follows_the_figures_within_moments_of_their_change(world: World) -> None:
    await _policy(world, every="1h")  # nothing but the change itself has it told
    async with world.node("n1", 4):
        await world.quota(2)
        await world.declare("waits", replicas=4)
        for quota in (2, 1, 3):
            await world.quota(quota)
            await world.until("waits", lambda obj, of=quota: f"uses 0 of its {of}" in obj.get("status", {}).get("reason", ""), 20)


@pytest.mark.parametrize(("cost", "found"), [(0.0, None), (2.0, 8.0)])
def test_what_a_run_cost_is_told_when_it_ends(cost: float, found: float | None) -> None:
    places = [{"replica": 0, "node": "n1", "gpus": [0, 1], "milli": 1000}]
    reports = [{"replica": 0, "node": "n1", "gpus": [0, 1], "state": "Exited"}]
    status = {"phase": "Running", "assignment": places, "reports": reports, "startedAt": "2026-11-15T00:00:00Z"}
    obj = {"metadata": {"name": "w"}, "spec": {"tenant": "t"}, "status": status}
    two_hours_later = parse_time("2026-11-15T02:00:00Z")
    patch = settled(obj, two_hours_later, lambda node: False, lambda node: cost) or {}
    assert (patch["gpuHours"], patch.get("cost")) == (4.0, found)
