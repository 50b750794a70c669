"""What an agent tells of its machine: that it is there, what it has, how its GPUs are; and not more often than it matters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace
from tests.gpu.agent.world import COUNTER, World, eventually, python, until

from homeostat.client import Resource
from homeostat.gpu.agent import Machine
from homeostat.gpu.agent.devices import Held
from homeostat.gpu.agent.node import Reading, worth_telling
from homeostat.gpu.agent.simulated import Simulated
from homeostat.gpu.kinds import GpuHealth, GpuReading, ProcessUse

BUSY = "while True: pass"


async def test_the_node_is_declared_and_its_lease_held(world: World) -> None:
    machine = Machine("n1", rack="r7", zone="z", pool="big", spot=True, cost_per_hour=2.5, labels={"team": "vision"})
    async with world.agent(devices=Simulated.parse("4xA100:40G"), machine=machine):
        node = await until(world.nodes, "n1", lambda o: bool(o.get("status", {}).get("gpus")))
        lease = await world.client.kind("coordination.k8s.io/v1", "Lease").get("n1", namespace="kube-system")
    spec = node["spec"]
    assert [(gpu["index"], gpu["memoryMib"]) for gpu in spec["gpus"]] == [(i, 40960) for i in range(4)]
    assert (spec["model"], spec["rack"], spec["pool"], spec["spot"], spec["costPerHour"]) == (
        "A100",
        "r7",
        "big",
        True,
        2.5,
    )
    assert spec["cpuMilli"] >= 1000
    assert spec["simulated"] is True
    assert node["metadata"]["labels"] == {"team": "vision"}
    assert node["status"]["reportedAt"]
    assert lease["spec"]["holderIdentity"] == "agent-n1"


async def test_the_lease_is_renewed(world: World) -> None:
    leases = world.client.kind("coordination.k8s.io/v1", "Lease", namespace="kube-system")
    async with world.agent():
        first = (await leases.get("n1"))["spec"]["renewTime"]
        await until(leases, "n1", lambda o: o["spec"]["renewTime"] > first)


async def test_what_people_say_of_a_node_is_left_to_them(world: World) -> None:
    async with world.agent():
        await world.nodes.patch("n1", {"spec": {"cordoned": True, "rack": "by hand"}})
    async with world.agent():
        node = await world.nodes.get("n1")
    assert (node["spec"]["cordoned"], node["spec"]["rack"]) == (True, "by hand")


async def test_a_node_that_was_deleted_is_declared_again(world: World) -> None:
    async with world.agent(beat_seconds=0.0):
        uid = (await world.nodes.get("n1"))["metadata"]["uid"]
        await world.nodes.delete("n1")
        await until(world.nodes, "n1", lambda o: o["metadata"]["uid"] != uid)


async def test_use_of_simulated_gpus_is_that_of_the_processes_that_hold_them(world: World) -> None:
    async with world.agent():
        uid = await world.submit("busy", python(BUSY))
        node = await until(world.nodes, "n1", lambda o: _reading(o, 0).get("utilisation", 0) > 0.2)
        assert _reading(node, 0)["heldBy"] == [uid]
        assert _reading(node, 1)["heldBy"] == []
        assert _reading(node, 1)["utilisation"] == 0.0
        assert node["status"]["processes"][0]["workload"] == uid
        assert node["status"]["processes"][0]["cpu"] > 0.2
        await world.govern("busy", phase="Suspended")
        await until(
            world.nodes, "n1", lambda o: _reading(o, 0).get("utilisation") == 0.0 and not _reading(o, 0)["heldBy"]
        )


async def test_a_file_says_how_simulated_gpus_are(world: World, tmp_path: Path) -> None:
    file = tmp_path / "readings.json"
    async with world.agent(devices=Simulated.parse("2xH100", file)):
        await until(world.nodes, "n1", lambda o: _reading(o, 1).get("health") == "Healthy")
        file.write_text(json.dumps({"1": {"health": "Failed", "reason": "XID 79", "utilisation": 0.9}}))
        node = await until(world.nodes, "n1", lambda o: _reading(o, 1).get("health") == "Failed")
        assert (_reading(node, 1)["reason"], _reading(node, 1)["utilisation"]) == ("XID 79", 0.9)
        assert _reading(node, 0)["health"] == "Healthy"
        file.write_text("not JSON")
        await until(world.nodes, "n1", lambda o: _reading(o, 1).get("health") == "Healthy")


async def test_nothing_is_asked_of_the_server_while_nothing_changes_but_for_the_beat(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    real = Resource.apply

    async def counted(self: Resource[Any], obj: Any, **options: Any) -> Any:
        if self.kind == "GpuNode" and options.get("subresource") == "status":
            told.append(obj)
        return await real(self, obj, **options)

    monkeypatch.setattr(Resource, "apply", counted)
    read = []
    devices = Simulated.parse("8xH100")
    monkeypatch.setattr(devices, "_said", lambda: read.append(1) or {})
    async with world.agent(devices=devices, read_seconds=0.01, beat_seconds=1.0):
        await eventually(lambda: len(told) >= 3)
    assert len(told) == 3
    assert len(read) > 20


async def test_an_idle_workload_is_not_written_again_and_again(world: World) -> None:
    async with world.agent(read_seconds=0.02, beat_seconds=0.1):
        await world.submit("job", python(COUNTER, world.folder / "n"))
        await world.reported("job", "Running")
        before = (await world.workloads.get("job"))["metadata"]["resourceVersion"]
        node = await world.nodes.get("n1")
        await until(
            world.nodes,
            "n1",
            lambda o: int(o["metadata"]["resourceVersion"]) > int(node["metadata"]["resourceVersion"]) + 5,
        )
        assert (await world.workloads.get("job"))["metadata"]["resourceVersion"] == before


async def test_a_report_that_somebody_took_away_is_made_again(world: World) -> None:
    async with world.agent():
        await world.submit("job", python(COUNTER, world.folder / "n"))
        await world.reported("job", "Running")
        await world.govern("job", reports=[])
        await world.reported("job", "Running")


async def test_reports_on_what_is_no_longer_here_are_taken_back(world: World) -> None:
    await world.submit("job", python(COUNTER, world.folder / "n"), places=[])
    for replica, node in enumerate(("n1", "n2")):
        obj = {
            "metadata": {"name": "job"},
            "status": {"reports": [{"replica": replica, "node": node, "state": "Running"}]},
        }
        await world.workloads.apply(obj, field_manager=f"homeostat-agent-{node}", subresource="status")
    async with world.agent():
        found = await world.until("job", lambda o: len(o["status"]["reports"]) == 1)
        assert found["status"]["reports"][0]["node"] == "n2"


QUIET = GpuReading(index=0, utilisation=0.5, memory_used_mib=1000, power_watts=300.0, temperature=50.0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"utilisation": 0.54}, False),
        ({"utilisation": 0.56}, True),
        ({"memory_traffic": 0.06}, True),
        ({"memory_used_mib": 1500}, False),
        ({"memory_used_mib": 1513}, True),
        ({"power_watts": 340.0}, False),
        ({"temperature": 56.0}, True),
        ({"health": GpuHealth.SUSPECT}, True),
        ({"held_by": ("uid",)}, True),
    ],
)
def test_a_change_is_told_when_it_is_more_than_it_wavers(changes: dict[str, object], told: bool) -> None:
    assert worth_telling(Reading([QUIET]), Reading([structs.replace(QUIET, **changes)])) is told


def test_cpu_of_processes_counts_too() -> None:
    use = ProcessUse(workload="u", replica=0, cpu=0.5)
    quiet = Reading([QUIET], [use])
    assert not worth_telling(quiet, replace(quiet, processes=[ProcessUse(workload="u", replica=0, cpu=0.55)]))
    assert worth_telling(quiet, replace(quiet, processes=[ProcessUse(workload="u", replica=0, cpu=0.7)]))
    assert worth_telling(quiet, Reading([QUIET]))


@pytest.mark.parametrize("text", ["H100", "0xH100", "65xH100", "8x", "8xH100:80", "8xH100:80T", "-1xH100", "8xH 100"])
def test_what_is_no_number_of_gpus_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="8xH100"):
        Simulated.parse(text)


def test_simulated_memory_is_bounded_by_what_is_held() -> None:
    gpus = Simulated.parse("1xH100:10G")
    assert gpus.read({0: Held(("u",), 2.0, 50_000, 500)})[0].memory_used_mib == 5120
    assert gpus.read({0: Held(("u",), 2.0, 50_000, 500)})[0].utilisation == 1.0


def _reading(node: dict[str, Any], index: int) -> Any:
    readings = node.get("status", {}).get("gpus", ())
    return next((one for one in readings if one["index"] == index), {})
