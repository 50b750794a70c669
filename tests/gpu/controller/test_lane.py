"""Workloads on their way through the loop: one write to place one, which holds it as well, and nothing for those that only wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.gpu.controller.world import World

from homeostat.gpu.kinds import WORKLOAD
from homeostat.loop.fleet import Ref
from homeostat.loop.listener import Outcome
from homeostat.model.protocol import FINALIZER, HELD_BY

DEFINITIONS = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


async def test_who_waits_or_has_ended_is_looked_at_by_no_pass(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(1)
        await world.declare("short", command=["true"])
        await world.phase("short", "Succeeded")
        await world.declare("first")
        await world.phase("first", "Running")
        for name in ("second", "third"):
            await world.declare(name)
            await world.until(name, lambda obj: obj.get("status", {}).get("constraint") == "quota")
        declarations = world.engine.controllers[WORKLOAD.name].declarations
        async with asyncio.timeout(30):
            while [key.name for key in declarations.all()] != ["first"]:
                await asyncio.sleep(0.05)
        assert world.fleet.size == 1


async def test_of_whom_nothing_could_be_told_is_looked_at_again_whatever_it_does(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(1)
        await world.declare("short", command=["true"])
        await world.phase("short", "Succeeded")
        lane = world.engine.controllers[WORKLOAD.name]
        async with asyncio.timeout(30):
            while lane.declarations.all():
                await asyncio.sleep(0.05)
        lane._governor._trouble = "not now"
        obj = await world.workloads.get("short")
        assert not (await lane.look(obj)).observation.known
        lane._governor._trouble = ""
        assert [key.name for key in lane.declarations.all()] == ["short"]
        assert (await lane.look(obj)).observation.known
        assert not lane.declarations.all()


async def test_who_waits_is_gone_as_soon_as_it_is_deleted_and_who_runs_when_its_process_is(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(1)
        await world.declare("runs")
        await world.phase("runs", "Running")
        await world.declare("waits")
        await world.until("waits", lambda obj: obj.get("status", {}).get("constraint") == "quota")
        deleted = await world.workloads.delete("waits")
        assert "deletionTimestamp" not in (deleted or {}).get("metadata", {})
        await world.workloads.delete("runs")
        async with asyncio.timeout(30):
            while await world.workloads.list():
                await asyncio.sleep(0.05)


async def test_a_status_that_places_something_holds_it_with_the_same_write(world: World) -> None:
    await world.quota(0)
    await world.declare("job")
    place = {"replica": 0, "node": "n9", "gpus": [0], "milli": 1000}
    told = await world.workloads.patch("job", {"status": {"reason": "a word"}}, subresource="status")
    assert "finalizers" not in told["metadata"]
    held = await world.workloads.patch("job", {"metadata": {"finalizers": ["other/one"]}})
    placed = await world.workloads.patch("job", {"status": {"phase": "Starting", "assignment": [place]}}, subresource="status")
    assert placed["metadata"]["finalizers"] == ["other/one", FINALIZER]
    assert placed["metadata"]["generation"] == held["metadata"]["generation"]


async def test_what_is_placed_stays_held_when_a_manifest_without_finalizers_replaces_it_and_is_let_go_by_hand_once_deleted(world: World) -> None:
    await world.quota(0)
    await world.declare("job")
    place = {"replica": 0, "node": "n9", "gpus": [0], "milli": 1000}
    placed = await world.workloads.patch("job", {"status": {"phase": "Running", "assignment": [place]}}, subresource="status")
    bare = {name: placed[name] for name in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "job", "namespace": "default"}}
    bare["metadata"]["resourceVersion"] = placed["metadata"]["resourceVersion"]
    assert (await world.workloads.replace(bare))["metadata"]["finalizers"] == [FINALIZER], "else it could be deleted past the guards"
    await world.workloads.delete("job")
    await world.workloads.patch("job", {"metadata": {"finalizers": None}})
    assert await world.workloads.list() == []


async def test_on_a_server_that_does_not_do_so_it_is_held_by_a_write_of_its_own(world: World) -> None:
    async with world.plane.client() as client, world.node("n1", 2):
        await client.kind(*DEFINITIONS).patch(WORKLOAD.name, {"metadata": {"annotations": {HELD_BY: None}}})
        await world.quota(2)
        for name in ("first", "second"):
            await world.declare(name)
            await world.until(name, lambda obj: FINALIZER in obj["metadata"].get("finalizers", ()))
            await world.phase(name, "Running")


async def test_who_ends_before_its_start_is_read_back_was_started(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    governor, outcomes = world.provider.governor, []
    begin = governor.carry_out

    async def slowly(ref: Ref, target: Any) -> Any:
        written = await begin(ref, target)
        while governor.known.status(ref).get("phase") != "Succeeded":
            await asyncio.sleep(0.01)
        return written

    monkeypatch.setattr(governor, "carry_out", slowly)
    monkeypatch.setattr(world.engine.tell, "acted", lambda _fleet, _drift, _seconds, outcome, *_: outcomes.append(outcome))
    async with world.node("n1", 1):
        await world.quota(1)
        await world.declare("short", command=["true"])
        ended = await world.phase("short", "Succeeded")
        assert outcomes == [Outcome.DONE]
        assert [one["status"] for one in ended["status"]["conditions"] if one["type"] == "Ready"] == ["True"]


async def test_a_start_that_decisions_count_already_is_no_reason_to_decide_again_once_it_is_written(world: World) -> None:
    async with world.node("n1", 1):
        await world.quota(1)
        await world.declare("first")
        running = await world.phase("first", "Running")
        governor = world.engine.controllers[WORKLOAD.name]._governor
        ref = Ref(WORKLOAD.name, "default", "first", running["metadata"]["uid"])
        async with governor.turn, asyncio.timeout(30):
            obj = governor.known.object(ref)
            for counted, answer, wakes in ((True, obj, False), (False, obj, True), (True, None, True), (True, _later(obj), True)):
                governor._firm = {ref.uid: None} if counted else {}
                governor._wake.clear()
                with governor.writing(ref) as wrote:
                    if answer is not None:
                        wrote(answer)
                assert governor._wake.is_set() is wakes
            governor._firm = {}


def _later(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(int(obj["metadata"]["resourceVersion"]) + 1)}}
