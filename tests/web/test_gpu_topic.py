"""What the GPU view is told: from the functions that decide, as far as each person may see it."""

from __future__ import annotations

import importlib
import time
from typing import Any

import pytest

from homeostat.client import Client
from homeostat.gpu.kinds import NODE, POLICY, POOL, TENANT, WORKLOAD
from homeostat.insight.gpu import gather
from homeostat.insight.gpu_story import Story, find
from homeostat.loop.definitions import define
from homeostat.model.clock import format_time
from homeostat.model.kinds import crd_for
from homeostat.web.gpu import figures_of

from .conftest import House, Page

HOLDERS = -1
RULES = "rbac.authorization.k8s.io/v1"


class Racks:
    """A small fleet as agents and the governor would have left it: `vision` has 4 GPUs and uses them, `speech` 4 and uses one."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.tenants = client.kind(TENANT.api_version, TENANT.kind)
        self.nodes = client.kind(NODE.api_version, NODE.kind)
        self.workloads = client.kind(WORKLOAD.api_version, WORKLOAD.kind)

    async def fill(self) -> None:
        for info in (TENANT, NODE, POOL, POLICY, WORKLOAD):
            await define(self.client, crd_for(info), "test")
        await self.client.kind("v1", "Namespace").create({"metadata": {"name": "lab"}})
        for name in ("vision", "speech"):
            await self.tenant(name, 4)
        for name in ("n1", "n2"):
            await self.node(name)
        await self.workload("train", "vision", on=("n1", [0, 1, 2, 3]), resources={"gpus": 4})
        await self.workload("decode", "speech", "lab", on=("n1", [5]))

    async def tenant(self, name: str, nominal: int) -> None:
        spec = {"quotas": [{"model": "H100", "nominal": nominal}], "namespaces": ["default", "lab"]}
        await self.tenants.create({"metadata": {"name": name}, "spec": spec})

    async def node(self, name: str) -> None:
        spec = {"model": "H100", "costPerHour": 16.0, "gpus": [{"index": i, "memoryMib": 81920} for i in range(8)]}
        await self.nodes.create({"metadata": {"name": name}, "spec": spec})
        await self.read(name, 0.5)
        lease = {"holderIdentity": name, "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())}
        await self.client.kind("coordination.k8s.io/v1", "Lease").create({"metadata": {"name": name}, "spec": lease}, namespace="kube-system")

    async def read(self, name: str, use: float) -> None:
        """What the agent of a node reports."""
        readings = [{"index": i, "utilisation": use, "powerWatts": 300, "memoryUsedMib": 2048} for i in range(8)]
        await self.nodes.patch(name, {"status": {"reportedAt": format_time(time.time()), "gpus": readings}}, subresource="status")

    async def workload(self, name: str, tenant: str, namespace: str = "default", *, on: tuple[str, list[int]] | None = None, status: Any = None, **spec: Any) -> None:
        """Pending, or running on these GPUs of a node."""
        said = dict(status or {})
        if on is not None:
            place = {"replica": 0, "node": on[0], "gpus": on[1]}
            said = {"phase": "Running", "startedAt": format_time(time.time() - 600), "assignment": [place], **said}
        await self.workloads.create({"metadata": {"name": name}, "spec": {"tenant": tenant, "command": ["sleep", "9"], **spec}}, namespace=namespace)
        await self.workloads.patch(name, {"status": said}, namespace=namespace, subresource="status")


@pytest.fixture
async def racks(house: House) -> Racks:
    racks = Racks(house.client)
    await racks.fill()
    return racks


async def somebody(house: House, name: str, *resources: str, namespace: str = "") -> Page:
    """Who may look at these kinds of GPUs: everywhere, or in a namespace."""
    rules = [{"apiGroups": [WORKLOAD.group], "resources": list(resources), "verbs": ["get", "list", "watch"]}]
    scope = "" if namespace else "Cluster"
    role = house.client.kind(RULES, f"{scope}Role")
    binding = house.client.kind(RULES, f"{scope}RoleBinding")
    await role.create({"metadata": {"name": name}, "rules": rules}, namespace=namespace)
    subject = {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{scope}Role", "name": name}
    await binding.create({"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]}, namespace=namespace)
    return await house.person(name)


def holders(words: dict[str, Any], node: str) -> list[list[Any]]:
    row = next(one for one in words["nodes"] if one["name"] == node)
    return [holder for gpu in row["gpus"] for holder in gpu[HOLDERS]]


async def test_a_server_without_gpus_says_so_and_tells_of_them_when_they_come(house: House) -> None:
    page = await house.admin()
    async with page.stream(gpu={"topic": "gpu"}) as lines:
        assert await lines.next("gpu") == {"absent": True}
        await Racks(house.client).fill()
        await lines.until("gpu", lambda said: {row["name"] for row in said.get("nodes", ())} >= {"n1", "n2"})


async def test_everything_is_told_at_first_and_then_what_changes(house: House, racks: Racks) -> None:
    await racks.workload("late", "vision", resources={"gpus": 2})
    page = await house.admin()
    async with page.stream(gpu={"topic": "gpu"}) as lines:
        first = await lines.until("gpu", lambda said: said.get("whole"))
        assert [row["name"] for row in first["nodes"]] == ["n1", "n2"]
        assert holders(first, "n1") == [["default/train", "vision", 1.0, False]] * 4 + [["lab/decode", "speech", 1.0, False]]
        assert [(row["name"], row["constraint"], row["gpus"]) for row in first["queue"]] == [("late", "quota", 2.0)]
        vision = next(row for row in first["tenants"] if row["tenant"] == "vision")
        assert (vision["used"], vision["nominal"], vision["entitled"]) == (4.0, 4.0, 4.0), "it wants more, and has no cohort to borrow from"
        assert [row["node"] for row in first["empty"]] == ["n2"]
        assert any("no loop shares out GPUs" in note for note in first["notes"])

        await racks.read("n2", 0.9)
        news = await lines.until("gpu", lambda said: "nodes" in said)
        assert [row["name"] for row in news["nodes"]] == ["n2"]

        await racks.tenants.patch("vision", {"spec": {"quotas": [{"model": "H100", "nominal": 3}]}})
        news = await lines.until("gpu", lambda said: "tenants" in said)
        assert next(row["over"] for row in news["tenants"] if row["tenant"] == "vision") == 1.0

        await racks.workloads.delete("late", namespace="default")
        assert (await lines.until("gpu", lambda said: "queue" in said))["queue"] == []
        await racks.nodes.delete("n2")
        assert (await lines.until("gpu", lambda said: said.get("gone")))["gone"] == ["n2"]


async def test_what_was_taken_off_and_what_lies_idle_is_told(house: House, racks: Racks) -> None:
    decision = {"verb": "preempt", "reason": "it borrows", "constraint": "quota", "at": format_time(time.time() - 60)}
    beneficiary = (await racks.workloads.get("train", namespace="default"))["metadata"]["uid"]
    await racks.workload("borrower", "speech", status={"phase": "Suspended", "suspensions": 2, "decision": decision | {"beneficiary": beneficiary}})
    await racks.read("n1", 0.0)
    page = await house.admin()
    async with page.stream(gpu={"topic": "gpu"}) as lines:
        said = await lines.until("gpu", lambda said: said.get("whole"))
    assert [(row["workload"], row["verb"], row["for"], row["times"]) for row in said["taken"]] == [("default/borrower", "preempt", "default/train", 2)]
    assert [(row["workload"], row["gpus"]) for row in said["idle"]] == [("default/train", 4.0), ("lab/decode", 1.0)]


async def test_the_story_of_a_workload_is_that_of_the_command_and_goes_on(house: House, racks: Racks) -> None:
    await racks.workload("late", "vision", resources={"gpus": 2})
    page = await house.admin()
    async with page.stream(why={"topic": "gpu-workload", "namespace": "default", "name": "late"}) as lines:
        said = await lines.until("why", lambda said: "headline" in said)
        facts = await gather(house.client)
        story = Story(facts, find(facts, "default/late"))
        assert said["headline"] == story.headline == "Workload default/late of vision: Pending"
        assert [about for about, _ in said["lines"]] == [about for about, _ in story.lines()]
        assert dict(said["lines"])["held back"].endswith("it wants 2 of H100, and vision uses 4 of its 4")
        await racks.tenants.patch("vision", {"spec": {"quotas": [{"model": "H100", "nominal": 8}]}})
        await lines.until("why", lambda said: "the governor wants to admit it" in dict(said["lines"])["next"])
        await racks.workloads.delete("late", namespace="default")
        assert "there is no workload 'late'" in (await lines.until("why", lambda said: "problem" in said))["problem"]


async def test_who_sees_one_namespace_sees_its_workloads_and_nothing_of_others(house: House, racks: Racks) -> None:
    await racks.workload("late", "vision", resources={"gpus": 2})
    await racks.workload("mine", "speech", "lab", resources={"gpus": 8})
    page = await somebody(house, "lena", "workloads", namespace="lab")
    async with page.stream(
        gpu={"topic": "gpu"},
        own={"topic": "gpu-workload", "namespace": "lab", "name": "mine"},
        other={"topic": "gpu-workload", "namespace": "default", "name": "late"},
    ) as lines:
        assert (await lines.next("other"))["code"] == 403
        said = await lines.until("gpu", lambda said: said.get("whole"))
    assert [row["name"] for row in said["queue"]] == ["mine"]
    assert said["sees"] == {"nodes": False, "tenants": False, "workloads": False}
    assert not {"nodes", "tenants", "empty", "halts", "series"} & said.keys()
    async with page.stream(own={"topic": "gpu-workload", "namespace": "lab", "name": "mine"}) as lines:
        assert (await lines.until("own", lambda said: "headline" in said))["headline"].startswith("Workload lab/mine")
    async with page.stream(gone={"topic": "gpu-workload", "namespace": "lab", "name": "lat"}) as lines:
        assert "late" not in (await lines.next("gone"))["problem"], "it must not name what one does not see"


async def test_who_sees_nodes_alone_sees_that_gpus_are_taken_and_not_by_whom(house: House, racks: Racks) -> None:
    page = await somebody(house, "nora", "gpunodes")
    async with page.stream(gpu={"topic": "gpu"}) as lines:
        said = await lines.until("gpu", lambda said: said.get("whole"))
    assert holders(said, "n1") == [["*", "", 1.0, False]] * 5
    assert said["queue"] == said["idle"] == said["taken"] == []
    assert "train" not in str(said)


async def test_how_use_went_is_kept_though_nobody_looks(house: House, racks: Racks) -> None:
    await racks.tenants.patch("vision", {"status": {"usage": [{"model": "H100", "nominal": "4", "used": "3500m"}]}}, subresource="status")
    assert figures_of(await racks.tenants.get("vision")) == pytest.approx({"used": 3.5, "quota": 4.0, "entitled": float("nan")}, nan_ok=True)
    page = await house.admin()
    async with page.stream(gpu={"topic": "gpu"}) as lines:
        series = (await lines.until("gpu", lambda said: "series" in said))["series"]
    assert series["vision"].keys() == {"at", "used", "quota", "entitled"}


async def test_without_numpy_it_says_what_to_install(house: House, racks: Racks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("homeostat.web.topics.gpu"), "find_spec", lambda name: None)
    page = await house.admin()
    async with page.stream(gpu={"topic": "gpu"}, why={"topic": "gpu-workload", "namespace": "default", "name": "train"}) as lines:
        assert "pip install 'homeostat[gpu]'" in (await lines.next("gpu"))["missing"]
    async with page.stream(why={"topic": "gpu-workload", "namespace": "default", "name": "train"}) as lines:
        assert "pip install 'homeostat[gpu]'" in (await lines.next("why"))["error"]
