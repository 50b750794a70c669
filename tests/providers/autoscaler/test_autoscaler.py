"""Autoscaler: real pages over HTTP, the scale of real things, and what may not be declared."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from tests.providers.autoscaler.days import TARGET, deployment, metric
from tests.providers.bench import Bench, condition, running
from tests.providers.process.world import kill_all, replicas

from homeostat.cli.allow import Allowed
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.loop.engine import Engine
from homeostat.model.errors import ApiError
from homeostat.providers.autoscaler import Autoscaler
from homeostat.providers.process import Process

Object = dict[str, Any]


class Page:
    """A page of metrics on loopback."""

    def __init__(self) -> None:
        self.text = ""
        self.status = 200
        self.url = ""
        self.asked = 0

    async def serve(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.status == 302:
            raise web.HTTPFound("/elsewhere")
        return web.Response(text=self.text, status=self.status)


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    page = Page()
    app = web.Application()
    app.router.add_get("/metrics", page.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    page.url = f"http://127.0.0.1:{port}/metrics"
    yield page
    await runner.cleanup()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path, lambda: Autoscaler(["127.0.0.1"])) as bench:
        await bench.client.kind("apps/v1", "Deployment").create(deployment(2), namespace="default")
        yield bench


def by_page(page: Page, series: str = 'queue_length{queue="mail"}', **more: Any) -> Object:
    law = {"proportional": {"target": 10, "total": True}}
    return {"name": "queue", "prometheus": {"url": page.url, "series": series, **more}, "law": law}


def spec(*metrics: Object, **more: Any) -> Object:
    return {"target": TARGET, "maxReplicas": 20, "interval": "1s", "metrics": list(metrics), **more}


async def scaled(bench: Bench, count: int) -> None:
    kind = bench.client.kind("apps/v1", "Deployment", namespace="default")
    async with asyncio.timeout(10):
        while (await kind.get("web"))["spec"]["replicas"] != count:
            await asyncio.sleep(0.01)


async def test_a_page_of_metrics_scales_a_deployment(bench: Bench, page: Page) -> None:
    page.text = 'queue_length{queue="mail"} 50\nqueue_length{queue="print"} 999\n'
    await bench.declare("web", spec(by_page(page), scaleUp={"period": "1s"}))
    await scaled(bench, 5)
    obj = await bench.until("web", lambda obj: (obj.get("status") or {}).get("replicas") == 5)
    assert obj["status"]["desired"] == 5
    page.text = 'queue_length{queue="mail"} 81\n'
    await scaled(bench, 9)
    live = await bench.client.kind("apps/v1", "Deployment").get("web", namespace="default")
    assert "homeostat-autoscaler" in {entry["manager"] for entry in live["metadata"]["managedFields"]}


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        ('queue_length{queue="mail"} 50\n', 500, "the answer is 500"),
        ('queue_length{queue="mail"} 50\n', 302, "the answer is 302"),
        ('queue_length{queue="mail"} 5', 200, "broken off"),
        ('queue_length{queue="mail"} NaN\n', 200, "is nan"),
        ('queue_length{queue="mail"} 50 1395066363000\n', 200, "more than 180 s old"),
        ("", 200, "no series matches"),
    ],
)
async def test_a_page_that_says_nothing_moves_nothing(
    bench: Bench, page: Page, text: str, status: int, why: str
) -> None:
    page.text, page.status = text, status
    await bench.declare("web", spec(by_page(page)))
    assert why in await bench.reason("web", "Unreadable")
    asked = page.asked
    async with asyncio.timeout(10):
        while page.asked < asked + 2:
            await asyncio.sleep(0.05)
    await scaled(bench, 2)
    page.text, page.status = 'queue_length{queue="mail"} 40\n', 200
    await scaled(bench, 4)
    await bench.ready("web")


async def test_a_counter_counts_by_how_fast_it_grows(bench: Bench, page: Page) -> None:
    page.text = "jobs_total 1000000\n"
    await bench.declare("web", spec(by_page(page, "jobs_total", perSecond=True)))
    assert "a rate takes two readings" in await bench.reason("web", "Unreadable")
    page.text = "jobs_total 1000035\n"
    await scaled(bench, 4)


async def test_a_process_is_scaled_by_objects_on_the_api(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with running(tmp_path, Autoscaler) as bench:
        engine = Engine(bench.client, [Process(state, allowed=True)], PolicyGate(mode=Mode.ENFORCE), settle=0.005)
        await engine.start()
        try:
            processes = bench.client.kind("processes.homeostat.dev/v1", "Process", namespace="default")
            body = {"command": ["sleep", "1000"], "gracefulSeconds": 2, "minReadySeconds": 0.05}
            worker = await processes.create({"metadata": {"name": "worker"}, "spec": body})
            maps = bench.client.kind("v1", "ConfigMap", namespace="default")
            for number in range(3):
                await maps.create({"metadata": {"name": f"job-{number}", "labels": {"job": "open"}}})
            jobs = {
                "name": "jobs",
                "cel": {
                    "expression": "objects.size()",
                    "over": {"apiVersion": "v1", "kind": "ConfigMap", "labels": "job=open"},
                },
                "law": {"proportional": {"target": 1, "total": True}},
            }
            target = {"apiVersion": "processes.homeostat.dev/v1", "kind": "Process", "name": "worker"}
            await bench.declare("worker", {**spec(jobs), "target": target})
            async with asyncio.timeout(10):
                while len(replicas(state, worker["metadata"]["uid"])) != 3:
                    await asyncio.sleep(0.01)
            assert (await bench.ready("worker"))["status"]["metrics"] == [{"name": "jobs", "value": "3"}]
        finally:
            await engine.stop()
            kill_all(state)


async def test_a_target_that_is_not_there_is_unknown_and_may_come(bench: Bench) -> None:
    await bench.client.kind("v1", "ConfigMap", namespace="default").create(
        {"metadata": {"name": "queue", "labels": {"metric": "queue"}}, "data": {"value": "30"}}
    )
    law = {"proportional": {"target": 10, "total": True}}
    await bench.declare("late", {**spec(metric("queue", law)), "target": {**TARGET, "name": "late"}})
    assert "there is no Deployment late here that can be scaled" in await bench.reason("late", "Unreadable")
    await bench.client.kind("apps/v1", "Deployment").create(deployment(1, "late"), namespace="default")
    obj = await bench.ready("late")
    assert obj["status"]["replicas"] == 3
    await bench.client.kind("apps/v1", "Deployment").delete("late", namespace="default")
    await bench.kind.delete("late")
    await bench.gone("late")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"apiVersion": "v1", "kind": "ConfigMap", "name": "web"}, "can be scaled"),
        ({"apiVersion": "v1", "kind": "Node", "name": "web"}, "spec.target.kind: a Node is in no namespace"),
        ({"apiVersion": "shop.example.com/v1", "kind": "Till", "name": "web"}, "spec.target: "),
    ],
)
async def test_what_cannot_be_scaled_is_said(bench: Bench, page: Page, target: Object, why: str) -> None:
    page.text = 'queue_length{queue="mail"} 50\n'
    await bench.declare("web", {**spec(by_page(page)), "target": target})
    assert why in await bench.reason("web", "Unreadable")


def over(kind: str, expression: str = "objects.size()", api_version: str = "v1") -> Object:
    cel = {"expression": expression, "over": {"apiVersion": api_version, "kind": kind}}
    return {"name": "m", "cel": cel, "law": {"proportional": {"target": 1, "total": True}}}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (over("Secret"), "spec.metrics[0].cel.over: what Secrets hold"),
        (over("Node"), "spec.metrics[0].cel.over.kind: a Node is in no namespace"),
        (over("Till"), "spec.metrics[0].cel.over: "),
        (over("ConfigMap", "objects.size("), "spec.metrics[0].cel.expression: "),
        (over("ConfigMap", "objects.size() > 1"), "spec.metrics[0].cel.expression: it gives a bool"),
        (over("ConfigMap", "objects[99].data.x"), "spec.metrics[0].cel.expression: "),
    ],
)
async def test_an_expression_that_gives_no_number_is_said_by_its_field(bench: Bench, wrong: Object, why: str) -> None:
    await bench.declare("web", spec(wrong))
    assert why in await bench.reason("web", "Unreadable")
    await scaled(bench, 2)


async def test_a_host_that_nobody_allowed_is_not_asked(tmp_path: Path, page: Page) -> None:
    page.text = 'queue_length{queue="mail"} 50\n'
    async with running(tmp_path, Autoscaler) as bench:
        await bench.client.kind("apps/v1", "Deployment").create(deployment(2), namespace="default")
        await bench.declare("web", spec(by_page(page)))
        said = await bench.reason("web", "Unreadable")
        assert "spec.metrics[0].prometheus.url: " in said
        assert "--allow http:127.0.0.1" in said
        assert page.asked == 0


async def test_a_selector_that_makes_no_sense_is_said_by_its_field(bench: Bench, page: Page) -> None:
    await bench.declare("web", spec(by_page(page, "queue_length{")))
    assert "spec.metrics[0].prometheus.series: " in await bench.reason("web", "Unreadable")


QUEUE = metric("queue", {"proportional": {"target": 10}})


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"minReplicas": 30}, "spec.maxReplicas"),
        ({"maxReplicas": -1}, "spec.maxReplicas"),
        ({"interval": "0s"}, "spec.interval"),
        ({"interval": "soon"}, "spec.interval"),
        ({"metrics": []}, "spec.metrics"),
        ({"metrics": [QUEUE, QUEUE]}, "spec.metrics[1]"),
        ({"metrics": [{**QUEUE, "law": {}}]}, "spec.metrics[0].law"),
        ({"metrics": [{**QUEUE, "law": {"proportional": {"target": 0}}}]}, "spec.metrics[0].law.proportional.target"),
        ({"metrics": [{**QUEUE, "law": {"onOff": {"low": 9, "high": 1}}}]}, "spec.metrics[0].law.onOff.high"),
        ({"metrics": [{**QUEUE, "law": {"pid": {"target": 5, "kp": -1}}}]}, "spec.metrics[0].law.pid.kp"),
        ({"metrics": [{**QUEUE, "prometheus": {"url": "http://a", "series": "b"}}]}, "spec.metrics[0]"),
        ({"metrics": [{"name": "m", "law": QUEUE["law"]}]}, "spec.metrics[0]"),
        ({"scaleDown": {"window": "-5m"}}, "spec.scaleDown.window"),
        ({"scaleUp": {"period": "0s"}}, "spec.scaleUp.period"),
        ({"target": {"kind": "Deployment", "name": "web"}}, "spec.target.apiVersion"),
    ],
)
async def test_what_cannot_be_declared_is_refused_by_its_field(bench: Bench, wrong: Object, field: str) -> None:
    body = {"metadata": {"name": "web"}, "spec": {**spec(QUEUE), **wrong}}
    with pytest.raises(ApiError) as refused:
        await bench.kind.create(body)
    assert refused.value.code == 422
    causes = [cause["field"] for cause in refused.value.causes]
    assert field in causes, refused.value.message


async def test_kubectl_shows_how_it_stands(bench: Bench, page: Page) -> None:
    page.text = 'queue_length{queue="mail"} 50\n'
    await bench.declare("web", spec(by_page(page)))
    await bench.until(
        "web", lambda obj: (obj.get("status") or {}).get("replicas") == 5 and condition(obj, "Ready") == "True"
    )
    definition = await bench.client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").get(
        "autoscalers.homeostat.dev"
    )
    columns = definition["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [column["name"] for column in columns if not column.get("priority")] == [
        "Kind", "Target", "Min", "Max", "Replicas", "Desired", "Last Scale", "Ready", "Age",
    ]  # fmt: skip


async def test_the_examples_of_the_guide_can_be_declared(bench: Bench) -> None:
    guide = (
        (Path(__file__).parents[3] / "docs" / "loop.md").read_text().partition("## Scale it")[2].partition("\n## ")[0]
    )
    example = guide.partition("```yaml\n")[2].partition("```")[0]
    autoscaler = next(one for one in yaml.safe_load_all(example) if one["kind"] == "Autoscaler")
    await bench.kind.create(autoscaler, field_validation="Strict")
    laws = re.findall(r"^\| `(\w+: \{.*?\})` \|", guide, re.MULTILINE)
    assert len(laws) == 4
    [pace] = re.findall(r"how fast: `(\{.*?\})`", guide)
    for number, law in enumerate(laws):
        name, metric = f"law-{number}", {**autoscaler["spec"]["metrics"][0], "law": yaml.safe_load(law)}
        spec = {**autoscaler["spec"], "metrics": [metric], "scaleUp": yaml.safe_load(pace)}
        await bench.kind.create({"metadata": {"name": name}, "spec": spec}, field_validation="Strict")


def test_it_is_on_wherever_a_loop_runs_and_asks_only_allowed_hosts(tmp_path: Path) -> None:
    def hosts(*words: str) -> Any:
        found = [one for one in Allowed.parse(words).providers(tmp_path) if isinstance(one, Autoscaler)]
        return found[0]._hosts._allowed

    assert hosts() == frozenset()
    assert hosts("http:metrics.example.com") == {"metrics.example.com"}
    assert hosts("http") is None
