"""A control plane with a small fleet as agents and the governor would have left it, and the commands that ask about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homeostat.cli import main
from homeostat.client import Client
from homeostat.gpu.kinds import NODE, POLICY, POOL, TENANT, WORKLOAD
from homeostat.guards.policy import POLICY_KIND
from homeostat.model.clock import format_time
from homeostat.model.kinds import crd_for
from homeostat.testing import TestPlane

Object = dict[str, Any]
Ask = Callable[..., Result]


@pytest.fixture
def ask(homeostat: TestPlane) -> Ask:
    """Runs `homeostat gpu …` against the control plane."""

    def run(*arguments: object) -> Result:
        runner = CliRunner(env={"KUBECONFIG": str(homeostat.kubeconfig)})
        return runner.invoke(main, ["gpu", *map(str, arguments)])

    return run


@dataclass
class Fleet:
    """What is declared, and what is said of it."""

    plane: TestPlane
    uids: dict[str, str] = field(default_factory=dict)

    def kinds(self) -> None:
        import yaml

        infos = (TENANT, NODE, POOL, POLICY, WORKLOAD, POLICY_KIND)
        self.plane.apply(yaml.safe_dump_all([crd_for(info) for info in infos]))

    def write(
        self, api_version: str, kind: str, obj: Object, status: Object | None = None, namespace: str = ""
    ) -> Object:
        async def made(client: Client) -> Object:
            handle = client.kind(api_version, kind)
            found = await handle.create(obj, namespace=namespace)
            if status is None:
                return found
            return await handle.patch(
                obj["metadata"]["name"], {"status": status}, namespace=namespace, subresource="status"
            )

        return self.plane._call(made)

    def tenant(self, name: str, nominal: object, **spec: Any) -> None:
        quotas = [{"model": "H100", "nominal": nominal}]
        self.write(
            TENANT.api_version,
            "Tenant",
            {"metadata": {"name": name}, "spec": {"quotas": quotas, "namespaces": ["default"], **spec}},
        )

    def raise_quota(self, name: str, nominal: int) -> None:
        spec = {"spec": {"quotas": [{"model": "H100", "nominal": nominal}]}}
        self.plane._call(lambda client: client.kind(TENANT.api_version, "Tenant").patch(name, spec))

    def node(self, name: str, gpus: int = 8, heard: float = 0.0, **reading: Any) -> None:
        at = time.time() - heard
        readings = [
            {"index": i, "utilisation": 0.5, "powerWatts": 300, "memoryUsedMib": 2048, **reading} for i in range(gpus)
        ]
        spec = {"model": "H100", "gpus": [{"index": i, "memoryMib": 81920} for i in range(gpus)]}
        self.write(
            NODE.api_version,
            "GpuNode",
            {"metadata": {"name": name}, "spec": spec},
            {"reportedAt": format_time(at), "gpus": readings},
        )
        lease = {"holderIdentity": name, "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(at))}
        self.write(
            "coordination.k8s.io/v1", "Lease", {"metadata": {"name": name}, "spec": lease}, namespace="kube-system"
        )
        if heard:  # that the server took it just now is not to be seen
            unstamped = {"metadata": {"managedFields": [{}]}}
            self.plane._call(lambda client: client.kind("coordination.k8s.io/v1", "Lease").patch(name, unstamped, namespace="kube-system"))

    def workload(
        self, name: str, of: str, *, on: tuple[str, list[int]] | None = None, status: Object | None = None, **spec: Any
    ) -> str:
        """Pending, or running on these GPUs of a node."""
        said: Object = {**(status or {})}
        if on is not None:
            place = {"replica": 0, "node": on[0], "gpus": on[1]}
            said = {"phase": "Running", "startedAt": format_time(time.time() - 600), "assignment": [place], **said}
        obj = {"metadata": {"name": name}, "spec": {"tenant": of, "command": ["sleep", "9"], **spec}}
        found = self.write(WORKLOAD.api_version, "Workload", obj, said, namespace="default")
        self.uids[name] = found["metadata"]["uid"]
        return self.uids[name]


@pytest.fixture
def fleet(homeostat: TestPlane) -> Fleet:
    """Two tenants of one cohort on one node with eight GPUs: `vision` has four and borrows one more, `speech` lends it."""
    made = Fleet(homeostat)
    made.kinds()
    made.tenant("vision", 4, cohort="lab", weight=2)
    made.tenant("speech", 4, cohort="lab", budget={"gpuHours": 100})
    made.node("n1")
    made.workload("train", "vision", on=("n1", [0, 1, 2, 3, 4]), resources={"gpus": 5})
    made.workload("decode", "speech", on=("n1", [5]))
    return made
