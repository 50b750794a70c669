from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest


@pytest.fixture(scope="session")
def kubectl_patch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Any, Any], Any]:
    """`kubectl patch --local`: upstream's own code for all three patches. Gives the object, or what it refuses for."""
    program = os.environ.get("KUBECTL") or shutil.which("kubectl")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("kubectl is not installed")
        pytest.skip("kubectl is not installed")
    folder: Path = tmp_path_factory.mktemp("kubectl")
    manifest = folder / "object.json"

    def run(form: str, document: Any, patch: Any) -> Any:
        manifest.write_bytes(orjson.dumps(document))
        call = [program, "patch", "--local", "-f", str(manifest), f"--type={form}", "-o", "json"]
        call += ["-p", orjson.dumps(patch).decode()]
        environment = {"HOME": str(folder), "KUBECONFIG": os.devnull, "PATH": os.environ["PATH"]}
        done = subprocess.run(call, capture_output=True, text=True, env=environment, timeout=30, check=False)
        return orjson.loads(done.stdout) if done.returncode == 0 else done.stderr.removeprefix("error: ").strip()

    return run
