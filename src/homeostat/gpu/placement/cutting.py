"""What a rest of a shared device is worth, from the best plan to cut devices into the fractions that are asked for.

The plan is the cutting-stock problem: the fewest devices that serve the fractions in their proportions. Its dual prices say what
share of a device each size really costs: with many pods of 0.81 and few of 0.19 or less, 0.81 costs a whole device and 0.16 nothing.
"""

from __future__ import annotations

import numpy as np

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import Floats, Ints

ROUNDS = 300
"""Of improving the plan: it takes about two for each size. A plan that is cut short is still a plan."""
TINY = 1e-9


def worth(sizes: Ints, weight: Floats) -> Floats:
    """Of each rest from 0 to WHOLE: the share of a device it is worth, from 0 to 1. `sizes` are distinct, and come with `weight`."""
    patterns = np.diag(WHOLE // sizes).astype(float)  # one pattern a column; the first plan cuts each device into one size
    used = weight / patterns.diagonal()
    for _ in range(ROUNDS):
        price = np.linalg.solve(patterns.T, np.ones(len(sizes)))
        stages = _fill(sizes, price)
        if stages[-1][WHOLE] <= 1 + TINY:
            break
        better = _pattern(sizes, price, stages)
        change = np.linalg.solve(patterns, better)
        shrinks = change > TINY
        room = np.divide(used, change, out=np.full(len(sizes), np.inf), where=shrinks)
        leaves = int(room.argmin())
        used = np.maximum(used - room[leaves] * change, 0)
        used[leaves], patterns[:, leaves] = room[leaves], better
    best = stages[-1]
    result: Floats = best / best[WHOLE]
    return result


def _fill(sizes: Ints, price: Floats) -> list[Floats]:
    """The most that rests can be cut into, with the first size, the first two, and so on."""
    stages = [np.zeros(WHOLE + 1)]
    for size, each in zip(sizes.tolist(), price.tolist(), strict=True):
        best = stages[-1].copy()
        if each > TINY:
            for _ in range(WHOLE // size):
                np.maximum(best[size:], best[:-size] + each, out=best[size:])
        stages.append(best)
    return stages


def _pattern(sizes: Ints, price: Floats, stages: list[Floats]) -> Floats:
    """How many of each size the best cut of a whole device has."""
    pattern, rest = np.zeros(len(sizes)), WHOLE
    for at in range(len(sizes) - 1, -1, -1):
        counts = np.arange(rest // int(sizes[at]) + 1)
        pattern[at] = (stages[at][rest - counts * sizes[at]] + counts * price[at]).argmax()
        rest -= int(pattern[at] * sizes[at])
    return pattern
