"""A plan that touches a Sync shows what its commit would do, and nothing of that is declared."""

from __future__ import annotations

from typing import Any

from tests.sources.conftest import Bench
from tests.sources.repo import config_map

from homeostat.insight.below import Answer, Foresight
from homeostat.insight.planned import guards_on
from homeostat.insight.planning import Document, Plan, Step, creation
from homeostat.sources.kinds import API

Object = dict[str, Any]


def sync(name: str = "shop", **spec: Any) -> Object:
    return {"apiVersion": API, "kind": "Sync", "metadata": {"name": name, "namespace": "default"}, "spec": {"source": {"name": "repo"}, **spec}}


async def foresee(bench: Bench, obj: Object, *, gone: bool = False) -> Answer:
    return await Foresight(bench.client, [bench.sync]).of(obj, gone=gone)


def told(answer: Answer) -> list[tuple[str, str]]:
    assert not answer.problem
    return [(str(one.op), one.name) for one in answer.children]


async def test_a_new_sync_is_shown_with_all_that_its_commit_declares(bench: Bench) -> None:
    bench.repo.commit({"one/x.yaml": config_map("x"), "two/a.yaml": config_map("a"), "two/b.yaml": config_map("b")})
    await bench.begin(path="one")
    answer = await foresee(bench, sync("other", path="two"))
    assert told(answer) == [("create", "a"), ("create", "b")]
    assert answer.children[0].changes == ['+ data.value: "1"']
    assert answer.children[0].change_set.startswith("default/repo@"), "it is done as part of the commit"
    assert await bench.values() == {"x": "1"}


async def test_another_path_shows_what_comes_and_what_goes(bench: Bench) -> None:
    bench.repo.commit({"one/a.yaml": config_map("a"), "one/b.yaml": config_map("b"), "two/b.yaml": config_map("b", "2"), "two/c.yaml": config_map("c")})
    live = await bench.begin(path="one")
    answer = await foresee(bench, {**live, "spec": {**live["spec"], "path": "two"}})
    assert told(answer) == [("update", "b"), ("create", "c"), ("delete", "a")]
    assert told(await foresee(bench, {**live, "spec": {**live["spec"], "path": "two", "prune": False}})) == [("update", "b"), ("create", "c")]
    assert told(await foresee(bench, live)) == [], "as it is, it is so already"
    assert await bench.values() == {"a": "1", "b": "1"}


async def test_a_sync_that_goes_takes_its_objects_along_where_it_says_so(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a")})
    live = await bench.begin()
    assert told(await foresee(bench, {**live, "spec": {**live["spec"], "onDelete": "Prune"}}, gone=True)) == [("delete", "a")]
    assert told(await foresee(bench, {**live, "spec": {**live["spec"], "onDelete": "Leave"}}, gone=True)) == []


async def test_a_commit_that_is_refused_is_said_with_its_file(bench: Bench) -> None:
    bench.repo.commit({"good/a.yaml": config_map("a"), "bad/b.yaml": "kind: ConfigMap\n"})
    live = await bench.begin(path="good")
    answer = await foresee(bench, {**live, "spec": {**live["spec"], "path": "bad"}})
    assert "is refused: bad/b.yaml" in answer.problem


async def test_a_source_that_is_not_there_is_said(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a")})
    await bench.begin()
    assert "GitSource nowhere" in (await foresee(bench, sync(source={"name": "nowhere"}))).problem


async def test_the_guards_are_asked_about_what_the_commit_does(bench: Bench) -> None:
    bench.repo.commit({"one/a.yaml": config_map("a"), "two/b.yaml": config_map("b")})
    live = await bench.begin(path="one")
    would = {**live, "spec": {**live["spec"], "path": "two"}}
    served = await bench.client.kind(API, "Sync").served()
    plan = Plan("mine", [Step(Document(would, "shop.yaml"), "default", served, live, creation(would), would=would)])
    verdicts = await guards_on(bench.client, plan, Foresight(bench.client, [bench.sync]))
    assert [(verdict.fleet, verdict.now) for verdict in verdicts] == [("default/configmaps", 2)]
    assert plan.closing == "Plan: 2 to add, 0 to change, 1 to destroy"
