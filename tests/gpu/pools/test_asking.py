"""Pools by commands and webhooks: what is asked, that nothing is had twice, and that what cannot be read is left alone."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from tests.gpu.agent.world import eventually
from tests.gpu.pools.world import Cloud, Stages, World

from homeostat.gpu.agent import Machine
from homeostat.gpu.agent.simulated import Simulated
from homeostat.gpu.pools.books import Books

Object = dict[str, Any]


def machine(world: World, node: str, pool: str = "p") -> Any:
    """The agent of a node that a pool gave."""
    return world.agent(node, Simulated.parse("1xH100"), machine=Machine(node, pool=pool))


async def test_a_command_is_asked_for_nodes_by_keys_and_they_are_written_down(world: World) -> None:
    cloud = Cloud(world.folder)
    await world.declare_pool(minimum=2, provision=cloud.provision, costPerHour=3, spot=True)
    status = await world.pool_is(lambda status: sum(bool(one["node"]) for one in status.get("machines", ())) == 2)
    keys = sorted(one["key"] for one in status["machines"])
    assert keys == cloud.holds()
    assert sorted(one["node"] for one in status["machines"]) == [f"m-{key}" for key in keys]
    [first, _] = cloud.asked("get")
    assert first["pool"] == "p"
    assert first["spec"] == {
        "model": "H100",
        "gpusPerNode": 1,
        "gpuMemoryMib": 0,
        "cpuMilli": 0,
        "memoryMib": 0,
        "costPerHour": 3.0,
        "spot": True,
    }
    await world.pool_is(lambda status: status.get("coming") == 2)


async def test_a_loop_that_is_killed_after_a_node_was_had_asks_for_no_second_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud, dead = Cloud(world.folder), asyncio.Event()
    change = Books.change

    async def dies(self: Books, name: str, uid: str, *what: Any) -> Any:
        if cloud.holds():  # the node was had: what follows is to write down its name
            dead.set()
            await asyncio.Event().wait()
        return await change(self, name, uid, *what)

    monkeypatch.setattr(Books, "change", dies)
    await world.declare_pool(minimum=1, provision=cloud.provision)
    await asyncio.wait_for(dead.wait(), 30)
    await world.end()
    [asked] = (await world.pools.get("p"))["status"]["machines"]
    assert asked.get("node", "") == ""
    monkeypatch.setattr(Books, "change", change)
    await world.begin()
    status = await world.pool_is(lambda status: any(one["node"] for one in status.get("machines", ())))
    assert [one["key"] for one in status["machines"]] == [asked["key"]] == cloud.holds()
    assert {one["key"] for one in cloud.asked("get")} == {asked["key"]}


async def test_a_pool_that_cannot_be_read_neither_grows_nor_shrinks(world: World) -> None:
    cloud = Cloud(world.folder)
    await world.declare_pool(minimum=2, provision=cloud.provision)
    await eventually(lambda: len(cloud.holds()) == 2, 30)
    [a, b] = (f"m-{key}" for key in cloud.holds())
    async with machine(world, a), machine(world, b), world.nodes.informer() as informer:
        await world.up(2)
        cloud.fail()
        await world.policy(scaling={"backlogAge": "0s", "idleNodesAfter": "1s"})
        stages = Stages(informer)
        await world.declare_pool(minimum=0, provision=cloud.provision)
        for name in ("w1", "w2", "w3"):
            await world.declare(name)
        await world.phase("w1", "Running")
        why = "it cannot be read, and neither grows nor shrinks: list: exit status 1: the cloud is not to be seen"
        await world.pool_is(lambda status: status.get("reason") == why)
        await world.until("w3", lambda obj: obj.get("status", {}).get("constraint") == "capacity")
        assert len(cloud.asked("get")) == 2
        for name in ("w1", "w2", "w3"):
            await world.workloads.delete(name)
        await eventually(lambda: _idle_for(world, 2.0) == 2, 30)
        assert {stage for seen in stages.of.values() for stage in seen} == {"Open"}
        assert not cloud.asked("giveBack")
        cloud.fail(broken=False)
        await world.declare_pool(minimum=1, provision=cloud.provision)
        await eventually(lambda: any(seen[-1] == "GivingBack" for seen in stages.of.values()), 90)
        await eventually(lambda: len(cloud.asked("giveBack")) == 1, 30)


def _idle_for(world: World, seconds: float) -> int:
    """How many nodes the governor knows to have been idle for so long."""
    return sum(time.time() - since > seconds for since in world.provider.governor._memory.empty.values())


async def test_a_node_that_does_not_join_in_time_is_given_back_and_another_asked_for(world: World) -> None:
    cloud = Cloud(world.folder)
    await world.declare_pool(minimum=1, provision=cloud.provision, arrivesWithin="1s")
    await eventually(lambda: len(cloud.asked("get")) >= 2, 60)
    first = cloud.asked("get")[0]["key"]
    assert first in {one["key"] for one in cloud.asked("giveBack")}
    assert first not in cloud.holds()


async def test_a_pool_whose_nodes_never_join_says_so_and_is_asked_less_and_less(world: World) -> None:
    cloud = Cloud(world.folder)
    await world.declare_pool(minimum=2, provision=cloud.provision, arrivesWithin="1s")
    for times, pause in ((2, "1 s"), (3, "2 s"), (4, "4 s")):
        why = f"what it gave did not join within 1 s, {times} times in a row, and was given back; it is asked again after {pause}"
        await world.pool_is(lambda status, why=why: status.get("trouble") == why)
        assert len({one["key"] for one in cloud.asked("get")}) == 2 * times
    assert cloud.holds() == []


async def test_a_node_that_joins_at_last_makes_up_for_those_that_did_not(world: World) -> None:
    cloud = Cloud(world.folder)
    await world.declare_pool(minimum=1, provision=cloud.provision, arrivesWithin="1s")
    await world.pool_is(lambda status: status.get("unjoined") == 1)
    await world.declare_pool(minimum=1, provision=cloud.provision, arrivesWithin="1m")
    await eventually(lambda: len(cloud.holds()) == 1, 30)
    async with machine(world, f"m-{cloud.holds()[0]}"):
        await world.pool_is(lambda status: not status.get("unjoined") and status.get("ready") == 1)


async def test_what_a_command_may_not_do_is_said_and_not_done(world: World) -> None:
    await world.declare_pool(minimum=1, provision={"exec": ["nodes"]})
    why = "spec.provision.exec: a program is given by its absolute path, not as 'nodes'"
    status = await world.pool_is(lambda status: why in status.get("reason", ""))
    assert not status.get("machines")


# webhooks


@pytest.fixture
async def hook(world: World) -> AsyncIterator[Object]:
    """A server with nodes, and what it was sent."""
    found: Object = {"sent": [], "nodes": {}, "status": 200}

    async def handle(request: web.Request) -> web.Response:
        body = await request.read()
        asked = json.loads(body)
        found["sent"].append((asked, dict(request.headers), body))
        if found["status"] != 200 or asked["action"] == found.get("refuses"):
            return web.Response(status=429, text="no more quota")
        if asked["action"] == "get":
            found["nodes"].setdefault(request.headers["Idempotency-Key"], found.get("always") or f"vm-{len(found['nodes'])}")
            return web.json_response({"node": found["nodes"][asked["key"]]})
        if asked["action"] == "giveBack":
            found["nodes"].pop(asked["key"], None)
            return web.json_response({})
        return web.json_response({"nodes": [{"key": key, "node": node} for key, node in found["nodes"].items()]})

    app = web.Application()
    app.router.add_post("/pool", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    found["url"] = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/pool"  # type: ignore[attr-defined]
    try:
        yield found
    finally:
        await runner.cleanup()


async def test_a_webhook_is_sent_signed_questions_with_a_key(world: World, hook: Object) -> None:
    secrets = world.client.kind("v1", "Secret", namespace="default")
    data = {"token": base64.b64encode(b"let-me-in").decode(), "hmac": base64.b64encode(b"salt").decode()}
    await secrets.create({"metadata": {"name": "pool"}, "data": data})
    provision = {"webhook": hook["url"], "secret": {"namespace": "default", "name": "pool"}}
    await world.declare_pool(minimum=1, provision=provision)
    status = await world.pool_is(lambda status: any(one["node"] for one in status.get("machines", ())))
    [entry] = status["machines"]
    assert hook["nodes"] == {entry["key"]: "vm-0"}
    [(asked, headers, body)] = [one for one in hook["sent"] if one[0]["action"] == "get"]
    assert asked["key"] == headers["Idempotency-Key"] == entry["key"]
    assert headers["Authorization"] == "Bearer let-me-in"
    assert headers["Homeostat-Signature"] == "sha256=" + hmac.new(b"salt", body, hashlib.sha256).hexdigest()


async def test_what_a_webhook_refuses_is_told_and_asked_again_by_the_same_key(world: World, hook: Object) -> None:
    await world.declare_pool(minimum=0, maximum=1, provision={"webhook": hook["url"]})
    await world.pool_is(lambda status: any(one["type"] == "Ready" for one in status.get("conditions", ())))
    hook["status"] = 429
    world.provider.governor.nodes.pool_bell.ring(world.pool_ref("p", (await world.pools.get("p"))["metadata"]["uid"]))
    why = "it cannot be read, and neither grows nor shrinks: list: 127.0.0.1 answered 429: no more quota"
    await world.pool_is(lambda status: status.get("reason") == why)
    await world.declare("job")
    await world.until("job", lambda obj: bool(obj.get("status", {}).get("constraint")))
    assert hook["nodes"] == {}
    hook["status"] = 200
    await world.declare_pool(minimum=1, maximum=1, provision={"webhook": hook["url"]})
    await eventually(lambda: len(hook["nodes"]) == 1, 90)


async def test_a_node_that_is_refused_is_told_and_is_asked_for_no_more_when_nobody_wants_it(world: World, hook: Object) -> None:
    hook["refuses"] = "get"
    await world.declare_pool(minimum=1, provision={"webhook": hook["url"]})
    why = "get: 127.0.0.1 answered 429: no more quota"
    status = await world.pool_is(lambda status: status.get("reason") == why)
    assert (status["trouble"], status["coming"]) == (why, 0)
    [entry] = status["machines"]
    await eventually(lambda: len([one for one, _, _ in hook["sent"] if one["action"] == "get"]) >= 2, 60)
    assert {one["key"] for one, _, _ in hook["sent"] if one["action"] == "get"} == {entry["key"]}
    await world.declare_pool(minimum=0, provision={"webhook": hook["url"]})
    status = await world.pool_is(lambda status: not status.get("machines") and not status.get("reason"))
    assert {one["key"] for one, _, _ in hook["sent"] if one["action"] == "giveBack"} == {entry["key"]}


async def test_of_a_pool_that_gives_one_node_for_two_keys_nothing_is_taken_back(world: World, hook: Object) -> None:
    hook["always"] = "vm"
    await world.declare_pool(minimum=2, provision={"webhook": hook["url"]})
    await world.pool_is(lambda status: "vm is given for two keys" in status.get("reason", ""))
    await world.declare_pool(minimum=0, provision={"webhook": hook["url"]})
    await world.pool_is(lambda status: status.get("observedGeneration") == 2 and "two keys" in status.get("trouble", ""))
    assert not [one for one, _, _ in hook["sent"] if one["action"] == "giveBack"]


async def test_a_pool_that_was_never_asked_for_anything_can_be_deleted_though_it_cannot_be_read(world: World, hook: Object) -> None:
    hook["status"] = 500
    await world.declare_pool(minimum=1, provision={"webhook": hook["url"]})
    await world.pool_is(lambda status: "answered 429" in status.get("trouble", ""))
    await world.pools.delete("p")
    await eventually(lambda: world.provider.governor.nodes.pool("p") is None, 60)


async def test_a_node_whose_agent_was_not_told_its_pool_counts_for_the_one_that_got_it_and_is_given_back(world: World) -> None:
    cloud = Cloud(world.folder)
    await world.declare_pool(minimum=1, maximum=1, provision=cloud.provision)
    status = await world.pool_is(lambda status: any(one["node"] for one in status.get("machines", ())))
    node = status["machines"][0]["node"]
    async with machine(world, node, pool=""):
        await world.pool_is(lambda status: status.get("ready") == 1 and status.get("nodes") == 1 and status.get("coming") == 0)
        await world.declare_pool(minimum=0, maximum=0, provision=cloud.provision)
        await eventually(lambda: bool(cloud.asked("giveBack")))
    await world.node_goes(node)
    assert cloud.holds() == []
    assert (await world.pools.get("p"))["status"]["machines"] == []


async def test_a_pool_says_that_a_node_that_it_got_names_another_and_does_not_take_it_back(world: World) -> None:
    cloud = Cloud(world.folder)
    await world.declare_pool(minimum=1, maximum=1, provision=cloud.provision)
    status = await world.pool_is(lambda status: any(one["node"] for one in status.get("machines", ())))
    node = status["machines"][0]["node"]
    async with machine(world, node, pool="another"):
        told = await world.pool_is(lambda status: "says that it is of another" in status.get("reason", ""))
        assert told["ready"] == 0
        assert f"{node} says that it is of another" in told["reason"]
    assert cloud.asked("giveBack") == []


async def test_what_a_pool_says_in_figures_follows_its_declaration(world: World) -> None:
    cloud = Cloud(world.folder)
    await world.declare("gang", replicas=9)
    for most in (1, 2):
        await world.declare_pool(maximum=most, provision=cloud.provision)
        await world.pool_is(lambda status, of=most: f"at its maximum of {of}" in status.get("reason", ""))
