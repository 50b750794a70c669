"""The control plane is killed at random, again and again, while replicas are killed and their number and definition change.

In the end exactly the declared replicas run, and at no time did two run in one place. `HOMEOSTAT_TORTURE=200` makes it long.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.providers.process.world import gone, identity, kill_all

from homeostat.providers.process import kernel, launch

LONG = int(os.environ.get("HOMEOSTAT_TORTURE", "0"))


class Torture:
    """Starts and kills control planes, and looks at what really runs."""

    def __init__(self, folder: Path, how: str, seed: int) -> None:
        self.folder, self.how = folder, how
        self.random = random.Random(seed)
        self.state = folder / "state"
        self.nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.providers.process.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = 0
        self.kills = 0

    def start(self) -> None:
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        self.nursery.stdin.write(f"{self.how} {self.folder}\n")
        self.nursery.stdin.flush()
        self.pid = int(self.nursery.stdout.readline())

    def kill_it(self) -> None:
        kernel.kill(identity(self.pid))
        self.pid = 0

    def wish(self, **spec: Any) -> None:
        text = json.dumps({"restart": {"stableSeconds": 0}, **spec})
        (self.folder / "wish.new").write_text(text)
        (self.folder / "wish.new").rename(self.folder / "wish")

    def running(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for one in kernel.marked(self.state, lambda mark: True):
            if one.leads and not launch.is_behind_gate(one.process.pid):
                found.setdefault(one.mark.index, []).append(one.process.pid)
        return found

    def harm(self) -> None:
        """Something happens: replicas are killed, the number changes, the definition changes; or nothing does."""
        what = self.random.random()
        if what < 0.5 or not self.kills:
            running = [pid for pids in self.running().values() for pid in pids]
            for pid in self.random.sample(running, min(len(running), self.random.randint(1, 3))):
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
        elif what < 0.9:
            self.wish(replicas=self.random.randint(0, 6), command=["sleep", str(self.random.choice((1000, 2000)))])

    def watch(self, seconds: float) -> None:
        """Looks all the time that no place is taken twice."""
        end = time.monotonic() + seconds
        while True:
            for index, pids in self.running().items():
                if len(pids) > 1:
                    # One that was seen while it ended, or before it was seen to be behind the gate, is not there at a second look.
                    still = [pid for pid in pids if not gone(pid) and not launch.is_behind_gate(pid)]
                    assert len(still) <= 1, f"replica {index} runs {len(still)} times: {still}"
            if time.monotonic() > end:
                return

    def converge(self, replicas: int, command: list[str]) -> None:
        self.wish(replicas=replicas, command=command)
        spec = json.loads((self.folder / "wish").read_text())
        (self.folder / "done").unlink(missing_ok=True)
        self.start()
        end = time.monotonic() + 30
        while not (self.folder / "done").exists() or json.loads((self.folder / "done").read_text()) != spec:
            assert time.monotonic() < end, f"never became {spec}: {self.running()}"
            time.sleep(0.005)
        running = self.running()
        assert {index: len(pids) for index, pids in running.items()} == dict.fromkeys(range(replicas), 1)
        for (pid,) in running.values():
            assert kernel.command_line(pid)[1].decode() == command[1]

    def close(self) -> None:
        if self.pid:
            self.kill_it()
        self.nursery.communicate()
        kill_all(self.state)


@pytest.fixture
def torture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Torture]:
    made = Torture(tmp_path, request.param, seed=LONG or 7)
    yield made
    made.close()


@pytest.mark.timeout(0 if LONG else 120)
@pytest.mark.parametrize(("torture", "rounds"), [("hand", LONG or 25), ("engine", LONG or 6)], indirect=["torture"])
def test_after_any_number_of_kills_exactly_the_declared_replicas_run(torture: Torture, rounds: int) -> None:
    torture.converge(3, ["sleep", "1000"])
    torture.kill_it()
    slowest = 0.15 if torture.how == "hand" else 0.6
    for _ in range(rounds):
        torture.start()
        torture.watch(torture.random.uniform(0, slowest))
        torture.harm()
        torture.watch(torture.random.uniform(0, slowest / 3))
        torture.kill_it()
        torture.watch(0)
        if torture.random.random() < 0.3:
            torture.harm()
    torture.converge(5, ["sleep", "3000"])
    assert torture.kills > 0
    before = torture.running()
    torture.kill_it()
    torture.converge(5, ["sleep", "3000"])
    assert torture.running() == before  # a restart alone touches nothing
