"""A Sync under the real engine, on a real API server in process, from a real repository."""

from __future__ import annotations

from tests.loop.waiting import said
from tests.sources.conftest import Bench
from tests.sources.repo import config_map


async def test_what_a_commit_declares_is_applied(bench: Bench) -> None:
    commit = bench.repo.commit({"apps/a.yaml": config_map("a"), "apps/b.yaml": config_map("b", "2")})
    sync = await bench.begin()
    assert await bench.values() == {"a": "1", "b": "2"}
    assert sync["status"]["commit"] == commit
    assert sync["status"]["plan"]["create"] == 2
    assert sync["status"]["inventory"]["objects"] == {"ConfigMap": ["default/a", "default/b"]}
    assert sync["status"]["history"][0]["author"] == "Ada <ada@example.com>"


async def test_a_removed_file_is_pruned_and_a_changed_one_changed(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a"), "b.yaml": config_map("b")})
    await bench.begin()
    commit = await bench.push({"a.yaml": config_map("a", "2"), "b.yaml": None})
    sync = await bench.at(commit)
    assert await bench.values() == {"a": "2"}
    assert sync["status"]["plan"]["changes"] == ["~ ConfigMap default/a", "- ConfigMap default/b"]


async def test_a_bad_commit_is_refused_with_file_line_and_field(bench: Bench) -> None:
    good = bench.repo.commit({"a.yaml": config_map("a"), "b.yaml": config_map("b")})
    await bench.begin()
    bad = config_map("b", "2") + "extra: 1\n"
    commit = await bench.push({"a.yaml": config_map("a", "2"), "b.yaml": bad})
    sync = await bench.says("Refused")
    refused = sync["status"]["refused"]
    assert (refused["commit"], refused["file"], refused["line"], refused["field"]) == (commit, "b.yaml", 7, "extra")
    assert sync["status"]["commit"] == good
    assert await bench.values() == {"a": "1", "b": "1"}
    assert "b.yaml:7" in said(sync)["message"]


async def test_drift_is_repaired(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a")})
    await bench.begin()
    await bench.maps.patch("a", {"data": {"value": "stones"}}, field_manager="kubectl-edit")

    async def repaired() -> bool:
        return await bench.values() == {"a": "1"}

    await bench.eventually(repaired)


async def test_what_is_repaired_is_told_on_the_object_itself(bench: Bench) -> None:
    from homeostat.loop.fleet import Ref
    from homeostat.loop.recorder import about_of

    bench.repo.commit({"a.yaml": config_map("a")})
    sync = await bench.begin()
    controller = bench.engine.controllers["children.syncs.homeostat.dev"]
    about = about_of(controller, Ref(controller.name, "default", "configmaps/a", sync["metadata"]["uid"]))
    assert about is not None
    assert (about.kind, about.name) == ("ConfigMap", "a")


async def test_objects_go_to_the_target_namespace_and_secrets_are_kept_as_the_server_has_them(bench: Bench) -> None:
    await bench.client.kind("v1", "Namespace").create({"metadata": {"name": "house"}})
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {word: sesame}\n"
    bench.repo.commit({"a.yaml": config_map("a", namespace="elsewhere"), "key.yaml": secret})
    await bench.begin(targetNamespace="house")
    assert (await bench.client.kind("v1", "ConfigMap", namespace="house").get("a"))["data"] == {"value": "1"}
    assert (await bench.client.kind("v1", "Secret", namespace="house").get("key"))["data"] == {"word": "c2VzYW1l"}


async def test_a_kind_that_the_server_does_not_have_refuses_the_commit(bench: Bench) -> None:
    bench.repo.commit(
        {"a.yaml": config_map("a"), "x.yaml": "apiVersion: test.dev/v1\nkind: Nothing\nmetadata: {name: x}\n"}
    )
    await bench.declare_source()
    await bench.declare()
    sync = await bench.says("Refused")
    assert "x.yaml:1: this server has no kind Nothing in test.dev/v1" in said(sync)["message"]
    assert await bench.values() == {}
