from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.gpu.agent.world import Plane, World, install_kinds

from homeostat.testing import TestPlane


@pytest.fixture
async def world(homeostat: TestPlane, tmp_path: Path) -> AsyncIterator[World]:
    """A control plane that knows workloads and nodes, and a folder for what agents remember."""
    async with homeostat.client() as client:
        await install_kinds(client)
        world = World(homeostat, client, tmp_path)
        try:
            yield world
        finally:
            world.clean()


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    """One that may die, and come back."""
    plane = Plane(tmp_path / "data")
    plane.start()
    yield plane
    plane.kill()
