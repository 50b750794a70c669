"""NVIDIA's GPUs, seen through NVML (the package nvidia-ml-py, extra `nvidia`)."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from homeostat.gpu.agent.devices import Held
from homeostat.gpu.agent.suspend import CudaCheckpoint, Suspension
from homeostat.gpu.kinds import Gpu, GpuHealth, GpuReading

log = logging.getLogger("homeostat.gpu.agent")

_MIB = 1024 * 1024
OF_THE_PROGRAM = frozenset((13, 31, 43, 45, 68, 69, 109))
"""XIDs that a faulty program causes: they say nothing about the GPU."""
_SUSPECT = frozenset((48, 63, 92, 94, 119, 120, 140))
"""XIDs after which a GPU may go on, but wants a reset or a look: memory errors that were contained, a firmware that hung. All others that
are not of the program mean that it is lost."""
_WORDS_AROUND = re.compile(r"^(NVIDIA|Tesla|Quadro|GeForce|Graphics Device)\b\s*")


class NoNvml(Exception):
    """There is no GPU to be seen here. The message says why, and what to do."""


@dataclass(slots=True)
class _Device:
    handle: Any
    gpu: Gpu
    failed: str = ""
    """The XID that it was lost by; that does not heal by itself."""
    suspect: str = ""
    seen: dict[int, int] = field(default_factory=dict)
    """By kind of sample: when the last one was taken that has been counted."""


def model_of(name: str) -> str:
    """The type by a name of NVML's: `NVIDIA H100 80GB HBM3` is an `H100`, `NVIDIA A100-SXM4-80GB` an `A100`, `NVIDIA GeForce RTX 4090` an
    `RTX-4090`.
    """
    short = name
    while (rest := _WORDS_AROUND.sub("", short)) != short:
        short = rest
    words = short.replace("-", " ").split()
    if len(words) > 1 and words[0] in ("RTX", "GTX", "TITAN"):
        return "-".join(words[:2])
    return words[0] if words else "GPU"


class Nvml:
    """The GPUs that NVML shows. `NoNvml` where there is no library, driver or GPU."""

    simulated = False

    def __init__(self, nvml: ModuleType | None = None) -> None:
        self._nvml: Any = nvml or _library()
        try:
            self._nvml.nvmlInit()
            self._devices = [self._found(index) for index in range(self._nvml.nvmlDeviceGetCount())]
        except self._nvml.NVMLError as error:
            raise NoNvml(f"no GPU can be seen: {error}; --simulate 8xH100 does without") from None
        if not self._devices:
            raise NoNvml("this machine has no GPU; --simulate 8xH100 does without")
        self.model = model_of(_text(self._nvml.nvmlDeviceGetName(self._devices[0].handle)))
        self.suspension: Suspension = CudaCheckpoint(self.holders)
        self._events = self._listen()

    def gpus(self) -> list[Gpu]:
        return [device.gpu for device in self._devices]

    def visible(self, indexes: Sequence[int]) -> str:
        by_index = {device.gpu.index: device.gpu.uuid for device in self._devices}
        return ",".join(by_index[index] for index in indexes)  # uuids mean the same to every process, whatever it sees

    def holders(self) -> Mapping[int, int]:
        """The pids that have memory on a GPU, and how many MiB in all."""
        found: dict[int, int] = {}
        for device in self._devices:
            for one in self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, device.handle) or ():
                found[one.pid] = found.get(one.pid, 0) + (one.usedGpuMemory or 0) // _MIB
        return found

    def read(self, held: Mapping[int, Held]) -> list[GpuReading]:
        self._hear()
        return [self._read(device, held.get(device.gpu.index, Held())) for device in self._devices]

    def close(self) -> None:
        self._ask(self._nvml.nvmlShutdown)

    def _found(self, index: int) -> _Device:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        return _Device(handle, Gpu(index=index, uuid=uuid, memory_mib=memory, mig=self._profiles(handle)))

    def _profiles(self, handle: Any) -> tuple[str, ...]:
        """The MIG profiles that a GPU is cut into; its instances are named by NVML as `… MIG 1g.10gb`."""
        nvml = self._nvml
        mode = self._ask(nvml.nvmlDeviceGetMigMode, handle)
        if not mode or not mode[0]:
            return ()
        found = []
        for number in range(self._ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            part = self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
            name = _text(self._ask(nvml.nvmlDeviceGetName, part) or "") if part is not None else ""
            if " MIG " in name:
                found.append(name.rpartition(" MIG ")[2])
        return tuple(found)

    # How they are

    def _read(self, device: _Device, held: Held) -> GpuReading:
        nvml, handle = self._nvml, device.handle
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            lost = device.failed or f"it does not answer: {error}"
            return GpuReading(index=device.gpu.index, health=GpuHealth.FAILED, reason=lost, held_by=held.workloads)
        # The newer form does not count what the driver keeps for itself.
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2) or memory
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        health, reason = self._health(device)
        return GpuReading(
            index=device.gpu.index,
            health=health,
            reason=reason,
            utilisation=self._mean(device, nvml.NVML_GPU_UTILIZATION_SAMPLES, rates and rates.gpu),
            memory_traffic=self._mean(device, nvml.NVML_MEMORY_UTILIZATION_SAMPLES, rates and rates.memory),
            cpu=round(held.cpu, 3),
            memory_used_mib=memory.used // _MIB,
            power_watts=(self._ask(nvml.nvmlDeviceGetPowerUsage, handle) or 0) / 1000,
            temperature=float(self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU) or 0),
            held_by=held.workloads,
        )

    def _mean(self, device: _Device, kind: int, at_present: int | None) -> float | None:
        """The mean of a use since the last look, from 0 to 1; where the driver keeps no samples, that of this moment. None where it tells
        neither, as of a GPU that is cut by MIG."""
        since = device.seen.get(kind, 0)
        found = self._ask(self._nvml.nvmlDeviceGetSamples, device.handle, kind, since)
        samples = [one for one in found[1] if one.timeStamp > since] if found else []
        if not samples:
            return None if at_present is None else at_present / 100
        device.seen[kind] = max(one.timeStamp for one in samples)
        return round(sum(int(one.sampleValue.uiVal) for one in samples) / len(samples) / 100, 3)

    def _health(self, device: _Device) -> tuple[GpuHealth, str]:
        nvml, handle = self._nvml, device.handle
        if device.failed:
            return GpuHealth.FAILED, device.failed
        rows = self._ask(nvml.nvmlDeviceGetRemappedRows, handle)
        if rows and rows[3]:
            return GpuHealth.FAILED, "ECC: rows of its memory are bad and cannot be replaced"
        uncorrected = self._ask(
            nvml.nvmlDeviceGetTotalEccErrors,
            handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        )
        if uncorrected:
            return GpuHealth.SUSPECT, f"ECC: {uncorrected} errors that could not be corrected since it was reset"
        if rows and rows[2]:
            return GpuHealth.SUSPECT, "ECC: rows of its memory are replaced with the next reset"
        slowed = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        if slowed & nvml.nvmlClocksThrottleReasonHwThermalSlowdown:
            return GpuHealth.SUSPECT, "thermal: it is too hot, and slowed down by its hardware"
        return (GpuHealth.SUSPECT, device.suspect) if device.suspect else (GpuHealth.HEALTHY, "")

    def _listen(self) -> Any:
        """Has NVML tell of XIDs; None where it cannot."""
        nvml = self._nvml
        events = self._ask(nvml.nvmlEventSetCreate)
        if events is not None:
            for device in self._devices:
                self._ask(nvml.nvmlDeviceRegisterEvents, device.handle, nvml.nvmlEventTypeXidCriticalError, events)
        return events

    def _hear(self) -> None:
        """Takes in the XIDs since the last look."""
        if self._events is None:
            return
        nvml = self._nvml
        while True:
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
            except nvml.NVMLError:
                return  # none is left
            self._note_xid(int(event.eventData), event.device)

    def _note_xid(self, xid: int, handle: Any) -> None:
        if xid in OF_THE_PROGRAM:
            return
        uuid = _text(self._ask(self._nvml.nvmlDeviceGetUUID, handle) or "")
        for device in self._devices:
            if not uuid or device.gpu.uuid == uuid:  # one that cannot say who it is may be any of them
                log.warning("GPU %d reports XID %d", device.gpu.index, xid)
                if xid in _SUSPECT:
                    device.suspect = f"XID {xid}"
                else:
                    device.failed = f"XID {xid}"

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """What a call gives; None where this GPU or driver does not have it."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None


def _library() -> ModuleType:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise NoNvml(
            "GPUs are seen through nvidia-ml-py, which is not installed: pip install 'homeostat[nvidia]', or --simulate 8xH100"
        ) from None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
