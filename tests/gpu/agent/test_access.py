"""How an agent is let in: over TLS that is verified, with a token that may do what an agent does and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.gpu.agent.world import COUNTER, World, eventually, python

from homeostat.client import Client
from homeostat.client.http import HttpTransport
from homeostat.client.kubeconfig import Target, from_kubeconfig
from homeostat.gpu.agent.access import AGENTS, user_of
from homeostat.gpu.kinds import GROUP
from homeostat.model.errors import ApiError

AGENT = [sys.executable, "-m", "homeostat", "agent"]


async def let_in(world: World, node: str = "n1") -> str:
    """Does what the docs say; gives the token."""
    done = await asyncio.to_thread(
        subprocess.run, [*AGENT, "--name", node, "--print-access"], capture_output=True, text=True, check=True
    )
    for obj in yaml.safe_load_all(done.stdout):
        await world.client.kind(obj["apiVersion"], obj["kind"]).apply(obj, field_manager="admin")
    spec = {"user": user_of(node), "groups": [AGENTS], "expirationSeconds": 3600}
    made = await world.client.kind("homeostat.dev/v1", "UserToken").create(
        {"metadata": {"generateName": "agent-"}, "spec": spec}
    )
    return str(made["status"]["token"])


def authority(world: World) -> bytes:
    return from_kubeconfig(world.plane.kubeconfig).authority


async def test_an_agent_joins_with_its_token_and_does_its_work(world: World, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(await let_in(world))
    (tmp_path / "ca.crt").write_bytes(authority(world))
    joins = ["--join", world.plane.url, "--token-file", tmp_path / "token", "--ca-file", tmp_path / "ca.crt"]
    command = [*AGENT, *joins, "--name", "n1", "--simulate", "2xH100", "--state", world.state()]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert agent.stdout is not None
        line = await asyncio.to_thread(agent.stdout.readline)
        assert line == "keeping n1: 2 H100 (simulated). Ctrl-C stops the agent; what it runs goes on.\n"
        uid = await world.submit("job", python(COUNTER, world.folder / "n"))
        await world.reported("job", "Running")
        agent.terminate()
        assert await asyncio.to_thread(agent.wait, 15) == 0
        await eventually(lambda: world.pids(uid))
    finally:
        agent.kill()
        agent.wait()
        assert agent.stdout is not None
        agent.stdout.close()


async def test_the_token_of_an_agent_opens_nothing_else(world: World) -> None:
    token = await let_in(world)
    target = Target(world.plane.url, authority=authority(world), token=token)
    async with Client(HttpTransport(target)) as client:
        nodes, workloads = client.kind(f"{GROUP}/v1alpha1", "GpuNode"), client.kind(f"{GROUP}/v1alpha1", "Workload")
        leases = client.kind("coordination.k8s.io/v1", "Lease", namespace="kube-system")
        node: dict[str, Any] = {"metadata": {"name": "n1"}, "spec": {"model": "H100"}}
        await nodes.apply(node, field_manager="a")
        await leases.apply({"metadata": {"name": "n1"}, "spec": {}}, field_manager="a")
        assert await workloads.list() == []
        other = {"metadata": {"name": "n2"}, "spec": {"model": "H100"}}
        job = {"metadata": {"name": "job", "namespace": "default"}, "spec": {"tenant": "t"}}
        for attempt in (
            nodes.apply(other, field_manager="a"),
            nodes.delete("n1"),
            nodes.list(),
            leases.apply({"metadata": {"name": "n2"}, "spec": {}}, field_manager="a"),
            workloads.create(job),
            workloads.apply(job, field_manager="a"),
            client.kind("v1", "Secret").list(),
            client.kind("homeostat.dev/v1", "UserToken").list(),
        ):
            with pytest.raises(ApiError) as refused:
                await attempt
            assert refused.value.code == 403


def test_a_token_without_a_role_is_told_so_at_once(homeostat: Any, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(from_kubeconfig(homeostat.kubeconfig).authority)
    joins = ["--join", homeostat.url, "--token", "made-up", "--ca-file", tmp_path / "ca.crt", "--state", tmp_path / "s"]
    done = subprocess.run(
        [*AGENT, *joins, "--name", "n1", "--simulate", "1xH100"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "Error: the server does not take this token: it is wrong, revoked or has run out; `homeostat token create` makes another\n"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--join", "http://127.0.0.1:1", "--token", "x"], "must begin with https://"),
        (["--join", "https://127.0.0.1:1"], "needs a --token-file or a --token"),
        (["--token-file", "/dev/null"], "go with --join"),
        (["--simulate", "many"], "8xH100"),
        (["--name", "Not A Name"], "--name"),
        (["--label", "novalue"], "KEY=VALUE"),
        (["--user", "nobody-of-this-name"], "--user"),
        (["--readings", "/dev/null", "--simulate", ""], "--readings goes with --simulate"),
    ],
)
def test_what_cannot_be_meant_is_said_at_once(arguments: list[str], says: str) -> None:
    from click.testing import CliRunner

    from homeostat.cli.agent import command

    done = CliRunner().invoke(command, ["--name", "n1", "--simulate", "1xH100", *arguments])
    assert done.exit_code != 0
    assert says in done.output


def test_a_server_that_is_not_trusted_gets_no_token(homeostat: Any, tmp_path: Path) -> None:
    """Without the authority the connection fails before anything is sent; the agent goes on trying, and says why."""
    agent = subprocess.Popen(
        [
            *AGENT,
            "--join",
            homeostat.url,
            "--token",
            "secret",
            "--name",
            "n1",
            "--simulate",
            "1xH100",
            "--state",
            tmp_path / "s",
            "--log-format",
            "json",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert agent.stderr is not None
        line = agent.stderr.readline()
    finally:
        agent.kill()
        agent.wait()
        assert agent.stderr is not None
        agent.stderr.close()
    assert "is not trusted" in line
    assert "secret" not in line


async def test_workloads_run_as_the_user_that_is_named(world: World) -> None:
    import os
    import pwd

    from homeostat.gpu.agent.launching import Rules

    if os.geteuid() != 0:
        pytest.skip("only root can run processes as somebody else")
    async with world.agent(rules=Rules(user="nobody")):
        uid = await world.submit("who", ["id", "-u"])
        await world.reported("who", "Exited")
    assert world.log(uid).read_text().strip() == str(pwd.getpwnam("nobody").pw_uid)
