"""How much of what is free stays free for ever: pods come as they do, each that fits is taken, until none fits any more."""

from __future__ import annotations

import numpy as np

from homeostat.gpu.snapshot import Floats, Ints

CHOICE = 8.0
"""How far a node gets what suits it rather than what comes, for each GPU of difference. 0 is pure chance; the more, the more hopeful."""
LARGEST = 600.0
"""The exponent that floating point still bears."""


def stranded(need: Ints, gpus: Ints, weight: Floats, rows: int, columns: int, whole: int) -> Floats:
    """Of a node with `row` steps of CPU (or memory) and `column` steps of GPU free: the steps of GPU expected to be left, for each row and column.

    Pod i needs `need[i]` and `gpus[i]` steps, and comes with `weight[i]`. `whole` is how many steps a GPU has. What fills a node is a draw
    among the pods that fit, again and again, so what is filled follows from the smaller states. The mean is exponential, not plain: since
    nodes are offered to pods, and not pods to nodes, good ends are likelier than chance has them. It also makes the recursion linear:
    z(row, column) is the weighted mean of exp(gpus) · z(row - need, column - gpus) over the pods that fit.
    """
    fits = (need < rows) & (gpus < columns) & (gpus > 0)
    need, gpus, weight = need[fits], gpus[fits], weight[fits]
    rate = min(CHOICE / whole, LARGEST / columns)
    left, above = int(need.max(initial=0)), int(gpus.max(initial=0))
    width = left + rows
    z = np.zeros((above + columns) * width)  # with a margin of zeros, for the pods that do not fit
    state = z.reshape(above + columns, width)
    state[above, left:] = 1.0
    before = (above - gpus)[:, None] * width + left - need[:, None] + np.arange(rows)
    gain = weight * np.exp(rate * gpus)
    share = np.zeros((rows, columns))
    np.add.at(share, (need, gpus), weight)
    share = share.cumsum(axis=0).cumsum(axis=1)
    for column in range(1, columns):
        total = share[:, column]
        some = total > 0
        row = np.ones(rows)
        np.divide(gain @ z[before + column * width], total, out=row, where=some)
        state[above + column, left:] = row
    result: Floats = np.arange(columns) - np.log(state[above:, left:].T) / rate
    return result
