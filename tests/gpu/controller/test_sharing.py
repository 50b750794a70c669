"""Workloads get GPUs as gangs, wait with a reason, go on elsewhere when a node is lost, and are let go when they ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest
from tests.gpu.agent.world import alive, python, until
from tests.gpu.controller.world import LEASE_SECONDS, Object, World

from homeostat.gpu.decisions import Memory
from homeostat.model.errors import ApiError


async def test_a_gang_is_placed_whole_or_not_at_all(world: World) -> None:
    async with world.node("n1", 2):
        await world.quota(8)
        uid = await world.declare("gang", replicas=3)
        waits = await world.until("gang", lambda obj: obj.get("status", {}).get("constraint") == "capacity")
        assert not waits["status"].get("assignment")
        assert world.pids(uid) == {}
        async with world.node("n2", 2):
            runs = await world.phase("gang", "Running")
            assert [place["replica"] for place in runs["status"]["assignment"]] == [0, 1, 2]
            assert sorted([*world.pids(uid), *world.pids(uid, "n2")]) == [0, 1, 2]


async def test_a_gang_that_is_scaled_while_it_runs_runs_on_as_it_was_placed(world: World) -> None:
    async with world.node("n1", 4):
        await world.quota(4)
        uid = await world.declare("gang", replicas=3)
        await world.phase("gang", "Running")
        before = world.pids(uid)
        await world.workloads.patch("gang", {"spec": {"replicas": 1}})
        await world.declare("other")  # when this runs, agents and governor have heard of it
        await world.phase("other", "Running")
        told = await world.workloads.get("gang")
        assert (told["status"]["phase"], world.pids(uid)) == ("Running", before)
        tenant = await until(world.tenants, "t", lambda obj: obj.get("status", {}).get("running") == 2)
        assert tenant["status"]["used"] == "4"


async def test_it_says_why_something_waits_and_who_is_ahead(world: World) -> None:
    async with world.node("n1", 2):
        await world.quota(1)
        await world.declare("first", preemption={"mode": "Never"})
        await world.phase("first", "Running")
        await world.declare("second", priority=10)
        await world.until("second", lambda obj: obj.get("status", {}).get("position") == 1)
        await world.declare("third")
        told = await world.until("third", lambda obj: obj.get("status", {}).get("position") == 2)
        assert told["status"]["constraint"] == "quota"
        assert told["status"]["reason"] == "it wants 1 of H100, and t uses 1 of its 1"
        assert [one["name"] for one in told["status"]["ahead"]] == ["default/second"]
        tenant = await world.tenants.get("t")
        assert (tenant["status"]["running"], tenant["status"]["pending"], tenant["status"]["used"]) == (1, 2, "1")


async def test_when_an_agent_is_gone_its_work_goes_on_elsewhere_after_the_lease(world: World) -> None:
    async with world.node("n3", 1), world.node("n4", 1), contextlib.AsyncExitStack() as stack:
        await world.quota(8)
        await world.declare("job", resources={"gpus": 2})
        async with world.node("n1", 2):
            runs = await world.phase("job", "Running")
            assert runs["status"]["assignment"][0]["node"] == "n1"
            await stack.enter_async_context(world.node("n2", 2))
        gone = time.monotonic()
        again = await world.until("job", lambda obj: _runs_on(obj, "n2"))
        assert time.monotonic() - gone < LEASE_SECONDS + 5
        assert again["status"]["suspensions"] == 0
        assert not world.fleet.halts


def _runs_on(obj: Object, node: str) -> bool:
    status = obj["status"]
    return status["phase"] == "Running" and {place["node"] for place in status["assignment"]} == {node}


async def test_a_gang_under_which_one_node_was_lost_names_that_one_and_is_told_why_it_waits(world: World) -> None:
    async with world.node("n1", 2), world.node("n3", 1), world.node("n4", 1):
        await world.quota(8)
        async with world.node("n2", 2):
            await world.declare("gang", replicas=4)
            runs = await world.phase("gang", "Running")
            assert {place["node"] for place in runs["status"]["assignment"]} >= {"n1", "n2"}
            await world.declare("more", replicas=2)
            await world.phase("more", "Running")
        await until(world.nodes, "n2", lambda obj: obj["status"].get("lost") is True)
        assert not (await world.nodes.get("n1"))["status"].get("lost")
        lost = await world.until("gang", lambda obj: (obj["status"].get("decision") or {}).get("verb") == "requeue")
        assert lost["status"]["decision"]["reason"].startswith("n2 failed under it")
        told = await world.until("gang", lambda obj: obj["status"].get("position") == 1)
        assert told["status"]["constraint"] == "capacity"


async def test_a_gang_of_higher_priority_gets_room_though_the_guards_let_one_go_at_a_time(world: World) -> None:
    async with world.node("n1", 3):
        await world.quota(3)
        for name in ("a", "b", "c"):
            await world.declare(name)
            await world.phase(name, "Running")
        await world.declare("urgent", replicas=2, priority=1000)
        await world.phase("urgent", "Running")
        assert len(await world.running()) == 2
        assert not world.fleet.halts


async def test_what_is_to_begin_while_its_status_is_written_is_decided_anew_and_its_gpu_promised_once(world: World) -> None:
    policies, governor = world.client.kind("homeostat.dev/v1alpha1", "GuardPolicy"), world.provider.governor
    freeze = {"reason": "under investigation", "author": "test"}
    spec = {"fleet": {"kinds": ["workloads.gpu.homeostat.dev"]}, "mode": "Enforce", "freezes": [freeze]}
    await policies.create({"metadata": {"name": "still"}, "spec": spec})
    await world.quota(1)
    first = await world.declare("first")
    async with asyncio.timeout(30):
        while first not in governor._refs:
            await asyncio.sleep(0.02)
    with governor.writing(governor._refs[first]):  # it is being told why it waits
        async with world.node("n1", 1):
            async with asyncio.timeout(30):
                while first not in governor.wishes:
                    await asyncio.sleep(0.02)
            urgent = await world.declare("urgent", priority=1000)
            async with asyncio.timeout(30):
                while urgent not in governor.wishes:
                    await asyncio.sleep(0.02)
            assert first not in governor.wishes


@pytest.mark.parametrize("done", ["before it is adopted", "after it"])
async def test_what_is_to_make_way_still_is_after_a_decision_while_its_status_was_being_written(
    world: World, monkeypatch: pytest.MonkeyPatch, done: str
) -> None:
    policies, governor = world.client.kind("homeostat.dev/v1alpha1", "GuardPolicy"), world.provider.governor
    async with world.node("n1", 1):
        await world.quota(1)
        uid = await world.declare("job")
        await world.phase("job", "Running")
        freeze = {"reason": "under investigation", "author": "test"}
        spec = {"fleet": {"kinds": ["workloads.gpu.homeostat.dev"]}, "mode": "Enforce", "freezes": [freeze]}
        await policies.create({"metadata": {"name": "still"}, "spec": spec})
        await world.declare("urgent", priority=1000)
        async with asyncio.timeout(30):
            while uid not in governor.wishes:
                await asyncio.sleep(0.02)
        with contextlib.ExitStack() as write:
            write.enter_context(governor.writing(governor._refs[uid]))
            if done == "before it is adopted":
                decided = governor._notes.write

                async def note(memory: Memory) -> None:
                    write.close()
                    await decided(memory)

                monkeypatch.setattr(governor._notes, "write", note)
            await governor._cycle()
            assert uid in governor.wishes
        await policies.delete("still")
        await world.phase("urgent", "Running")


async def test_what_a_person_wants_suspended_is_and_comes_back(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(1)
        await world.declare("job")
        await world.phase("job", "Running")
        await world.workloads.patch("job", {"spec": {"suspended": True}})
        await world.phase("job", "Suspended")
        await world.workloads.patch("job", {"spec": {"suspended": False}})
        await world.phase("job", "Running")


async def test_while_it_only_observes_nothing_is_placed_and_all_is_told(world: World) -> None:
    policies = world.client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
    spec = {"fleet": {"kinds": ["workloads.gpu.homeostat.dev"]}, "mode": "Observe"}
    await policies.create({"metadata": {"name": "look"}, "spec": spec})
    async with world.node("n1", 1):
        await world.quota(1)
        await world.declare("job")
        held = await world.until("job", lambda obj: "drift" in obj.get("status", {}))
        assert held["status"]["drift"]["changes"][0] == '~ phase: "Pending" → "Running"'
        assert held["status"].get("phase", "Pending") == "Pending"


async def test_after_a_restart_nothing_is_begun_twice_and_the_past_is_known(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(1)
        uid = await world.declare("job")
        before = await world.phase("job", "Running")
        await world.end()
        spent = await _spent(world)
        await world.begin()
        await world.declare("next")
        await world.until("next", lambda obj: obj.get("status", {}).get("constraint") == "quota")
        after = await world.workloads.get("job")
        assert after["status"]["assignment"] == before["status"]["assignment"]
        assert after["status"]["startedAt"] == before["status"]["startedAt"]
        assert len(world.pids(uid)[0]) == 1
        await world.end()
        again = await _spent(world)
        assert (again[0], again[1] > spent[1]) == (spent[0], True)
        await world.begin()


async def test_who_was_to_make_way_before_a_restart_still_is(world: World) -> None:
    policies = world.client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
    async with world.node("n1", 1):
        await world.quota(1)
        low = await world.declare("low")
        await world.phase("low", "Running")
        freeze = {"reason": "under investigation", "author": "test"}
        spec = {"fleet": {"kinds": ["workloads.gpu.homeostat.dev"]}, "mode": "Enforce", "freezes": [freeze]}
        await policies.create({"metadata": {"name": "still"}, "spec": spec})
        await world.declare("urgent", priority=1000)
        for restart in (True, False):
            async with asyncio.timeout(30):
                while low not in world.provider.governor.wishes:
                    await asyncio.sleep(0.02)
            if restart:
                await world.end()
                await world.begin()
        await policies.delete("still")
        await world.phase("urgent", "Running")


async def test_that_a_budget_is_used_up_is_written_down_at_once(world: World) -> None:
    """Who decides next, after a crash, or in `gpu explain`, must not let its work on for another minute."""
    async with world.node("n1", 1):
        await world.quota(1)
        await world.declare("job")
        await world.phase("job", "Running")
        spec = {"spec": {"budget": {"gpuHours": 1e-9, "onExceeded": "Suspend"}}}
        await world.tenants.patch("t", spec)
        await world.phase("job", "Suspended")
        assert (await _spent(world))[1] >= 1e-9


async def _spent(world: World) -> list[float]:
    """When the period of the budget began, and what was used of it."""
    kept = await world.client.kind("v1", "ConfigMap", namespace="kube-system").get("homeostat-governor")
    found: list[float] = json.loads(kept["data"]["memory"])["spent"]["t"]
    return found


async def test_what_ends_is_told_and_makes_room(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(8)
        body = {"metadata": {"name": "short"}, "spec": {"tenant": "t", "command": python("print('done')")}}
        await world.workloads.create(body)
        await world.phase("short", "Succeeded")
        await world.declare("next")
        await world.phase("next", "Running")


async def test_a_workload_that_is_deleted_is_let_go_when_its_processes_are_gone(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(8)
        uid = await world.declare("job")
        await world.phase("job", "Running")
        [pid] = world.pids(uid)[0]
        await world.workloads.delete("job")
        async with asyncio.timeout(20):
            while await _exists(world, "job"):
                await asyncio.sleep(0.02)
        assert not alive(pid)
        await world.declare("next")
        await world.phase("next", "Running")


async def _exists(world: World, name: str) -> bool:
    try:
        await world.workloads.get(name)
    except ApiError as error:
        if error.code == 404:
            return False
        raise
    return True


