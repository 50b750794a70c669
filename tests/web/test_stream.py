"""What a page hears."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.web.conftest import LAMPS, House

from homeostat.model.clock import format_micro_time

ROWS = {"topic": "rows", "kind": LAMPS}


async def lamp(house: House, name: str, colour: str = "red", namespace: str = "default") -> None:
    obj = {"metadata": {"name": name, "namespace": namespace}, "spec": {"colour": colour}}
    await house.client.kind("lamps.test.dev/v1", "Lamp").apply(obj, field_manager="test", force=True)


def of(name: str, standing: str) -> Any:
    return lambda said: any(row["name"] == name and row["standing"] == standing for row in said.get("rows", ()))


async def test_rows_come_whole_and_then_as_they_change(house: House) -> None:
    await lamp(house, "hall")
    page = await house.admin()
    async with page.stream(rows=ROWS) as lines:
        whole = await lines.next("rows")
        assert [row["name"] for row in whole["whole"]] == ["hall"]
        await lamp(house, "porch")
        await lines.until("rows", of("porch", "converged"))
        await house.lamps.delete("hall")
        await lines.until("rows", lambda said: ["default", "hall"] in said.get("gone", ()))


async def test_a_change_is_heard_within_a_quarter_of_a_second(house: House) -> None:
    page = await house.admin()
    async with page.stream(rows=ROWS) as lines:
        await lines.next("rows")
        took = []
        for number in range(5):
            started = time.perf_counter()
            await lamp(house, f"lamp{number}")
            await lines.until("rows", lambda said, name=f"lamp{number}": name in str(said))
            took.append(time.perf_counter() - started)
    assert min(took) < 0.25


async def test_the_fleet_says_how_many_stand_how(house: House) -> None:
    for name in ("hall", "porch"):
        await lamp(house, name)
    page = await house.admin()
    async with page.stream(fleet={"topic": "fleet"}) as lines:
        said = await lines.until("fleet", lambda said: any(kind["counts"]["converged"] == 2 for kind in said["kinds"]))
        assert [kind["kind"] for kind in said["kinds"]] == ["Lamp"]
        policies = {policy["name"]: policy for policy in said["policies"]}
        assert policies[LAMPS]["builtIn"]


async def test_the_fleet_says_of_which_kinds_no_loop_is_left(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homeostat.web.board.LOOPS_SECONDS", 0.05)
    leases = house.client.kind("coordination.k8s.io/v1", "Lease", namespace="kube-system")
    spec = {"holderIdentity": "somebody", "renewTime": format_micro_time(time.time())}
    await leases.create({"metadata": {"name": f"homeostat-{LAMPS}"}, "spec": spec})
    await lamp(house, "hall")
    page = await house.admin()
    async with page.stream(fleet={"topic": "fleet"}) as lines:
        said = await lines.until("fleet", lambda said: said["kinds"] and said["kinds"][0]["counts"]["converged"])
        assert "unkeptSince" not in said["kinds"][0]
        await leases.patch(f"homeostat-{LAMPS}", {"spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}})
        await lines.until("fleet", lambda said: said["kinds"][0].get("unkeptSince") == "2026-01-02T03:04:05Z")
    async with page.stream(fleet={"topic": "fleet"}) as lines:
        assert (await lines.next("fleet"))["kinds"][0]["unkeptSince"]


async def test_who_may_see_nothing_hears_of_nothing(house: House) -> None:
    await lamp(house, "hall")
    ada = await house.person("ada")
    async with ada.stream(fleet={"topic": "fleet"}, rows=ROWS, one={"topic": "object", "apiVersion": "lamps.test.dev/v1", "kind": "Lamp", "namespace": "default", "name": "hall"}) as lines:
        fleet = await lines.next("fleet")
        assert (fleet["kinds"], fleet["policies"], fleet["series"]) == ([], [], {})
    async with ada.stream(rows=ROWS) as lines:
        assert (await lines.next("rows"))["whole"] == []
    async with ada.stream(one={"topic": "object", "apiVersion": "lamps.test.dev/v1", "kind": "Lamp", "namespace": "default", "name": "hall"}) as lines:
        assert (await lines.next("one"))["code"] == 403


async def test_who_may_see_one_namespace_hears_of_that_one(house: House) -> None:
    await house.client.kind("v1", "Namespace").create({"metadata": {"name": "attic"}})
    await lamp(house, "hall")
    await lamp(house, "chest", namespace="attic")
    rbac = "rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": ["lamps.test.dev"], "resources": ["lamps"], "verbs": ["get", "list", "watch"]}
    await house.client.kind(rbac, "Role", namespace="attic").create({"metadata": {"name": "see"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "see"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "see"},
        "subjects": [{"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await house.client.kind(rbac, "RoleBinding", namespace="attic").create(binding)
    ada = await house.person("ada")
    async with ada.stream(rows=ROWS, fleet={"topic": "fleet"}) as lines:
        assert [row["name"] for row in (await lines.next("rows"))["whole"]] == ["chest"]
    async with ada.stream(fleet={"topic": "fleet"}) as lines:
        said = await lines.until("fleet", lambda said: said["kinds"] and said["kinds"][0]["counts"]["converged"])
        assert said["kinds"][0]["counts"]["converged"] == 1


async def test_one_object_is_followed_until_it_is_gone(house: House) -> None:
    await lamp(house, "hall")
    page = await house.admin()
    asked = {"topic": "object", "apiVersion": "lamps.test.dev/v1", "kind": "Lamp", "namespace": "default", "name": "hall"}
    async with page.stream(one=asked) as lines:
        await lines.until("one", lambda said: said["object"]["spec"]["colour"] == "red")
        await lamp(house, "hall", "blue")
        await lines.until("one", lambda said: said["object"]["spec"]["colour"] == "blue")
        await house.lamps.delete("hall")
        await lines.until("one", lambda said: said["object"] is None)


async def test_an_object_that_is_not_there_is_said_not_to_be(house: House) -> None:
    page = await house.admin()
    asked = {"topic": "object", "apiVersion": "lamps.test.dev/v1", "kind": "Lamp", "namespace": "default", "name": "none"}
    async with page.stream(one=asked) as lines:
        assert (await lines.next("one"))["object"] is None


@pytest.mark.parametrize(
    "body",
    [{}, {"topics": {}}, {"topics": {"x": {"topic": "weather"}}}, {"topics": {str(n): {"topic": "fleet"} for n in range(17)}}, {"topics": []}],
)
async def test_what_cannot_be_understood_is_refused_in_words(house: House, body: Any) -> None:
    page = await house.admin()
    code, said, _ = await page.ask("POST", "/ui/stream", body)
    assert code == 400
    assert said["message"]


async def test_a_topic_that_fails_leaves_the_others_alone(house: House) -> None:
    page = await house.admin()
    async with page.stream(bad={"topic": "rows", "kind": "dragons"}, rows=ROWS) as lines:
        assert "dragons" in (await lines.next("bad"))["error"]
    async with page.stream(bad={"topic": "rows", "kind": "dragons"}, rows=ROWS) as lines:
        assert (await lines.next("rows"))["whole"] == []


async def test_rows_are_kept_only_while_somebody_looks(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homeostat.web.board.LINGER_SECONDS", 0.0)
    page = await house.admin()
    board = house.dashboard._board
    async with page.stream(rows=ROWS) as lines:
        await lines.next("rows")
        assert LAMPS in board.rows
    import asyncio

    async with asyncio.timeout(10):
        while board.rows:
            await asyncio.sleep(0.01)


async def test_rows_are_asked_for_as_soon_as_somebody_signs_in(house: House) -> None:
    board = house.dashboard._board
    await board.learn()
    assert not board.rows
    await house.admin()
    assert LAMPS in board.rows
