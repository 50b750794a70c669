"""A view that draws itself again and again on a screen of its own, until Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import click

PATIENCE = 2
"""Between two looks lies at least so many times what a look takes: a large fleet is not asked all the time."""


async def draw_live(draw: Callable[[], Awaitable[list[str]]], every: float) -> None:
    """Shows the lines that `draw` gives, every so many seconds; a server that does not answer is asked again."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from homeostat.client import Unreachable

    console = Console()
    loop = asyncio.get_running_loop()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            began = loop.time()
            try:
                lines = await draw()
            except Unreachable as error:
                lines = [click.style(f"{error}; asking again", fg="red")]
            room = console.height - 2
            shown = lines[:room] + (["…"] if len(lines) > room else [])
            text = Text.from_ansi("\n".join([*shown, click.style("Ctrl-C ends", dim=True)]), no_wrap=True, overflow="ellipsis")
            live.update(text, refresh=True)
            await asyncio.sleep(max(every, PATIENCE * (loop.time() - began)))
