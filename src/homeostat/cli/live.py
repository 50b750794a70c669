"""A view that draws itself again and again on a screen of its own, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
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

    console, ended = Console(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, ended.set)
    end = asyncio.ensure_future(ended.wait())
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not ended.is_set():
            began = loop.time()
            look = asyncio.ensure_future(draw())
            await asyncio.wait([look, end], return_when=asyncio.FIRST_COMPLETED)
            if not look.done():
                look.cancel()
                break
            try:
                lines = look.result()
            except Unreachable as error:
                lines = [click.style(f"{error}; asking again", fg="red")]
            room = console.height - 2
            shown = lines[:room] + (["…"] if len(lines) > room else [])
            text = Text.from_ansi("\n".join([*shown, click.style("Ctrl-C ends", dim=True)]), no_wrap=True, overflow="ellipsis")
            live.update(text, refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(end), max(every, PATIENCE * (loop.time() - began)))
