"""How figures went is kept over restarts, in a small file that may be damaged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from homeostat.web.board import FIGURES, figures_of
from homeostat.web.record import KEPT_SECONDS, ROOM, Family, Record
from homeostat.web.series import Series

NOW = 1_800_000_000.0


def opened(path: Path) -> tuple[Record, Family, Family]:
    policies, tenants = Family(("size", "drifted")), Family(("used", "entitled"))
    return Record(path, {"policies": policies, "tenants": tenants}), policies, tenants


def test_a_server_that_starts_again_knows_how_figures_went_before(tmp_path: Path) -> None:
    record, *_ = opened(tmp_path / "figures.log")
    for number, drifted in enumerate((0, 4, 4, 1)):
        found = {"policies": {"files": {"size": 9, "drifted": drifted}}}
        record.add(NOW + 15 * number, found | ({"tenants": {"vision": {"used": 3.0, "entitled": math.nan}}} if number else {}))
    with (tmp_path / "figures.log").open("ab") as file:
        file.write(b'{"at": 18000')  # cut off by a crash

    record, policies, tenants = opened(tmp_path / "figures.log")
    record.restore(NOW + 60)
    assert policies.series["files"].since() == {"at": [NOW, NOW + 15, NOW + 30, NOW + 45], "size": [9.0] * 4, "drifted": [0.0, 4.0, 4.0, 1.0]}
    assert tenants.series["vision"].since()["used"] == [3.0] * 3
    record.add(NOW + 60, {"policies": {"files": {"size": 9, "drifted": 2}}})
    assert policies.series["files"].since(NOW + 45)["drifted"] == [2.0]
    assert "vision" in tenants.series, "nobody said that it is gone"


def test_what_is_gone_is_forgotten_also_by_the_file(tmp_path: Path) -> None:
    record, policies, _ = opened(tmp_path / "figures.log")
    record.add(NOW, {"policies": {"files": {"size": 1}, "lamps": {"size": 2}}})
    record.add(NOW + 15, {"policies": {"files": {"size": 1}}})
    record, policies, _ = opened(tmp_path / "figures.log")
    record.restore(NOW + 20)
    assert list(policies.series) == ["files"]


def test_what_is_older_than_a_day_goes_out_of_the_file_and_the_figures_stay_right(tmp_path: Path) -> None:
    path = tmp_path / "figures.log"
    record, *_ = opened(path)
    record.add(NOW, {"policies": {"files": {"size": 7, "drifted": 5}}})
    for number in range(1, ROOM + 10):
        record.add(NOW + 15 * number, {"policies": {"files": {"size": 7, "drifted": 5}}})
    lines = path.read_bytes().splitlines()
    assert len(lines) < ROOM
    record, policies, _ = opened(path)
    record.restore(NOW + 15 * (ROOM + 10))
    kept = policies.series["files"].since()
    assert set(kept["drifted"]) == {5.0}
    assert kept["at"][0] >= NOW + 15 * (ROOM + 10) - KEPT_SECONDS


def test_an_outline_of_a_day_shows_its_peaks() -> None:
    series = Series(("drifted",))
    for number in range(5000):
        series.add(NOW + 15 * number, {"drifted": 40.0 if number == 1234 else 1.0})
    outline = series.outline(240)
    assert len(outline["at"]) <= 240
    assert max(outline["drifted"]) == 40.0
    assert outline["at"][-1] == NOW + 15 * 4999


def test_a_wave_that_came_and_went_counts_in_the_sample_after_it() -> None:
    wave = {"changeSet": "apply-1", "number": 1, "members": 8, "verified": 8, "failed": 0, "started": "2026-11-15T20:00:00Z"}
    policy = {"metadata": {"name": "files"}, "status": {"fleetSize": 20, "pastWaves": [wave]}}
    began = 1_794_772_800.0
    assert figures_of(policy, began - 10)["acted"] == 8
    assert figures_of(policy, began + 10)["acted"] == 0
    assert set(figures_of(policy)) == set(FIGURES)


def test_a_disk_that_takes_nothing_is_told_once_and_again_when_it_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "disk"
    record, *_ = opened(place / "figures.log")
    for number in range(3):
        record.add(NOW + 15 * number, {"policies": {"files": {"size": 1}}})
    place.mkdir()
    for number in range(3, 5):
        record.add(NOW + 15 * number, {"policies": {"files": {"size": 1}}})
    assert [line.split(":")[0] for line in caplog.messages] == ["how figures go cannot be kept", "how figures go is kept again"]
