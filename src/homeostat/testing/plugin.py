"""Fixtures for pytest. Loaded in every run where homeostat is installed, so it imports nothing until one is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from homeostat.testing import TestPlane


@pytest.fixture
def homeostat() -> Iterator[TestPlane]:
    """A control plane for this test alone, empty but for what every one has."""
    from homeostat.testing import control_plane

    with control_plane() as plane:
        yield plane


@pytest.fixture(scope="session")
def homeostat_session() -> Iterator[TestPlane]:
    """A control plane for the whole session: for tests that keep to a namespace of their own."""
    from homeostat.testing import control_plane

    with control_plane() as plane:
        yield plane
