"""GPUs that are there only in name: `8xH100`. Processes that hold them really run; what they would use is guessed from what they do."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from homeostat.gpu.agent.devices import Held
from homeostat.gpu.agent.suspend import Standstill, Suspension
from homeostat.gpu.kinds import WHOLE, Gpu, GpuReading
from homeostat.model.kinds import InvalidSpec, decode, encode

log = logging.getLogger("homeostat.gpu.agent")

MEMORY_MIB = {
    "A100": 81_920,
    "H100": 81_559,
    "H200": 143_771,
    "B200": 183_359,
    "L4": 23_034,
    "L40S": 46_068,
    "T4": 15_360,
    "V100": 32_768,
}
"""What a GPU of a type has, where nobody says."""
_OTHER_MIB = 81_920
_FORM = re.compile(r"(\d{1,2})x([A-Za-z0-9][A-Za-z0-9._-]{0,62})(?::(\d+)([MG])i?)?").fullmatch
_IDLE_WATTS, _FULL_WATTS = 70.0, 700.0
_IDLE_DEGREES, _FULL_DEGREES = 35.0, 75.0


class Simulated:
    """So many GPUs of a type. Their use is the CPU use of the processes that hold them, a core being a GPU.

    `readings` is a file in which a test or a person says otherwise, looked at with every reading: by index what differs from the guess,
    such as `{"0": {"utilisation": 0.0, "health": "Failed", "reason": "XID 79"}}`.
    """

    simulated = True
    changed = False

    def __init__(self, count: int, model: str, memory_mib: int = 0, readings: Path | None = None) -> None:
        self.model = model
        self.suspension: Suspension = Standstill()
        self._count = count
        self._memory = memory_mib or MEMORY_MIB.get(model, _OTHER_MIB)
        self._readings = readings

    @classmethod
    def parse(cls, text: str, readings: Path | None = None) -> Simulated:
        """From `8xH100` or `8xH100:80G`. ValueError where it is neither."""
        match = _FORM(text)
        if match is None or not 1 <= int(match[1]) <= 64:
            raise ValueError(f"{text!r} is not a number of GPUs and their type: write 8xH100, or 8xH100:80G")
        memory = int(match[3] or 0) * (1024 if match[4] == "G" else 1)
        return cls(int(match[1]), match[2], memory, readings)

    def gpus(self) -> list[Gpu]:
        return [Gpu(index=i, uuid=f"SIM-{i}", memory_mib=self._memory) for i in range(self._count)]

    def number(self, before: Sequence[Gpu], held: Collection[int]) -> None:
        pass

    def visible(self, indexes: Sequence[int]) -> str:
        for index in indexes:
            if not 0 <= index < self._count:
                raise KeyError(index)
        return ",".join(map(str, indexes))

    def read(self, held: Mapping[int, Held]) -> list[GpuReading]:
        said = self._said()
        guesses = [self._guess(index, held.get(index, Held())) for index in range(self._count)]
        return [_but(guess, said.get(str(guess.index))) for guess in guesses]

    def close(self) -> None:
        pass

    def _guess(self, index: int, held: Held) -> GpuReading:
        busy = min(1.0, held.cpu)
        return GpuReading(
            index=index,
            utilisation=round(busy, 3),
            memory_traffic=round(busy / 2, 3),
            cpu=round(held.cpu, 3),
            memory_used_mib=min(held.resident_mib, self._memory * min(held.milli, WHOLE) // WHOLE),
            power_watts=round(_IDLE_WATTS + busy * (_FULL_WATTS - _IDLE_WATTS), 1),
            temperature=round(_IDLE_DEGREES + busy * (_FULL_DEGREES - _IDLE_DEGREES), 1),
            held_by=held.workloads,
        )

    def _said(self) -> Mapping[str, Any]:
        if self._readings is None:
            return {}
        try:
            found = orjson.loads(self._readings.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            log.warning("%s is not JSON, and is passed over: %s", self._readings, error)
            return {}
        return found if isinstance(found, dict) else {}


def _but(guess: GpuReading, said: Any) -> GpuReading:
    if not isinstance(said, dict):
        return guess
    try:
        return decode(GpuReading, {**encode(guess), **said, "index": guess.index}, path=f"readings[{guess.index}]")
    except InvalidSpec as error:
        log.warning("what is said of GPU %d is passed over: %s", guess.index, error)
        return guess
