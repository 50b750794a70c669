"""The waves of change sets as policies told of them: a policy knows of those under way alone, and people ask how it went so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEPT_SETS = 200
KEPT_WAVES = 100
"""Of each change set."""


class Waves:
    """What was told, since the server started. The change sets that moved longest ago are forgotten first."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[str, int, str], dict[str, Any]]] = {}

    def note(self, policy: Mapping[str, Any]) -> None:
        """A policy changed."""
        told = (policy.get("status") or {}).get("waves") or ()
        who = policy["metadata"]["name"]
        for waves in self._known.values():
            for wave in waves.values():
                wave["over"] = wave["over"] or wave["policy"] == who  # unless it is told again, below
        for wave in told:
            name = wave.get("changeSet", "")
            if not name:
                continue  # repairs are no change set
            waves = self._known.pop(name, {})
            waves[wave.get("fleet", ""), wave["number"], wave["started"]] = {**wave, "policy": who, "over": False}
            while len(waves) > KEPT_WAVES:
                del waves[next(iter(waves))]
            self._known[name] = waves
        while len(self._known) > KEPT_SETS:
            del self._known[next(iter(self._known))]

    def of(self, change_set: str) -> list[dict[str, Any]]:
        """Its waves, the first first. `over`: the policy tells of it no more; the figures are the last that it told."""
        return sorted(self._known.get(change_set, {}).values(), key=lambda wave: (wave["started"], wave["number"]))
