"""A suspension that never succeeds is called off or given up: the workload runs on, and all who count on it are told."""

from __future__ import annotations

from tests.gpu.agent.world import Moody, alive, eventually, number, report_of
from tests.gpu.controller.world import Object, World

from homeostat.gpu.agent.suspend import CannotSuspend
from homeostat.model.clock import parse_time
from homeostat.model.conditions import condition_is, find_condition

WHY = "the driver is too old"


def _moody() -> Moody:
    made = Moody()
    made.fails = CannotSuspend(WHY)
    return made


def _given_up(obj: Object) -> bool:
    return obj["status"]["phase"] == "Running" and condition_is(obj, "Suspendable", "False")


async def test_a_person_can_call_off_a_suspension_that_does_not_succeed(world: World) -> None:
    async with world.agent("n1", _moody()):
        await world.quota(1)
        await world.declare("job")
        before = await world.phase("job", "Running")
        await world.workloads.patch("job", {"spec": {"suspended": True}})
        await world.until("job", lambda obj: report_of(obj).get("refusals", 0) > 0)
        await world.workloads.patch("job", {"spec": {"suspended": False}})
        after = await world.phase("job", "Running")
        assert report_of(after)["pid"] == report_of(before)["pid"]
        assert not after["status"].get("suspensions"), "it was never off its GPUs"
        assert parse_time(after["status"]["startedAt"]) > parse_time(before["status"]["startedAt"])
        await world.until("job", lambda obj: not report_of(obj).get("refusals"))


async def test_after_some_tries_it_runs_on_and_says_why_and_can_still_be_deleted(world: World) -> None:
    async with world.agent("n1", _moody()):
        await world.quota(1)
        await world.declare("job")
        pid = report_of(await world.phase("job", "Running"))["pid"]
        await world.workloads.patch("job", {"spec": {"suspended": True}})
        told = await world.until("job", _given_up)
        message = (find_condition(told, "Suspendable") or {})["message"]
        assert WHY in message
        assert "preemption.mode" in message
        assert alive(pid)
        count = number(world.folder / "job.n")
        await eventually(lambda: number(world.folder / "job.n") > count)
        await world.workloads.delete("job")
        await eventually(lambda: not alive(pid))


async def test_who_needs_the_room_gets_that_of_another_that_can_be_suspended(world: World) -> None:
    async with world.agent("n1", _moody()):
        await world.quota(100)
        await world.declare("stuck", resources={"gpus": 8}, priority=-5)
        await world.phase("stuck", "Running")
        async with world.node("n2"):
            await world.declare("other", resources={"gpus": 8})
            await world.phase("other", "Running")
            await world.declare("urgent", resources={"gpus": 8}, priority=9)
            await world.until("stuck", _given_up, 60)
            urgent = await world.phase("urgent", "Running", seconds=60)
            assert urgent["status"]["assignment"][0]["node"] == "n2"
            assert (await world.workloads.get("stuck"))["status"]["phase"] == "Running"
