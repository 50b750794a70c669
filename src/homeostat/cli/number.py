"""Numbers that people type."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A range of real numbers. `nan` compares with nothing, and so is within every range of click's; `inf` is no length and no price."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuses what is no number that can be reckoned with."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is no number that can be reckoned with.", param, ctx)
        return found
