"""NVIDIA's GPUs, seen through NVML (the package nvidia-ml-py, extra `nvidia`)."""

from __future__ import annotations

import contextlib
import importlib
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import ModuleType
from typing import Any

import msgspec
from msgspec import structs

from homeostat.gpu.agent.devices import Gone, Held, numbered
from homeostat.gpu.agent.suspend import SHARED_SINCE, CudaCheckpoint, Suspension
from homeostat.gpu.kinds import Gpu, GpuHealth, GpuReading, is_part

log = logging.getLogger("homeostat.gpu.agent")

_MIB = 1024 * 1024
OF_THE_PROGRAM = frozenset((13, 31, 43, 45, 68, 69, 109))
"""XIDs that a faulty program causes: they say nothing about the GPU."""
_SUSPECT = frozenset((48, 63, 92, 94, 119, 120, 140))
"""XIDs after which a GPU may go on, but wants a reset or a look: memory errors that were contained, a firmware that hung. All others that
are not of the program mean that it is lost."""
_SHARES_MEMORY = re.compile(r".*-MIG-\d+c\.").match
"""Of models: several compute instances in one GPU instance, such as `1c.3g.20gb`, have one memory."""
_WORDS_AROUND = re.compile(r"^(NVIDIA|Tesla|Quadro|GeForce|Graphics Device)\b\s*")


class NoNvml(Exception):
    """There is no GPU to be seen here. The message says why, and what to do."""


class _Part(msgspec.Struct, frozen=True):
    """A part that a GPU is cut into by MIG."""

    handle: Any
    uuid: str
    model: str
    """Such as `H100-MIG-1g.10gb`."""
    memory_mib: int

    @property
    def profile(self) -> str:
        return self.model.partition("-MIG-")[2]


class _Card(msgspec.Struct):
    """A GPU as it is in the machine, cut or not."""

    handle: Any
    index: int
    uuid: str
    memory_mib: int
    cut: bool = False
    """Whether MIG is on, also where no part has been made yet."""
    parts: tuple[_Part, ...] = ()
    failed: str = ""
    """The XID that it was lost by; that does not heal by itself."""
    suspect: str = ""
    seen: dict[int, int] = msgspec.field(default_factory=dict)
    """By kind of sample: when the last one was taken that has been counted."""


class _Device(msgspec.Struct):
    """What is declared as a GPU: a card, or a part of one."""

    gpu: Gpu
    card: _Card
    part: _Part | None = None

    @property
    def handle(self) -> Any:
        return self.card.handle if self.part is None else self.part.handle


def model_of(name: str) -> str:
    """The type by a name of NVML's: `NVIDIA H100 80GB HBM3` is an `H100`, `NVIDIA A100-SXM4-80GB` an `A100`, `NVIDIA GeForce RTX 4090` an
    `RTX-4090`, and `NVIDIA H100 80GB HBM3 MIG 1g.10gb` an `H100-MIG-1g.10gb`.
    """
    short, _, profile = name.replace("-", " ").partition(" MIG ")
    while (rest := _WORDS_AROUND.sub("", short)) != short:
        short = rest
    words = short.split()
    count = 2 if len(words) > 1 and words[0] in ("RTX", "GTX", "TITAN") else 1
    model = "-".join(words[:count]) or "GPU"
    return f"{model}-MIG-{profile.strip().lower().replace('+', '.')}" if profile.strip() else model


class Nvml:
    """The GPUs that NVML shows. `NoNvml` where there is no library, driver or GPU."""

    simulated = False

    def __init__(self, nvml: ModuleType | None = None) -> None:
        self._nvml: Any = nvml or _library()
        try:
            self._nvml.nvmlInit()
            self._cards = [self._found(index) for index in range(self._nvml.nvmlDeviceGetCount())]
        except self._nvml.NVMLError as error:
            raise NoNvml(f"no GPU can be seen: {error}; --simulate 8xH100 does without") from None
        if not self._cards:
            raise NoNvml("this machine has no GPU; --simulate 8xH100 does without")
        self._name = model_of(_text(self._nvml.nvmlDeviceGetName(self._cards[0].handle)))
        self._devices: list[_Device] = []
        self._declared = ""
        """As what they were when they got the numbers that others go by; empty: they have none yet."""
        self._gone: set[int] = set()
        """The indexes of those that are no more."""
        self._look()
        self._devices = self._with_numbers(self._there(()), (), ())
        self.suspension: Suspension = CudaCheckpoint(self.holders, self.free, restores_shared=self._driver() >= SHARED_SINCE)
        self._events = self._listen()

    @property
    def model(self) -> str:
        return self._alike() or self._name

    @property
    def changed(self) -> bool:
        def known(devices: list[_Device]) -> set[tuple[str, int, tuple[str, ...]]]:
            return {(device.gpu.uuid, device.gpu.memory_mib, device.gpu.mig) for device in devices}

        return self.model != self._declared or known(self._there(self.gpus())) != known(self._devices)

    def number(self, before: Sequence[Gpu], held: Collection[int]) -> None:
        known = [gpu for gpu in (*(self.gpus() if self._declared else ()), *before) if gpu.uuid]
        self._devices = self._with_numbers(self._there(known), known, held)
        self._declared = self.model
        if known:
            self._gone = {*self._gone, *held, *(gpu.index for gpu in known)} - {gpu.index for gpu in self.gpus()}

    def gpus(self) -> list[Gpu]:
        return [device.gpu for device in self._devices]

    def visible(self, indexes: Sequence[int]) -> str:
        by_index = {device.gpu.index: device.gpu.uuid for device in self._devices}
        for index in indexes:
            if index not in by_index and index in self._gone:
                raise Gone(f"GPU {index} of this node is no more: it was cut anew by MIG, or taken out")
        return ",".join(by_index[index] for index in indexes)  # uuids mean the same to every process, whatever it sees

    def holders(self) -> Mapping[int, Mapping[int, int]]:
        """The pids that have memory on a GPU, and how many MiB, by the GPU's index."""
        found: dict[int, dict[int, int]] = {}
        for device in self._devices:
            for one in self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, device.handle) or ():
                found.setdefault(one.pid, {})[device.gpu.index] = (one.usedGpuMemory or 0) // _MIB
        return found

    def free(self) -> Mapping[int, int]:
        """The MiB that nobody has, by the GPU's index; of those that tell."""
        told = {device.gpu.index: self._ask(self._nvml.nvmlDeviceGetMemoryInfo, device.handle) for device in self._devices}
        return {index: info.free // _MIB for index, info in told.items() if info is not None}

    def _driver(self) -> int:
        """The major version of the driver; 0 where it does not tell."""
        major = _text(self._ask(self._nvml.nvmlSystemGetDriverVersion) or "").partition(".")[0]
        return int(major) if major.isdecimal() else 0

    def read(self, held: Mapping[int, Held]) -> list[GpuReading]:
        self._look()
        self._hear()
        return [self._read(device, held.get(device.gpu.index, Held())) for device in self._devices]

    def close(self) -> None:
        self._ask(self._nvml.nvmlShutdown)

    # Which there are

    def _found(self, index: int) -> _Card:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return _Card(handle, index, _text(nvml.nvmlDeviceGetUUID(handle)), self._total(handle))

    def _look(self) -> None:
        """Finds out how each is cut at present. What cannot be told stays as it was: not known is not gone."""
        for card in self._cards:
            with contextlib.suppress(self._nvml.NVMLError):
                mode = self._lacking(self._nvml.nvmlDeviceGetMigMode, card.handle)
                cut = bool(mode and mode[0])
                card.cut, card.parts = cut, self._parts(card.handle) if cut else ()
                card.memory_mib = card.memory_mib or self._total(card.handle)
        handles = {part.uuid: part for card in self._cards for part in card.parts}
        for device in self._devices:
            if device.part is not None:
                device.part = handles.get(device.part.uuid, device.part)  # a handle may come to mean another part

    def _parts(self, handle: Any) -> tuple[_Part, ...]:
        nvml = self._nvml
        found = []
        for number in range(self._lacking(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            part = self._lacking(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
            if part is not None:
                uuid, name = _text(nvml.nvmlDeviceGetUUID(part)), _text(nvml.nvmlDeviceGetName(part))
                found.append(_Part(part, uuid, model_of(name), self._total(part)))
        return tuple(found)

    def _alike(self) -> str:
        """The one model of all parts, where all GPUs are cut and each part has its memory for itself; else empty."""
        models = {part.model for card in self._cards for part in card.parts}
        if len(models) != 1 or not all(card.cut for card in self._cards):
            return ""
        (model,) = models
        return model if is_part(model) and not _SHARES_MEMORY(model) else ""

    def _there(self, before: Sequence[Gpu]) -> list[_Device]:
        """What is to be declared, in order. Parts are given out where all are alike; else those remain that were `before`, for work may be on them."""
        alike, were = self._alike(), {gpu.uuid for gpu in before if gpu.part_of}
        found = []
        for card in self._cards:
            parts = [part for part in card.parts if alike or part.uuid in were]
            found += [_Device(Gpu(index=0, uuid=one.uuid, memory_mib=one.memory_mib, part_of=card.uuid), card, one) for one in parts]
            if not parts:
                profiles = tuple(part.profile for part in card.parts)
                found.append(_Device(Gpu(index=0, uuid=card.uuid, memory_mib=card.memory_mib, mig=profiles), card))
        return found

    def _with_numbers(self, found: list[_Device], before: Sequence[Gpu], held: Collection[int]) -> list[_Device]:
        for device, index in zip(found, numbered([one.gpu for one in found], before, held), strict=True):
            device.gpu = structs.replace(device.gpu, index=index)
        return sorted(found, key=lambda device: device.gpu.index)

    # How they are

    def _read(self, device: _Device, held: Held) -> GpuReading:
        nvml, handle, card = self._nvml, device.handle, device.card
        try:
            memory = self._memory(handle)
        except nvml.NVMLError as error:
            lost = card.failed or f"it does not answer: {error}"
            return GpuReading(index=device.gpu.index, health=GpuHealth.FAILED, reason=lost, held_by=held.workloads)
        # The newer form does not count what the driver keeps for itself.
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2) or memory
        use, traffic = (None, None) if card.cut else self._use(card)
        health, reason = self._health(device)
        shares = 1 if device.part is None else max(1, len(card.parts))
        return GpuReading(
            index=device.gpu.index,
            health=health,
            reason=reason,
            utilisation=use,
            memory_traffic=traffic,
            cpu=round(held.cpu, 3),
            memory_used_mib=memory.used // _MIB if memory else 0,
            power_watts=round((self._ask(nvml.nvmlDeviceGetPowerUsage, card.handle) or 0) / 1000 / shares, 3),
            temperature=float(self._ask(nvml.nvmlDeviceGetTemperature, card.handle, nvml.NVML_TEMPERATURE_GPU) or 0),
            held_by=held.workloads,
        )

    def _use(self, card: _Card) -> tuple[float | None, float | None]:
        """How busy it is, and its memory. NVML tells it neither of parts nor of a GPU that is cut."""
        nvml = self._nvml
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, card.handle)
        return (
            self._mean(card, nvml.NVML_GPU_UTILIZATION_SAMPLES, rates and rates.gpu),
            self._mean(card, nvml.NVML_MEMORY_UTILIZATION_SAMPLES, rates and rates.memory),
        )

    def _mean(self, card: _Card, kind: int, at_present: int | None) -> float | None:
        """The mean of a use since the last look, from 0 to 1; where the driver keeps no samples, that of this moment. None where it tells
        neither."""
        since = card.seen.get(kind, 0)
        found = self._ask(self._nvml.nvmlDeviceGetSamples, card.handle, kind, since)
        samples = [one for one in found[1] if one.timeStamp > since] if found else []
        if not samples:
            return None if at_present is None else at_present / 100
        card.seen[kind] = max(one.timeStamp for one in samples)
        return round(sum(int(one.sampleValue.uiVal) for one in samples) / len(samples) / 100, 3)

    def _health(self, device: _Device) -> tuple[GpuHealth, str]:
        """Of a part, that of its GPU: what is the matter with that is so for all parts of it."""
        nvml, card = self._nvml, device.card
        if card.failed:
            return GpuHealth.FAILED, card.failed
        rows = self._ask(nvml.nvmlDeviceGetRemappedRows, card.handle)
        if rows and rows[3]:
            return GpuHealth.FAILED, "ECC: rows of its memory are bad and cannot be replaced"
        if reason := self._unfit(device):
            return GpuHealth.SUSPECT, reason
        uncorrected = self._ask(
            nvml.nvmlDeviceGetTotalEccErrors,
            card.handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        )
        if uncorrected:
            return GpuHealth.SUSPECT, f"ECC: {uncorrected} errors that could not be corrected since it was reset"
        if rows and rows[2]:
            return GpuHealth.SUSPECT, "ECC: rows of its memory are replaced with the next reset"
        slowed = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, card.handle) or 0
        if slowed & nvml.nvmlClocksThrottleReasonHwThermalSlowdown:
            return GpuHealth.SUSPECT, "thermal: it is too hot, and slowed down by its hardware"
        return (GpuHealth.SUSPECT, card.suspect) if card.suspect else (GpuHealth.HEALTHY, "")

    def _unfit(self, device: _Device) -> str:
        """Why nothing is placed on it for how the GPUs are cut; empty where something may be."""
        if not device.card.cut or (device.part is not None and self._alike()):
            return ""
        if not device.card.parts:
            return "MIG is on, and it has no part: cut it as the other GPUs of this node are, or turn MIG off"
        if any(_SHARES_MEMORY(part.model) for part in device.card.parts):
            return "MIG is on, and parts of it share their memory: make one compute instance in each GPU instance, or turn MIG off"
        return "MIG is on, and the GPUs of this node are not all cut alike: cut all of them into parts of one profile, or turn MIG off"

    def _listen(self) -> Any:
        """Has NVML tell of XIDs; None where it cannot."""
        nvml = self._nvml
        events = self._ask(nvml.nvmlEventSetCreate)
        if events is not None:
            for card in self._cards:
                self._ask(nvml.nvmlDeviceRegisterEvents, card.handle, nvml.nvmlEventTypeXidCriticalError, events)
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
        for card in self._cards:
            if uuid in ("", card.uuid, *(part.uuid for part in card.parts)):  # one that cannot say who it is may be any of them
                log.warning("GPU %d reports XID %d", card.index, xid)
                if xid in _SUSPECT:
                    card.suspect = f"XID {xid}"
                else:
                    card.failed = f"XID {xid}"

    def _lacking(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """What a call gives; None where there is no such thing. Raises where that is not known."""
        nvml = self._nvml
        try:
            return call(*arguments)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                return None  # an older GPU or driver, or no part of that number
            raise

    def _memory(self, handle: Any) -> Any:
        """The memory of a GPU or part; None where it is not told to us: sums over the parts of a GPU are for root."""
        try:
            return self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_NO_PERMISSION:
                return None
            raise

    def _total(self, handle: Any) -> int:
        """The memory of a GPU or part in MiB; 0 where it is not told to us."""
        memory = self._memory(handle)
        return memory.total // _MIB if memory else 0

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
