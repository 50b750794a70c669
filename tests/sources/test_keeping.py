"""What runs stays: failing fetches, refusals, restarts, suspensions and deletions of Syncs take nothing away."""

from __future__ import annotations

import shutil

import pytest
from tests.loop.waiting import said
from tests.sources.conftest import Bench
from tests.sources.repo import config_map

from homeostat.guards import Mode
from homeostat.loop.declarations import ADOPT
from homeostat.model.errors import ApiError


async def test_a_lost_repository_prunes_nothing_and_says_so(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a"), "b.yaml": config_map("b")})
    await bench.begin()
    shutil.move(bench.repo.path, f"{bench.repo.path}-gone")
    bench.poke()
    sync = await bench.says("SourceUnknown")
    assert said(sync)["status"] == "Unknown"
    assert "nothing is deleted" in said(sync)["message"]
    source = await bench.sources.get("repo")
    assert said(source)["reason"] == "FetchFailed"
    assert await bench.values() == {"a": "1", "b": "1"}
    await bench.stop()
    await bench.start()  # and after a restart, with the copy that is here
    await bench.maps.patch("a", {"data": {"value": "stones"}}, field_manager="kubectl-edit")

    async def repaired() -> bool:
        return await bench.values() == {"a": "1", "b": "1"}

    await bench.eventually(repaired)
    shutil.move(f"{bench.repo.path}-gone", bench.repo.path)
    await bench.at(await bench.push({"b.yaml": None}))
    assert await bench.values() == {"a": "1"}


async def test_a_branch_that_is_gone_prunes_nothing(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a")})
    await bench.declare_source(revision={"branch": "main"})
    await bench.declare()
    await bench.says("Applied")
    bench.repo.git("branch", "-m", "main", "trunk")
    bench.poke()
    sync = await bench.says("SourceUnknown")
    assert "there is no branch main (there is: trunk)" in said(sync)["message"]
    assert await bench.values() == {"a": "1"}


async def test_after_a_restart_at_a_refused_commit_the_last_good_one_is_kept(bench: Bench) -> None:
    good = bench.repo.commit({"a.yaml": config_map("a")})
    await bench.begin()
    await bench.stop()
    bench.repo.commit({"a.yaml": "apiVersion: v1\nkind: [\n"})
    await bench.start()
    sync = await bench.says("Refused")
    assert sync["status"]["refused"]["file"] == "a.yaml"
    await bench.maps.delete("a")

    async def repaired() -> bool:
        return await bench.values() == {"a": "1"}

    await bench.eventually(repaired)
    assert (await bench.syncs.get("shop"))["status"]["commit"] == good


async def test_what_was_pruned_in_git_while_the_loop_was_down_goes_after_it(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a"), "b.yaml": config_map("b")})
    await bench.begin()
    await bench.stop()
    commit = bench.repo.commit({"b.yaml": None})
    await bench.start()
    await bench.at(commit)
    assert await bench.values() == {"a": "1"}


async def test_nothing_is_written_while_nothing_changes(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a")})
    await bench.begin()
    await bench.whole_pass()
    before = (await bench.client.kind("v1", "Namespace").list()).resource_version
    for _ in range(3):
        bench.poke()
        await bench.whole_pass()
    assert (await bench.client.kind("v1", "Namespace").list()).resource_version == before


async def test_a_suspended_sync_stays_where_it_is_and_is_still_kept(bench: Bench) -> None:
    first = bench.repo.commit({"a.yaml": config_map("a")})
    await bench.begin()
    await bench.declare(suspend={"reason": "the audit"})
    await bench.says("Suspended")
    commit = await bench.push({"a.yaml": config_map("a", "2")})
    await bench.maps.delete("a")

    async def repaired() -> bool:
        return await bench.values() == {"a": "1"}

    await bench.eventually(repaired)
    sync = await bench.syncs.get("shop")
    assert sync["status"]["commit"] == first
    assert "suspended: the audit" in said(sync)["message"]
    await bench.declare()
    await bench.at(commit)


async def test_in_observe_mode_a_commit_is_shown_and_not_applied(bench: Bench) -> None:
    await bench.stop()
    await bench.start(Mode.OBSERVE)
    bench.repo.commit({"a.yaml": config_map("a")})
    await bench.declare_source()
    await bench.declare()
    sync = await bench.says("ObjectsHeld")
    assert "held by mode" in said(sync)["message"]
    assert sync["status"]["plan"]["changes"] == ["+ ConfigMap default/a"]
    assert await bench.values() == {}


async def test_what_exists_and_is_not_ours_is_left_alone_until_it_is_adopted(bench: Bench) -> None:
    await bench.maps.create({"metadata": {"name": "a"}, "data": {"value": "theirs"}}, field_manager="somebody")
    bench.repo.commit({"a.yaml": config_map("a"), "b.yaml": config_map("b")})
    await bench.declare_source()
    await bench.declare()
    sync = await bench.says("ObjectsHeld")
    assert "not ours" in said(sync)["message"]
    plan = sync["status"]["plan"]
    assert plan["changes"] == ["! ConfigMap default/a: it exists and is not ours", "+ ConfigMap default/b"]
    assert (plan["refused"], plan["create"], plan["change"]) == (1, 1, 0)
    assert (await bench.maps.get("a"))["data"] == {"value": "theirs"}
    await bench.declare(metadata={"annotations": {ADOPT: "true"}})
    sync = await bench.says("Applied")
    assert sync["status"]["plan"]["changes"] == ["~ ConfigMap default/a"]
    assert "refused" not in sync["status"]["plan"]
    assert await bench.values() == {"a": "1", "b": "1"}


async def test_a_copy_with_our_label_is_not_pruned(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a"), "b.yaml": config_map("b")})
    await bench.begin()
    mine = await bench.maps.get("a")
    copy = {"metadata": {"name": "copy", "labels": mine["metadata"]["labels"]}, "data": mine["data"]}
    await bench.maps.create(copy, field_manager="kubectl-create")
    await bench.at(await bench.push({"b.yaml": None}))
    await bench.whole_pass()
    assert await bench.values() == {"a": "1", "copy": "1"}
    await bench.push({"copy.yaml": config_map("copy", "2")})
    sync = await bench.says("ObjectsHeld")
    assert sync["status"]["plan"]["changes"] == ["! ConfigMap default/copy: it exists and is not ours"]


@pytest.mark.parametrize("keep", ["sync", "object"])
async def test_prune_can_be_off_for_a_sync_and_for_an_object(bench: Bench, keep: str) -> None:
    notes = {"prune": "disabled"} if keep == "object" else {}
    bench.repo.commit({"a.yaml": config_map("a"), "b.yaml": config_map("b", **notes)})
    await bench.begin(prune=keep != "sync")
    await bench.at(await bench.push({"b.yaml": None}))
    assert await bench.values() == {"a": "1", "b": "1"}


async def test_a_deleted_sync_leaves_its_objects(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a")})
    await bench.begin()
    await bench.syncs.delete("shop")
    await bench.whole_pass()
    assert await bench.values() == {"a": "1"}


async def test_a_deleted_sync_takes_its_objects_along_where_it_says_so(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a")})
    await bench.begin(onDelete="Prune")
    await bench.syncs.delete("shop")

    async def gone() -> bool:
        try:
            await bench.syncs.get("shop")
        except ApiError as error:
            return error.code == 404
        return False

    await bench.eventually(gone)
    assert await bench.values() == {}
