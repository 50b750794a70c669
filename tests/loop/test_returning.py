"""A change set that fails is taken back by the loop, on a real server: what people see of it, and what a crash in the middle leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.guards.hook import Hook, hook

from homeostat.guards.returning import Returning
from homeostat.model.protocol import CHANGE_SET

from .told import KIND, House, eventually, house, until

SIZE = 50
NAMES = [f"lamp-{i:02}" for i in range(SIZE)]


@pytest.fixture
async def lamps(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as one:
        yield one


@pytest.fixture
async def receiver() -> AsyncIterator[Hook]:
    async with hook() as one:
        yield one


async def guarded(lamps: House, **policy: Any) -> None:
    """A lit house whose lamps are not healthy when they are bad."""
    spec = {
        "fleet": {"kinds": [KIND]},
        "mode": "Enforce",
        "cap": "100%",
        "massDrift": {"limit": "100%"},
        "canary": {"onFailure": "Return", "verifyWithin": "1s"},
        "health": [{"name": "shines", "expression": "state.colour != 'bad'", "message": "it does not shine"}],
        **policy,
    }
    await lamps.start()
    await lamps.policies.create({"metadata": {"name": "lamps"}, "spec": spec})
    await lamps.lit(NAMES)


async def push(lamps: House, colour: str, change_set: str, force: bool = False) -> None:
    for name in NAMES:
        body = {"metadata": {"name": name, "annotations": {CHANGE_SET: change_set}}, "spec": {"colour": colour}}
        await lamps.lamps.apply(body, field_manager="test", force=force)


async def declared(lamps: House) -> set[str]:
    return {lamp["spec"]["colour"] for lamp in await lamps.lamps.list()}


async def all_ready(lamps: House, colour: str) -> bool:
    found = await lamps.lamps.list()
    ready = [
        {c["type"]: c["status"] for c in lamp["status"]["conditions"]}["Ready"] == "True"
        and lamp["status"]["observedGeneration"] == lamp["metadata"]["generation"]
        and lamp["spec"]["colour"] == colour
        for lamp in found
    ]
    return len(found) == SIZE and all(ready) and set(lamps.provider.world.values()) == {colour}


def went_bad(lamps: House) -> set[str]:
    """Every lamp that is made bad from now on."""
    touched: set[str] = set()
    apply = lamps.provider.apply

    async def watched(spec: Any, diff: Any) -> None:
        await apply(spec, diff)
        touched.update(name for name, colour in lamps.provider.world.items() if colour == "bad")

    lamps.provider.apply = watched  # type: ignore[method-assign]
    return touched


async def returned(lamps: House) -> dict[str, Any] | None:
    status = (await lamps.policies.get("lamps")).get("status") or {}
    done = [one for one in status.get("returns") or () if one["state"] != "Returning"]
    return done[-1] if done else None


async def test_a_bad_push_touches_one_lamp_and_all_declarations_are_back_within_seconds(lamps: House) -> None:
    await guarded(lamps)
    touched = went_bad(lamps)
    await push(lamps, "bad", "monday")
    one = await eventually(lambda: returned(lamps))
    assert (one["state"], one["changeSet"], one["returnedBy"], one["objects"]) == (
        "Returned",
        "monday",
        "return-of/monday",
        SIZE,
    )
    await eventually(lambda: all_ready(lamps, "red"))
    assert len(touched) == 1
    event = await lamps.event("lamps", "Returned")
    assert "change set monday failed" in event["message"]
    assert event["type"] == "Warning"
    await lamps.policies.patch("lamps", {"spec": {"canary": {"verifyWithin": "1m"}}})  # a busy machine may take more than a second
    await push(lamps, "blue", "tuesday")  # by the same manager, and without force: the fields are whose they were
    await eventually(lambda: all_ready(lamps, "blue"))
    await lamps.stop()


async def test_people_are_told_that_it_was_taken_back(lamps: House, receiver: Hook) -> None:
    await guarded(lamps, alerts=[{"webhook": receiver.url, "on": ["Return"]}])
    await push(lamps, "bad", "monday")
    messages = await receiver.count(1)
    assert messages[0]["on"] == "Return"
    assert "change set monday failed; it " in messages[0]["reason"]
    assert messages[0]["changeSet"] == "monday"
    await lamps.stop()


async def test_a_crash_in_the_middle_is_finished_by_the_next_loop_at_once(
    lamps: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guarded(lamps)
    touched = went_bad(lamps)
    dead, wrote = asyncio.Event(), 0
    write = Returning._write

    async def dies(self: Returning, job: Any, item: Any, step: Any, dry_run: bool) -> None:
        nonlocal wrote
        if not dry_run:
            wrote += 1
            if wrote > 20:
                dead.set()
                await asyncio.Event().wait()
        await write(self, job, item, step, dry_run)

    monkeypatch.setattr(Returning, "_write", dies)
    await push(lamps, "bad", "monday")
    async with asyncio.timeout(10):
        await dead.wait()
    await lamps.stop()
    assert await declared(lamps) == {"red", "bad"}
    monkeypatch.setattr(Returning, "_write", write)
    await lamps.lamps.apply(
        {"metadata": {"name": NAMES[-1]}, "spec": {"colour": "green"}}, field_manager="ann", force=True
    )
    await lamps.start()
    one = await eventually(lambda: returned(lamps))
    assert one["state"] == "Incomplete"
    assert f"Lamp default/{NAMES[-1]}" in one["problem"]
    assert await declared(lamps) == {"red", "green"}, "what somebody declared meanwhile is theirs"
    await until(lambda: sorted(set(lamps.provider.world.values())) == ["green", "red"])
    assert len(touched) == 1, "the rest of the bad push is not let go on meanwhile"
    await lamps.stop()


async def test_the_runbook_and_explain_say_that_it_was_taken_back(lamps: House) -> None:
    from homeostat.client.kinds import served_kinds
    from homeostat.guards import runbook
    from homeostat.insight.chain import Chain
    from homeostat.insight.fleets import look
    from homeostat.loop.fleet import Verdict

    await guarded(lamps)
    await push(lamps, "bad", "monday")
    await eventually(lambda: returned(lamps))
    await eventually(lambda: all_ready(lamps, "red"))
    view = await look(lamps.client, [kind for kind in await served_kinds(lamps.client) if kind.name == KIND])
    fleet = view.fleets["lamps"]
    lines = runbook(view.gate.policy(fleet), fleet, Verdict(), view.now)
    assert any("change set monday failed" in line for line in lines)
    assert any("taken back as return-of/monday" in line for line in lines)
    assert "as return-of/monday" in Chain(view, min(view.objects)).declared
    await lamps.stop()


async def test_what_somebody_declares_at_the_last_moment_is_not_written_over_and_not_deleted(
    lamps: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guarded(lamps)
    write, late = Returning._write, ("lamp-07", "new")

    async def after_ann(self: Returning, job: Any, item: Any, step: Any, dry_run: bool) -> None:
        if not dry_run and item["name"] in late:
            body = {"metadata": {"name": item["name"]}, "spec": {"colour": "green"}}
            await lamps.lamps.apply(body, field_manager="ann", force=True)
        await write(self, job, item, step, dry_run)

    monkeypatch.setattr(Returning, "_write", after_ann)
    new = {"metadata": {"name": "new", "annotations": {CHANGE_SET: "monday"}}, "spec": {"colour": "white"}}
    await lamps.lamps.apply(new, field_manager="test")
    await push(lamps, "bad", "monday")
    one = await eventually(lambda: returned(lamps))
    assert (one["state"], one["objects"]) == ("Incomplete", SIZE - 1)
    assert all(f"Lamp default/{name}" in one["problem"] for name in late)
    found = {lamp["metadata"]["name"]: lamp["spec"]["colour"] for lamp in await lamps.lamps.list()}
    assert found == dict.fromkeys(NAMES, "red") | dict.fromkeys(late, "green")
    await lamps.stop()
