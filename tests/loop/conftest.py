"""A server for a loop that a test runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Client


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    server = Server(tmp_path / "data", Listen("127.0.0.1", 0), durable=False)
    await server.start()
    client = local_client(server.plane, "loop")
    yield client
    await client.close()
    await server.stop()
