"""Runs one seed from its beginning to its end, and says what was wrong."""

from __future__ import annotations

import asyncio
import hashlib
import random
import traceback
from dataclasses import dataclass, field
from typing import Any

from homeostat.sim.house import House
from homeostat.sim.loop import SimLoop
from homeostat.sim.storm import CALM_SECONDS, Storm, Weathering, draw


@dataclass(slots=True)
class Report:
    """What became of a seed."""

    seed: int
    storm: Storm
    wrongs: list[str] = field(default_factory=list)
    calm_after: float | None = None
    """Seconds from the end of the storm until all was as declared."""
    seconds: float = 0.0
    """Of virtual time, all in all."""
    steps: int = 0
    """Turns of the event loop's tasks and timers."""
    engine_steps: int = 0
    """Of them, those of the engine's last life."""
    calls: int = 0
    """What was asked of the world."""
    crashes: int = 0
    trace: str = ""
    """The same for every run of the same seed."""

    @property
    def fine(self) -> bool:
        return not self.wrongs

    def __str__(self) -> str:
        if self.fine:
            return (
                f"seed {self.seed}: fine; calm after {self.calm_after:.0f} s of {self.seconds:.0f} s, {self.calls} calls, "
                f"{self.crashes} crashes, {self.steps} steps, trace {self.trace}"
            )
        shown = "\n".join(f"  {wrong}" for wrong in self.wrongs[:5])
        return f"seed {self.seed} failed; to see it again: python -m homeostat.sim --seed {self.seed}\n{shown}\n  {self.storm}"


def run(seed: int, storm: Storm | None = None) -> Report:
    """Goes through a storm (default: the one that the seed draws) and checks what must hold afterwards."""
    storm = storm or draw(seed)
    try:
        report: Report = simulate(seed, lambda: _run(seed, storm))
    except Exception:
        return Report(seed, storm, [traceback.format_exc()])
    return report


def simulate(seed: int, work: Any) -> Any:
    """Runs `work`, a function that gives a coroutine, in virtual time with the order of tasks drawn by the seed."""
    loop = SimLoop(random.Random(f"order {seed}"))

    async def to_the_end() -> Any:
        try:
            return await work()
        finally:
            await loop.bury()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(to_the_end())


async def _run(seed: int, storm: Storm) -> Report:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    house = House(seed)
    await house.open()
    report = Report(seed, storm)
    try:
        weathering = Weathering(house, storm, random.Random(f"people {seed}"))
        await weathering.rage()
        report.calm_after = await weathering.calm()
        if report.calm_after is None:
            left = await weathering.left()
            report.wrongs += [f"not as declared {CALM_SECONDS:.0f} s after the storm: {what}" for what in left]
        else:
            report.wrongs += await weathering.quiet()
        report.wrongs = [*house.world.wrongs, *report.wrongs]
        report.seconds, report.steps, report.crashes = loop.now, loop.turns, house.deaths
        report.engine_steps = house.engine_life.steps if house.engine_life is not None else 0
        report.calls = len(house.world.calls)
        report.trace = _trace(house, loop)
    finally:
        await loop.bury()
        await house.close()
    return report


def _trace(house: House, loop: SimLoop) -> str:
    told = [f"{c.at!r} {c.op} {c.name} {c.done}" for c in house.world.calls]
    told.append(f"{loop.turns} {loop.now!r} {house.revision}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]
