from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.gpu.bridge.slurm import SlurmCluster, missing, slurm_cluster
from tests.gpu.controller.world import World, governed

from homeostat.testing import TestPlane


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if why := missing():
        pytest.skip(why)
    with slurm_cluster() as cluster:
        yield cluster


@pytest.fixture
async def world(homeostat: TestPlane, tmp_path: Path) -> AsyncIterator[World]:
    """A control plane whose loop shares out GPUs."""
    async with governed(homeostat, tmp_path) as world:
        yield world
