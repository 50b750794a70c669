"""What a change set did, the way back, who did what, and what other limits would have done."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.web.conftest import LAMPS, House, Page

from homeostat.insight.trips import limit_of, trips
from homeostat.model.protocol import CHANGE_SET
from homeostat.web.waves import Waves

WAVE = {"changeSet": "c", "number": 1, "members": 2, "verified": 1, "failed": 0, "started": "2026-01-31T12:00:00Z", "fleet": "f"}
LAMP = {"apiVersion": "lamps.test.dev/v1", "kind": "Lamp", "namespace": "default"}


async def lamps(house: House, change_set: str, colour: str, *names: str) -> None:
    for name in names:
        obj = {"metadata": {"name": name, "namespace": "default", "annotations": {CHANGE_SET: change_set}}, "spec": {"colour": colour}}
        await house.lamps.apply(obj, field_manager="test", force=True)


async def role(house: House, user: str, *rules: dict[str, Any]) -> Page:
    rbac = "rbac.authorization.k8s.io/v1"
    await house.client.kind(rbac, "ClusterRole").create({"metadata": {"name": user}, "rules": list(rules)})
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await house.client.kind(rbac, "ClusterRoleBinding").create(binding)
    return await house.person(user)


def rule(*verbs: str, group: str = "lamps.test.dev", resources: tuple[str, ...] = ("lamps",)) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


async def revisions(page: Page, name: str) -> list[dict[str, Any]]:
    code, said, _ = await page.ask("GET", f"/apis/lamps.test.dev/v1/namespaces/default/lamps/{name}?history=10&declared=true")
    assert code == 200, said
    return list(said["items"])


# Change sets


async def test_a_change_set_tells_what_it_changed_and_how_that_stands(house: House) -> None:
    await lamps(house, "first", "red", "hall", "porch")
    page = await house.admin()
    async with page.stream(one={"topic": "changeset", "name": "second"}, all={"topic": "changesets"}) as lines:
        assert (await lines.next("one"))["total"] == 0
        await lamps(house, "second", "blue", "hall")
    async with page.stream(one={"topic": "changeset", "name": "second"}) as lines:
        said = await lines.until("one", lambda said: said["counts"].get("converged") == 1)
        (item,) = said["items"]
        assert (item["op"], item["name"], item["changedSince"]) == ("update", "hall", False)
        assert '"red" → "blue"' in item["changes"][0]
        assert item["resource"] == LAMPS
    async with page.stream(all={"topic": "changesets"}) as lines:
        said = await lines.until("all", lambda said: {one["name"] for one in said["sets"]} >= {"first", "second"})
        assert {one["name"]: dict(one["kinds"]) for one in said["sets"]} == {"first": {"Lamp": 1}, "second": {"Lamp": 1}}


async def test_a_change_set_that_others_wrote_over_is_still_known(house: House) -> None:
    await lamps(house, "first", "red", "hall")
    await lamps(house, "second", "blue", "hall")
    page = await house.admin()
    async with page.stream(all={"topic": "changesets"}, one={"topic": "changeset", "name": "first"}) as lines:
        said = await lines.next("one")
        assert said["items"][0]["changedSince"]
    async with page.stream(all={"topic": "changesets"}) as lines:
        said = await lines.next("all")
        assert [(one["name"], one["objects"]) for one in said["sets"] if not one["kinds"]] == [("first", 1)]


async def test_a_halted_change_set_says_why_and_what_a_yes_would_do(house: House) -> None:
    names = [f"lamp{number}" for number in range(12)]
    await lamps(house, "first", "red", *names)
    page = await house.admin()
    async with page.stream(one={"topic": "changeset", "name": "first"}) as lines:
        await lines.until("one", lambda said: said["counts"].get("converged") == 12)
    await lamps(house, "bad", "black", *names)
    async with page.stream(one={"topic": "changeset", "name": "bad"}) as lines:
        # The loop may act on the first before it sees the others.
        said = await lines.until("one", lambda said: any(halt["actions"] and fleet["open"] >= 9 for fleet in said["fleets"] for halt in fleet["halts"]))
    (fleet,) = said["fleets"]
    assert fleet["size"] == 12
    assert fleet["counts"]["update"] == fleet["open"]
    (halt,) = fleet["halts"]
    assert halt["guard"] == "mass-drift"
    assert len(halt["actions"]) == fleet["open"]


async def test_who_may_not_read_the_past_sees_the_present_and_is_told_why(house: House) -> None:
    await lamps(house, "first", "red", "hall")
    ada = await role(house, "ada", rule("get", "list", "watch"))
    async with ada.stream(one={"topic": "changeset", "name": "first"}) as lines:
        said = await lines.next("one")
        assert [item["name"] for item in said["items"]] == ["hall"]
        assert "/homeostat/changesets/first" in said["problem"]
        assert said["items"][0]["changes"] == []
    eve = await house.person("eve")
    async with eve.stream(one={"topic": "changeset", "name": "first"}) as lines:
        assert (await lines.next("one"))["items"] == []
    async with eve.stream(all={"topic": "changesets"}) as lines:
        assert (await lines.next("all"))["sets"] == []


def test_waves_are_remembered_when_the_policy_tells_of_them_no_more() -> None:
    waves = Waves()
    waves.note({"metadata": {"name": "p"}, "status": {"waves": [WAVE]}})
    assert [(one["number"], one["over"]) for one in waves.of("c")] == [(1, False)]
    waves.note({"metadata": {"name": "other"}, "status": {}})
    assert not waves.of("c")[0]["over"]
    waves.note({"metadata": {"name": "p"}, "status": {"waves": [{**WAVE, "number": 2}]}})
    assert [(one["number"], one["over"]) for one in waves.of("c")] == [(1, True), (2, False)]


async def test_waves_are_told_to_those_who_may_see_policies(house: House) -> None:
    await lamps(house, "first", "red", "hall")
    house.dashboard._board.waves.note({"metadata": {"name": "p"}, "status": {"waves": [{**WAVE, "changeSet": "first"}]}})
    async with (await house.admin()).stream(one={"topic": "changeset", "name": "first"}) as lines:
        assert [(wave["number"], wave["verified"]) for wave in (await lines.next("one"))["waves"]] == [(1, 1)]
    ada = await role(house, "ada", rule("get", "list", "watch"))
    async with ada.stream(one={"topic": "changeset", "name": "first"}) as lines:
        assert (await lines.next("one"))["waves"] == []


# The way back


async def test_the_way_back_is_shown_first_and_written_as_who_asked(house: House) -> None:
    await lamps(house, "first", "red", "hall")
    await lamps(house, "second", "blue", "hall")
    page = await house.admin()
    before = (await revisions(page, "hall"))[1]["revision"]
    asked = {**LAMP, "name": "hall", "revision": before}
    code, plan, _ = await page.ask("POST", "/ui/rollback", asked)
    assert code == 200, plan
    assert (plan["change"], plan["actions"][0]["name"]) == (1, "hall")
    assert '"blue" → "red"' in plan["actions"][0]["changes"][0]
    assert (await house.lamps.get("hall"))["spec"]["colour"] == "blue"  # so far it was only shown
    code, done, _ = await page.ask("POST", "/ui/rollback", {**asked, "shown": plan["shown"]})
    assert (code, done["failed"]) == (200, []), done
    hall = await house.lamps.get("hall")
    assert hall["spec"]["colour"] == "red"
    assert hall["metadata"]["annotations"][CHANGE_SET] == done["changeSet"]
    _, records, _ = await page.ask("GET", "/homeostat/audit?people=true&limit=5")
    written = next(one for one in records["items"] if one.get("changeSet") == done["changeSet"] and not one.get("dryRun"))
    assert written["user"]["name"] == "admin"


async def test_nothing_is_written_where_something_moved_since_the_plan_was_shown(house: House) -> None:
    await lamps(house, "first", "red", "hall")
    await lamps(house, "second", "blue", "hall")
    page = await house.admin()
    asked = {**LAMP, "name": "hall", "revision": (await revisions(page, "hall"))[1]["revision"]}
    _, plan, _ = await page.ask("POST", "/ui/rollback", asked)
    await lamps(house, "third", "green", "hall")
    code, said, _ = await page.ask("POST", "/ui/rollback", {**asked, "shown": plan["shown"]})
    assert (code, "moved" in said["message"]) == (409, True)
    assert (await house.lamps.get("hall"))["spec"]["colour"] == "green"


async def test_a_whole_change_set_goes_back(house: House) -> None:
    await lamps(house, "first", "red", "hall")
    await lamps(house, "second", "blue", "hall", "porch")
    page = await house.admin()
    _, plan, _ = await page.ask("POST", "/ui/rollback", {"changeSet": "second"})
    assert (plan["change"], plan["destroy"]) == (1, 1)
    code, done, _ = await page.ask("POST", "/ui/rollback", {"changeSet": "second", "shown": plan["shown"]})
    assert (code, done["failed"]) == (200, []), done
    assert (await house.lamps.get("hall"))["spec"]["colour"] == "red"


async def test_who_may_not_write_cannot_go_back_and_nobody_without_a_token_can(house: House) -> None:
    await lamps(house, "first", "red", "hall")
    await lamps(house, "second", "blue", "hall")
    ada = await role(house, "ada", rule("get", "list", "watch"))
    asked = {**LAMP, "name": "hall", "revision": (await revisions(ada, "hall"))[1]["revision"]}
    code, said, _ = await ada.ask("POST", "/ui/rollback", {**asked, "shown": "whatever"})
    assert code in (403, 409), said
    assert "ada" in said["message"]
    assert (await house.page().ask("POST", "/ui/rollback", asked))[0] == 401
    assert (await house.lamps.get("hall"))["spec"]["colour"] == "blue"


async def test_two_revisions_are_compared(house: House) -> None:
    await lamps(house, "first", "red", "hall")
    await lamps(house, "second", "blue", "hall")
    page = await house.admin()
    new, old = [one["revision"] for one in await revisions(page, "hall")][:2]
    _, said, _ = await page.ask("POST", "/ui/compare", {**LAMP, "name": "hall", "since": old, "revision": new})
    assert said["lines"] == ['~ spec.colour: "red" → "blue"']


@pytest.mark.parametrize("body", [{}, {"kind": "Lamp"}, {"revision": "one"}, {"changeSet": 3}, {"nonsense": 1}])
async def test_what_cannot_be_understood_is_refused_with_words(house: House, body: dict[str, Any]) -> None:
    code, said, _ = await (await house.admin()).ask("POST", "/ui/rollback", body)
    assert code == 400
    assert said["message"]


# Who did what


def machine(record: dict[str, Any]) -> bool:
    return str(record["user"]["name"]).startswith("system:")


async def test_the_audit_log_is_read_and_followed_by_those_who_may(house: House) -> None:
    page = await house.admin()
    path = "/api/v1/namespaces/default/configmaps"
    code, said, _ = await page.ask("POST", path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}, **{"Content-Type": "application/json"})
    assert code == 201, said
    async with page.stream(audit={"topic": "audit"}) as lines:
        whole = await lines.next("audit")
        assert whole["whole"]
        assert whole["records"][0]["object"]["name"] == "one"
        assert not any(machine(record) for record in whole["records"])
        await page.ask("DELETE", f"{path}/one")
        said = await lines.until("audit", lambda said: any(one["verb"] == "delete" for one in said["records"]))
        assert said["records"][-1]["object"]["name"] == "one"
    async with asyncio.timeout(20):
        while house.server.plane.audit.listeners:  # who went away is forgotten
            await asyncio.sleep(0.01)
    async with page.stream(audit={"topic": "audit", "machines": "true"}) as lines:
        assert any(machine(record) for record in (await lines.next("audit"))["records"])


async def test_others_are_not_let_into_the_audit_log_until_a_role_says_so(house: House) -> None:
    ada = await house.person("ada")
    async with ada.stream(audit={"topic": "audit"}) as lines:
        assert (await lines.next("audit"))["code"] == 403
    assert (await ada.ask("GET", "/homeostat/audit"))[0] == 403
    bob = await role(house, "bob", {"nonResourceURLs": ["/homeostat/audit"], "verbs": ["get"]})
    async with bob.stream(audit={"topic": "audit"}) as lines:
        assert (await lines.next("audit"))["records"]
    assert (await bob.ask("GET", "/homeostat/audit"))[0] == 200


async def test_the_audit_log_is_read_backwards_over_files_and_broken_lines(house: House, tmp_path: Path) -> None:
    from homeostat.api.audit import AuditLog
    from homeostat.api.auditread import last

    log = AuditLog(tmp_path / "log")
    (tmp_path / "log.1").write_bytes(b'{"id": "1"}\n{"id": "2"}\n{"id": "3", "ha')
    (tmp_path / "log").write_bytes(b'{"id": "4", "long": "' + b"x" * 600_000 + b'"}\n{"id": "5"}\n')
    try:
        assert [one["id"] for one in await last(log, 10, lambda said: True)] == ["5", "4", "2", "1"]
        assert [one["id"] for one in await last(log, 2, lambda said: said["id"] != "4")] == ["5", "2"]
    finally:
        log.close()


# Other limits


def series(*drifted: float, size: float = 100, every: float = 15) -> dict[str, list[float]]:
    return {"at": [every * n for n in range(len(drifted))], "size": [size] * len(drifted), "drifted": list(drifted)}


def test_a_limit_trips_on_more_than_it_and_once_for_each_time_above() -> None:
    found = trips(series(0, 30, 31, 40, 0, 31, 0), "drifted", "30%")
    assert (found["times"], found["seconds"], found["most"], found["limit"]) == (2, 45, 40, 30)
    assert trips(series(0, 30, 30), "drifted", "30%")["times"] == 0
    assert trips(series(5, 5, size=8), "drifted", 3, fleet_of=10)["times"] == 0  # too small a fleet to look at
    assert trips(series(5, 5, every=600), "drifted", 3)["seconds"] == 0  # nobody knows what was between


@pytest.mark.parametrize("text", ["", "ten", "-1", "101%", "1.5", "5 %x", "9" * 10])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no limit"):
        limit_of(text)


async def test_the_page_asks_what_another_limit_would_have_done(house: House) -> None:
    await lamps(house, "first", "red", "hall")
    page = await house.admin()
    async with page.stream(trips={"topic": "trips", "policy": LAMPS, "massDrift": "3", "cap": "10%"}) as lines:
        said = await lines.next("trips")
        assert said["samples"] == 0 or set(said["trips"]) == {"massDrift", "cap"}
    async with page.stream(trips={"topic": "trips", "policy": LAMPS, "cap": "many"}) as lines:
        assert "no limit" in (await lines.next("trips"))["error"]
    ada = await house.person("ada")
    async with ada.stream(trips={"topic": "trips", "policy": LAMPS}) as lines:
        assert (await lines.next("trips"))["code"] == 403
