"""An engine over the lamps of `test_engine`, with somebody who listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.loop.engine import Engine
from homeostat.loop.listener import Listener
from homeostat.loop.metrics import Metrics

from .test_engine import Bench, Lamp

KIND = "lamps.lamps.test.dev"


class Watched(Bench):
    """A bench whose engine counts and tells."""

    listeners: Sequence[Listener] = ()

    def start_engine(self, mode: Mode = Mode.ENFORCE) -> Engine:
        self.gate = PolicyGate(mode=mode)
        self.metrics = Metrics()
        self.engine = Engine(
            self.client,
            [self.provider],
            self.gate,
            settle=0.01,
            workers=4,
            listeners=[self.metrics, *self.listeners],
            queue_metrics=self.metrics.queue,
        )
        self.metrics.attach(self.engine)
        return self.engine


@asynccontextmanager
async def watched(tmp_path: Path, *listeners: Listener, mode: Mode = Mode.ENFORCE) -> AsyncIterator[Watched]:
    server = Server(tmp_path / "data", Listen("127.0.0.1", 0), durable=False)
    await server.start()
    client = local_client(server.plane, "loop")
    bench = Watched(client, client.kind("lamps.test.dev/v1", "Lamp", namespace="default"), Lamp())
    bench.listeners = listeners
    await bench.start_engine(mode).start()
    try:
        yield bench
    finally:
        await bench.engine.stop()
        await client.close()
        await server.stop()


async def eventually(holds: Callable[[], object]) -> None:
    """Waits until it holds; the test fails where it does not within ten seconds."""
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)
