"""KubernetesObject: objects on this API and on another one over HTTPS, under the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.providers.bench import WAIT_SECONDS, Bench, ready, running

from homeostat.client import Client
from homeostat.guards import GuardPolicy, Mode
from homeostat.guards.policy import Health, Selection
from homeostat.loop.declarations import ADOPT
from homeostat.loop.live import LiveObject
from homeostat.model.errors import ApiError
from homeostat.providers.kubernetes import KubernetesObject
from homeostat.testing import TestPlane, control_plane

Object = dict[str, Any]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path, KubernetesObject) as bench:
        yield bench


@pytest.fixture(scope="module")
def berlin() -> Iterator[TestPlane]:
    """Another cluster."""
    with control_plane() as plane:
        yield plane


def config(data: dict[str, str], name: str = "lamp", **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data}


DEPLOYMENT: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "web",
                        "image": "web:1",
                        "ports": [{"containerPort": 80}],
                        "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}},
                    }
                ]
            },
        },
    },
}


class Maps:
    """ConfigMaps as others see and write them."""

    def __init__(self, client: Client) -> None:
        self.kind = client.kind("v1", "ConfigMap", namespace="default")

    async def data(self, name: str = "lamp") -> dict[str, str] | None:
        try:
            found: dict[str, str] = (await self.kind.get(name)).get("data") or {}
        except ApiError as error:
            if error.code != 404:
                raise
            return None
        return found

    async def until(self, data: dict[str, str] | None) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.data() != data:
                await asyncio.sleep(0.005)

    async def edit(self, data: dict[str, str | None], who: str = "kubectl-edit") -> None:
        await self.kind.patch("lamp", {"data": data}, field_manager=who)


@pytest.fixture
def maps(bench: Bench) -> Maps:
    return Maps(bench.client)


async def test_what_is_declared_is_applied_with_a_manager_of_its_own(bench: Bench, maps: Maps) -> None:
    await bench.declare("lamp", {"object": config({"colour": "red"})})
    obj = await bench.ready("lamp")
    made = await maps.kind.get("lamp")
    assert made["data"] == {"colour": "red"}
    assert [(e["manager"], e["operation"]) for e in made["metadata"]["managedFields"]] == [
        ("homeostat/default/lamp", "Apply")
    ]
    assert obj["status"]["identity"] == f"ConfigMap/default/lamp@{made['metadata']['uid']}"


async def test_nothing_is_written_while_all_is_as_declared(bench: Bench) -> None:
    await bench.declare("web", {"object": DEPLOYMENT})  # a kind with defaults, and quantities written in another way
    await bench.ready("web")
    deployments = bench.client.kind("apps/v1", "Deployment", namespace="default")
    before, declared = await deployments.get("web"), await bench.kind.get("web")
    for _ in range(3):
        await bench.whole_pass()
    assert (await deployments.get("web"))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert (await bench.kind.get("web"))["metadata"]["resourceVersion"] == declared["metadata"]["resourceVersion"]


async def test_fields_of_others_are_left_alone_also_in_lists(bench: Bench) -> None:
    await bench.declare("web", {"object": DEPLOYMENT})
    await bench.ready("web")
    deployments = bench.client.kind("apps/v1", "Deployment", namespace="default")
    container = {"name": "web", "env": [{"name": "DEBUG", "value": "1"}]}
    sidecar = {"name": "proxy", "image": "proxy:1"}
    theirs = {"spec": {"template": {"spec": {"containers": [sidecar, container]}}}}
    before = await deployments.apply({"metadata": {"name": "web"}, **theirs}, field_manager="injector")
    await bench.whole_pass()
    assert (await deployments.get("web"))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    changed = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 5}}
    await bench.declare("web", {"object": changed})
    await bench.ready("web")
    spec = (await deployments.get("web"))["spec"]
    assert spec["replicas"] == 5
    assert {c["name"] for c in spec["template"]["spec"]["containers"]} == {"web", "proxy"}


async def test_a_field_that_is_declared_no_more_is_taken_back(bench: Bench, maps: Maps) -> None:
    await bench.declare("lamp", {"object": config({"colour": "red", "watts": "5"}, labels={"room": "hall"})})
    await bench.ready("lamp")
    await maps.edit({"note": "theirs"})
    await bench.declare("lamp", {"object": config({"colour": "red"})})
    await maps.until({"colour": "red", "note": "theirs"})
    await bench.ready("lamp")
    assert "labels" not in (await maps.kind.get("lamp"))["metadata"]


async def test_what_others_changed_is_held_and_they_are_named(bench: Bench, maps: Maps) -> None:
    await bench.declare("lamp", {"object": config({"colour": "red"})})
    await bench.ready("lamp")
    await maps.edit({"colour": "green"})
    said = await bench.reason("lamp", "Held")  # told by a watch: no pass was made
    assert "kubectl-edit" in said
    assert ".data.colour" in said
    drift = (await bench.kind.get("lamp"))["status"]["drift"]
    assert drift["by"] == ["kubectl-edit"]
    assert drift["cause"] == "drift"
    assert drift["paths"] == ["object.data.colour"]
    assert await maps.data() == {"colour": "green"}
    await bench.declare("lamp", {"object": config({"colour": "red"}), "forceConflicts": True})
    await maps.until({"colour": "red"})
    await bench.ready("lamp")


async def test_with_force_drift_is_repaired_as_soon_as_it_is_seen(bench: Bench, maps: Maps) -> None:
    await bench.declare("lamp", {"object": config({"colour": "red"}), "forceConflicts": True})
    await bench.ready("lamp")
    await maps.edit({"colour": "green", "note": "theirs"})
    await maps.until({"colour": "red", "note": "theirs"})


async def test_what_nobody_owns_is_put_back_without_force(bench: Bench, maps: Maps) -> None:
    await bench.declare("lamp", {"object": config({"colour": "red"})})
    await bench.ready("lamp")
    await maps.edit({"colour": None})
    await maps.until({"colour": "red"})


async def test_what_was_deleted_is_made_again_and_is_ours(bench: Bench, maps: Maps) -> None:
    await bench.declare("lamp", {"object": config({"colour": "red"})})
    await bench.ready("lamp")
    first = (await maps.kind.get("lamp"))["metadata"]["uid"]
    await maps.kind.delete("lamp")
    await maps.until({"colour": "red"})
    second = (await maps.kind.get("lamp"))["metadata"]["uid"]
    assert second != first
    await bench.until("lamp", lambda obj: obj["status"]["identity"].endswith(second))
    await bench.kind.delete("lamp")
    await bench.gone("lamp")
    assert await maps.data() is None


async def test_an_object_of_the_same_name_and_another_uid_is_not_ours(bench: Bench, maps: Maps) -> None:
    await bench.declare("lamp", {"object": config({"colour": "red"})})
    await bench.ready("lamp")
    await bench.stop()
    await maps.kind.delete("lamp")
    await maps.kind.create(config({"colour": "gold"}), field_manager="stranger")
    await bench.start()
    assert "not ours" in await bench.reason("lamp", "Held")
    assert await maps.data() == {"colour": "gold"}
    await bench.kind.delete("lamp")
    await bench.gone("lamp")
    assert await maps.data() == {"colour": "gold"}


async def test_what_exists_is_taken_over_only_where_adoption_is_said(bench: Bench, maps: Maps) -> None:
    await maps.kind.create(config({"note": "theirs"}), field_manager="stranger")
    await bench.declare("lamp", {"object": config({"colour": "red"})})
    assert "adopt" in await bench.reason("lamp", "Held")
    await bench.declare("lamp", {"object": config({"colour": "red"})}, {ADOPT: "true"})
    await maps.until({"colour": "red", "note": "theirs"})
    await bench.ready("lamp")


async def test_who_was_faster_at_making_it_keeps_it(
    bench: Bench, maps: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LiveObject._create

    async def race(live: LiveObject, declared: Object) -> None:
        monkeypatch.setattr(LiveObject, "_create", real)
        await maps.kind.create(config({"note": "theirs"}), field_manager="stranger")
        await real(live, declared)

    monkeypatch.setattr(LiveObject, "_create", race)
    await bench.declare("lamp", {"object": config({"colour": "red"})})
    await bench.reason("lamp", "Held")
    assert await maps.data() == {"note": "theirs"}
    assert "intent" not in (await bench.kind.get("lamp"))["status"]


async def test_two_that_declare_the_same_object_conflict_instead_of_fighting(bench: Bench, maps: Maps) -> None:
    await bench.declare("one", {"object": config({"colour": "red"})})
    await bench.ready("one")
    await bench.declare("two", {"object": config({"colour": "blue"})}, {ADOPT: "true"})
    await bench.until("two", lambda obj: "homeostat/default/one" in ready(obj).get("message", ""))
    assert await maps.data() == {"colour": "red"}


async def test_deletion_waits_until_the_object_is_gone(bench: Bench, maps: Maps) -> None:
    await bench.declare("lamp", {"object": config({"colour": "red"})})
    await bench.ready("lamp")
    await maps.kind.patch("lamp", {"metadata": {"finalizers": ["example.com/wait"]}}, field_manager="stranger")
    await bench.kind.delete("lamp")
    async with asyncio.timeout(WAIT_SECONDS):
        while "deletionTimestamp" not in (await maps.kind.get("lamp"))["metadata"]:
            await asyncio.sleep(0.005)
    assert await bench.kind.get("lamp")
    await maps.kind.patch("lamp", {"metadata": {"finalizers": None}}, field_manager="stranger")
    await bench.gone("lamp")


async def test_an_object_that_is_to_be_kept_outlives_its_declaration(bench: Bench, maps: Maps) -> None:
    await bench.declare("lamp", {"object": config({"colour": "red"}), "deletePolicy": "Keep"})
    await bench.ready("lamp")
    await bench.kind.delete("lamp")
    await bench.gone("lamp")
    assert await maps.data() == {"colour": "red"}


async def test_an_object_that_is_not_ready_makes_its_declaration_unready(bench: Bench) -> None:
    crd = yaml.safe_load("""
        metadata: {name: jobs.example.com}
        spec:
          group: example.com
          scope: Namespaced
          names: {kind: Errand, plural: jobs}
          versions:
            - {name: v1, served: true, storage: true, subresources: {status: {}},
               schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
    """)
    await bench.client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").create(crd)
    errand = {"apiVersion": "example.com/v1", "kind": "Errand", "metadata": {"name": "run"}, "spec": {"to": "town"}}
    await bench.declare("run", {"object": errand})
    await bench.ready("run")
    errands = bench.client.kind("example.com/v1", "Errand", namespace="default")
    waiting = {"type": "Ready", "status": "False", "reason": "Late", "message": "the road is closed"}
    await errands.patch("run", {"status": {"conditions": [waiting]}}, subresource="status")
    assert "the road is closed" in await bench.reason("run", "Unhealthy")
    await errands.patch("run", {"status": {"conditions": [{**waiting, "status": "True"}]}}, subresource="status")
    await bench.ready("run")


async def test_values_of_secrets_are_in_no_status(bench: Bench) -> None:
    obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"token": "s3cret"}}
    await bench.declare("key", {"object": obj, "forceConflicts": True})
    await bench.ready("key")
    secrets = bench.client.kind("v1", "Secret", namespace="default")
    assert (await secrets.get("key"))["data"] == {"token": "czNjcmV0"}
    await bench.stop()
    await secrets.patch("key", {"stringData": {"token": "0ther"}})
    await bench.start()
    await bench.until("key", lambda found: "repairedAt" in found["status"])
    status = str((await bench.kind.get("key"))["status"])
    for value in ("s3cret", "czNjcmV0", "0ther", "MHRoZXI="):
        assert value not in status


@pytest.mark.parametrize(
    ("obj", "why"),
    [
        (config({}, namespace="kube-system"), "only objects of namespace default"),
        ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "more"}}, "in no namespace"),
        (
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "me"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            },
            "gives power",
        ),
        (
            {"apiVersion": "kubernetes.homeostat.dev/v1", "kind": "KubernetesObject", "metadata": {"name": "me"}},
            "gives power",
        ),
    ],
)
async def test_the_rights_of_the_loop_are_not_lent_out(bench: Bench, obj: Object, why: str) -> None:
    await bench.declare("more", {"object": obj})
    assert why in await bench.reason("more", "Unreadable")


async def test_where_it_is_allowed_objects_may_be_anywhere(tmp_path: Path) -> None:
    async with running(tmp_path, lambda: KubernetesObject(anywhere=True)) as bench:
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "more"}}
        await bench.declare("more", {"object": obj})
        await bench.ready("more")
        assert await bench.client.kind("v1", "Namespace").get("more")


async def test_a_kind_that_is_not_served_is_unknown(bench: Bench) -> None:
    obj = {"apiVersion": "example.com/v1", "kind": "Unicorn", "metadata": {"name": "u"}}
    await bench.declare("u", {"object": obj})
    assert "Unicorn" in await bench.reason("u", "Unreadable")


async def test_a_manifest_that_is_refused_says_why(bench: Bench) -> None:
    wrong = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": -1}}
    await bench.declare("web", {"object": wrong})
    assert "must be greater than or equal to 0" in await bench.reason("web", "ActionFailed")


async def test_kind_and_name_cannot_be_changed(bench: Bench) -> None:
    await bench.declare("lamp", {"object": config({"colour": "red"})})
    with pytest.raises(ApiError, match="which object it is"):
        await bench.declare("lamp", {"object": config({"colour": "red"}, name="other")})


# On another API


async def test_another_api_is_reached_by_a_kubeconfig_in_a_secret(bench: Bench, berlin: TestPlane) -> None:
    await bench.secret("berlin", kubeconfig=berlin.kubeconfig.read_text())
    async with berlin.client() as there:
        maps = Maps(there)
        spec = {"object": config({"colour": "red"}), "kubeconfigSecret": {"name": "berlin"}, "forceConflicts": True}
        await bench.declare("lamp", spec)
        await bench.ready("lamp")
        assert await maps.data() == {"colour": "red"}
        await maps.edit({"colour": "green"})
        await maps.until({"colour": "red"})  # told by a watch over HTTPS
        await bench.kind.delete("lamp")
        await bench.gone("lamp")
        assert await maps.data() is None


async def test_what_was_made_at_one_cluster_is_not_gone_because_a_kubeconfig_leads_to_another(
    bench: Bench, berlin: TestPlane
) -> None:
    spec = {"object": config({"colour": "red"}), "kubeconfigSecret": {"name": "berlin"}}
    await bench.secret("berlin", kubeconfig=berlin.kubeconfig.read_text())
    await bench.declare("lamp", spec)
    await bench.ready("lamp")
    with control_plane() as rome:
        async with rome.client() as there:
            await bench.secret("berlin", kubeconfig=rome.kubeconfig.read_text())
            bench.look_again()
            assert "it was made at another cluster" in await bench.reason("lamp", "Unreadable")
            assert await Maps(there).data() is None
            await bench.secret("berlin", kubeconfig=berlin.kubeconfig.read_text())
            bench.look_again()
            await bench.ready("lamp")
            await bench.declare("lamp", {**spec, "object": config({"colour": "blue"})})
            await bench.ready("lamp")  # it is still ours
            await bench.secret("berlin", kubeconfig=rome.kubeconfig.read_text())
            await bench.declare("lamp", {**spec, "object": config({"colour": "blue"})}, {ADOPT: "true"})
            await Maps(there).until({"colour": "blue"})
            await bench.ready("lamp")
            await bench.kind.delete("lamp")
            await bench.gone("lamp")
    async with berlin.client() as there:
        await Maps(there).kind.delete("lamp")


async def test_a_namespace_that_is_not_there_is_said(bench: Bench, berlin: TestPlane) -> None:
    await bench.secret("berlin", kubeconfig=berlin.kubeconfig.read_text())
    spec = {"object": config({}, namespace="nowhere"), "kubeconfigSecret": {"name": "berlin"}}
    await bench.declare("lamp", spec)
    assert 'namespaces "nowhere" not found' in await bench.reason("lamp", "ActionFailed")


async def test_an_api_that_does_not_answer_is_unknown(bench: Bench) -> None:
    await bench.secret("berlin", kubeconfig=kubeconfig(server="https://127.0.0.1:1"))
    await bench.declare("lamp", {"object": config({}), "kubeconfigSecret": {"name": "berlin"}})
    assert "cannot reach https://127.0.0.1:1" in await bench.reason("lamp", "Unreadable")


@pytest.mark.parametrize(
    ("cluster", "user", "why"),
    [
        ({}, {"exec": {"command": "/bin/sh"}}, "exec is refused"),
        ({}, {"tokenFile": "/var/run/secrets/token"}, "tokenFile is refused"),
        ({}, {"client-certificate": "/etc/x.crt", "client-key": "/etc/x.key"}, "client-certificate is refused"),
        ({"certificate-authority": "/etc/shadow"}, {}, "certificate-authority is refused"),
        ({"server": "https://169.254.169.254"}, {}, "metadata service"),
    ],
)
async def test_a_kubeconfig_must_not_reach_into_the_machine(
    bench: Bench, cluster: Object, user: Object, why: str
) -> None:
    await bench.secret("berlin", kubeconfig=kubeconfig(user, **cluster))
    await bench.declare("lamp", {"object": config({}), "kubeconfigSecret": {"name": "berlin"}})
    assert why in await bench.reason("lamp", "Unreadable")


def kubeconfig(user: Object | None = None, **cluster: str) -> str:
    return yaml.safe_dump(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", **cluster}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
        }
    )


# Alone


@pytest.mark.parametrize(
    ("declared", "would", "live", "told"),
    [
        ({"cpu": "1000m"}, {"cpu": "1"}, {"cpu": "1"}, {"cpu": "1000m"}),
        ({"cpu": "1000m"}, {"cpu": "1"}, {"cpu": "2"}, {"cpu": "2"}),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": 1}, {"a": 1, "gone": 2}, {"a": 1, "gone": 2}),
        ({"kept": None}, {}, {}, {"kept": None}),
        ([1000], [1], [1], [1000]),
        ([1000], [1], [2], [2]),
    ],
)
def test_what_applying_would_not_change_is_as_declared(declared: Any, would: Any, live: Any, told: Any) -> None:
    from homeostat.loop.applied import settle

    assert settle(declared, would, live) == told


async def test_a_policy_can_ask_for_the_health_of_the_whole_live_object(bench: Bench, maps: Maps) -> None:
    lit = Health(name="lit", expression="state.object.data.?lit.orValue('') == 'yes'", message="it is dark")
    fleet = Selection(kinds=(bench.provider.info.name,))
    bench.gate.policies["lamps"] = GuardPolicy(fleet=fleet, mode=Mode.ENFORCE, health=(lit,))
    await bench.declare("lamp", {"object": config({"colour": "red"})})
    assert await bench.reason("lamp", "Unhealthy") == "lit: it is dark"
    await maps.edit({"lit": "yes"})  # which nobody declared
    await bench.ready("lamp")
