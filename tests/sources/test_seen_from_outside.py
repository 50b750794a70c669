"""What a person sees of a Sync with the command line, and does about it: halts, plans, approvals, history, the way back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.sources.conftest import Bench
from tests.sources.repo import config_map
from tests.sources.test_commands import run
from tests.sources.test_guarded import halts

from homeostat.insight.guarding import guarded
from homeostat.loop.live import unmarked
from homeostat.model.protocol import CHANGE_SET

FILES: dict[str, str | None] = {f"{i}.yaml": config_map(f"c{i}") for i in range(12)}


@pytest.fixture(autouse=True)
def at_this_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "data" / "admin.kubeconfig"))
    monkeypatch.setenv("COLUMNS", "100")


async def data(*words: str) -> Any:
    result = await run(*words, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_a_commit_that_halts_is_shown_explained_and_approved_by_commands(bench: Bench) -> None:
    bench.repo.commit(FILES)
    await bench.begin()
    await bench.whole_pass()
    commit = await bench.push({f"{i}.yaml": None for i in range(8)}, "by mistake")
    (halt,) = await halts(bench, "8 of 12 ")
    await bench.until(lambda obj: ((obj["status"].get("open") or {}).get("total")) == 8)
    plan = await data("plan")
    assert [(one["op"], one["kind"], one["name"]) for one in plan["actions"]] == [("delete", "ConfigMap", f"c{i}") for i in range(8)]
    assert {one["declaredBy"] for one in plan["actions"]} == {"Sync default/shop"}
    (verdict,) = plan["guards"]
    assert (verdict["fleet"], verdict["size"], verdict["plan"]) == ("default/configmaps", 12, halt["plan"])
    told = (await run("runbook")).output
    assert "8 of 12 would be deleted" in told
    assert "homeostat explain configmaps c0 -n default" in told
    assert f"homeostat approve {halt['plan']}" in told
    for scope in ("configmaps", "default/configmaps", "sync/shop"):
        assert len(await data("drift", scope)) == 8
    why = (await run("explain", "configmaps", "c0")).output
    assert "held by mass-drift" in why
    assert "Sync default/shop" in why
    assert "homeostat explain configmaps c0" in (await run("explain", "sync", "shop")).output
    done = await run("approve", halt["plan"], "--yes")
    assert done.exit_code == 0, done.output
    assert "- ConfigMap default/c7" in done.output
    after = await bench.at(commit)
    assert "open" not in after["status"]
    assert sorted(await bench.values()) == ["c10", "c11", "c8", "c9"]

    async def calm() -> bool:
        return "nothing is halted" in (await run("runbook")).output

    await bench.eventually(calm)


async def test_a_sync_that_stands_still_is_not_said_to_be_as_declared(bench: Bench) -> None:
    bench.repo.commit(FILES)
    await bench.begin()
    assert "all is as declared" in (await run("drift")).output
    await bench.push({"bad.yaml": "kind: Nonsense\n"})
    await bench.says("Refused")
    told = (await run("runbook")).output
    assert "bad.yaml:1: apiVersion is missing" in told
    assert "homeostat explain syncs.homeostat.dev shop -n default" in told
    await bench.push({"bad.yaml": None})
    await bench.says("Applied")
    shutil.move(bench.repo.path, f"{bench.repo.path}-gone")
    bench.poke()
    await bench.says("SourceUnknown")
    assert "cannot be read: there is no repository" in (await run("runbook")).output
    (line,) = await data("drift")
    assert (line["op"], line["kind"], line["name"]) == ("unknown", "Sync", "shop")
    assert "next       it is composed again when" in (await run("explain", "sync", "shop")).output
    shutil.move(f"{bench.repo.path}-gone", bench.repo.path)
    bench.poke()
    await bench.says("Applied")
    assert "nothing is halted" in (await run("runbook")).output


async def test_a_plan_of_which_the_loop_names_no_object_is_approved_by_its_name(bench: Bench) -> None:
    bench.repo.commit(FILES)
    await bench.begin()
    await bench.whole_pass()
    commit = await bench.push({f"{i}.yaml": None for i in range(8)}, "by mistake")
    (halt,) = await halts(bench, "8 of 12 ")
    await bench.syncs.patch("shop", {"status": {"open": None}}, subresource="status", field_manager="test")
    assert "8 of 12" in (await run("runbook", "configmaps")).output
    assert (await run("approve", "0123456789abcdef", "--yes")).exit_code == 1
    assert (await run("approve", halt["plan"], "--yes")).exit_code == 0
    await bench.at(commit)


async def test_a_sync_that_is_declared_is_not_said_to_be_held_by_a_guard(bench: Bench, tmp_path: Path) -> None:
    bench.repo.commit(FILES)
    await bench.begin()
    file = tmp_path / "sync.yaml"
    file.write_text(
        "apiVersion: homeostat.dev/v1alpha1\nkind: Sync\nmetadata: {name: other}\nspec: {source: {name: repo}, path: x}\n"
    )
    told = (await run("plan", "-f", str(file))).output
    assert "1 to add" in told
    assert "Guards" not in told


async def test_what_a_commit_wrote_carries_it_and_its_author_and_a_repair_changes_neither(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a"), "b.yaml": config_map("b")}, "first")
    await bench.begin()
    first, second = bench.repo.git("rev-parse", "HEAD"), await bench.push({"a.yaml": config_map("a", "2")}, "Paint it")
    await bench.at(second)
    marks = {one["metadata"]["name"]: one["metadata"]["annotations"][CHANGE_SET] for one in await bench.maps.list(labels="homeostat.dev/sync")}
    assert marks == {"a": f"default/repo@{second[:12]}", "b": f"default/repo@{first[:12]}"}
    await bench.maps.patch("a", {"data": {"value": "by hand"}}, field_manager="hand")

    async def repaired() -> bool:
        return (await bench.values())["a"] == "2"

    await bench.eventually(repaired)
    told = [(e["who"], e["what"], e["changeSet"]) for e in await data("history", "configmap", "a") if e["source"] == "write"]
    assert [(who.partition(" ")[0], mark) for who, _, mark in told] == [
        ("Ada", f"default/repo@{first[:12]}"),
        ("Ada", f"default/repo@{second[:12]}"),
        ("loop", ""),  # by hand, as whom this test asks: it named no change set, though the object carries one
        ("the", ""),
    ]
    assert "“Paint it”" in told[1][1]
    assert told[2][0] == "loop (hand)"
    of_set = await data("history", "--change-set", f"default/repo@{second[:12]}")
    assert [e["what"].partition(" “")[0] for e in of_set] == ["changed ConfigMap default/a"]
    told_of_sync = (await run("history", "sync", "shop")).output
    assert "“Paint it” by Ada" in " ".join(told_of_sync.split())
    assert max(map(len, told_of_sync.splitlines())) <= 100


async def test_one_object_of_a_sync_is_not_taken_back_alone_and_its_commit_is(bench: Bench) -> None:
    first = bench.repo.commit({"a.yaml": config_map("a")}, "first")
    await bench.begin()
    second = await bench.push({"a.yaml": config_map("a", "2")}, "second")
    await bench.at(second)
    alone = await run("rollback", "configmap", "a", "--yes")
    assert alone.exit_code == 1
    assert "Sync default/shop keeps it" in alone.output
    assert "homeostat rollback sync shop -n default" in alone.output
    assert await bench.values() == {"a": "2"}
    early = await run("rollback", "changeset", f"default/repo@{first[:12]}", "--yes")
    assert early.exit_code == 1
    assert f"has applied {second[:12]} since" in early.output
    back = await run("rollback", "changeset", f"default/repo@{second[:12]}", "--yes")
    assert back.exit_code == 0, back.output
    held = await bench.at(first)
    assert held["spec"]["hold"]["notPast"] == second
    assert await bench.values() == {"a": "1"}
    await bench.syncs.delete("shop")  # its objects stay, and are nobody's now
    assert (await run("rollback", "configmap", "a", "--yes")).exit_code == 0


async def test_what_a_sync_applies_is_in_the_inventory_and_in_the_evidence(bench: Bench) -> None:
    labelled = config_map("a").replace("  name: a\n", "  name: a\n  labels: {control: banners}\n")
    bench.repo.commit({"a.yaml": labelled, **FILES})
    await bench.begin()
    await bench.whole_pass()
    counted = {one["source"]: one["count"] for one in await data("inventory", "--by", "source")}
    assert counted["default/shop"] == 13
    (row,) = await data("inventory", "-l", "control=banners")
    assert (row["provider"], row["name"], row["health"]) == ("ConfigMap", "a", "Healthy")
    (item,) = (await data("report", "-l", "control=banners"))["items"]
    assert (item["verdict"], item["source"]) == ("met", "default/shop")
    assert item["declared"]["changeSet"].startswith("default/repo@")
    await bench.push({f"{i}.yaml": None for i in range(8)}, "by mistake")
    await halts(bench, "8 of 13 ")
    await bench.until(lambda obj: ((obj["status"].get("open") or {}).get("total")) == 8)
    assert {one["health"]: one["count"] for one in await data("inventory", "--by", "health")}["Held"] == 8


async def test_people_are_named_to_those_who_may_read_the_audit_log_and_others_are_told_why_not(bench: Bench, tmp_path: Path) -> None:
    await bench.maps.create({"metadata": {"name": "plain"}, "data": {"a": "b"}}, field_manager="hand")
    (entry,) = await data("history", "configmap", "plain")
    assert entry["who"] == "loop (hand)"
    roles, bindings = (bench.client.kind("rbac.authorization.k8s.io/v1", kind) for kind in ("ClusterRole", "ClusterRoleBinding"))
    await roles.create({"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["*"], "verbs": ["get", "list"]}]})
    await bindings.create(
        {
            "metadata": {"name": "ada"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}],
        }
    )
    token = (await run("token", "create", "--user", "ada", "--ttl", "1h")).stdout.split()[-1]
    mine = yaml.safe_load((tmp_path / "data" / "admin.kubeconfig").read_text())
    mine["users"] = [{"name": mine["users"][0]["name"], "user": {"token": token}}]
    adas = tmp_path / "elsewhere" / "ada.kubeconfig"
    adas.parent.mkdir()
    adas.write_text(json.dumps(mine))
    told = await run("history", "configmap", "plain", "--kubeconfig", str(adas))
    assert told.exit_code == 0, told.output
    assert "hand" in told.output
    assert "/homeostat/audit" in told.output


async def test_a_restore_in_place_leaves_to_a_sync_what_it_declares(bench: Bench, tmp_path: Path) -> None:
    bench.repo.commit({"a.yaml": config_map("a")}, "first")
    await bench.begin()
    file = str(tmp_path / "it.checkpoint")
    assert (await run("checkpoint", "create", file)).exit_code == 0
    await bench.at(await bench.push({"a.yaml": config_map("a", "2"), "b.yaml": config_map("b")}, "second"))
    assert "0 to add, 0 to change, 0 to destroy" in (await run("checkpoint", "restore", file, "--dry-run")).output


def test_a_note_that_the_declaration_has_itself_is_part_of_it() -> None:
    noted = {"metadata": {"name": "a", "annotations": {CHANGE_SET: "mine"}}}
    assert unmarked(noted, noted) is noted
    assert unmarked(noted, {"metadata": {}}) == {"metadata": {"name": "a"}}


async def test_a_policy_shows_what_it_refuses_of_a_commit_as_the_dashboard_asks_for_it(bench: Bench) -> None:
    bench.repo.commit(FILES)
    await bench.begin()
    await bench.whole_pass()
    await bench.push({f"{i}.yaml": None for i in range(8)}, "by mistake")
    (halt,) = await halts(bench, "8 of 12 ")
    await bench.until(lambda obj: ((obj["status"].get("open") or {}).get("total")) == 8)
    policy = await bench.client.kind("homeostat.dev/v1alpha1", "GuardPolicy").get("configmaps")
    (fleet,) = await guarded(bench.client, policy)
    (told,) = fleet["halts"]
    assert (told["plan"], len(told["actions"])) == (halt["plan"], 8)


async def test_a_loop_that_was_restarted_knows_which_commit_wrote_what(bench: Bench) -> None:
    first = bench.repo.commit({"a.yaml": config_map("a"), "b.yaml": config_map("b")}, "first")
    await bench.begin()
    second = await bench.push({"a.yaml": config_map("a", "2")}, "second")
    await bench.at(second)
    await bench.stop()
    await bench.start()
    await bench.until(lambda obj: obj["status"]["plan"]["change"] == 0)  # the note of a commit is no difference
    await bench.whole_pass()
    await bench.maps.patch("b", {"data": {"value": "by hand"}}, field_manager="hand")

    async def repaired() -> bool:
        return await bench.values() == {"a": "2", "b": "1"}

    await bench.eventually(repaired)
    marks = {one["metadata"]["name"]: one["metadata"]["annotations"][CHANGE_SET] for one in await bench.maps.list(labels="homeostat.dev/sync")}
    assert marks == {"a": f"default/repo@{second[:12]}", "b": f"default/repo@{first[:12]}"}
