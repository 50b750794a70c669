"""Tries which programs leave the GPU with their state and come back: what frameworks do there differs more than how much memory they hold.

    python benchmarks/gpu_kinds.py                             # on a machine with an NVIDIA GPU (driver 570 or later) and PyTorch
    python benchmarks/gpu_kinds.py graphs managed --python /opt/torch/bin/python3

Each kind of program is suspended and resumed twice as the agent does it, and checks its memory and its results all the while. What the
driver refuses must run on as before. `training` also says whether it learned to the last bit what it learns undisturbed. Nothing here passes
or fails: it prints what it saw.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SUSPEND_SECONDS, RESUME_SECONDS, START_SECONDS = 40.0, 60.0, 120.0
MIB = 1024 * 1024
STEPS = 300
"""Of `training`."""

# The programs. They run under the Python that has PyTorch and need nothing else: `torch` is handed in.

Check = Callable[[], bool]
"""Does a piece of work, and says whether all is as it must be."""


def plain(torch: Any) -> Check:
    return lambda: True


def training(torch: Any) -> Check:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 1024, batch_first=True, dropout=0.1)
    model, lessons = torch.nn.TransformerEncoder(layer, 4).cuda(), torch.randn(16, 128, 512, device="cuda")
    optimiser, losses = torch.optim.AdamW(model.parameters(), 1e-4), list[float]()

    def check() -> bool:
        if len(losses) < STEPS:
            optimiser.zero_grad()
            loss = (model(lessons) - lessons).pow(2).mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
            if len(losses) == STEPS:
                print(hashlib.sha256(repr(losses).encode()).hexdigest(), flush=True)
        return True

    return check


def graphs(torch: Any) -> Check:
    count, graph, done = torch.zeros(MIB, device="cuda"), torch.cuda.CUDAGraph(), 0
    with torch.cuda.graph(graph):
        count += 1

    def check() -> bool:
        nonlocal done
        for _ in range(50):
            graph.replay()
            done += 1
        return float(count[0]) == done == float(count[-1])

    return check


def compiled(torch: Any) -> Check:
    wave = torch.compile(lambda x: torch.sin(x) * torch.cos(x) + 1, mode="reduce-overhead")
    values, found = torch.randn(MIB, device="cuda"), set[float]()

    def check() -> bool:
        found.add(wave(values).sum().item())
        return len(found) == 1

    return check


def pinned(torch: Any) -> Check:
    here = torch.randint(0, 256, (2048 * MIB,), dtype=torch.uint8).pin_memory()
    there, expected = torch.empty(1024 * MIB, dtype=torch.uint8, device="cuda"), int(here[:MIB].sum(dtype=torch.int64))

    def check() -> bool:
        there.copy_(here[: 1024 * MIB], non_blocking=True)
        return int(there[:MIB].sum(dtype=torch.int64)) == expected

    return check


def loader(torch: Any) -> Check:
    class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 10**9

        def __getitem__(self, at: int) -> Any:
            return torch.full((1024,), float(at % MIB))

    batches, seen = iter(torch.utils.data.DataLoader(Rows(), batch_size=64, num_workers=4, pin_memory=True)), 0

    def check() -> bool:
        nonlocal seen
        seen += 64
        return float(next(batches).cuda(non_blocking=True)[-1, 0]) == (seen - 1) % MIB

    return check


def streams(torch: Any) -> Check:
    many, square = [torch.cuda.Stream() for _ in range(8)], torch.eye(4096, device="cuda")

    def check() -> bool:
        products = []
        for stream in many:
            with torch.cuda.stream(stream):
                products.append(square @ square)
        torch.cuda.synchronize()
        return all(float(one.sum()) == 4096 for one in products)

    return check


def threads(torch: Any) -> Check:
    square, wrong = torch.eye(2048, device="cuda"), list[str]()

    def spin() -> None:
        while not wrong:
            if float((square @ square).sum()) != 2048:
                wrong.append("a product")

    for _ in range(4):
        threading.Thread(target=spin, daemon=True).start()
    return lambda: not wrong


def long_kernel(torch: Any) -> Check:
    def check() -> bool:
        torch.cuda._sleep(10**10)  # some six seconds, which nobody can interrupt
        torch.cuda.synchronize()
        return True

    return check


def nccl(torch: Any) -> Check:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda:0"))
    ones = torch.ones(MIB, device="cuda")

    def check() -> bool:
        torch.distributed.all_reduce(ones)
        return float(ones.sum()) == MIB

    return check


def managed(torch: Any) -> Check:
    cuda, place, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), ctypes.c_size_t(256 * MIB)
    torch.cuda.synchronize()
    assert cuda.cuMemAllocManaged(ctypes.byref(place), size, 1) == 0
    assert cuda.cuMemsetD8_v2(place, ctypes.c_ubyte(7), size) == 0
    torch.cuda.synchronize()
    return lambda: ctypes.string_at(place.value, 4096) == b"\x07" * 4096


def profiled(torch: Any) -> Check:
    torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]).start()
    return streams(torch)


KINDS: dict[str, tuple[Callable[[Any], Check], str]] = {
    "plain": (plain, ""),
    "training": (training, ""),
    "graphs": (graphs, ""),
    "compiled": (compiled, ""),
    "pinned": (pinned, ""),
    "loader": (loader, ""),
    "streams": (streams, ""),
    "threads": (threads, ""),
    "long-kernel": (long_kernel, ""),
    "nccl": (nccl, ""),
    "expandable": (streams, "expandable_segments:True"),
    "async": (streams, "backend:cudaMallocAsync"),
    "managed": (managed, ""),
    "profiled": (profiled, ""),
}
"""By name, with what PyTorch's allocator is told."""


def job(kind: str, rounds: Path) -> None:
    """Runs one kind for ever, and counts its rounds in a file; ends where something is not as it must be."""
    build, allocator = KINDS[kind]
    if allocator:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = allocator
    import torch

    torch.manual_seed(1)
    numbers = torch.randint(0, 256, (1024 * MIB,), dtype=torch.uint8, device="cuda")
    expected, check, done = int(numbers.sum(dtype=torch.int64)), build(torch), 0
    while check() and int(numbers.sum(dtype=torch.int64)) == expected:
        done += 1
        rounds.write_text(str(done))
        time.sleep(0.02)
    raise SystemExit("something is not as it was")


class Job:
    """One program under way."""

    def __init__(self, python: str, kind: str, folder: Path) -> None:
        self._rounds, self.said = folder / f"{kind}.rounds", folder / f"{kind}.out"
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with self.said.open("w") as out:
            command = [python, __file__, "--job", kind, str(self._rounds)]
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, env=environment)

    @property
    def rounds(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int(self._rounds.read_text())
        return 0

    def goes_on(self, seconds: float) -> bool:
        """Whether it does another round within the time."""
        before, end = self.rounds, time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if self.rounds > before + 1:  # the first may have been all but done
                return True
            time.sleep(0.05)
        return False

    @property
    def last(self) -> str:
        """The last line that it printed."""
        return self.said.read_text(errors="replace").strip().rpartition("\n")[2]

    def learned(self, seconds: float) -> str:
        """What all that it learned comes to, when it knows."""
        end = time.monotonic() + seconds
        while len(self.last) != hashlib.sha256().digest_size * 2 and time.monotonic() < end:
            time.sleep(0.1)
        return self.last

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()


@contextlib.contextmanager
def running(python: str, kind: str, folder: Path) -> Iterator[Job]:
    """A program that has done its first rounds."""
    found = Job(python, kind, folder)
    try:
        if not found.goes_on(START_SECONDS):
            raise SystemExit(f"{kind} does not start: {found.last}")
        yield found
    finally:
        found.end()


def attempt(suspension: Any, found: Job) -> str:
    """Suspends and resumes it once; what came of it, in words."""
    from homeostat.gpu.agent.family import relatives
    from homeostat.gpu.agent.suspend import Broken, CannotSuspend
    from homeostat.providers.process import kernel
    from homeostat.providers.process.record import Identity

    def family() -> list[Identity]:
        people = kernel.everybody()
        pids = [pid for pid in relatives(people, found.process.pid) if people[pid].state not in "ZX"]
        return sorted((Identity(pid, people[pid].start, kernel.boot_id()) for pid in pids), key=lambda one: (one.start, one.pid))

    room, began = suspension.room(family), time.monotonic()
    try:
        suspension.suspend(family, SUSPEND_SECONDS, gang=False)
    except (CannotSuspend, Broken) as error:
        return f"stays: {error}; {'runs on' if found.goes_on(30) else 'AND DOES NOT RUN ON'}"
    off = time.monotonic() - began
    began = time.monotonic()
    try:
        suspension.resume(family, RESUME_SECONDS, room)
    except (CannotSuspend, Broken) as error:
        return f"LOST: {error}"
    back = time.monotonic() - began
    how = "intact" if found.goes_on(30) else f"NOT INTACT: {found.last}"
    return f"{sum(room.values()) / 1024:.1f} GiB off in {off:.1f} s, back in {back:.1f} s, {how}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"which: {', '.join(KINDS)} (default: all)")
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--job", nargs=2, metavar=("KIND", "FILE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        job(asked.job[0], Path(asked.job[1]))
    if unknown := set(asked.kinds) - KINDS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: the kinds are {', '.join(KINDS)}")
    from homeostat.gpu.agent.nvml import NoNvml, Nvml

    try:
        gpus = Nvml()
    except NoNvml as error:
        raise SystemExit(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="homeostat-bench-") as folder:
        for kind in asked.kinds or KINDS:
            with running(asked.python, kind, Path(folder)) as found:
                for _ in range(2):
                    print(f"{kind:<12} {attempt(gpus.suspension, found)}", flush=True)
                learned = found.learned(60) if kind == "training" else ""
            if learned:
                with running(asked.python, kind, Path(folder)) as found:
                    same = found.learned(120) == learned
                print(f"{kind:<12} learned {'the same' if same else 'SOMETHING ELSE'} without", flush=True)


if __name__ == "__main__":
    main()
