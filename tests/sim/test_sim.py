"""Storms by seed: after each, all is as declared, nothing was ever done that never may be, and nothing is written any more.

HOMEOSTAT_SIM_SEEDS says how many (default 500).
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.sim import bugs

from homeostat.sim import Storm, run
from homeostat.sim.house import KIND
from homeostat.sim.network import Weather
from homeostat.sim.world import Trouble

SEEDS = int(os.environ.get("HOMEOSTAT_SIM_SEEDS", "500"))
BATCH = 25

LATE_NEWS = Storm(
    seconds=120,
    things=3,
    policy={
        "fleet": {"kinds": [KIND]},
        "mode": "Enforce",
        "cap": 3,
        "massDrift": {"limit": "100%"},
        "deletion": {"confirmAbove": "100%"},
    },
    weather=Weather(held=0.15, longest=20),
    trouble=Trouble(fails=0.5, slow=0.5),
    crashes=(),
    pause=1.0,
)
"""A storm in which the loop hears late of what people write, while what it does fails often."""

ONE_THING = Storm(
    seconds=8,
    things=1,
    policy={"fleet": {"kinds": [KIND]}, "mode": "Enforce", "cap": 1, "deletion": {"confirmAbove": "100%"}},
    weather=Weather(),
    trouble=Trouble(),
    crashes=(),
    pause=1.0,
)


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_after_every_storm_all_is_as_declared_and_nothing_more_is_written(first: int) -> None:
    failed = [str(report) for seed in range(first, min(first + BATCH, SEEDS)) if not (report := run(seed)).fine]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("part", range(4))
def test_the_engine_may_die_at_every_step_of_a_short_story(part: int) -> None:
    steps = run(7, ONE_THING).engine_steps
    assert steps > 50
    for died_after in range(part, min(steps, 240), 4):
        report = run(7, replace(ONE_THING, crashes=(died_after,)))
        assert report.fine, f"died after step {died_after}: {report}"


def test_a_seed_gives_the_same_again_in_another_process_with_other_hashes() -> None:
    told = set()
    for hashes in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-m", "homeostat.sim", "--seed", "3"],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        )
        told.add(found.stdout)
    assert len(told) == 1, told


CAUGHT: dict[bugs.Bug, tuple[range, Storm | None]] = {
    bugs.it_does_not_read_again_before_it_acts: (range(15, 40), LATE_NEWS),
    bugs.it_takes_what_it_finds_for_its_own: (range(5, 100), None),
    bugs.it_writes_the_journal_after_the_act: (range(14, 100), None),
    bugs.it_reads_an_error_as_empty: (range(6, 100), None),
    bugs.it_writes_a_status_though_nothing_changed: (range(0, 100), None),
    bugs.it_holds_on_to_nothing_before_it_makes_something: (range(0, 100), None),
    bugs.it_uses_one_key_for_all_creations_of_a_resource: (range(0, 100), None),
    bugs.it_does_not_count_what_is_in_hand: (range(58, 158), None),
    bugs.it_believes_an_answer_that_is_older_than_the_end: (range(71, 171), None),
    bugs.it_acts_though_the_declaration_moved_meanwhile: (range(47, 147), None),
    bugs.it_hangs_on_events_alone: (range(0, 100), None),
}
"""Which seeds to look in for each bug, and in which storm."""


@pytest.mark.parametrize("bug", CAUGHT, ids=lambda bug: bug.__name__)
def test_a_known_bug_is_found(bug: bugs.Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds, storm = CAUGHT[bug]
    bug(monkeypatch)
    assert any(not run(seed, storm).fine for seed in seeds)
