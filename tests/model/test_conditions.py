"""Conditions keep their time of transition until their status changes."""

from __future__ import annotations

import pytest

from homeostat.model.conditions import condition_is, find_condition, set_condition, summary


def test_the_time_of_transition_moves_only_with_the_status():
    obj = {}
    assert set_condition(obj, "Ready", "False", now="t1", reason="Starting")
    assert set_condition(obj, "Ready", "False", now="t2", reason="Waiting", message="for a disk")
    assert find_condition(obj, "Ready")["lastTransitionTime"] == "t1"
    assert set_condition(obj, "Ready", "True", now="t3", reason="Up")
    assert find_condition(obj, "Ready")["lastTransitionTime"] == "t3"
    assert not set_condition(obj, "Ready", "True", now="t4", reason="Up")
    assert condition_is(obj, "Ready")
    assert find_condition(obj, "Other") is None


@pytest.mark.parametrize(
    ("obj", "word"),
    [
        ({}, "Current"),
        ({"metadata": {"deletionTimestamp": "t"}}, "Terminating"),
        ({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}, "InProgress"),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "InProgress"),
        ({"status": {"conditions": [{"type": "Stalled", "status": "True"}]}}, "Failed"),
        ({"status": {"conditions": [{"type": "Reconciling", "status": "True"}]}}, "InProgress"),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "Current"),
    ],
)
def test_conditions_say_how_far_an_object_is(obj, word):
    assert summary(obj) == word
