from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.providers.process.world import Hand, kill_all

from homeostat.providers.process import Process


@pytest.fixture
async def hand(tmp_path: Path) -> AsyncIterator[Hand]:
    """A provider that may run anything, and keeps what it knows in `tmp_path`."""
    provider = Process(tmp_path, allowed=True)
    hand = Hand(provider)
    try:
        yield hand
    finally:
        await hand.provider.close()
        kill_all(tmp_path)
