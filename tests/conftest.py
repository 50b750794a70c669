"""What all tests share: how this process collects garbage, and whom the processes that tests start trust."""

from __future__ import annotations

import gc
import os

import pytest

gc.disable()  # until all tests are read: what is made on the way lasts
os.environ["SSL_CERT_FILE"] = os.devnull  # every server here has an authority of its own; to read the system's costs each process 50 ms


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of tests and the modules they are in are not looked through for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()
