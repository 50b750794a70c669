"""Runs one seed of the GPU service from its beginning to its end, and says what was wrong."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable

import msgspec

from homeostat.sim.gpu.hall import Hall, gpu_template
from homeostat.sim.gpu.storm import CALM_SECONDS, GpuStorm, GpuWeathering, draw
from homeostat.sim.loop import SimLoop
from homeostat.sim.seeds import simulate

MOST_TURNS = 200_000


class GpuReport(msgspec.Struct):
    """What became of a seed."""

    seed: int
    storm: GpuStorm
    wrongs: list[str] = msgspec.field(default_factory=list)
    calm_after: float | None = None
    """Seconds from the end of the storm until all work was done or at work."""
    seconds: float = 0.0
    """Of virtual time, all in all."""
    steps: int = 0
    starts: int = 0
    """How often a process came onto its GPUs."""
    suspensions: int = 0
    preemptions: int = 0
    crashes: int = 0
    outages: int = 0
    agent_crashes: int = 0
    acts: dict[str, int] = msgspec.field(default_factory=dict)
    trace: str = ""
    """The same for every run of the same seed."""

    @property
    def fine(self) -> bool:
        return not self.wrongs

    def __str__(self) -> str:
        if self.fine:
            return (
                f"gpu seed {self.seed}: fine; calm after {self.calm_after:.0f} s of {self.seconds:.0f} s, {self.starts} starts, "
                f"{self.suspensions} taken off, {self.preemptions} of them preempted, {self.crashes} + {self.agent_crashes} crashes, "
                f"{self.outages} outages, {self.steps} steps, trace {self.trace}"
            )
        shown = "\n".join(f"  {wrong}" for wrong in self.wrongs[:5])
        return f"failed; to see it again: python -m homeostat.sim --gpu --seed {self.seed}\n{shown}\n  {self.storm}"


def run(
    seed: int, storm: GpuStorm | None = None, story: Callable[[GpuWeathering], Awaitable[None]] | None = None
) -> GpuReport:
    """Goes through a storm (default: the one that the seed draws), and checks what must hold afterwards."""
    report = GpuReport(seed, storm or draw(seed))
    gpu_template()
    try:
        simulate(seed, lambda: _run(report, story), MOST_TURNS)
    except Exception:
        report.wrongs.append(traceback.format_exc())
    return report


async def _run(report: GpuReport, story: Callable[[GpuWeathering], Awaitable[None]] | None) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    hall = Hall(report.seed, report.storm.keep)
    try:
        await hall.open()
        weathering = GpuWeathering(hall, report.storm, random.Random(f"gpu people {report.seed}"))
        await weathering.rage(story)
        report.calm_after = await weathering.calm()
        if report.calm_after is None:
            report.wrongs += [f"not done {CALM_SECONDS:.0f} s after the storm: {what}" for what in weathering.left()]
        else:
            report.wrongs += await weathering.quiet()
        report.acts = weathering.count.of
    finally:
        witness = hall.witness
        report.wrongs = [*witness.wrongs, *report.wrongs]
        report.seconds, report.steps, report.trace = loop.now, loop.turns, witness.trace
        report.starts, report.suspensions, report.preemptions = witness.starts, witness.suspensions, witness.preemptions
        report.crashes, report.outages = hall.deaths, hall.server.deaths
        report.agent_crashes = sum(station.deaths for station in hall.stations.values())
        await loop.bury()
        await hall.close()
