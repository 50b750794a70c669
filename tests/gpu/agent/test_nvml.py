"""What NVML says of GPUs, as the agent reports it. NVML itself is played: no GPU is needed."""

# ruff: noqa: N802, N815 (the names are those of NVML)
from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from homeostat.gpu.agent.devices import Held
from homeostat.gpu.agent.nvml import NoNvml, Nvml, model_of
from homeostat.gpu.kinds import GpuHealth

GIB = 1024**3


NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND, LOST = 3, 4, 6, 13, 15


class NVMLError(Exception):
    def __init__(self, message: str, value: int = NOT_SUPPORTED) -> None:
        super().__init__(message)
        self.value = value


class Part(NamedTuple):
    """A handle of a part."""

    name: str
    uuid: str
    gib: int = 10


Cut = dict[int, list[Any] | None] | list[Any] | None


class Library(SimpleNamespace):
    """NVML with two GPUs. What is in `broken` raises, as calls do that a GPU does not have.

    `mig` are the parts of all GPUs or of each by its number, in their places; None: MIG is off. Who is not `root` is told no sums over parts.
    """

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION, NVML_ERROR_NOT_FOUND = NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND
    NVML_ERROR_FUNCTION_NOT_FOUND = FUNCTION_NOT_FOUND
    NVML_TEMPERATURE_GPU, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 0, 1, 0
    NVML_GPU_UTILIZATION_SAMPLES, NVML_MEMORY_UTILIZATION_SAMPLES, nvmlMemory_v2 = 1, 2, 0x02000028
    nvmlClocksThrottleReasonHwThermalSlowdown, nvmlEventTypeXidCriticalError = 0x40, 8

    def __init__(self, name: Any = "NVIDIA H100 80GB HBM3", count: int = 2) -> None:
        super().__init__(
            name=name, count=count, broken=set(), xids=[], ecc=0, rows=(0, 0, 0, 0), slowed=0, samples=[], mig=None, root=True, lost=set(),
            running={},
        )  # fmt: skip

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

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return handle.uuid if isinstance(handle, Part) else f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: Any) -> Any:
        return handle.name if isinstance(handle, Part) else self.name

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int = 0) -> Any:
        if isinstance(handle, Part):
            return SimpleNamespace(total=handle.gib * GIB, used=1 * GIB if version else 2 * GIB)
        self._only_for_root(handle)
        return SimpleNamespace(total=80 * GIB, used=10 * GIB if version else 11 * GIB)

    def _cut(self, handle: int) -> list[Any] | None:
        return self.mig.get(handle) if isinstance(self.mig, dict) else self.mig

    def _only_for_root(self, handle: Any) -> None:
        if self._cut(handle) is not None and not self.root:
            raise NVMLError("Insufficient Permissions", NO_PERMISSION)

    def _only_of_whole_ones(self, handle: Any) -> None:
        if isinstance(handle, Part) or self._cut(handle) is not None:
            raise NVMLError("Not Supported")

    def nvmlDeviceGetMigMode(self, handle: int) -> tuple[int, int]:
        if handle in self.lost:
            raise NVMLError("GPU is lost", LOST)
        return (int(self._cut(handle) is not None), 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, number: int) -> Any:
        parts = self._cut(handle) or []
        if number >= len(parts) or parts[number] is None:
            raise NVMLError("Not Found", NOT_FOUND)
        found = parts[number]
        return found if isinstance(found, Part) else Part(found, f"MIG-{handle}-{number}")

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        self._only_of_whole_ones(handle)
        return SimpleNamespace(gpu=50, memory=20)

    def nvmlDeviceGetSamples(self, handle: Any, kind: int, since: int) -> Any:
        self._only_of_whole_ones(handle)
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

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.159.04"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> Any:
        if isinstance(handle, Part):
            return [SimpleNamespace(pid=pid, usedGpuMemory=GIB) for pid in self.running.get(handle.uuid, ())]
        self._only_for_root(handle)
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
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "H100-MIG-1g.10gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb+me", "A100-MIG-1g.5gb.me"),
        ("NVIDIA-A100-SXM4-40GB-MIG-3G.20GB", "A100-MIG-3g.20gb"),
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
    assert devices.holders() == {7: {0: 1024, 1: 1024}, 8: {0: 0, 1: 0}}
    with pytest.raises(KeyError):
        devices.visible([2])


def test_mig_profiles_are_told() -> None:
    devices, _ = nvml(mig=["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"])
    assert devices.gpus()[0].mig == ("1g.5gb", "3g.20gb")


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        ([], "it has no part: cut it as the other GPUs of this node are, or turn MIG off"),
        (["H100 MIG 1c.3g.40gb"], "share their memory: make one compute instance in each GPU instance, or turn MIG off"),
        (["H100 MIG 1g.10gb", "H100 MIG 3g.40gb"], "not all cut alike: cut all of them into parts of one profile, or turn MIG off"),
        ({0: ["H100 MIG 1g.10gb"], 1: ["H100 MIG 3g.40gb"]}, "not all cut alike"),
        ({0: ["H100 MIG 1g.10gb"], 1: None}, "not all cut alike"),
    ],
)
@pytest.mark.parametrize("root", [True, False])
def test_a_gpu_on_which_mig_is_on_takes_no_work_and_says_why(cut: Cut, why: str, root: bool) -> None:
    """A process that is shown the whole GPU finds its first part alone, or none."""
    devices, library = nvml(mig=cut, root=root)
    first, second = devices.read({})
    assert first.health is GpuHealth.SUSPECT
    assert first.reason.startswith("MIG is on, and ")
    assert why in first.reason
    assert (devices.model, [gpu.uuid for gpu in devices.gpus()]) == ("H100", ["GPU-0", "GPU-1"])
    if isinstance(cut, dict) and cut[1] is None:
        assert (second.health, second.utilisation) == (GpuHealth.HEALTHY, 0.5)
    library.mig = None
    assert devices.read({})[0].health is GpuHealth.HEALTHY


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
