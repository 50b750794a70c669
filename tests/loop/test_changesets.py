"""Which change set a write belongs to, and how long a change set is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from homeostat.loop.changesets import (
    GATHERING_MOST,
    LONGEST,
    WINDOW,
    ChangeSets,
    Write,
    inherited,
    last_write,
)
from homeostat.loop.diff import Change, Who
from homeostat.loop.fleet import Cause
from homeostat.model.clock import format_time
from homeostat.model.protocol import CHANGE_SET, DELETION_CHANGE_SET

from .test_engine import FLEET, Bench, running

NOW = 1_800_000_000.0
NAMED: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{CHANGE_SET}": {}}}}


def entry(manager: str, second: int, *parts: dict[str, Any], subresource: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for part in parts:
        fields |= part
    more = {"subresource": subresource} if subresource else {}
    return {"manager": manager, "time": format_time(NOW + second), "fieldsV1": fields, **more}


def spec(*names: str) -> dict[str, Any]:
    return {"f:spec": {f"f:{name}": {} for name in names}}


def metadata(*entries: dict[str, Any], name: str = "") -> dict[str, Any]:
    return {"managedFields": list(entries), "annotations": {CHANGE_SET: name} if name else {}}


# Who wrote


def test_who_wrote_the_spec_last_is_found_and_status_writers_are_nobody() -> None:
    found = last_write(
        metadata(
            entry("ana", 1, spec("colour")),
            entry("bob", 5, spec("watts")),
            entry("loop", 9, spec("x"), subresource="status"),
        )
    )
    assert found == Write("bob", NOW + 5)


def test_who_meant_the_difference_counts_more_than_who_wrote_last() -> None:
    change = Change(("colour",), "red", "blue", Cause.INTENT, Who("ana", "Update", format_time(NOW + 1)))
    drifted = Change(("watts",), 1, 2, Cause.DRIFT, Who("intruder", "Update", format_time(NOW + 99)))
    written = metadata(entry("ana", 1, spec("colour")), entry("scaler", 5, spec("replicas")))
    assert last_write(written, [change, drifted]) == Write("ana", NOW + 1)


def test_a_name_counts_as_long_as_who_put_it_there_wrote_last() -> None:
    by_ci = entry("ci", 1, spec("colour"), NAMED)
    assert last_write(metadata(by_ci, name="push-7")).name == "push-7"
    assert last_write(metadata(by_ci, entry("kubectl-edit", 8, spec("colour")), name="push-7")) == Write(
        "kubectl-edit", NOW + 8
    )


def test_a_name_that_somebody_else_puts_on_afterwards_counts() -> None:
    assert last_write(metadata(entry("ana", 1, spec("colour")), entry("ci", 2, NAMED), name="push-7")).name == "push-7"


def test_a_name_on_an_object_without_managed_fields_counts() -> None:
    assert last_write({"annotations": {CHANGE_SET: "push-7"}}) == Write(name="push-7")
    assert last_write({}) == Write()


def test_a_deletion_is_not_part_of_the_change_set_that_declared_the_thing() -> None:
    gone = {**metadata(entry("ci", 1, spec("colour"), NAMED), name="push-7"), "deletionTimestamp": format_time(NOW + 3)}
    assert last_write(gone) == Write("deleted", NOW + 3)
    gone["annotations"][DELETION_CHANGE_SET] = "push-8"
    assert last_write(gone).name == "push-8"


def test_a_child_belongs_to_the_last_change_of_its_parent() -> None:
    edited = metadata(entry("ana", 1, spec("size")))
    assert last_write(inherited(edited, leaves=False)) == Write("ana", NOW + 1)
    leaving = {**inherited(edited, leaves=True), "deletionTimestamp": format_time(NOW + 9)}
    assert last_write(leaving) == Write("ana", NOW + 1)
    named = metadata(entry("ci", 1, spec("size"), NAMED), name="push-7")
    assert last_write(inherited(named, leaves=False)).name == "push-7"
    leaving = {**inherited(named, leaves=True), "deletionTimestamp": format_time(NOW)}
    assert last_write(leaving).name == "push-7"


# What is together


def test_writes_of_one_writer_with_short_pauses_are_one_change_set_and_others_are_not() -> None:
    sets = ChangeSets()
    first = sets.place("a", Write("kubectl-edit", NOW), NOW)
    assert first == f"kubectl-edit@{format_time(NOW)}"
    assert sets.place("b", Write("kubectl-edit", NOW + WINDOW), NOW) == first
    assert sets.place("c", Write("kubectl-edit", NOW + 2 * WINDOW), NOW) == first
    assert sets.place("d", Write("kubectl-edit", NOW - WINDOW), NOW) == first  # seen late
    assert sets.place("e", Write("bob", NOW), NOW) != first
    assert sets.place("f", Write("kubectl-edit", NOW + 3 * WINDOW + 1), NOW) != first


def test_a_change_set_that_nobody_named_does_not_grow_for_ever() -> None:
    sets = ChangeSets()
    names = [sets.place(str(at), Write("scaler", NOW + at), NOW + at) for at in range(0, int(LONGEST) + 20, 2)]
    assert len(set(names)) == 2
    assert names[-1] == f"scaler@{format_time(NOW + LONGEST + 2)}"


def test_a_named_change_set_is_what_carries_the_name_whoever_writes_it_and_when() -> None:
    sets = ChangeSets()
    assert {sets.place(by, Write(by, NOW + 100 * len(by), "push-7"), NOW) for by in ("ci", "ana")} == {"push-7"}
    assert sets.place("x", Write("ci", NOW + 200), NOW) != "push-7"  # without the name it is another


def test_after_a_restart_a_change_set_keeps_its_name_for_those_who_join_it() -> None:
    sets = ChangeSets()
    assert sets.place("a", Write("ana", NOW + 1), NOW, known="ana@earlier") == "ana@earlier"
    assert sets.place("b", Write("ana", NOW + 2), NOW) == "ana@earlier"


def test_nothing_is_remembered_of_change_sets_long_gone() -> None:
    sets = ChangeSets()
    for number in range(2000):
        sets.place(number, Write("ana", NOW + 10 * number), NOW + 10 * number)
    assert len(sets._named) < 200
    assert len(sets._near) < 200


# What is still coming in


def test_a_lone_write_is_not_waited_for() -> None:
    sets = ChangeSets()
    sets.place("a", Write("ana", NOW), NOW)
    assert sets.gathering(NOW) == {}
    sets.place("a", Write("ana", NOW), NOW + 1)  # looked at again, and not written again
    assert sets.gathering(NOW + 1) == {}


def test_while_writes_keep_coming_the_change_set_is_waited_for_and_then_no_longer() -> None:
    sets = ChangeSets()
    name = ""
    for number in range(4):
        name = sets.place(number, Write("ana", NOW + number), NOW + number)
    assert sets.gathering(NOW + 3) == {name: NOW + 3 + WINDOW}
    assert sets.gathering(NOW + 3 + WINDOW) == {}


def test_what_is_added_long_after_is_not_waited_for() -> None:
    sets = ChangeSets()
    sets.place("a", Write("ci", NOW, "push-7"), NOW)
    sets.place("b", Write("ci", NOW + 10, "push-7"), NOW + 10)
    assert sets.gathering(NOW + 10) == {}


def test_a_quick_stream_is_waited_for_a_moment_only() -> None:
    sets = ChangeSets()
    for number in range(10):
        sets.place(number, Write("ana", NOW), NOW + number / 100)
    (until,) = sets.gathering(NOW + 0.09).values()
    assert until == pytest.approx(NOW + 0.09 + 0.04, abs=0.001)


def test_an_endless_stream_is_judged_as_far_as_it_has_come() -> None:
    sets = ChangeSets()
    for number in range(60):
        sets.place(number, Write("ana", NOW + number), NOW + number)
        waited = sets.gathering(NOW + number)
        assert all(until <= NOW + GATHERING_MOST for until in waited.values())
    assert waited == {}


# In the loop


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path) as bench:
        yield bench


async def opened(bench: Bench, count: int) -> None:
    async with asyncio.timeout(10):
        while FLEET not in bench.engine.fleets or len(bench.engine.fleets[FLEET].drifts) < count:
            await asyncio.sleep(0.005)


async def test_edits_by_one_hand_are_one_change_set(bench: Bench) -> None:
    names = await bench.full_house(3)
    bench.provider.broken["apply"] = "no bulb"
    for name in names:
        await bench.lamps.patch(name, {"spec": {"watts": 20}}, field_manager="ana")
    await opened(bench, 3)
    found = {drift.change_set for drift in bench.engine.fleets[FLEET].drifts.values()}
    assert len(found) == 1
    assert found.pop().startswith("ana@20")


async def test_a_name_on_the_declaration_is_that_of_the_change_set(bench: Bench) -> None:
    await bench.full_house(1)
    bench.provider.broken["apply"] = "no bulb"
    body = {"metadata": {"name": "lamp-0", "annotations": {CHANGE_SET: "push-7"}}, "spec": {"colour": "blue"}}
    await bench.lamps.apply(body, field_manager="ci", force=True)
    lamp = await bench.until("lamp-0", lambda lamp: "changeSet" in lamp["status"].get("drift", {}))
    assert lamp["status"]["drift"]["changeSet"] == "push-7"


async def test_a_restart_keeps_the_change_set_of_what_is_open(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        names = await bench.full_house(3)
        bench.provider.broken["apply"] = "no bulb"
        for name in names:
            await bench.lamps.patch(name, {"spec": {"watts": 20}}, field_manager="ana")
            await bench.until(name, lambda lamp: "changeSet" in lamp["status"].get("drift", {}))
        before = {(await bench.lamps.get(name))["status"]["drift"]["changeSet"] for name in names}
        assert len(before) == 1
        await bench.engine.stop()
        await bench.start_engine(mode=bench.gate.mode).start()
        await opened(bench, 3)
        assert {d.change_set for d in bench.engine.fleets[FLEET].drifts.values()} == before
