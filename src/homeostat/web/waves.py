"""The waves of change sets as policies tell of them: those under way, and those that are over, of which a policy keeps the last alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEPT_SETS = 200
KEPT_WAVES = 100
"""Of each change set."""


class Waves:
    """What was told. The change sets that moved longest ago are forgotten first."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[str, int, str], dict[str, Any]]] = {}

    def note(self, policy: Mapping[str, Any]) -> None:
        """A policy changed."""
        status, who = policy.get("status") or {}, policy["metadata"]["name"]
        told = [(wave, True) for wave in status.get("pastWaves") or ()] + [(wave, False) for wave in status.get("waves") or ()]
        for waves in self._known.values():
            for wave in waves.values():
                wave["over"] = wave["over"] or wave["policy"] == who  # unless it is told again, below
        for wave, over in told:
            name = wave.get("changeSet", "")
            if not name:
                continue  # repairs are no change set
            waves = self._known.pop(name, {})
            waves[wave.get("fleet", ""), wave["number"], wave["started"]] = {**wave, "policy": who, "over": over}
            while len(waves) > KEPT_WAVES:
                del waves[next(iter(waves))]
            self._known[name] = waves
        while len(self._known) > KEPT_SETS:
            del self._known[next(iter(self._known))]

    def of(self, change_set: str) -> list[dict[str, Any]]:
        """Its waves, the first first. `over`: the policy tells of it no more; the figures are the last that it told."""
        return sorted(self._known.get(change_set, {}).values(), key=lambda wave: (wave["started"], wave["number"]))
