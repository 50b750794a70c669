"""What NVML says of GPUs, as the agent reports it. NVML itself is played: no GPU is needed."""

# ruff: noqa: N802, N815 (the names are those of NVML)
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from homeostat.gpu.agent.devices import Held
from homeostat.gpu.agent.nvml import NoNvml, Nvml, model_of
from homeostat.gpu.kinds import GpuHealth

GIB = 1024**3


class NVMLError(Exception):
    pass


class Library(SimpleNamespace):
    """NVML with two GPUs. What is in `broken` raises, as calls do that a GPU does not have."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 0, 1, 0
    NVML_GPU_UTILIZATION_SAMPLES, NVML_MEMORY_UTILIZATION_SAMPLES, nvmlMemory_v2 = 1, 2, 0x02000028
    nvmlClocksThrottleReasonHwThermalSlowdown, nvmlEventTypeXidCriticalError = 0x40, 8

    def __init__(self, name: Any = "NVIDIA H100 80GB HBM3", count: int = 2) -> None:
        super().__init__(
            name=name, count=count, broken=set(), xids=[], ecc=0, rows=(0, 0, 0, 0), slowed=0, samples=[], mig=[]
        )

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "__dict__").get("broken", ()):

            def refuse(*_: Any) -> None:
                raise NVMLError(f"{name} is not supported")

            return refuse
        return super().__getattribute__(name)

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return int(self.count)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: Any) -> Any:
        return handle if isinstance(handle, str) else self.name

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int = 0) -> Any:
        return SimpleNamespace(total=80 * GIB, used=10 * GIB if version else 11 * GIB)

    def nvmlDeviceGetMigMode(self, handle: int) -> tuple[int, int]:
        return (int(bool(self.mig)), 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, number: int) -> Any:
        if number >= len(self.mig):
            raise NVMLError("not found")
        return self.mig[number]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=50, memory=20)

    def nvmlDeviceGetSamples(self, handle: int, kind: int, since: int) -> Any:
        return 1, [SimpleNamespace(timeStamp=at, sampleValue=SimpleNamespace(uiVal=use)) for at, use in self.samples]

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 412_500

    def nvmlDeviceGetTemperature(self, handle: int, which: int) -> int:
        return 61

    def nvmlDeviceGetRemappedRows(self, handle: int) -> Any:
        return self.rows

    def nvmlDeviceGetTotalEccErrors(self, handle: int, *_: int) -> int:
        return int(self.ecc)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return int(self.slowed)

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, *_: Any) -> None: ...

    def nvmlEventSetWait_v2(self, events: Any, milliseconds: int) -> Any:
        if not self.xids:
            raise NVMLError("timeout")
        xid, device = self.xids.pop(0)
        return SimpleNamespace(eventData=xid, device=device)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> Any:
        return [SimpleNamespace(pid=7, usedGpuMemory=GIB), SimpleNamespace(pid=8, usedGpuMemory=None)]


def nvml(**facts: Any) -> tuple[Nvml, Library]:
    library = Library()
    for name, value in facts.items():
        setattr(library, name, value)
    return Nvml(library), library  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GH200 480GB", "GH200"),
    ],
)
def test_a_type_is_the_short_name_of_a_model(name: str, model: str) -> None:
    assert model_of(name) == model


def test_gpus_are_found_with_uuid_and_memory_and_named_by_uuid_to_processes() -> None:
    devices, _ = nvml()
    assert [(gpu.index, gpu.uuid, gpu.memory_mib) for gpu in devices.gpus()] == [
        (0, "GPU-0", 81920),
        (1, "GPU-1", 81920),
    ]
    assert devices.visible([1, 0]) == "GPU-1,GPU-0"
    assert devices.holders() == {7: 2048, 8: 0}
    with pytest.raises(KeyError):
        devices.visible([2])


def test_mig_profiles_are_told() -> None:
    devices, _ = nvml(mig=["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"])
    assert devices.gpus()[0].mig == ("1g.5gb", "3g.20gb")


def test_a_reading_has_what_nvml_says_and_who_holds_it() -> None:
    devices, _ = nvml()
    first, second = devices.read({0: Held(("uid",))})
    assert (first.utilisation, first.memory_traffic, first.memory_used_mib) == (0.5, 0.2, 10240)
    assert (first.power_watts, first.temperature, first.health) == (412.5, 61.0, GpuHealth.HEALTHY)
    assert (first.held_by, second.held_by) == (("uid",), ())


def test_use_is_the_mean_since_the_last_look() -> None:
    devices, library = nvml(samples=[(1, 100), (2, 0)])
    assert devices.read({})[0].utilisation == 0.5
    library.samples = [(2, 0), (3, 90), (4, 70)]
    assert devices.read({})[0].utilisation == 0.8


def test_a_gpu_that_cannot_say_something_is_read_all_the_same() -> None:
    devices, library = nvml()
    library.broken = {
        "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetSamples", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTemperature",
    }  # fmt: skip
    reading = devices.read({})[0]
    assert (reading.power_watts, reading.health) == (0.0, GpuHealth.HEALTHY)
    assert (reading.utilisation, reading.memory_traffic) == (None, None), "what is not known was told as unused"


@pytest.mark.parametrize(
    ("facts", "health", "reason"),
    [
        ({"xids": [(79, 0)]}, GpuHealth.FAILED, "XID 79"),
        ({"xids": [(94, 0)]}, GpuHealth.SUSPECT, "XID 94"),
        ({"xids": [(13, 0), (31, 0)]}, GpuHealth.HEALTHY, ""),
        ({"ecc": 2}, GpuHealth.SUSPECT, "ECC: 2 errors that could not be corrected since it was reset"),
        ({"rows": (0, 1, 1, 0)}, GpuHealth.SUSPECT, "ECC: rows of its memory are replaced with the next reset"),
        ({"rows": (0, 9, 0, 1)}, GpuHealth.FAILED, "ECC: rows of its memory are bad and cannot be replaced"),
        ({"slowed": 0x40}, GpuHealth.SUSPECT, "thermal: it is too hot, and slowed down by its hardware"),
    ],
)
def test_what_is_the_matter_with_a_gpu_is_told(facts: dict[str, Any], health: GpuHealth, reason: str) -> None:
    devices, _ = nvml(**facts)
    first, second = devices.read({})
    assert (first.health, first.reason) == (health, reason)
    if "xids" in facts:
        assert second.health is GpuHealth.HEALTHY
        assert devices.read({})[0].reason == reason  # it does not heal by itself


def test_a_gpu_that_does_not_answer_has_failed() -> None:
    devices, library = nvml()
    library.broken = {"nvmlDeviceGetMemoryInfo"}
    reading = devices.read({0: Held(("uid",))})[0]
    assert reading.health is GpuHealth.FAILED
    assert "does not answer" in reading.reason
    assert reading.held_by == ("uid",)


def test_a_machine_without_gpus_says_what_to_do() -> None:
    with pytest.raises(NoNvml, match="--simulate"):
        Nvml(Library(count=0))  # type: ignore[arg-type]
    library = Library()
    library.broken = {"nvmlInit"}
    with pytest.raises(NoNvml, match="no GPU can be seen"):
        Nvml(library)  # type: ignore[arg-type]
