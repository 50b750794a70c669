"""The same run in other processes."""

from __future__ import annotations

import os
import subprocess
import sys


def printed(code: str) -> set[str]:
    """What a program prints in processes that hash strings differently: one text, where it is deterministic."""
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    }
