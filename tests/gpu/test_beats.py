"""Whether a node lives is told by the renewals of its lease as they come, and by nobody's clock or policy alone."""

from __future__ import annotations

import math
from typing import Any

from homeostat.gpu.beats import Beats
from homeostat.model.clock import format_micro_time, format_time

NOW = 1_800_000_000.0


def lease(renewed: float, revision: int = 0) -> dict[str, Any]:
    spec = {"renewTime": format_micro_time(NOW + renewed), "leaseDurationSeconds": 40}
    return {"metadata": {"name": "n1", "resourceVersion": str(revision or "")}, "spec": spec}


def heard(beats: Beats, after: float) -> float:
    """For how long the node was not heard of, so long after the beginning."""
    ((at, _),) = beats.at(NOW + after, [("n1", math.nan)])
    return NOW + after - at


def test_a_clock_that_is_about_ours_is_believed() -> None:
    beats = Beats(listens=True)
    beats.put(lease(-6))
    assert heard(beats, 0) == 6
    beats.put(lease(+4))
    assert heard(beats, 5) == 1
    assert heard(beats, 50) == 46


def test_who_renews_its_lease_lives_though_its_clock_is_an_hour_behind() -> None:
    beats = Beats(listens=True)
    beats.put(lease(-3600))
    assert heard(beats, 0) == 20  # it may be dead: it has half of its lease to show that it is not
    assert heard(beats, 9) == 29
    beats.put(lease(-3590))
    assert heard(beats, 10) == 0
    assert heard(beats, 51) == 41  # and now it is


def test_who_does_not_renew_its_lease_is_lost_though_its_clock_is_an_hour_ahead() -> None:
    beats = Beats(listens=True)
    beats.put(lease(3600))
    assert heard(beats, 0) == 0
    beats.put(lease(3610))
    assert heard(beats, 10) == 0
    assert heard(beats, 60) == 50


def test_a_lease_that_somebody_deletes_says_nothing_of_its_node() -> None:
    beats = Beats(listens=True)
    beats.put(lease(0))
    assert heard(beats, 0) == 0
    beats.remove("n1")
    assert heard(beats, 5) == 5
    beats.put(lease(10, revision=7))  # its agent makes it again
    assert heard(beats, 10) == 0
    beats.remove("n1")
    assert heard(beats, 60) == 50
    assert math.isnan(heard(beats, 90_000))


def test_the_same_lease_seen_again_says_nothing_new() -> None:
    beats = Beats(listens=True)
    for after in (0, 30, 60):
        beats.put(lease(-3600))
        assert heard(beats, after) == 20 + after


def test_a_copy_that_is_late_says_nothing_new_and_a_clock_that_was_set_back_does() -> None:
    beats = Beats(listens=True)
    beats.put(lease(0, revision=7))
    assert heard(beats, 0) == 0
    beats.put(lease(-10, revision=5))
    assert heard(beats, 31) == 31
    beats.put(lease(-3600, revision=8))
    assert heard(beats, 32) == 0


def test_who_looks_only_once_has_to_believe_what_it_reads() -> None:
    beats = Beats(listens=False)
    beats.put(lease(-3600))
    assert heard(beats, 0) == 3600


def test_without_a_lease_it_was_heard_of_when_it_reported() -> None:
    assert Beats(listens=True).at(NOW, [("n1", NOW - 7)]) == [(NOW - 7, 0.0)]


def test_who_looks_only_once_goes_by_when_the_server_took_a_renewal_where_the_clock_of_an_agent_is_wrong() -> None:
    for wrong in (-420, 420):
        beats, beat = Beats(listens=False), lease(wrong)
        beat["metadata"]["managedFields"] = [
            {"fieldsV1": {"f:spec": {"f:holderIdentity": {}}}, "time": format_time(NOW - 900)},
            {"fieldsV1": {"f:spec": {"f:renewTime": {}}}, "time": format_time(NOW - 3)},
        ]
        beats.put(beat)
        assert heard(beats, 0) == 3
