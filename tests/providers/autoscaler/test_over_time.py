"""An Autoscaler under the real engine and API, over hours of virtual time."""

from __future__ import annotations

import asyncio

from tests.providers.autoscaler.days import TARGET, Days, deployment, metric, over_time

from homeostat.guards import Mode
from homeostat.model.protocol import CHANGE_SET

EACH = {"proportional": {"target": 50}}
ALL = {"proportional": {"target": 10, "total": True}}
AT_ONCE = {"window": "0s", "percent": 100, "replicas": 100}


def ready(status: dict) -> dict:  # type: ignore[type-arg]
    return next(found for found in status["conditions"] if found["type"] == "Ready")


def test_it_goes_up_at_once_and_comes_down_after_the_window() -> None:
    async def story(days: Days) -> None:
        await days.measure(queue=20)
        await days.declare(metric("queue", ALL))
        assert await days.path(60) == [2]
        await days.measure(queue=55)
        assert await days.path(30) == [2, 6]
        status = await days.status()
        assert (status["replicas"], status["desired"]) == (6, 6)
        assert status["metrics"] == [{"name": "queue", "value": "55"}]
        assert "55 measured, 10 wanted of each: 6 replicas" in status["reason"]
        assert status["lastScaleTime"]
        assert ready(status)["status"] == "True"
        await days.measure(queue=15)
        assert await days.path(270) == [6]
        assert await days.path(60) == [6, 2]

    over_time(story)


def test_without_news_nothing_is_written_and_noise_is_reported_rarely() -> None:
    async def story(days: Days) -> None:
        await days.measure(queue=20)
        await days.declare(metric("queue", ALL))
        await asyncio.sleep(60)
        before = days.writes
        await asyncio.sleep(3600)
        assert days.writes == before
        for turn in range(240):  # an hour of noise within the tolerance
            await days.measure(queue=20 + turn % 2)
            await asyncio.sleep(15)
        assert days.writes - before - 240 <= 12

    over_time(story)


def test_what_cannot_be_read_moves_nothing() -> None:
    async def story(days: Days) -> None:
        await days.measure(queue=60)
        await days.declare(metric("queue", ALL))
        assert await days.path(30) == [2, 6]
        await days.measure(queue=None)
        await asyncio.sleep(30)
        before = days.writes
        assert await days.path(3600) == [6]
        assert days.writes == before
        status = await days.status()
        assert (ready(status)["status"], ready(status)["reason"]) == ("Unknown", "Unreadable")
        assert "queue: spec.metrics[0].cel.expression" in ready(status)["message"]
        await days.measure(queue="NaN")
        assert await days.path(60) == [6]
        await days.measure(queue=0)  # sight is back: a whole window passes
        assert await days.path(285) == [6]
        assert await days.path(60) == [6, 1]
        assert ready(await days.status())["status"] == "True"

    over_time(story)


def test_idleness_takes_every_signal_and_need_takes_one() -> None:
    async def story(days: Days) -> None:
        await days.measure(cpu=100, threads=10)
        both = metric("cpu", EACH), metric("threads", {"proportional": {"target": 10}})
        await days.declare(*both, scaleDown=AT_ONCE)
        assert (await days.path(15))[-1] >= 4
        await days.scale(8)
        await days.measure(cpu=5, threads=10)  # starved processors look idle
        assert await days.path(300) == [8]
        await days.measure(threads=None)
        assert await days.path(300) == [8]
        await days.measure(cpu=100)
        assert (await days.path(15))[-1] == 16
        await days.measure(cpu=5, threads=1)
        assert (await days.path(60))[-1] < 8

    over_time(story)


def test_a_fleet_of_one_that_swings_all_day_is_never_held() -> None:
    async def story(days: Days) -> None:
        await days.measure(queue=20)
        await days.declare(metric("queue", ALL), scaleDown=AT_ONCE)
        await asyncio.sleep(15)
        for turn in range(20):
            await days.measure(queue=50 if turn % 2 == 0 else 20)
            await asyncio.sleep(16)
            assert await days.replicas() == (5 if turn % 2 == 0 else 2)

    over_time(story)


def test_one_that_cannot_be_scaled_is_tried_again_and_holds_no_other() -> None:
    async def story(days: Days) -> None:
        await days.deployments.apply(deployment(2, "other"), field_manager="test")
        await days.measure(queue=20, jobs=20)
        annotations = {CHANGE_SET: "monday"}
        await days.declare(metric("queue", ALL), annotations=annotations)
        other = {**TARGET, "name": "other"}
        await days.declare(metric("jobs", ALL), name="other", target=other, annotations=annotations)
        await asyncio.sleep(60)
        days.wire.lost = "other"
        await days.measure(jobs=50)
        await asyncio.sleep(60)
        assert "not now" in ready(await days.status("other"))["message"]
        await days.measure(queue=50)
        assert await days.path(16, every=16) == [2, 5]
        days.wire.lost = ""
        await asyncio.sleep(300)
        assert (await days.status("other"))["replicas"] == 5

    over_time(story)


def test_another_declaration_is_a_change_of_intent_and_another_measurement_is_not() -> None:
    async def story(days: Days) -> None:
        await days.measure(queue=20)
        await days.declare(metric("queue", ALL))
        await asyncio.sleep(60)
        await days.engine.stop()
        await days.start(Mode.OBSERVE)
        await days.measure(queue=50)
        await asyncio.sleep(60)
        assert (await days.status())["drift"]["cause"] == "drift"
        await days.declare(metric("queue", ALL), maxReplicas=4)
        await asyncio.sleep(60)
        assert (await days.status())["drift"]["cause"] == "intent"

    over_time(story)


def test_somebody_who_undoes_it_again_and_again_is_named_a_reversal_and_not_fought() -> None:
    async def story(days: Days) -> None:
        await days.measure(queue=20)
        await days.declare(metric("queue", ALL), scaleDown=AT_ONCE)
        await asyncio.sleep(60)
        for _ in range(6):
            await days.scale(9)
            await asyncio.sleep(20)
        assert await days.replicas() == 9
        assert "flap" in ready(await days.status())["message"]

    over_time(story)


def test_limits_hold_whatever_can_be_seen() -> None:
    async def story(days: Days) -> None:
        await days.declare(metric("queue", ALL), minReplicas=3)
        assert await days.path(15) == [2, 3]
        await days.declare(metric("queue", ALL), minReplicas=1, maxReplicas=2)
        assert await days.path(15) == [3, 2]
        assert ready(await days.status())["status"] in ("Unknown", "True")

    over_time(story)


def test_it_comes_from_nothing_and_goes_to_nothing_by_a_total() -> None:
    async def story(days: Days) -> None:
        await days.measure(queue=0)
        await days.declare(metric("queue", ALL), minReplicas=0, scaleDown=AT_ONCE)
        assert await days.path(30) == [2, 0]
        await days.measure(queue=31)
        assert await days.path(30) == [0, 4]

    over_time(story)


def test_where_it_only_observes_it_says_what_it_would_do() -> None:
    async def story(days: Days) -> None:
        await days.engine.stop()
        await days.start(Mode.OBSERVE)
        await days.measure(queue=60)
        await days.declare(metric("queue", ALL))
        assert await days.path(60) == [2]
        before, status = days.writes, await days.status()
        assert (status["replicas"], status["desired"]) == (2, 6)
        assert status["drift"]["changes"] == ["~ replicas: 2 → 6"]
        await days.measure(queue=58)
        await asyncio.sleep(3600)
        assert days.writes == before + 1  # that of the measurement: the same plan stays the same

    over_time(story)


def test_deleting_it_leaves_the_target_alone() -> None:
    async def story(days: Days) -> None:
        await days.measure(queue=60)
        await days.declare(metric("queue", ALL))
        assert await days.path(30) == [2, 6]
        await days.measure(queue=None)
        await days.scalers.delete("web")
        await asyncio.sleep(5)
        assert await days.scalers.list() == []
        assert await days.path(600) == [6]

    over_time(story)


def test_it_steps_and_rests() -> None:
    async def story(days: Days) -> None:
        await days.measure(load=100)
        await days.declare(metric("load", {"step": {"target": 50, "band": 10, "up": 2, "restUp": "1m"}}))
        assert await days.path(115, every=5) == [2, 4, 6]
        await days.measure(load=55)
        assert await days.path(300) == [6]
        await days.measure(load=10)
        assert await days.path(900) == [6, 5, 4, 3]  # each after five minutes, the first rest being over

    over_time(story)


def test_it_switches_with_hysteresis() -> None:
    async def story(days: Days) -> None:
        law = {"onOff": {"low": 10, "high": 80, "onReplicas": 8, "offReplicas": 0}}
        await days.measure(load=50)
        await days.declare(metric("load", law), minReplicas=0, scaleUp=AT_ONCE, scaleDown=AT_ONCE)
        assert await days.path(60) == [2, 8]  # what is not off is on
        await days.measure(load=11)
        assert await days.path(60) == [8]
        await days.measure(load=10)
        assert await days.path(60) == [8, 0]
        await days.measure(load=79)
        assert await days.path(60) == [0]
        await days.measure(load=80)
        assert await days.path(60) == [0, 8]

    over_time(story)


def test_a_pid_goes_on_after_a_restart_from_where_it_was() -> None:
    async def story(days: Days) -> None:
        await days.measure(load=60)
        await days.declare(metric("load", {"pid": {"target": 50, "kp": 0, "ki": 0.002}}), scaleDown=AT_ONCE)
        before = await days.path(600)
        assert before[-1] == 14  # 2 + 0.002 × 10 × 600
        await days.engine.stop()
        kept = (await days.status())["memory"]["loops"]["load"]
        assert kept["integral"] > 12
        await days.start()
        assert await days.path(200) == [14, 15, 16, 17, 18]

    over_time(story)


def test_a_restart_writes_nothing_and_keeps_the_pace() -> None:
    async def story(days: Days) -> None:
        await days.measure(queue=200)
        await days.declare(metric("queue", ALL), scaleUp={"replicas": 2, "percent": 0, "period": "10m"})
        assert await days.path(60) == [2, 4]
        moved = (await days.status())["lastScaleTime"]
        before = days.writes
        for _ in range(5):
            await days.engine.stop()
            await days.start()
            await asyncio.sleep(20)
        assert await days.replicas() == 4
        assert days.writes == before
        assert (await days.status())["lastScaleTime"] == moved
        assert await days.path(600) == [4, 6]

    over_time(story)


def test_it_may_be_killed_between_the_scaling_and_its_report() -> None:
    async def story(days: Days) -> None:
        await days.measure(queue=60)
        await days.declare(metric("queue", ALL))
        assert await days.path(30) == [2, 6]
        await days.engine.stop()
        await days.scale(9)  # as if it had been us, and nobody wrote it down
        await days.measure(queue=90)
        await days.start()
        assert await days.path(60) == [9]
        assert (await days.status())["replicas"] == 9

    over_time(story)
