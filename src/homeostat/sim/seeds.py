"""Runs one seed from its beginning to its end, and says what was wrong."""

from __future__ import annotations

import asyncio
import hashlib
import random
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from homeostat.sim.house import House
from homeostat.sim.loop import MOST_TURNS, SimLoop
from homeostat.sim.server import template
from homeostat.sim.storm import CALM_SECONDS, Storm, Weathering, draw


class Report(msgspec.Struct):
    """What became of a seed."""

    seed: int
    storm: Storm
    wrongs: list[str] = msgspec.field(default_factory=list)
    calm_after: float | None = None
    """Seconds from the end of the storm until all was as declared."""
    seconds: float = 0.0
    """Of virtual time, all in all."""
    steps: int = 0
    """Turns of the event loop's tasks and timers."""
    engine_steps: int = 0
    """Of them, those of the engine's last life before it calmed down."""
    calls: int = 0
    """What was asked of the world."""
    server_steps: int = 0
    """And those of the server's last life."""
    crashes: int = 0
    outages: int = 0
    story: str = ""
    trace: str = ""
    """The same for every run of the same seed."""

    @property
    def fine(self) -> bool:
        return not self.wrongs

    @property
    def again(self) -> str:
        """The options that show the same once more."""
        if not self.story:
            return f"--seed {self.seed}"
        dies = [f"engine:{n}" for n in self.storm.crashes] + [f"server:{n}" for n in self.storm.outages]
        return " ".join([f"--story {self.story}", *(f"--dies {who}" for who in dies)])

    def __str__(self) -> str:
        if self.fine:
            return (
                f"{self.story or f'seed {self.seed}'}: fine; calm after {self.calm_after:.0f} s of {self.seconds:.0f} s, "
                f"{self.calls} calls, {self.crashes} crashes, {self.outages} outages, {self.steps} steps, trace {self.trace}"
            )
        shown = "\n".join(f"  {wrong}" for wrong in self.wrongs[:5])
        return f"failed; to see it again: python -m homeostat.sim {self.again}\n{shown}\n  {self.storm}"


class Told(Protocol):
    """A story that is told in place of what chance would do."""

    @property
    def name(self) -> str: ...

    @property
    def play(self) -> Callable[[House], Awaitable[None]]: ...

    @property
    def wrong(self) -> Callable[[House], list[str]]: ...


def run(seed: int, storm: Storm | None = None, story: Told | None = None) -> Report:
    """Goes through a storm (default: the one that the seed draws), or tells a story, and checks what must hold afterwards."""
    storm = storm or draw(seed)
    report = Report(seed, storm, story=story.name if story is not None else "")
    try:
        simulate(seed, lambda: _run(report, story))
    except Exception:
        report.wrongs.append(traceback.format_exc())
    return report


def simulate(seed: int, work: Any, most_turns: int = MOST_TURNS) -> Any:
    """Runs `work`, a function that gives a coroutine, in virtual time with the order of tasks drawn by the seed."""
    template()
    loop = SimLoop(random.Random(f"order {seed}"), most_turns)

    async def to_the_end() -> Any:
        try:
            return await work()
        finally:
            await loop.bury()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(to_the_end())


async def _run(report: Report, story: Told | None) -> None:
    seed, storm, loop = report.seed, report.storm, asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    house = House(seed, storm.keep)
    try:
        await house.open()
        weathering = Weathering(house, storm, random.Random(f"people {seed}"))
        await weathering.rage(story.play if story is not None else None)
        report.engine_steps, report.server_steps = weathering.engine_steps, weathering.server_steps
        report.calm_after = await weathering.calm()
        if report.calm_after is None:
            left = await weathering.left()
            report.wrongs += [f"not as declared {CALM_SECONDS:.0f} s after the storm: {what}" for what in left]
        else:
            report.wrongs += await weathering.quiet()
        report.wrongs = [*house.world.wrongs, *report.wrongs, *(story.wrong(house) if story is not None else ())]
        report.seconds, report.steps = loop.now, loop.turns
        report.crashes, report.outages = house.deaths, house.server.deaths
        report.calls = len(house.world.calls)
        report.trace = _trace(house, loop)
    finally:
        await loop.bury()
        await house.close()


def _trace(house: House, loop: SimLoop) -> str:
    told = [f"{c.at!r} {c.op} {c.name} {c.done}" for c in house.world.calls]
    told.append(f"{loop.turns} {loop.now!r} {house.revision} {house.witness.trace}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]
