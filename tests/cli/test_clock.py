"""A command line whose clock is wrong: what it says and writes goes by the server's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from homeostat.model.clock import parse_time

from .conftest import Up

Start = Callable[..., Up]
Command = Callable[..., subprocess.CompletedProcess[str]]
HOUR = 3600


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_loop_that_runs_is_seen_and_a_freeze_ends_by_the_clock_of_the_server(
    start: Start, homeostat_command: Command, tmp_path: Path, ahead: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import time\nclock = time.time\ntime.time = lambda: clock() + {ahead}\n")
    up = start("--enforce", "--allow", f"file:{tmp_path}")
    there = {"KUBECONFIG": str(up.kubeconfig)}
    wrong = {**there, "PYTHONPATH": str(tmp_path)}
    manifest = tmp_path / "motd.yaml"
    manifest.write_text(
        "apiVersion: files.homeostat.dev/v1\nkind: File\nmetadata: {name: motd}\n"
        f"spec: {{path: {tmp_path}/motd, content: hello}}\n"
    )
    assert homeostat_command("apply", "--yes", "-f", manifest, **there).returncode == 0
    assert homeostat_command("wait", "file", "motd", **there).returncode == 0
    assert "✗ clock" in homeostat_command("doctor", **wrong).stdout
    said = homeostat_command("drift", **wrong)
    assert "no loop" not in said.stdout + said.stderr
    assert homeostat_command("freeze", "files", "--reason", "work", "--for", "30m", **wrong).returncode == 0
    policy = homeostat_command("get", "guardpolicies", "files.files.homeostat.dev", "-o", "json", **there)
    found = json.loads(policy.stdout)
    found = found[0] if isinstance(found, list) else found.get("items", [found])[0]
    began = parse_time(found["metadata"]["creationTimestamp"])
    assert began < parse_time(found["spec"]["freezes"][0]["until"]) < began + HOUR
