"""`homeostat controllers`: the loop as a process of its own, against any Kubernetes API."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from homeostat.cli.allow import Allowed, loop_options
from homeostat.cli.connection import Connection, server_options
from homeostat.cli.identity import identity
from homeostat.cli.logs import Format, configure, log_options

if TYPE_CHECKING:
    from homeostat.cli.allow import Kept
    from homeostat.client import Client
    from homeostat.guards import Mode
    from homeostat.guards.keeper import Keeper
    from homeostat.guards.policy import Alert
    from homeostat.loop.engine import Engine
    from homeostat.loop.metrics import Metrics

log = logging.getLogger("homeostat")

DEFAULT_STATE = "~/.homeostat"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between tries to begin while the server does not answer."""


def assemble(
    client: Client,
    kept: Iterable[Kept],
    mode: Mode,
    metrics: Metrics | None = None,
    alerts: Sequence[Alert] = (),
) -> tuple[Keeper, Engine]:
    """The engine with these providers and composers behind a gate of policies, and the keeper of those. Start the keeper first.

    `mode` holds for kinds that nobody has chosen one for. `metrics` counts what the engine does.
    `alerts` hear of every fleet, beside those whom policies name.
    """
    from homeostat.guards.gate import PolicyGate
    from homeostat.guards.keeper import Keeper
    from homeostat.guards.telling import Telling
    from homeostat.loop.compose import Composer
    from homeostat.loop.engine import Engine
    from homeostat.loop.logs import Logs
    from homeostat.loop.metrics import Metrics
    from homeostat.providers.addresses import Hosts

    composers, providers = [], []
    for one in kept:
        if isinstance(one, Composer):
            composers.append(one)
        else:
            providers.append(one)
    gate = PolicyGate(mode=mode)
    metrics = metrics or Metrics()
    telling = Telling(client, gate, alerts, hosts=Hosts())
    listeners = [metrics, Logs(), *telling.listeners]
    engine = Engine(client, providers, gate, composers=composers, listeners=listeners, queue_metrics=metrics.queue)
    metrics.attach(engine)
    keeper = Keeper(client, gate, engine.controllers)
    keeper.attach(engine)
    telling.attach(keeper, engine)
    return keeper, engine


@contextlib.contextmanager
def _lasting() -> Iterator[None]:
    """For work that makes much that lasts: it is not searched for garbage, then or later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Loop:
    """Keeper and engine of one client, for the kinds that no other loop keeps, until `stop`. It never ends by itself.

    `identity` is that of no other living loop; see `cli.identity` and `loop.election`.
    """

    def __init__(
        self, client: Client, kept: Iterable[Kept], mode: Mode, identity: str, alerts: Sequence[Alert] = ()
    ) -> None:
        from homeostat.loop.election import Election
        from homeostat.loop.metrics import Metrics
        from homeostat.loop.standstill import Standstill

        self._client = client
        self._kept = list(kept)
        self._mode = mode
        self._alerts = alerts
        self.election = Election(client, [one.info.name for one in self._kept], identity, notes=self._notes)
        self.metrics = Metrics(lambda: {name: name in self.election.held and not self._why_not(name) for name in self.names})
        self._running: list[Keeper | Engine] = []
        self._retrying: asyncio.Task[None] | None = None
        self._trouble = ""  # why it cannot begin
        self._standstill = Standstill(self._kept)
        self._task: asyncio.Task[None] | None = None

    @property
    def kinds(self) -> list[str]:
        """What it keeps."""
        return [one.info.kind for one in self._kept]

    @property
    def names(self) -> list[str]:
        """The same, as their definitions are named."""
        return [one.info.name for one in self._kept]

    def begin(self) -> None:
        """Begins in the background. While the server does not answer it is tried again."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="loop")
        self._standstill.start()

    async def _run(self) -> None:
        """Runs what is held, and anew when that changes: what is lost is cut off at once, what is gained is judged with the rest."""
        await self.election.start()
        changed, pause = self.election.changed, FIRST_PAUSE
        while True:
            changed.clear()
            began = await self._begin(self.election.held, pause)
            if self._aside:
                self._retrying = asyncio.get_running_loop().create_task(self._retry(pause), name="loop retries")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if began else pause):
                    await changed.wait()
            whole = began and not self._aside
            await self._end()
            pause = FIRST_PAUSE if whole else min(LONGEST_PAUSE, pause * 2)

    @property
    def _aside(self) -> dict[str, str]:
        """Kinds that are held and cannot be kept at present, and why."""
        from homeostat.loop.engine import Engine

        return next((part.aside for part in self._running if isinstance(part, Engine)), {})

    def _why_not(self, kind: str) -> str:
        """Why a kind that is held is not kept at present; empty where it is."""
        return self._trouble or self._aside.get(kind, "")

    async def _retry(self, pause: float) -> None:
        """Tries what was put aside until some of it can be kept; the others are kept meanwhile."""
        from homeostat.loop.engine import Engine

        (engine,) = (part for part in self._running if isinstance(part, Engine))
        told: dict[str, str] = {}
        while True:
            for kind, why in engine.aside.items():
                if told.get(kind) != why:
                    log.warning("%s cannot be kept, and is tried again: %s", kind, why)
            told = dict(engine.aside)
            await asyncio.sleep(pause)
            if await engine.try_again():
                self.election.changed.set()
                return
            pause = min(LONGEST_PAUSE, pause * 2)

    async def _begin(self, held: frozenset[str], pause: float) -> bool:
        from homeostat.client import Unreachable
        from homeostat.model.errors import ApiError

        try:
            if held:
                await self._start(held)
            self._trouble = ""
            return True
        except (ApiError, Unreachable) as error:
            log.warning("the loop cannot begin: %s; again in %g s", error, pause)
            self._trouble = str(error)
        except Exception as error:
            log.exception("the loop cannot begin; again in %g s", pause)
            self._trouble = str(error) or type(error).__name__
        return False

    async def _start(self, held: frozenset[str]) -> None:
        kept = [one for one in self._kept if one.info.name in held]
        keeper, engine = assemble(self._client, kept, self._mode, self.metrics, self._alerts)
        for controller in engine.controllers.values():
            controller.may_act = partial(self.election.holds, held)
        self._running = [keeper]
        with _lasting():
            await keeper.start()
            self._running = [keeper, engine]
            await engine.start(apart=True)

    def _notes(self, kind: str) -> dict[str, str]:
        """What the leases tell: that everything is looked at, and since when; or that it cannot be kept, and why."""
        from homeostat.loop.election import LAST_PASS, TROUBLE
        from homeostat.loop.engine import Engine
        from homeostat.model.clock import format_time

        if why := self._why_not(kind):
            return {TROUBLE: why}
        ends = [part.passes.ended_at for part in self._running if isinstance(part, Engine)]
        return {LAST_PASS: format_time(ends[0])} if ends and ends[0] else {}

    async def stop(self) -> None:
        """Ends it, gives its leases back, and closes its client. What is under way is cut off; the journal knows it."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._standstill.stop()
        await self._end()
        await self.election.stop()
        await self._client.close()

    async def _end(self) -> None:
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.gather(self._retrying, return_exceptions=True)
            self._retrying = None
        for part in reversed(self._running):
            try:
                await part.stop()
            except Exception:  # the rest ends all the same, and what is held can be begun anew
                log.exception("a part of the loop did not end well")
        self._running = []
        self.metrics.detach()


@click.command()
@loop_options
@click.option(
    "--state", metavar="DIR", default=DEFAULT_STATE, show_default=True, help="What providers remember on this host."
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    default="",
    help="Serve figures for Prometheus here, without a login; a port alone is of this machine only. Default: nowhere.",
)
@log_options
@server_options(namespace=False)
def command(
    server: Connection,
    allow: tuple[str, ...],
    own: tuple[str, ...],
    enforce: bool,
    alerts: tuple[Alert, ...],
    state: str,
    metrics: str,
    log_format: Format,
    log_level: str,
) -> None:
    """Run the loop as a process of its own, against Homeostat or any Kubernetes cluster.

    `homeostat up` runs one inside, unless it is told --no-loop. Each kind is kept by one loop at a time: a second one stands by, and
    takes over when the first is gone.

    \b
    Examples:
      homeostat controllers --allow file:/etc/app
      homeostat controllers --provider lamps.py --enforce
      homeostat controllers --kubeconfig ~/.kube/config --allow process:/srv --metrics 9090
      homeostat controllers --allow process --alert https://alerts.example.com/hook

    Exits with 0 when it is told to stop, 1 when it cannot be run.
    """
    import uvloop

    from homeostat.client import Client, ConfigError

    configure(log_format, log_level)
    allowed = Allowed.parse(allow, own)
    place = Path(state).expanduser().absolute()

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        client = Client.from_kubeconfig(server.place(), server.context)
        loop = Loop(client, allowed.providers(place, server.place()), mode_of(enforce), identity(place), alerts)
        loop.begin()
        click.echo(f"keeping {', '.join(loop.kinds)}. Ctrl-C stops it; what it keeps stays as it is.")
        try:
            async with scraped(metrics, loop.metrics):
                await stop.wait()
        finally:
            await loop.stop()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    except (ConfigError, ValueError) as error:
        raise click.ClickException(str(error)) from None


@contextlib.asynccontextmanager
async def scraped(place: str, metrics: Metrics) -> AsyncIterator[None]:
    """Serves the figures at `HOST:PORT` meanwhile; nowhere where that is empty."""
    if not place:
        yield
        return
    from homeostat.api.server import CannotListen, Listen
    from homeostat.cli.scrape import serving

    try:
        async with serving(Listen.parse(place), metrics.text) as url:
            click.echo(f"figures for Prometheus are at {url}")
            yield
    except (CannotListen, ValueError) as error:
        raise click.ClickException(f"--metrics {place}: {error}") from None


def mode_of(enforce: bool) -> Mode:
    """The mode of kinds that nobody has chosen one for."""
    from homeostat.guards import Mode

    return Mode.ENFORCE if enforce else Mode.OBSERVE
