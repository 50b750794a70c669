"""Events: people read with kubectl what happened to an object, once, in their words, and at no cost to the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kubectl.program import Kubectl, find_kubectl
from tests.loop.told import KIND, House, house, until

from homeostat.loop.controller import ADOPT
from homeostat.loop.events import BURST, COMBINED, REFILL_SECONDS, SIMILAR, About, Bucket, Correlator, Notice, masked
from homeostat.loop.recorder import Recorder

NOW = 1_800_000_000.0
LAMP = About("told.test.dev/v1", "Lamp", "shop", "hall", "uid-1")


@pytest.fixture
async def lamps(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as one:
        await one.start()
        yield one
        await one.stop()


# What is the same again, and what is too much


def test_the_same_event_again_counts_up_the_one_there_is() -> None:
    correlator, notice = Correlator(), Notice(LAMP, "ActionFailed", "no bulb", warning=True)
    first = correlator.write(notice, NOW)
    second = correlator.write(notice, NOW + 5)
    assert first is not None
    assert second is not None
    assert first.event["count"] == 1
    assert first.event["type"] == "Warning"
    assert first.event["metadata"]["namespace"] == "shop"
    assert (second.name, second.event["count"]) == (first.name, 2)
    assert second.event["lastTimestamp"] > first.event["lastTimestamp"]


def test_another_message_another_object_or_another_reason_is_another_event() -> None:
    correlator = Correlator()
    notices = [
        Notice(LAMP, "ActionFailed", "no bulb"),
        Notice(LAMP, "ActionFailed", "no power"),
        Notice(LAMP, "Held", "no bulb"),
        Notice(LAMP._replace(uid="uid-2"), "ActionFailed", "no bulb"),
    ]
    writes = [correlator.write(notice, NOW) for notice in notices]
    assert len({write.name for write in writes if write}) == 4


def test_an_object_is_heard_of_a_burst_and_then_once_in_five_minutes() -> None:
    correlator, notice = Correlator(), Notice(LAMP, "ActionFailed", "no bulb")
    assert sum(correlator.write(notice, NOW + i) is not None for i in range(100)) == BURST
    later = correlator.write(notice, NOW + 100 + REFILL_SECONDS)
    assert later is not None
    assert later.event["count"] == 101  # those that were not written are in it
    other = LAMP._replace(name="kitchen", uid="uid-2")
    assert correlator.write(Notice(other, "ActionFailed", "no bulb"), NOW) is not None


def test_many_that_differ_only_in_their_message_become_one() -> None:
    correlator = Correlator()
    writes = [correlator.write(Notice(LAMP, "ActionFailed", f"pid {i} died"), NOW + i) for i in range(SIMILAR + 5)]
    names = {write.name for write in writes if write}
    assert len(names) == SIMILAR + 1
    assert writes[-1] is not None
    assert writes[-1].event["message"] == f"{COMBINED}pid {SIMILAR + 4} died"
    assert writes[-1].event["count"] == 5


def test_a_bucket_fills_up_again_and_not_beyond_its_burst() -> None:
    bucket = Bucket(2, 10.0)
    assert [bucket.take(NOW) for _ in range(3)] == [True, True, False]
    assert bucket.take(NOW + 10)
    assert [bucket.take(NOW + 1000) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    "told",
    [
        "GET https://ana:s3cr3t-word@api.example.com/x failed",
        "Authorization: Bearer s3cr3t-word was refused",
        'answered {"password": "s3cr3t-word"}',
        "api_key=s3cr3t-word&page=1",
    ],
)
def test_what_looks_like_a_secret_is_masked(told: str) -> None:
    assert "s3cr3t-word" not in masked(told)
    assert "***" in masked(told)


def test_what_only_speaks_of_secrets_is_left_as_it_is() -> None:
    assert masked("the secret shop/db is not there") == "the secret shop/db is not there"


def test_a_long_message_is_cut_to_what_the_api_takes() -> None:
    write = Correlator().write(Notice(LAMP, "Held", "ö" * 5000), NOW)
    assert write is not None
    assert len(write.event["message"].encode()) <= 1024


# What the loop tells


async def test_a_repair_is_told_on_the_resource(lamps: House) -> None:
    await lamps.lit(["hall"])
    lamps.provider.world["hall"] = "green"
    await lamps.whole_pass()
    event = await lamps.event("hall", "Updated")
    assert event["type"] == "Normal"
    assert "changed colour" in event["message"]
    assert event["involvedObject"]["kind"] == "Lamp"
    assert event["involvedObject"]["uid"] == (await lamps.lamps.get("hall"))["metadata"]["uid"]


async def test_what_is_made_for_the_first_time_and_stays_well_is_no_event(lamps: House) -> None:
    await lamps.lit([f"lamp-{i}" for i in range(20)])
    await lamps.whole_pass()
    await lamps.declare("lamp-3", "blue")  # one that is told, to know that those before it were not
    await lamps.event("lamp-3", "Updated")
    events = await lamps.client.kind("v1", "Event").list()
    assert [event["involvedObject"]["name"] for event in events] == ["lamp-3"]


async def test_what_was_lost_and_is_made_again_is_told(lamps: House) -> None:
    await lamps.lit(["hall"])
    del lamps.provider.world["hall"]
    await lamps.whole_pass()
    assert "not as declared any more" in (await lamps.event("hall", "Created"))["message"]


async def test_a_deletion_is_told(lamps: House) -> None:
    await lamps.lit(["hall"])
    await lamps.lamps.delete("hall")
    assert (await lamps.event("hall", "Deleted"))["type"] == "Normal"


async def test_a_failing_action_is_told_and_counted_and_its_recovery_too(lamps: House) -> None:
    lamps.provider.broken["apply"] = "no bulb, token=abcdef123456"
    await lamps.declare("hall", "red")
    event = await lamps.event("hall", "ActionFailed")
    assert event["type"] == "Warning"
    assert "no bulb" in event["message"]
    assert "abcdef123456" not in event["message"]
    lamps.provider.broken.clear()
    await lamps.event("hall", "Recovered")
    failed = await lamps.events("hall", "ActionFailed")
    assert len(failed) == 1


async def test_what_cannot_be_read_is_told_once_and_its_recovery(lamps: House) -> None:
    await lamps.lit(["hall"])
    lamps.provider.broken["observe"] = "the lamp does not answer"
    for _ in range(3):
        await lamps.whole_pass()
    event = await lamps.event("hall", "Unreadable")
    assert "does not answer" in event["message"]
    lamps.provider.broken.clear()
    await lamps.whole_pass()
    assert "does not answer" in (await lamps.event("hall", "Recovered"))["message"]
    assert [e.get("count") for e in await lamps.events("hall", "Unreadable")] == [1]


async def test_what_is_held_until_a_person_does_something_says_what(lamps: House) -> None:
    lamps.provider.world["hall"] = "gold"
    await lamps.declare("hall", "red")
    event = await lamps.event("hall", "Held")
    assert event["type"] == "Warning"
    assert "held by ownership" in event["message"]
    assert "What to do" in event["message"]
    await lamps.lamps.patch("hall", {"metadata": {"annotations": {ADOPT: "true"}}})
    await until(lambda: lamps.provider.world["hall"] == "red")


async def test_a_halt_and_its_end_are_told_on_the_policy_and_not_on_each_resource(lamps: House) -> None:
    names = [f"lamp-{i}" for i in range(20)]
    await lamps.lit(names)
    lamps.provider.world.update(dict.fromkeys(names, "black"))
    await lamps.whole_pass()
    event = await lamps.event(KIND, "Halted")
    assert event["type"] == "Warning"
    assert event["involvedObject"]["kind"] == "GuardPolicy"
    assert "mass-drift" in event["message"]
    assert "homeostat approve " in event["message"]
    lamps.provider.world.update(dict.fromkeys(names, "red"))
    await lamps.calm()
    assert (await lamps.event(KIND, "Resumed"))["type"] == "Normal"
    assert not [e for name in names for e in await lamps.events(name)]


async def test_nothing_is_written_when_nothing_changed(lamps: House) -> None:
    await lamps.lit(["hall"])
    lamps.provider.broken["observe"] = "the lamp does not answer"
    await lamps.whole_pass()
    await lamps.event("hall", "Unreadable")
    await asyncio.sleep(0.7)  # the policy's report
    before = lamps.server.plane.store.revision
    for _ in range(3):
        await lamps.whole_pass()
    assert lamps.server.plane.store.revision == before


async def test_a_fleet_in_trouble_is_told_of_in_part_and_the_rest_is_counted(lamps: House) -> None:
    recorder = Recorder(lamps.client)
    taken = sum(recorder.room(True) for _ in range(10_000))
    assert taken < 1000
    assert recorder.dropped == 10_000 - taken
    assert recorder.room(False)  # Normal ones have a budget of their own


async def test_a_server_that_takes_no_events_holds_nobody_up(lamps: House) -> None:
    recorder = Recorder(lamps.client)
    recorder.record(Notice(LAMP._replace(namespace="not-there"), "Held", "x"))
    for i in range(20):
        recorder.record(Notice(LAMP._replace(namespace="default", name=f"lamp-{i}"), "Held", "x"))
    await until(lambda: recorder.dropped == 1)
    await until(lambda: not recorder._waiting)
    await recorder.stop()


async def test_an_event_that_expired_is_made_anew(lamps: House) -> None:
    recorder = Recorder(lamps.client)
    notice = Notice(LAMP._replace(namespace="default"), "Held", "x")
    recorder.record(notice)
    first = await lamps.event("hall", "Held")
    await lamps.client.kind("v1", "Event", namespace="default").delete(first["metadata"]["name"])
    recorder.record(notice)
    again = await lamps.event("hall", "Held")
    assert again["metadata"]["name"] != first["metadata"]["name"]
    assert again["count"] == 1
    await recorder.stop()


async def test_kubectl_shows_them(lamps: House, tmp_path: Path) -> None:
    kubectl = Kubectl(find_kubectl(), lamps.server.kubeconfig, tmp_path)
    await lamps.lit(["hall"])
    lamps.provider.world["hall"] = "green"
    await lamps.whole_pass()
    await lamps.event("hall", "Updated")
    described = await asyncio.to_thread(kubectl, "describe", f"{KIND}/hall", "-n", "default")
    assert "Updated" in described
    assert "changed colour" in described
    listed = await asyncio.to_thread(kubectl, "events", "-n", "default", "--for", f"{KIND}/hall")
    assert "Updated" in listed
    names = [f"lamp-{i}" for i in range(20)]
    await lamps.lit(names)
    lamps.provider.world.update(dict.fromkeys(names, "black"))
    await lamps.whole_pass()
    await lamps.event(KIND, "Halted")
    policy = await asyncio.to_thread(kubectl, "describe", "guardpolicy", KIND)
    assert "Halted" in policy
    assert "homeostat approve" in policy
