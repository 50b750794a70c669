"""What a Sync says of objects that are not as declared yet: those in a wave are on their way, those that a guard holds are not."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.model.conditions import find_condition
from homeostat.sources.goals import Goal
from homeostat.sources.status import Standing, conditions_of

SYNC: dict[str, Any] = {"metadata": {"name": "shop", "generation": 1}}


def late(progressing: str) -> dict[str, Any]:
    said = {"type": "Ready", "status": "False", "reason": "Held", "message": "to update", "observedGeneration": 1}
    more = {"type": "Progressing", "status": "False", "reason": progressing, "observedGeneration": 1}
    manifest = {"kind": "ConfigMap", "metadata": {"name": "a"}}
    return {"metadata": {"name": "a", "generation": 1}, "spec": {"manifest": manifest}, "status": {"conditions": [said, more]}}


@pytest.mark.parametrize(
    ("children", "ready", "progressing"),
    [(["Waiting"], "ObjectsNotReady", "True"), (["Held"], "ObjectsHeld", "False"), (["Waiting", "Held"], "ObjectsHeld", "False")],
)
def test_a_wave_is_progress_and_what_waits_for_a_person_is_held(children: list[str], ready: str, progressing: str) -> None:
    standing = Standing(2, [late(word) for word in children], [], 0, "c" * 40)
    conditions = conditions_of(SYNC, Goal("c" * 40), None, standing, "2026-01-31T12:00:00Z")
    obj = {"status": {"conditions": conditions}}
    assert (find_condition(obj, "Ready") or {})["reason"] == ready
    assert (find_condition(obj, "Progressing") or {})["status"] == progressing
