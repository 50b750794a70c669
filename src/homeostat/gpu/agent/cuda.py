"""Asks NVIDIA's driver to take processes off the GPU with their state, or to put them back. A program of its own, needing only Python.

    python cuda.py suspend|resume|state MILLISECONDS PID...

Prints one JSON object: `{}` where it is done, `error` where it is not and all is as before, with the driver's `code` where it gave one, also
`broken` where the driver gave a process up; for `state` the state of each process. It runs apart from the agent because a call into the driver cannot be interrupted, only killed.

A process is RUNNING, LOCKED (its CUDA calls wait) or CHECKPOINTED (what it had on the GPU is in the machine's memory). All are locked
before the first is moved, as they may wait for each other. Calls are in libcuda.so.1 since driver 570; each takes a pid and a pointer to
a struct of 64 bytes, all zero but for the timeout of the lock.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time

LIBRARY = "libcuda.so.1"
RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)
NAMES = ("running", "locked", "checkpointed", "failed")
NOT_CUDA = (1, 3, 100, 201)
"""CUDA_ERROR_INVALID_VALUE, NOT_INITIALIZED, NO_DEVICE, INVALID_CONTEXT: what is said of a process that does not use CUDA."""


class Arguments(ctypes.Structure):
    """CUcheckpointLockArgs; those of the other calls have the same size and are all zero."""

    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", ctypes.c_uint64 * 7))


class DriverError(Exception):
    """A call failed, or did not bring what it should (then `code` is 0)."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Driver:
    """The five calls, and nothing else. `OSError` or `AttributeError` where the driver does not have them."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._cuda = ctypes.CDLL(library)
        self._cuda.cuCheckpointProcessGetState  # noqa: B018 (an older driver is found out here)
        if code := self._cuda.cuInit(0):
            raise OSError(f"cuInit: {self._said(code)} ({code})")

    def state(self, pid: int) -> int | None:
        """The state of a process; None where it does not use CUDA."""
        found = ctypes.c_int(-1)
        code = self._cuda.cuCheckpointProcessGetState(ctypes.c_int(pid), ctypes.byref(found))
        if code in NOT_CUDA:
            return None
        self._check("the state", pid, code)
        return found.value

    def lock(self, pid: int, milliseconds: int) -> None:
        self._call("Lock", pid, max(1, milliseconds))

    def checkpoint(self, pid: int) -> None:
        self._call("Checkpoint", pid)

    def restore(self, pid: int) -> None:
        self._call("Restore", pid)

    def unlock(self, pid: int) -> None:
        self._call("Unlock", pid)

    def _call(self, name: str, pid: int, milliseconds: int = 0) -> None:
        arguments = Arguments(timeout_ms=milliseconds)
        code = getattr(self._cuda, f"cuCheckpointProcess{name}")(ctypes.c_int(pid), ctypes.byref(arguments))
        self._check(name.lower(), pid, code)

    def _check(self, call: str, pid: int, code: int) -> None:
        if code:
            raise DriverError(f"{call} of pid {pid} failed: {self._said(code)} ({code})", code)

    def _said(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._cuda.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
        return (text.value or b"unknown error").decode()


def suspend(driver: Driver, pids: list[int], milliseconds: int) -> None:
    """Brings all to CHECKPOINTED, or back to RUNNING where one does not get there.

    A process may begin to use CUDA meanwhile, as those do that compile kernels: it is moved like the others.
    """
    give_up = time.monotonic() + milliseconds / 1000
    try:
        while going := [pid for pid in pids if driver.state(pid) in (RUNNING, LOCKED)]:
            for pid in going:
                if driver.state(pid) == RUNNING:
                    driver.lock(pid, int((give_up - time.monotonic()) * 1000))
            for pid in going:
                if time.monotonic() > give_up:
                    raise DriverError(f"pid {pid} could not be moved in time")
                if driver.state(pid) == LOCKED:
                    driver.checkpoint(pid)
        _check(driver, pids, CHECKPOINTED)
    except DriverError:
        resume(driver, pids)
        raise


def resume(driver: Driver, pids: list[int]) -> None:
    """Brings all to RUNNING. All are restored before the first goes on."""
    for pid in pids:
        if driver.state(pid) == CHECKPOINTED:
            driver.restore(pid)
    for pid in pids:
        if driver.state(pid) == LOCKED:
            driver.unlock(pid)
    _check(driver, pids, RUNNING)


def _check(driver: Driver, pids: list[int], wanted: int) -> None:
    """That a call succeeded says less than how things are now."""
    for pid in pids:
        if (state := driver.state(pid)) not in (wanted, None):
            raise DriverError(f"pid {pid} is {NAMES[state] if state < len(NAMES) else state}, not {NAMES[wanted]}")


def answer(driver: Driver, what: str, milliseconds: int, pids: list[int]) -> dict[str, object]:
    """Does it, and says how it went."""
    if what == "state":
        states = {str(pid): driver.state(pid) for pid in pids}
        return {pid: None if state is None else NAMES[state] for pid, state in states.items()}
    try:
        if what == "suspend":
            suspend(driver, pids, milliseconds)
        else:
            resume(driver, pids)
    except DriverError as error:
        broken = [pid for pid in pids if _state(driver, pid) == FAILED]
        return {"error": str(error), **({"code": error.code} if error.code else {}), **({"broken": broken} if broken else {})}
    return {}


def _state(driver: Driver, pid: int) -> int | None:
    try:
        return driver.state(pid)
    except DriverError:
        return None


def main(arguments: list[str]) -> None:
    """One request, one answer."""
    what, milliseconds, *pids = arguments
    try:
        said = answer(Driver(), what, int(milliseconds), [int(pid) for pid in pids])
    except (OSError, AttributeError) as error:
        said = {"error": f"this driver cannot suspend processes (570 or later can): {error}"}
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1:])
