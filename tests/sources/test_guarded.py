"""One commit is one change set: judged as a whole, in waves, with claims, holds and returns."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.loop.waiting import said
from tests.sources.conftest import Bench
from tests.sources.repo import config_map

Object = dict[str, Any]


async def halts(bench: Bench, reason: str = "", policy: str = "configmaps") -> list[Object]:
    """Waits until the policy says that it is halted, for a reason that begins so: a halt may come before all of a commit was looked at,
    and to approve its plan then is not to approve what it grows to."""
    policies = bench.client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
    async with asyncio.timeout(20):
        while True:
            found = (await policies.get(policy)).get("status") or {}
            told: list[Object] = found.get("halts") or []
            if told and all(one["reason"].startswith(reason) for one in told):
                return told
            await asyncio.sleep(0.02)


async def approve(bench: Bench, plan: str) -> None:
    await bench.client.kind("homeostat.dev/v1alpha1", "Approval").create(
        {"metadata": {"generateName": "yes-"}, "spec": {"plan": plan}}
    )


async def test_a_mass_deleting_commit_halts_is_approved_once_and_applied(bench: Bench) -> None:
    files: dict[str, str | None] = {f"{i}.yaml": config_map(f"c{i}") for i in range(12)}
    bench.repo.commit(files)
    await bench.begin()
    await bench.whole_pass()
    commit = await bench.push({f"{i}.yaml": None for i in range(8)}, "by mistake")
    (halt,) = await halts(bench, "8 of 12 ")
    assert halt["guard"] == "mass-drift"
    sync = await bench.syncs.get("shop")
    assert sync["status"]["plan"]["delete"] == 8
    assert len(await bench.values()) == 12
    await approve(bench, halt["plan"])
    sync = await bench.at(commit)
    assert sorted(await bench.values()) == sorted(f"c{i}" for i in range(8, 12))
    assert sync["status"]["history"][0]["changeSet"] == f"default/repo@{commit[:12]}"


async def test_two_syncs_that_claim_the_same_object_the_second_is_refused_and_both_are_named(bench: Bench) -> None:
    bench.repo.commit(
        {"one/a.yaml": config_map("a"), "two/a.yaml": config_map("a", "2"), "two/b.yaml": config_map("b")}
    )
    await bench.declare_source()
    await bench.declare("one", path="one")
    await bench.says("Applied", "one")
    await bench.declare("two", path="two")
    sync = await bench.says("Refused", "two")
    for words in ("two/a.yaml:1", "Sync default/one", "Sync default/two", "ConfigMap/a"):
        assert words in said(sync)["message"]
    assert await bench.values() == {"a": "1"}
    await bench.stop()  # who has it keeps it, whoever comes first after a restart
    await bench.start()
    await bench.says("Refused", "two")
    await bench.says("Applied", "one")
    assert await bench.values() == {"a": "1"}


async def test_of_two_syncs_that_come_at_once_one_has_the_object_and_the_other_is_refused(bench: Bench) -> None:
    bench.repo.commit({"one/a.yaml": config_map("a"), "two/a.yaml": config_map("a", "2")})
    await bench.declare_source()
    await bench.stop()
    for name in ("one", "two"):
        await bench.declare(name, path=name)
    await bench.start()
    await bench.whole_pass()

    async def told() -> bool:
        return sorted(said(one).get("reason", "") for one in await bench.syncs.list()) == ["Applied", "Refused"]

    await bench.eventually(told)
    await bench.whole_pass()
    winner = next(one for one in await bench.syncs.list() if said(one)["reason"] == "Applied")
    assert await bench.values() == {"a": {"one": "1", "two": "2"}[winner["metadata"]["name"]]}


async def test_waves_come_one_after_the_other_each_when_the_one_before_is_healthy(bench: Bench) -> None:
    crd = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: doors.test.dev}
spec:
  group: test.dev
  scope: Namespaced
  names: {kind: Door, plural: doors}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {width: {type: integer}}}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"""
    door = "apiVersion: test.dev/v1\nkind: Door\nmetadata: {name: front, namespace: house, annotations: {homeostat.dev/wave: '1'}}\nspec: {width: 2}\n"
    commit = bench.repo.commit(
        {
            "crd.yaml": crd,
            "door.yaml": door,
            "house.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: house}\n",
            "late.yaml": config_map("late", wave="2"),
        }
    )
    await bench.declare_source()
    await bench.declare()
    doors = bench.client.kind("test.dev/v1", "Door", namespace="house")

    closed = {"type": "Ready", "status": "False", "reason": "Closed", "message": "it is locked"}
    await bench.at(commit)
    await doors.patch("front", {"status": {"conditions": [closed]}}, subresource="status")
    await bench.push(
        {"door.yaml": door.replace("width: 2", "width: 3"), "late.yaml": config_map("late", "2", wave="2")}
    )
    await bench.until(lambda obj: "it is locked" in said(obj).get("message", ""))
    assert await bench.values() == {"late": "1"}
    await doors.patch("front", {"status": {"conditions": [{**closed, "status": "True"}]}}, subresource="status")

    async def opened() -> bool:
        return await bench.values() == {"late": "2"}

    await bench.eventually(opened, "the last wave")


async def test_a_bad_object_of_a_kind_that_comes_with_the_commit_stops_its_stage(bench: Bench) -> None:
    bench.repo.commit(
        {
            "house.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: house}\n",
            "bad.yaml": config_map("bad", namespace="house").replace("data:", "datum:"),
        }
    )
    await bench.declare_source()
    await bench.declare()
    sync = await bench.says("Refused")
    assert sync["status"]["refused"]["file"] == "bad.yaml"


async def test_a_sync_waits_for_those_it_depends_on_at_the_same_commit(bench: Bench) -> None:
    bench.repo.commit({"base/a.yaml": config_map("a"), "app/b.yaml": config_map("b")})
    await bench.declare_source()
    await bench.declare("app", path="app", dependsOn=[{"name": "base"}])
    sync = await bench.says("DependsOn", "app")
    assert "Sync base, which is not there" in said(sync)["message"]
    assert await bench.values() == {}
    await bench.declare("base", path="base")
    await bench.says("Applied", "app")
    await bench.declare("base", path="base", suspend={"reason": "not now"})
    await bench.says("Suspended", "base")
    commit = await bench.push({"base/a.yaml": config_map("a", "2"), "app/b.yaml": config_map("b", "2")})
    await bench.at(commit, "app")  # who is suspended is not waited for
    assert await bench.values() == {"a": "1", "b": "2"}


async def test_a_hold_keeps_an_earlier_commit_until_there_is_a_newer_one(bench: Bench) -> None:
    first = bench.repo.commit({"a.yaml": config_map("a")}, "first")
    await bench.begin()
    second = await bench.push({"a.yaml": config_map("a", "2")}, "second")
    await bench.at(second)
    await bench.declare(hold={"commit": first, "notPast": second, "reason": "it was slow"})
    sync = await bench.at(first)
    assert "held at" in said(sync)["message"]
    assert sync["status"]["history"][0]["changeSet"].startswith("return-of/default/shop@")
    bench.poke()
    await bench.whole_pass()
    assert await bench.values() == {"a": "1"}
    third = await bench.push({"a.yaml": config_map("a", "3")}, "third")
    await bench.at(third)


async def test_what_a_newer_commit_takes_out_before_it_was_made_is_never_made(bench: Bench) -> None:
    policies = bench.client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
    bench.repo.commit({"a.yaml": config_map("a")})
    await bench.begin()
    frozen = {"fleet": {"kinds": ["configmaps"]}, "mode": "Enforce", "freezes": [{"reason": "wait", "author": "ada"}]}
    await policies.create({"metadata": {"name": "maps"}, "spec": frozen})
    await bench.push({f"wrong-{i}.yaml": config_map(f"wrong-{i}") for i in range(4)}, "by mistake")
    await bench.until(lambda obj: ((obj["status"].get("open") or {}).get("total")) == 4)
    right: dict[str, str | None] = {f"wrong-{i}.yaml": None for i in range(4)}
    commit = await bench.push({**right, "right.yaml": config_map("right")}, "as it was meant")
    await bench.until(lambda obj: [one["name"] for one in (obj["status"].get("open") or {}).get("objects", ())] == ["right"])
    await policies.patch("maps", {"spec": {"freezes": []}})
    await bench.at(commit)
    assert sorted(await bench.values()) == ["a", "right"]


async def sane_policy(bench: Bench) -> None:
    """What has the value `bad` is not healthy."""
    policy = {
        "metadata": {"name": "maps"},
        "spec": {
            "fleet": {"kinds": ["configmaps"]},
            "mode": "Enforce",
            "canary": {"verifyWithin": "1s"},
            "health": [{"name": "sane", "expression": "state.manifest.data.value != 'bad'", "message": "it is bad"}],
        },
    }
    await bench.client.kind("homeostat.dev/v1alpha1", "GuardPolicy").create(policy)


async def test_the_old_goes_when_the_new_is_healthy(bench: Bench) -> None:
    await sane_policy(bench)
    secrets = bench.client.kind("v1", "Secret", namespace="default")
    bench.repo.commit({"old.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: old}\n"})
    await bench.begin()
    await bench.push({"old.yaml": None, "new.yaml": config_map("new", "bad")})
    await bench.until(lambda obj: "it is bad" in said(obj).get("message", ""))
    await bench.whole_pass()
    assert await secrets.get("old")
    await bench.at(await bench.push({"new.yaml": config_map("new", "good")}))
    assert not await secrets.list(labels="homeostat.dev/sync")


async def test_the_next_wave_is_not_even_made_before_the_one_before_is_healthy(bench: Bench) -> None:
    await sane_policy(bench)
    bench.repo.commit({"first.yaml": config_map("first", "bad"), "second.yaml": config_map("second", wave="1")})
    await bench.declare_source()
    await bench.declare()
    sync = await bench.until(lambda obj: "it is bad" in said(obj).get("message", ""))
    await bench.whole_pass()
    assert sync["status"]["objects"]["waiting"] == 1
    assert await bench.values() == {"first": "bad"}
    await bench.at(await bench.push({"first.yaml": config_map("first", "good")}))
    assert await bench.values() == {"first": "good", "second": "1"}


async def test_a_commit_that_fails_its_health_is_taken_back_and_held_there(bench: Bench) -> None:
    await sane_policy(bench)
    good = bench.repo.commit({"a.yaml": config_map("a"), "b.yaml": config_map("b")}, "good")
    await bench.begin(returnOnFailure=True)
    bad = await bench.push({"a.yaml": config_map("a", "bad"), "b.yaml": config_map("b", "bad")}, "bad")
    sync = await bench.until(lambda obj: "hold" in obj["spec"])
    assert (sync["spec"]["hold"]["commit"], sync["spec"]["hold"]["notPast"]) == (good, bad)
    await bench.at(good)
    assert await bench.values() == {"a": "1", "b": "1"}
