"""`homeostat controllers`: the loop as a process of its own, against any Kubernetes API."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.allow import Allowed, loop_options
from homeostat.cli.connection import Connection, server_options

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.guards import Mode
    from homeostat.guards.keeper import Keeper
    from homeostat.loop.engine import Engine
    from homeostat.loop.provider import Provider

log = logging.getLogger("homeostat")

DEFAULT_STATE = "~/.homeostat"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between tries to begin while the server does not answer."""


def assemble(client: Client, providers: Iterable[Provider[Any, Any]], mode: Mode) -> tuple[Keeper, Engine]:
    """The engine with these providers behind a gate of policies, and the keeper of those. Start the keeper first.

    `mode` holds for kinds that nobody has chosen one for.
    """
    from homeostat.guards.gate import PolicyGate
    from homeostat.guards.keeper import Keeper
    from homeostat.loop.engine import Engine

    gate = PolicyGate(mode=mode)
    engine = Engine(client, providers, gate)
    keeper = Keeper(client, gate, engine.controllers)
    keeper.attach(engine)
    return keeper, engine


class Loop:
    """Keeper and engine of one client, from the first try to begin until `stop`. It never ends by itself."""

    def __init__(self, client: Client, providers: Iterable[Provider[Any, Any]], mode: Mode) -> None:
        self._client = client
        self._providers = list(providers)
        self._mode = mode
        self._running: list[Keeper | Engine] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def kinds(self) -> list[str]:
        """What it keeps."""
        return [provider.info.kind for provider in self._providers]

    def begin(self) -> None:
        """Begins in the background. While the server does not answer it is tried again."""
        self._task = asyncio.get_running_loop().create_task(self._begin(), name="loop begins")

    async def begun(self) -> None:
        """Waits until it runs."""
        if self._task is not None:
            await self._task

    async def _begin(self) -> None:
        from homeostat.client import Unreachable
        from homeostat.model.errors import ApiError

        pause = FIRST_PAUSE
        while True:
            try:
                await self._start()
                return
            except (ApiError, Unreachable) as error:
                log.warning("the loop cannot begin: %s; again in %g s", error, pause)
            except Exception:
                log.exception("the loop cannot begin; again in %g s", pause)
            await self._end()
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    async def _start(self) -> None:
        keeper, engine = assemble(self._client, self._providers, self._mode)
        self._running = [keeper]
        await keeper.start()
        self._running = [keeper, engine]
        await engine.start()

    async def stop(self) -> None:
        """Ends it and closes its client. What is under way is cut off; the journal knows it."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._end()
        await self._client.close()

    async def _end(self) -> None:
        for part in reversed(self._running):
            await part.stop()
        self._running = []


@click.command()
@loop_options
@click.option(
    "--state", metavar="DIR", default=DEFAULT_STATE, show_default=True, help="What providers remember on this host."
)
@server_options(namespace=False)
def command(server: Connection, allow: tuple[str, ...], own: tuple[str, ...], enforce: bool, state: str) -> None:
    """Run the loop as a process of its own, against Homeostat or any Kubernetes cluster.

    `homeostat up` runs one inside as soon as it is given --allow, --provider or --enforce. Keep each kind by one loop: two get in each
    other's way.

    \b
    Examples:
      homeostat controllers --allow file:/etc/app
      homeostat controllers --provider lamps.py --enforce
      homeostat controllers --kubeconfig ~/.kube/config --allow process:/srv

    Exits with 0 when it is told to stop, 1 when it cannot be run.
    """
    import uvloop

    from homeostat.client import Client, ConfigError

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    allowed = Allowed.parse(allow, own)
    place = Path(state).expanduser().absolute()

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        client = Client.from_kubeconfig(server.place(), server.context)
        loop = Loop(client, allowed.providers(place), mode_of(enforce))
        loop.begin()
        click.echo(f"keeping {', '.join(loop.kinds)}. Ctrl-C stops it; what it keeps stays as it is.")
        try:
            await stop.wait()
        finally:
            await loop.stop()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    except (ConfigError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def mode_of(enforce: bool) -> Mode:
    """The mode of kinds that nobody has chosen one for."""
    from homeostat.guards import Mode

    return Mode.ENFORCE if enforce else Mode.OBSERVE
