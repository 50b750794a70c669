"""GPUs that are cut by MIG, all alike: each part is a GPU of its own. NVML is played, as no GPU is needed; processes and the agent are real."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gpu.agent.test_nvml import Library, Part, nvml
from tests.gpu.agent.world import COUNTER, World, alive, eventually, number, place, python, until

from homeostat.gpu.agent.devices import Gone, Held, numbered
from homeostat.gpu.agent.nvml import Nvml
from homeostat.gpu.kinds import Gpu, GpuHealth


def parts(*names: str, profile: str = "1g.10gb", gib: int = 10) -> list[Any]:
    return [Part(f"NVIDIA H100 80GB HBM3 MIG {profile}", f"MIG-{name}", gib) for name in names]


def alike() -> dict[int, list[Any] | None]:
    return {0: parts("a", "b"), 1: parts("c", "d")}


def indexes(devices: Nvml) -> dict[str, int]:
    return {gpu.uuid: gpu.index for gpu in devices.gpus()}


def test_parts_that_are_all_alike_are_gpus_of_their_own_and_their_model_tells_the_profile() -> None:
    devices, _ = nvml(mig=alike())
    assert devices.model == "H100-MIG-1g.10gb"
    assert [(gpu.index, gpu.uuid, gpu.memory_mib, gpu.part_of, gpu.mig) for gpu in devices.gpus()] == [
        (0, "MIG-a", 10240, "GPU-0", ()),
        (1, "MIG-b", 10240, "GPU-0", ()),
        (2, "MIG-c", 10240, "GPU-1", ()),
        (3, "MIG-d", 10240, "GPU-1", ()),
    ]
    assert devices.visible([2, 0]) == "MIG-c,MIG-a"


def test_places_between_parts_may_be_empty_and_a_gpu_without_parts_takes_no_work() -> None:
    devices, _ = nvml(mig={0: [None, *parts("a"), None, *parts("b")], 1: []})
    assert indexes(devices) == {"MIG-a": 0, "MIG-b": 1, "GPU-1": 2}
    assert [reading.health for reading in devices.read({})] == [GpuHealth.HEALTHY, GpuHealth.HEALTHY, GpuHealth.SUSPECT]


def test_a_part_is_read_by_itself_and_how_busy_it_is_stays_unknown() -> None:
    devices, _ = nvml(mig=alike(), root=False)
    first, *_, last = devices.read({0: Held(("uid",), 0.5)})
    assert (first.health, first.memory_used_mib, first.held_by, last.held_by) == (GpuHealth.HEALTHY, 1024, ("uid",), ())
    assert (first.utilisation, first.memory_traffic) == (None, None), "what is not known was told as unused"
    assert (first.temperature, first.power_watts) == (61.0, 206.25), "power is of the whole GPU: each part has its share"


def test_who_is_on_a_part_is_told_by_the_part() -> None:
    devices, _ = nvml(mig=alike(), root=False, running={"MIG-a": [7], "MIG-d": [7, 8]})
    assert devices.holders() == {7: {0: 1024, 3: 1024}, 8: {3: 1024}}


@pytest.mark.parametrize("told_of", [0, *parts("b")])
def test_what_is_the_matter_with_a_gpu_is_the_matter_with_all_its_parts(told_of: Any) -> None:
    devices, _ = nvml(mig=alike(), xids=[(79, told_of)])
    assert [reading.reason for reading in devices.read({})] == ["XID 79", "XID 79", "", ""]


def test_a_part_keeps_its_index_whatever_becomes_of_others_and_another_agent_keeps_it_too() -> None:
    devices, library = nvml(mig=alike())
    devices.number([], ())
    library.mig = {0: [None, *parts("b")], 1: parts("c", "d")}
    devices.read({})
    assert devices.changed
    devices.number([], ())
    assert not devices.changed
    assert indexes(devices) == {"MIG-b": 1, "MIG-c": 2, "MIG-d": 3}
    another = Nvml(library)  # type: ignore[arg-type]
    another.number(devices.gpus(), ())
    assert indexes(another) == indexes(devices)


def test_a_part_that_came_in_the_place_of_another_never_has_the_index_that_work_was_given() -> None:
    first, library = nvml(mig=alike())
    before = first.gpus()
    for devices in (first, Nvml(library)):  # type: ignore[arg-type]
        devices.number(before, {0, 3})
        library.mig = {0: parts("e", "f"), 1: parts("c", "d")}
        devices.read({})
        assert devices.visible([0]) == "MIG-a", "until others know of it, nothing changes its index"
        devices.number(before, {0, 3})
        assert indexes(devices) == {"MIG-c": 2, "MIG-d": 3, "MIG-e": 1, "MIG-f": 4}
        with pytest.raises(Gone, match="GPU 0 of this node is no more"):
            devices.visible([0])
        with pytest.raises(KeyError):
            devices.visible([9])
        library.mig = alike()


def test_the_same_uuid_in_another_size_is_another_part() -> None:
    before = [Gpu(index=0, uuid="MIG-a", memory_mib=10240, part_of="GPU-0"), Gpu(index=1, uuid="GPU-1", memory_mib=81920)]
    found = [Gpu(index=0, uuid="MIG-a", memory_mib=20480, part_of="GPU-0"), Gpu(index=0, uuid="GPU-1", memory_mib=81559)]
    assert numbered(found, before, {0}) == [2, 1]


def test_gpus_that_nobody_declared_yet_are_numbered_in_their_order() -> None:
    found = [Gpu(index=0, uuid=f"GPU-{i}") for i in range(3)]
    assert numbered(found, [], {0, 1}) == [0, 1, 2], "an agent that begins anew would have lost all its work"


def test_a_gpu_that_does_not_tell_how_it_is_cut_is_taken_for_cut_as_it_was() -> None:
    devices, library = nvml(mig=alike())
    devices.number([], ())
    library.mig, library.lost = None, {0, 1}
    assert len(devices.read({})) == 4
    assert not devices.changed


def test_where_gpus_are_cut_differently_while_work_runs_the_parts_that_are_left_take_no_more_and_keep_it() -> None:
    devices, library = nvml(mig=alike())
    before = devices.gpus()
    library.mig = {0: parts("e", profile="3g.40gb", gib=40), 1: parts("c", "d")}
    for one in (devices, Nvml(library)):  # type: ignore[arg-type]
        one.number(before, {2})
        one.read({})
        one.number(before, {2})
        assert indexes(one) == {"GPU-0": 0, "MIG-c": 2, "MIG-d": 3}
        assert [gpu.mig for gpu in one.gpus()] == [("3g.40gb",), (), ()]
        assert {reading.health for reading in one.read({})} == {GpuHealth.SUSPECT}
        assert not one.changed


def test_who_is_not_root_knows_the_memory_of_a_gpu_when_it_is_whole_again() -> None:
    devices, library = nvml(mig=alike(), root=False)
    devices.number([], ())
    library.mig = None
    devices.read({})
    devices.number([], ())
    assert [(gpu.uuid, gpu.memory_mib) for gpu in devices.gpus()] == [("GPU-0", 81920), ("GPU-1", 81920)]


# With an agent


def played(mig: Any) -> tuple[Nvml, Library]:
    return nvml(mig=mig)


async def test_a_workload_that_is_given_a_part_sees_it_by_its_uuid(world: World) -> None:
    devices, _ = played(alike())
    async with world.agent(devices=devices):
        node = await world.nodes.get("n1")
        uid = await world.submit("job", ["/bin/sh", "-c", "echo $CUDA_VISIBLE_DEVICES"], places=[place(gpus=(2,))])
        await world.reported("job", "Exited")
        assert world.log(uid).read_text() == "MIG-c\n"
    assert node["spec"]["model"] == "H100-MIG-1g.10gb"
    assert [(gpu["index"], gpu["uuid"], gpu["partOf"]) for gpu in node["spec"]["gpus"]][2] == (2, "MIG-c", "GPU-1")


async def test_work_on_a_part_that_is_no_more_is_never_moved_to_the_one_that_came_in_its_place(world: World) -> None:
    devices, library = played(alike())
    out = world.folder / "counter"
    job = python(COUNTER, out)
    async with world.agent(devices=devices):
        uid = await world.submit("job", job, places=[place(gpus=(0,))])
        pid = int((await world.reported("job", "Running"))["pid"])
        await world.govern("job", phase="Suspended")
        await world.reported("job", "Suspended")
        library.mig = {0: parts("e", "f"), 1: parts("c", "d")}
        node = await until(world.nodes, "n1", lambda obj: "MIG-e" in {gpu["uuid"] for gpu in obj["spec"]["gpus"]})
        assert {gpu["uuid"]: gpu["index"] for gpu in node["spec"]["gpus"]} == {"MIG-e": 1, "MIG-c": 2, "MIG-d": 3, "MIG-f": 4}
    async with world.agent(devices=Nvml(library)):  # type: ignore[arg-type]
        await world.govern("job", phase="Running")
        await world.until("job", lambda obj: "GPU 0 of this node is no more" in obj["status"]["reports"][0].get("reason", ""))
        assert world.pids(uid) == {0: [pid]}
        before = number(out)
        await world.govern("job", assignment=[place(gpus=(4,))])
        await eventually(lambda: not alive(pid))
        await eventually(lambda: number(out) != before)
        await world.until("job", lambda obj: obj["status"]["reports"][0].get("gpus") == [4])


async def test_work_on_a_part_that_is_no_more_can_be_taken_off_it(world: World) -> None:
    """As the governor does where there is no room elsewhere."""
    devices, library = played(alike())
    async with world.agent(devices=devices):
        await world.submit("job", python(COUNTER, world.folder / "counter"), places=[place(gpus=(0,))])
        await world.reported("job", "Running")
        library.mig = {0: parts("e", "f"), 1: parts("c", "d")}
        await until(world.nodes, "n1", lambda obj: "MIG-e" in {gpu["uuid"] for gpu in obj["spec"]["gpus"]})
        await world.govern("job", phase="Suspending")
        await world.reported("job", "Suspended")


async def test_what_was_not_begun_on_a_part_that_is_no_more_has_not_failed(world: World) -> None:
    """It waits for another place: by one failed replica all of a workload fails."""
    devices, library = played(alike())
    async with world.agent(devices=devices):
        pass
    await world.submit("job", ["true"], places=[place(gpus=(0,))])
    library.mig = {0: parts("e", "f"), 1: parts("c", "d")}
    async with world.agent(devices=Nvml(library)):  # type: ignore[arg-type]
        assert (await world.reported("job", "Unknown"))["reason"].startswith("GPU 0 of this node is no more")
        await world.govern("job", assignment=[place(gpus=(2,))])
        await world.reported("job", "Exited")
