"""Runs side by side as a picture: lines of blocks for a terminal, and an SVG.

The SVG is written by hand: four panels need no plotting library, which would be the largest of all dependencies; what comes out is a few
kilobytes of text that every browser and editor shows, sharp at any size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homeostat.gpu.simulator import Result

BLOCKS = "▁▂▃▄▅▆▇█"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart also by those who see few colours (Okabe and Ito)."""
TENANTS = 12
"""So many are drawn each in a line of their own."""

Values = Sequence[float | None]


# In a terminal


def spark(values: Values, width: int, top: float, bottom: float = 0.0) -> str:
    """The values as blocks, squeezed to a width by their means; a blank where there is none."""
    if not values:
        return ""
    step = max(len(values) / width, 1.0)
    found = []
    for at in range(min(width, len(values))):
        part = [
            one for one in values[int(at * step) : max(int((at + 1) * step), int(at * step) + 1)] if one is not None
        ]
        if not part:
            found.append(" ")
            continue
        level = (sum(part) / len(part) - bottom) / ((top - bottom) or 1.0)
        found.append(BLOCKS[min(max(int(level * len(BLOCKS)), 0), len(BLOCKS) - 1)])
    return "".join(found)


def chart(results: Mapping[str, Result], width: int) -> Iterator[str]:
    """What waits, what is in use and how fair it is, over time, a line a run; for one run alone also what each tenant got."""
    from homeostat.gpu.cycle import span

    lines = {name: one.timeline for name, one in results.items() if one.timeline is not None}
    if not lines:
        return
    label = max(
        max(map(len, lines)),
        *(len(name) for line in lines.values() for name in line.shares) if len(lines) == 1 else (0,),
    )
    room = max(width - label - 4, 20)
    longest = max(len(line.waiting) * line.seconds for line in lines.values())
    most = max((max(line.waiting, default=0.0) for line in lines.values()), default=0.0)
    yield f"over {span(longest)}"
    for title, top, bottom, field in (
        (f"GPUs that are waited for, 0 to {most:.0f}", most, 0.0, "waiting"),
        ("GPUs in use, 0 to 100 %", 1.0, 0.0, "utilisation"),
        ("fairness (Jain), 0.5 to 1", 1.0, 0.5, "fairness"),
    ):
        yield ""
        yield title
        for name, line in lines.items():
            used = max(round(room * len(line.waiting) * line.seconds / longest), 1)
            yield f"  {name:{label}}  {spark(getattr(line, field), used, top, bottom)}"
    if len(lines) == 1:
        (line,) = lines.values()
        yield ""
        yield "what each tenant got of what it was entitled to, 0 to 100 %"
        for name, shares in list(line.shares.items())[:TENANTS]:
            yield f"  {name:{label}}  {spark(shares, room, 1.0)}"
        if len(line.shares) > TENANTS:
            yield f"  … and {len(line.shares) - TENANTS} more: -o json has all"


# As a file

_WIDTH, _HEIGHT = 1080, 720
_PANEL_WIDTH, _PANEL_HEIGHT = 440, 230
_SPANS = {
    1.0: "1 s",
    10.0: "10 s",
    60.0: "1 min",
    600.0: "10 min",
    3_600.0: "1 h",
    21_600.0: "6 h",
    86_400.0: "1 d",
    604_800.0: "7 d",
    5_184_000.0: "60 d",
}
_TIME_UNITS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def svg(results: Mapping[str, Result], title: str) -> str:
    """Four panels: what waits, what is in use and how fair it is over time, and how many jobs waited how long."""
    lines = {name: one.timeline for name, one in results.items() if one.timeline is not None}
    longest = max((len(line.waiting) * line.seconds for line in lines.values()), default=1.0)
    unit, word = next(pair for pair in _TIME_UNITS if longest / pair[0] >= 2 or pair[0] == 1.0)
    over = f"{word} since the first submission"
    times = {
        name: [(at + 0.5) * line.seconds / unit for at in range(len(line.waiting))] for name, line in lines.items()
    }
    waits = {name: [max(wait, 1.0) for wait in one.waits] for name, one in results.items() if one.waits}
    panels = [
        _Panel("GPUs that are waited for", over, {name: (times[name], line.waiting) for name, line in lines.items()}),
        _Panel(
            "GPUs in use, %",
            over,
            {name: (times[name], [100 * one for one in line.utilisation]) for name, line in lines.items()},
            top=100.0,
        ),
        _Panel(
            "fairness of shares against entitlement (Jain)",
            over,
            {name: (times[name], line.fairness) for name, line in lines.items()},
            top=1.0,
        ),
        _Panel(
            "how long jobs waited, from the shortest to the longest",
            "% of jobs",
            {name: (list(range(101)), w) for name, w in waits.items()},
            log=True,
        ),
    ]
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="60" y="34" font-size="18" font-weight="600">{escape(title)}</text>',
    ]
    across = 60.0
    for at, name in enumerate(results):
        colour = COLOURS[at % len(COLOURS)]
        found.append(
            f'<rect x="{across:.0f}" y="52" width="22" height="4" fill="{colour}"/><text x="{across + 28:.0f}" y="59">{escape(name)}</text>'
        )
        across += 60 + 7.5 * len(name)
    order = list(results)
    for at, panel in enumerate(panels):
        found += panel.draw(60 + at % 2 * (_PANEL_WIDTH + 80), 100 + at // 2 * (_PANEL_HEIGHT + 80), order)
    return "\n".join([*found, "</svg>", ""])


class _Panel:
    """One pair of axes with a line for each run. With `log` the heights are seconds of waiting, from one up."""

    def __init__(
        self,
        title: str,
        across: str,
        lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
        *,
        top: float = 0.0,
        log: bool = False,
    ) -> None:
        self.title, self.across, self.lines, self.log = title, across, lines, log
        self.right = max((max(x, default=0.0) for x, _ in lines.values()), default=0.0) or 1.0
        self.top = top or max((max(y, default=0.0) for _, y in lines.values()), default=0.0) or 1.0
        if log:
            self.top = next((mark for mark in _SPANS if mark >= self.top), max(_SPANS))

    def _height(self, value: float) -> float:
        part = math.log10(max(value, 1.0)) / math.log10(self.top) if self.log else value / self.top
        return _PANEL_HEIGHT * (1 - min(max(part, 0.0), 1.0))

    def draw(self, left: float, down: float, order: Sequence[str]) -> Iterator[str]:
        yield f'<g transform="translate({left:.0f} {down:.0f})">'
        yield f'<text x="0" y="-10" font-weight="600">{escape(self.title)}</text>'
        for mark in self._marks():
            y = self._height(mark)
            yield f'<line x1="0" x2="{_PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            yield f'<text x="-6" y="{y + 4:.1f}" text-anchor="end" fill="#555">{_SPANS[mark] if self.log else f"{mark:g}"}</text>'
        for mark in ticks(self.right):
            x = mark / self.right * _PANEL_WIDTH
            yield f'<text x="{x:.1f}" y="{_PANEL_HEIGHT + 18}" text-anchor="middle" fill="#555">{mark:g}</text>'
        yield f'<text x="{_PANEL_WIDTH}" y="{_PANEL_HEIGHT + 36}" text-anchor="end" fill="#555">{escape(self.across)}</text>'
        for name, (xs, ys) in self.lines.items():
            points = " ".join(
                f"{x / self.right * _PANEL_WIDTH:.1f},{self._height(y):.1f}" for x, y in zip(xs, ys, strict=True)
            )
            colour = COLOURS[order.index(name) % len(COLOURS)]
            yield f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" stroke-linejoin="round" points="{points}"/>'
        yield "</g>"

    def _marks(self) -> list[float]:
        if self.log:
            return [mark for mark in _SPANS if mark <= self.top]
        return ticks(self.top)


def ticks(most: float) -> list[float]:
    """Round numbers from 0 up to it: about five."""
    rough = most / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [round(step * at, 10) for at in range(int(most / step + 1e-9) + 1)]
