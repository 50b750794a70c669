"""Nodes and pools under the guards: much at once stops and asks, what is only observed is left alone, and not everybody may declare a pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.gpu.agent.world import eventually, until
from tests.gpu.pools.world import Cloud, World

from homeostat.cli.allow import Allowed
from homeostat.client import Client
from homeostat.client.http import HttpTransport
from homeostat.client.kubeconfig import Target, from_kubeconfig
from homeostat.gpu.kinds import GROUP, POOL
from homeostat.model.clock import format_time
from homeostat.model.errors import ApiError

Object = dict[str, Any]
NODES = 12


async def fleet_of(world: World, silent: int) -> None:
    """Nodes without agents, of which some were not heard of for two hours."""
    await world.policy(failure={"lease": "1h"})
    now = world.engine.clock.now()
    for at in reversed(range(NODES)):  # first those that are heard of: alone, a silent one would be most of the fleet
        name, heard = f"n{at:02}", now - (7200 if at < silent else 0)
        spec = {"model": "H100", "gpus": [{"index": 0}], "pool": "p"}
        await world.nodes.create({"metadata": {"name": name}, "spec": spec})
        await world.nodes.patch(name, {"status": {"reportedAt": format_time(heard)}}, subresource="status")


async def stages(world: World) -> list[str]:
    return [one["status"].get("stage", "Open") for one in await world.nodes.list()]


async def test_when_many_nodes_fail_at_once_it_stops_and_asks(world: World) -> None:
    await fleet_of(world, 5)
    await world.declare_pool(minimum=0, maximum=20, provision=Cloud(world.folder).provision)
    await eventually(lambda: bool(world.node_fleet.halts), 30)
    [halt] = world.node_fleet.halts.values()
    assert f"of {NODES} would be changed, more than 3" in halt.reason
    assert (await stages(world)).count("Open") >= NODES - 1, "one goes before the whole is seen, at most"


async def test_a_few_that_fail_are_drained_one_after_the_other(world: World) -> None:
    await fleet_of(world, 2)
    await world.declare_pool(minimum=0, maximum=20, provision=Cloud(world.folder).provision)
    for name in ("n00", "n01"):
        found = await world.node_is(name, lambda obj: obj["status"].get("stage") == "Draining")
        assert found["status"]["reason"] == f"{name} is replaced: not heard of for 2 h"
    assert (await stages(world)).count("Open") == NODES - 2
    assert not world.node_fleet.halts


async def test_a_maximum_that_was_mistyped_does_not_take_away_the_fleet_a_tenth_at_a_time(world: World) -> None:
    await fleet_of(world, 0)
    await world.declare_pool(minimum=0, maximum=20, provision=Cloud(world.folder).provision)
    await world.pool_is(bool)
    got = [{"key": f"k{at:02}", "node": f"n{at:02}"} for at in range(NODES)]  # what joined by itself would stay
    await world.pools.patch("p", {"status": {"machines": got}}, subresource="status")
    await world.pools.patch("p", {"spec": {"maximum": 2}})
    await eventually(lambda: bool(world.node_fleet.halts), 30)
    [halt] = world.node_fleet.halts.values()
    assert f"of {NODES} would be changed, more than 3" in halt.reason
    assert (await stages(world)).count("Open") >= NODES - 1, "one goes before the whole is seen, at most"
    await world.pools.patch("p", {"spec": {"maximum": 20}})
    await eventually(lambda: not world.node_fleet.drifts, 30)


async def test_what_is_only_observed_gets_no_nodes_and_tells_what_it_would_do(world: World) -> None:
    guards = world.client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
    spec = {"fleet": {"kinds": ["nodepools.gpu.homeostat.dev"]}, "mode": "Observe"}
    await guards.create({"metadata": {"name": "look"}, "spec": spec})
    cloud = Cloud(world.folder)
    await world.declare_pool(minimum=2, provision=cloud.provision)
    held = await until(world.pools, "p", lambda obj: "drift" in obj.get("status", {}), 30)
    assert held["status"]["drift"]["changes"] == ["~ nodes: 0 → 2"]
    assert cloud.asked("get") == []
    assert not held["status"].get("machines")


async def test_who_declares_a_pool_needs_the_right_to_operate(world: World) -> None:
    access, rules = "rbac.authorization.k8s.io/v1", [{"apiGroups": [GROUP], "resources": ["nodepools"], "verbs": ["create"]}]
    roles, bindings = world.client.kind(access, "ClusterRole"), world.client.kind(access, "ClusterRoleBinding")
    await roles.create({"metadata": {"name": "pools"}, "rules": rules})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pools"}
    await bindings.create({"metadata": {"name": "pools"}, "roleRef": role, "subjects": [subject]})
    tokens = world.client.kind("homeostat.dev/v1", "UserToken")
    made = await tokens.create({"metadata": {"generateName": "eve-"}, "spec": {"user": "eve", "expirationSeconds": 3600}})
    target = Target(world.plane.url, authority=from_kubeconfig(world.plane.kubeconfig).authority, token=made["status"]["token"])
    async with Client(HttpTransport(target)) as client:
        body = {"metadata": {"name": "p"}, "spec": {"model": "H100"}}
        with pytest.raises(ApiError, match="operate"):
            await client.kind(POOL.api_version, POOL.kind).create(body)
        await roles.patch("pools", {"rules": [{**rules[0], "verbs": ["create", "operate"]}]})
        await client.kind(POOL.api_version, POOL.kind).create(body)


@pytest.mark.parametrize(
    ("provision", "why"),
    [
        ({"exec": ["/bin/true"]}, "spec.provision.exec: /bin/true may not be run on this host"),
        ({"webhook": "http://127.0.0.1:9/pool"}, "spec.provision.webhook: whoever runs the control plane has to allow its host"),
        ({"simulated": True}, "spec.provision.simulated: agents and what is placed on them would run on this host"),
    ],
)
async def test_a_pool_does_nothing_on_a_host_that_was_not_allowed_for_it(
    world: World, tmp_path: Path, provision: Object, why: str
) -> None:
    await world.end()
    await world.begin([one for one in Allowed.parse(["gpu"]).providers(tmp_path, "kubeconfig") if one.info.group == GROUP])
    await world.declare_pool(minimum=1, provision=provision)
    status = await world.pool_is(lambda status: why in status.get("reason", ""))
    assert not status.get("machines")
    assert not (tmp_path / "pools").exists()


@pytest.mark.parametrize(
    "provision", [{}, {"simulated": True, "webhook": "https://x"}, {"webhook": "ftp://x"}, {"exec": [], "simulated": False}]
)
async def test_a_pool_says_exactly_one_way(world: World, provision: Object) -> None:
    with pytest.raises(ApiError, match="provision"):
        await world.declare_pool(provision=provision)


async def test_the_minimum_is_not_beyond_the_maximum(world: World) -> None:
    with pytest.raises(ApiError, match="minimum is larger than maximum"):
        await world.declare_pool(minimum=3, maximum=2)
