"""kill -9 under load, again and again on one directory: what was acknowledged is there, whole; nothing goes back.

`HOMEOSTAT_TORTURE=200` sets the number of rounds (default 4); `HOMEOSTAT_SEED` the moments of the kills.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from homeostat.store import SqliteStore

ROUNDS = int(os.environ.get("HOMEOSTAT_TORTURE", "4"))
SEED = int(os.environ.get("HOMEOSTAT_SEED", "0")) or random.randrange(1, 1 << 30)
WRITERS = 8


def run_and_kill(path: Path, seconds: float) -> tuple[int, list[tuple[int, int, int]]]:
    """Lets the writers go for so long after they opened; gives the revision they found and what was acknowledged."""
    child = [sys.executable, str(Path(__file__).with_name("torture_child.py")), str(path), str(WRITERS)]
    with subprocess.Popen(child, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        opened = process.stdout.readline().split()
        assert opened[:1] == [b"open"]
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        lines = process.stdout.read().split(b"\n")
        timer.cancel()
        assert process.wait() == -9
    acknowledged = [(int(w), int(n), int(r)) for w, n, r in (line.split() for line in lines[:-1])]
    return int(opened[1]), acknowledged


@pytest.mark.asyncio
async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print(f"HOMEOSTAT_SEED={SEED}")
    newest: dict[int, tuple[int, int]] = dict.fromkeys(range(WRITERS), (0, 0))
    reached = 1
    for _ in range(ROUNDS):
        found, acknowledged = run_and_kill(tmp_path, rng.uniform(0.01, 0.4))
        assert found == reached
        for writer, number, revision in acknowledged:
            assert revision > newest[writer][1]
            newest[writer] = number, revision
        store = await SqliteStore.open(tmp_path)
        assert store.revision >= max(revision for _, revision in newest.values())
        assert store.revision >= reached
        reached = store.revision
        for writer, (number, revision) in newest.items():
            left, right = await store.get(f"left/{writer}"), await store.get(f"right/{writer}")
            if left is None or right is None:
                assert (left, right, number) == (None, None, 0)
                continue
            stored = int(left.value.split()[0])
            assert (left.value, left.revision) == (right.value, right.revision)
            assert (stored, left.revision) == (number, revision) or (stored > number and left.revision > revision)
            kept = [int(e.key.rsplit("/", 1)[1]) for e in (await store.range(f"log/{writer}/")).entries]
            assert kept == [n for n in range(stored - stored % 5 - 45, stored + 1, 5) if n > 0]
            newest[writer] = stored, left.revision
        events, _ = await store.since("", max(store.compacted, 1), limit=1 << 30)
        revisions = [e.revision for e in events]
        assert revisions == sorted(revisions)
        assert set(revisions) == set(range(max(store.compacted, 1) + 1, reached + 1))
        await store.close()
    assert reached > ROUNDS
