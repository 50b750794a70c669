"""How a replica leaves the GPUs with its state, and comes back. Two ways: of real GPUs, and of simulated ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from homeostat.gpu.agent.family import Family, go_on, shares_memory, stop, uses_cuda
from homeostat.gpu.agent.memory import room_for
from homeostat.providers.process.record import Identity

ROLL_BACK_SECONDS = 60.0
"""How long a step that failed may take to be undone."""
DRIVER = Path(__file__).with_name("cuda.py")
"""The program that asks the driver."""
_SPARE_MIB = 512
"""What must be left of the machine's memory."""
_STAGING_MIB = 32
"""What may be needed on a GPU for each process beyond what NVML said that it had there: on an H200 18 were enough, and 4 were not."""


SHARED_SINCE = 610
"""The first driver that brings back who shares memory on a GPU with other processes. Those before take it off and then never put it back."""
_OUT_OF_MEMORY = 2


class CannotSuspend(Exception):
    """It did not work, and the processes are as they were before. The message is for people.

    `lasting`: the driver refused to put them back for another reason than a lack of memory, which nobody can end.
    """

    def __init__(self, text: str, *, lasting: bool = False) -> None:
        super().__init__(text)
        self.lasting = lasting


class Broken(Exception):
    """The processes can neither go on nor be continued: the driver gave them up."""


class Suspension(Protocol):
    """Takes all processes of a replica off the GPUs, and puts them back. For threads: it may take many seconds.

    Both raise `CannotSuspend` where it did not work and all is as before, and `Broken` where nothing can be saved. Both do the rest where
    an earlier call was cut short, by a kill say.
    """

    def room(self, family: Family) -> dict[int, int]:
        """The MiB that they have on each GPU, by its index: so much must be free there before they can come back."""

    def suspend(self, family: Family, seconds: float, *, gang: bool) -> None:
        """They stand still, and hold nothing on a GPU any more. Within these seconds, or not at all. `gang`: others of its gang are on this machine."""

    def resume(self, family: Family, seconds: float, room: Mapping[int, int]) -> None:
        """They are back on the GPUs that they left, and go on. `room` is what they had there."""


class Standstill:
    """For simulated GPUs: processes are stopped, and continued."""

    def room(self, family: Family) -> dict[int, int]:
        return {}

    def suspend(self, family: Family, seconds: float, *, gang: bool) -> None:
        try:
            stop(family, seconds)
        except TimeoutError as error:
            go_on(family)
            raise CannotSuspend(str(error)) from None

    def resume(self, family: Family, seconds: float, room: Mapping[int, int]) -> None:
        go_on(family)


class CudaCheckpoint:
    """For NVIDIA's GPUs, driver 570 or later: the driver moves what a process has on the GPU into the machine's memory, and back.

    The driver is asked by a process of its own (`cuda.py`), which can be killed when it hangs. `holders` tells the pids that hold memory
    on a GPU and how many MiB, by GPU: what should have left is looked for there. `free` tells how many MiB nobody has, by GPU: where there is
    no room nothing is put back, for a driver that runs out of memory halfway never puts it back again. Managed memory is not supported by every driver: then it is
    refused and they run on, or the driver gives them up. Memory that processes share on GPUs is left where it is, unless the driver
    `restores_shared`: others take it off, and fail when it should come back.
    """

    def __init__(
        self,
        holders: Callable[[], Mapping[int, Mapping[int, int]]],
        free: Callable[[], Mapping[int, int]],
        driver: Path = DRIVER,
        *,
        restores_shared: bool = False,
    ) -> None:
        self._holders = holders
        self._free = free
        self._driver = driver
        self._restores_shared = restores_shared

    def room(self, family: Family) -> dict[int, int]:
        own, found = {one.pid for one in family()}, dict[int, int]()
        for pid, held in self._holders().items():
            for gpu, mib in held.items() if pid in own else ():
                found[gpu] = found.get(gpu, 0) + mib
        return found

    def suspend(self, family: Family, seconds: float, *, gang: bool) -> None:
        deadline = time.monotonic() + seconds
        go_on(family)  # after a try that was cut short: the driver's part of a process must run to answer
        processes = family()
        pids = _cuda(processes)
        self._check_shared(processes, pids, gang)
        self._check_room(pids)
        try:
            self._ask("suspend", pids, seconds)
            stop(family, max(1.0, deadline - time.monotonic()))
            left = sorted({one.pid for one in family()} & self._holders().keys())
            if left:
                raise CannotSuspend(f"pid {left[0]} still holds memory on the GPU")
        except (CannotSuspend, TimeoutError) as error:
            self._roll_back(family)
            raise CannotSuspend(str(error)) from None

    def resume(self, family: Family, seconds: float, room: Mapping[int, int]) -> None:
        self._check_free(family, room)
        go_on(family)
        try:
            self._ask("resume", _cuda(family()), seconds)
        except CannotSuspend:
            stop(family, ROLL_BACK_SECONDS)  # it waits where it is
            raise

    def _roll_back(self, family: Family) -> None:
        go_on(family)
        try:
            self._ask("resume", _cuda(family()), ROLL_BACK_SECONDS)
        except CannotSuspend as error:
            raise Broken(f"it could neither leave the GPU nor come back: {error}") from None

    def _check_free(self, family: Family, room: Mapping[int, int]) -> None:
        back, free = self.room(family), self._free()  # some may be back already, where an earlier try was cut short
        spare = _STAGING_MIB * len(_cuda(family()))
        for gpu, mib in room.items():
            needed = mib - back.get(gpu, 0)
            if needed > 0 and gpu in free and free[gpu] < needed + spare:
                raise CannotSuspend(f"it needs {needed} MiB on GPU {gpu}, and {free[gpu]} MiB are free{self._most_of(gpu)}")

    def _most_of(self, gpu: int) -> str:
        """Who has most of the memory of a GPU, in words; empty where that cannot be told."""
        held = {pid: found[gpu] for pid, found in self._holders().items() if gpu in found}
        return f": pid {(most := max(held, key=held.__getitem__))} has {held[most]} MiB there" if held else ""

    def _check_shared(self, processes: list[Identity], pids: list[int], gang: bool) -> None:
        """Nobody can tell for sure whether memory is shared; what speaks for it is enough, for what is taken off then is lost."""
        if self._restores_shared or not pids:
            return
        held = {pid: found for pid, found in self._holders().items() if pid in pids}
        sharing = next((one.pid for one in processes if shares_memory(one)), None)
        if sharing is not None:
            why = f"pid {sharing} shares memory on the GPU with other processes"
        elif gang:
            why = "others of its gang are on this machine, and most likely share memory on GPUs with it"
        elif len(held) > 1 and len({gpu for found in held.values() for gpu in found}) > 1:
            why = "its processes are on several GPUs, and most likely share memory on them"
        else:
            return
        raise CannotSuspend(f"{why}, which only drivers from {SHARED_SINCE} on can put back: say Checkpoint or Restart for it")

    def _check_room(self, pids: list[int]) -> None:
        held = self._holders()
        needed = sum(sum(held[pid].values()) for pid in pids if pid in held)
        room = room_for(pids)
        if needed and room.mib < needed + _SPARE_MIB:
            raise CannotSuspend(f"it has {needed} MiB on the GPU, and {room.of} has room for {room.mib} MiB")

    def _ask(self, what: str, pids: list[int], seconds: float) -> None:
        """Has the driver do it. Raises what is to be raised."""
        if not pids:
            return
        command = [sys.executable, "-I", "-S", str(self._driver), what, str(int(seconds * 1000)), *map(str, pids)]
        environ = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        try:
            done = subprocess.run(command, env=environ, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise CannotSuspend(f"the driver did not answer within {seconds:g} s") from None
        answer = _read(done.stdout)
        if answer is None:
            said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise CannotSuspend(f"the driver could not be asked: {said or f'exit status {done.returncode}'}")
        if answer.get("broken"):
            raise Broken(answer["error"])
        if answer.get("error"):
            raise CannotSuspend(answer["error"], lasting=what == "resume" and answer.get("code", _OUT_OF_MEMORY) != _OUT_OF_MEMORY)


def _cuda(processes: list[Identity]) -> list[int]:
    return [one.pid for one in processes if uses_cuda(one)]


def _read(output: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(output)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
