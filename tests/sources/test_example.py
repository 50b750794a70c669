"""The README of examples/gitops, run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "examples" / "gitops" / "README.md"


@pytest.mark.timeout(400)
def test_the_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh( up)?\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    (up,) = [text for mark, text in blocks if mark]
    first, *rest = [text for mark, text in blocks if not mark]
    kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    environment = {**kept, "HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    log = (tmp_path / "log").open("w+")
    server = subprocess.Popen(
        ["bash", "-c", f"exec {up.strip()} --listen 127.0.0.1:0"], env=environment, stdout=log, stderr=log
    )
    try:
        wait = "until homeostat get syncs >/dev/null 2>&1; do sleep 0.5; done\n"
        script = "set -euo pipefail\n" + first + wait + "".join(rest)
        done = subprocess.run(
            ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=380, check=False
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{Path(log.name).read_text()}"
        assert "shop-prod" in done.stdout
        assert re.search(r"dev/shop\.yaml:\d+", done.stdout)
        assert "+  colour: blue" in done.stdout
    finally:
        server.terminate()
        server.wait(20)
        log.close()
