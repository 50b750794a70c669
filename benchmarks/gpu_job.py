"""A job for a GPU, to be suspended: fills memory with numbers, keeps computing with them, and checks again and again that they are intact.

    python gpu_job.py MIB PROGRESS [--children N] [--steps N]

Needs PyTorch where it is there, and else nothing but NVIDIA's driver. On a machine without a GPU (`--pretend`) it does the same with a
little memory of the machine. `PROGRESS` is a file that gets a line `STEP CHECKSUM` for each round; it begins with what the sum must be.
It ends with 1 where a sum is another, with 0 after `--steps` rounds (default: never).
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import time
from typing import Any, Protocol

MIB = 1024 * 1024
PIECE_MIB = 256


class Numbers(Protocol):
    """Memory full of numbers."""

    def checksum(self) -> int:
        """The same as long as they are intact."""

    def work(self) -> None:
        """Has the GPU do something."""


class Torch:
    """By PyTorch: random bytes on the GPU, summed there; and a matrix product in between."""

    def __init__(self, torch: Any, mib: int) -> None:
        self._torch = torch
        make = torch.Generator(device="cuda")
        make.manual_seed(mib)
        pieces = [PIECE_MIB] * (mib // PIECE_MIB) + ([mib % PIECE_MIB] if mib % PIECE_MIB else [])
        self._pieces = [
            torch.randint(0, 256, (n * MIB,), dtype=torch.uint8, device="cuda", generator=make) for n in pieces
        ]
        self._square = torch.randn(2048, 2048, device="cuda")

    def checksum(self) -> int:
        return sum((index + 1) * int(piece.sum(dtype=self._torch.int64)) for index, piece in enumerate(self._pieces))

    def work(self) -> None:
        for _ in range(20):
            self._square = self._torch.tanh(self._square @ self._square)
        self._torch.cuda.synchronize()


class Plain:
    """By the driver alone: each piece is filled with a number of its own, and some of it read back."""

    def __init__(self, mib: int) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._pieces = []
        for index in range(max(1, mib // PIECE_MIB)):
            pointer = ctypes.c_uint64()
            self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(PIECE_MIB * MIB))
            self._call(
                "cuMemsetD32_v2",
                pointer,
                ctypes.c_uint(index * 2654435761 % 2**32),
                ctypes.c_size_t(PIECE_MIB * MIB // 4),
            )
            self._pieces.append(pointer)

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._cuda, name)(*arguments):
            raise SystemExit(f"{name} failed with {code}")

    def checksum(self) -> int:
        found, word = 0, ctypes.c_uint()
        for piece in self._pieces:
            for offset in range(0, PIECE_MIB * MIB, PIECE_MIB * MIB // 64):
                self._call(
                    "cuMemcpyDtoH_v2", ctypes.byref(word), ctypes.c_uint64(piece.value + offset), ctypes.c_size_t(4)
                )
                found += word.value
        return found

    def work(self) -> None:
        time.sleep(0.02)


class Pretended:
    """Without a GPU: a little memory of the machine."""

    def __init__(self, mib: int) -> None:
        self._bytes = bytes(range(256)) * 4096 * min(mib, 64)

    def checksum(self) -> int:
        return sum(self._bytes[::4097])

    def work(self) -> None:
        time.sleep(0.02)


def numbers(mib: int, pretend: bool) -> Numbers:
    if pretend:
        return Pretended(mib)
    try:
        import torch
    except ImportError:
        return Plain(mib)
    return Torch(torch, mib)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mib", type=int)
    parser.add_argument("progress")
    parser.add_argument("--children", type=int, default=0, help="further processes with memory of their own on the GPU")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--pretend", action="store_true")
    asked = parser.parse_args()
    pretend = ["--pretend"] if asked.pretend else []
    for child in range(asked.children):
        subprocess.Popen([sys.executable, __file__, "1024", f"{asked.progress}.{child}", *pretend])
    held = numbers(asked.mib, asked.pretend)
    expected = held.checksum()
    step = 0
    with open(asked.progress, "a", buffering=1) as file:
        while not asked.steps or step < asked.steps:
            held.work()
            found = held.checksum()
            step += 1
            file.write(f"{step} {found}\n")
            if found != expected:
                raise SystemExit(f"the numbers on the GPU are not what they were: {found} instead of {expected}")


if __name__ == "__main__":
    main()
