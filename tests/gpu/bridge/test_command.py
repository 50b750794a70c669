"""The command as people type it: what it needs it prints, and what is wrong it says in a line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.gpu.bridge.kubelet import Kubelet
from tests.gpu.bridge.slurm import SlurmCluster
from tests.gpu.bridge.world import bridged, submit
from tests.gpu.controller.world import World

from homeostat.client import Client
from homeostat.client.http import HttpTransport
from homeostat.client.kubeconfig import Target, from_kubeconfig
from homeostat.gpu.agent.access import AGENTS, user_of
from homeostat.gpu.bridge.kubernetes import Kubernetes, Options
from homeostat.gpu.bridge.kubernetes.pods import MANAGER
from homeostat.model.errors import ApiError
from homeostat.testing import TestPlane
from homeostat.testing.plane import control_plane


def bridge(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "homeostat", "bridge", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def as_user(plane: TestPlane, token: str) -> Client:
    return Client(HttpTransport(Target(plane.url, authority=from_kubeconfig(plane.kubeconfig).authority, token=token)))


async def token_of(client: Client, user: str, *groups: str) -> str:
    spec = {"user": user, "groups": [*groups], "expirationSeconds": 3600}
    made = await client.kind("homeostat.dev/v1", "UserToken").create({"metadata": {"generateName": "t-"}, "spec": spec})
    return str(made["status"]["token"])


async def test_what_it_prints_as_its_rights_is_all_that_it_needs(world: World, tmp_path: Path) -> None:
    with control_plane() as plane:
        async with plane.client() as admin, Kubelet(admin, "k1", tmp_path):
            await admin.kind("v1", "Namespace").create({"metadata": {"name": "jobs"}})
            here = bridge("kubernetes", "--kubeconfig", world.plane.kubeconfig, "--cluster-kubeconfig", plane.kubeconfig, "--print-access")
            there = bridge("kubernetes", "--pod-namespace", "jobs", "--print-cluster-access")
            for client, printed in ((world.client, here), (admin, there)):
                for obj in yaml.safe_load_all(printed.stdout):
                    await client.kind(obj["apiVersion"], obj["kind"]).apply(obj, field_manager="admin")
            own = await token_of(world.client, user_of("kubernetes"), AGENTS)
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
            made = await admin.kind("v1", "ServiceAccount", namespace="jobs").create_subresource(MANAGER, "token", request)
            account = made["status"]["token"]
            world.plane, full = _As(world.plane, own), world.plane  # type: ignore[assignment]
            async with bridged(world, lambda state: Kubernetes(as_user(plane, account), Options(namespace="jobs", image="none"))):
                await world.quota(8)
                await submit(world, "train", 0.1)
                assert (await world.phase("train", "Succeeded", "Failed"))["status"]["phase"] == "Succeeded"
                await world.workloads.delete("train")
            async with as_user(plane, account) as client, as_user(full, own) as mine:
                pods = client.kind("v1", "Pod", namespace="default")
                for attempt in (pods.delete("x"), client.kind("v1", "Secret").list(), mine.kind("v1", "Secret").list()):
                    with pytest.raises(ApiError, match="forbidden"):
                        await attempt


class _As:
    """A control plane, as somebody who may do less."""

    def __init__(self, plane: TestPlane, token: str) -> None:
        self._plane, self._token = plane, token

    def client(self) -> Client:
        return as_user(self._plane, self._token)


def test_the_roles_for_a_slurm_cluster_name_its_machines(slurm: SlurmCluster, tmp_path: Path) -> None:
    done = bridge("slurm", "--state", tmp_path, "--slurm-conf", slurm.conf, "--print-access", "--node-prefix", "a-")
    assert done.returncode == 0, done.stderr
    names = {name for obj in yaml.safe_load_all(done.stdout) for rule in obj.get("rules", ()) for name in rule.get("resourceNames", ())}
    assert names == {"a-n1", "a-n2", "kube-system"}
    assert "homeostat token create --user homeostat:gpu-agent:slurm" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("slurm", "--state", "{tmp}", "--slurm-bin", "{tmp}"), "Slurm's sbatch is not in {tmp}"),
        (("slurm", "--state", "{tmp}/%j"), "choose another --state"),
        (("slurm", "--state", "{tmp}", "--model", "h100"), "write it as TYPE=MODEL"),
        (("slurm", "--state", "{tmp}", "--name", "A b"), "small letters"),
        (("kubernetes", "--cluster-kubeconfig", "{tmp}/none"), "{tmp}/none"),
        (("kubernetes", "--pod-template", "{tmp}/pod.yaml"), "pod.yaml is no Pod"),
        (("kubernetes", "--pod-namespace", "A"), "--pod-namespace"),
        (("kubernetes", "--join", "https://x", "--token", "t"), "--cluster-kubeconfig"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(homeostat: TestPlane, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "pod.yaml").write_text("spec: [1]")
    words = [word.format(tmp=tmp_path) for word in arguments]
    done = bridge(*words, *(() if "--join" in words else ("--kubeconfig", homeostat.kubeconfig)))
    assert done.returncode in (1, 2)
    assert said.format(tmp=tmp_path) in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_a_second_bridge_with_the_same_state_is_turned_away(homeostat: TestPlane, slurm: SlurmCluster, tmp_path: Path) -> None:
    arguments = ["slurm", "--state", str(tmp_path), "--slurm-conf", str(slurm.conf), "--kubeconfig", str(homeostat.kubeconfig)]
    from homeostat.providers.process.record import claim

    descriptor = claim(tmp_path / "nodes", "bridge")
    assert descriptor >= 0
    done = bridge(*arguments)
    assert done.returncode == 1
    assert "another bridge works with" in done.stderr


def test_a_machine_that_is_in_no_slurm_cluster_is_told_what_slurm_says(world: World, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sinfo", "squeue", "scontrol", "sbatch", "scancel"):
        (programs / name).write_text("#!/bin/sh\necho 'fatal: no configuration' >&2; exit 1\n")
        (programs / name).chmod(0o755)
    done = bridge("slurm", "--state", tmp_path / "state", "--kubeconfig", world.plane.kubeconfig, "--slurm-bin", programs)
    assert done.returncode == 1
    assert "sinfo --version: exit status 1: fatal: no configuration: is this machine part of a Slurm cluster?" in done.stderr


def test_a_bridge_at_a_server_that_knows_nothing_of_gpus_says_so(homeostat: TestPlane, tmp_path: Path) -> None:
    config = str(homeostat.kubeconfig)
    command = [sys.executable, "-m", "homeostat", "bridge", "kubernetes", "--kubeconfig", config, "--cluster-kubeconfig", config]
    started = subprocess.Popen([*command, "--image", "x", "--state", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    try:
        assert started.stderr is not None
        said = started.stderr.readline()
    finally:
        started.kill()
        started.communicate()
    assert 'no matches for kind \\"Workload\\"' in said
    assert "--allow gpu" in said
