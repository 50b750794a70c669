from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.gpu.pools.world import World, pooled

from homeostat.testing import TestPlane


@pytest.fixture
async def world(homeostat: TestPlane, tmp_path: Path) -> AsyncIterator[World]:
    """A control plane whose loop shares out GPUs, and gets and gives back nodes."""
    async with pooled(homeostat, tmp_path) as world:
        yield world
