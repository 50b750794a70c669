"""Where the real tools are: on the PATH, or where `scripts/test-tools` put them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("HOMEOSTAT_TOOLS") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "homeostat/tools"))

PATIENCE = 200.0
"""Seconds to wait for what a tool leads to: each run of one costs seconds of CPU, and a busy machine makes them many."""


def put_on_path(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Makes sure that one of these programs is found. Where none is, the test is skipped, and with CI=true it fails."""
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{CACHE / 'bin'}")
    if not any(shutil.which(name) for name in names):
        missing(" or ".join(names))


def python_with_tf() -> Path:
    """A Python that has the package `tf`, for a Terraform provider."""
    found = CACHE / "venv/bin/python"
    if not found.exists():
        missing(f"{found}")
    return found


def missing(what: str) -> None:
    why = f"{what} is missing: run scripts/test-tools"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)
