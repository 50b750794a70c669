"""Durations as people write them, for options."""

from __future__ import annotations

import re
from typing import overload

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@overload
def seconds(ctx: click.Context, param: click.Parameter, value: str) -> int: ...


@overload
def seconds(ctx: click.Context, param: click.Parameter, value: None) -> None: ...


def seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """`90s`, `30m`, `24h`, `7d`, or several of them in a row; a bare number counts seconds. For `callback=`."""
    if value is None:
        return None
    if value.isdecimal():
        return int(value)
    parts = re.findall(r"(\d+)([smhd])", value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise click.BadParameter(f"{value!r} is no duration: write for example 30m, 24h or 7d")
    return sum(int(number) * _UNITS[unit] for number, unit in parts)
