"""Which commit a Sync should be at, and what may keep it where it is. Pure: from what is declared and what is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from homeostat.loop.fleet import RETURN_PREFIX
from homeostat.loop.parents import child_is
from homeostat.sources.kinds import SyncSpec

SHORT = 12
"""How many digits of a commit people are shown."""


class Source(NamedTuple):
    """What is known of a source: the commit that counts, and why nothing newer can be had."""

    commit: str = ""
    problem: str = ""
    reason: str = ""


class Goal(NamedTuple):
    """The commit to be at (empty: none is known), and what there is to say about it."""

    commit: str = ""
    reason: str = ""
    """Why it is not simply what the source has; empty where it is. `Held` and `Suspended` are a person's wish, others a trouble."""
    message: str = ""
    change_set: str = ""

    @property
    def is_trouble(self) -> bool:
        return bool(self.reason) and self.reason not in ("Held", "Suspended")


def goal_of(
    spec: SyncSpec, namespace: str, name: str, source: Source, applied: str, others: Mapping[str, Mapping[str, Any]]
) -> Goal:
    """What a Sync should be at now. `applied` is the commit that it was last brought to, `others` the Syncs of its namespace."""
    named = f"{namespace}/{spec.source.name}"
    if spec.suspend is not None:
        return Goal(applied, "Suspended", f"suspended: {spec.suspend.reason}", _change_set(named, applied))
    if not source.commit:
        return Goal(
            applied,
            source.reason or "SourceUnknown",
            f"GitSource {spec.source.name}: {source.problem}",
            _change_set(named, applied),
        )
    hold = spec.hold
    if hold is not None and source.commit in (hold.not_past, hold.commit):
        why = f" ({hold.reason})" if hold.reason else ""
        held = f"held at {hold.commit[:SHORT]}{why} until the source has something newer than {hold.not_past[:SHORT]}"
        return Goal(
            hold.commit,
            "Held",
            held,
            f"{RETURN_PREFIX}{namespace}/{name}@{hold.commit[:SHORT]}-from-{hold.not_past[:SHORT]}",
        )
    wait = waits_for(spec, source.commit, others)
    if wait and applied != source.commit:
        return Goal(applied, "DependsOn", wait, _change_set(named, applied))
    if source.problem:
        return Goal(
            source.commit,
            "SourceUnknown",
            f"GitSource {spec.source.name}: {source.problem}",
            _change_set(named, source.commit),
        )
    return Goal(source.commit, change_set=_change_set(named, source.commit))


def _change_set(source: str, commit: str) -> str:
    return f"{source}@{commit[:SHORT]}" if commit else ""


def source_of(sync: Mapping[str, Any]) -> str:
    """The name of the GitSource of a Sync; empty where it names none."""
    return str(((sync.get("spec") or {}).get("source") or {}).get("name", ""))


def waits_for(spec: SyncSpec, commit: str, others: Mapping[str, Mapping[str, Any]]) -> str:
    """Which Sync it waits for, in words; empty: for none."""
    for one in spec.depends_on:
        other = others.get(one.name)
        if other is None:
            return f"waits for Sync {one.name}, which is not there"
        status = other.get("status") or {}
        if not child_is(other, "Ready"):
            return f"waits for Sync {one.name}, which is not Ready"
        if source_of(other) == spec.source.name and status.get("commit") != commit:
            held = (other.get("spec") or {}).get("hold") or (other.get("spec") or {}).get("suspend")
            if not held:
                return f"waits for Sync {one.name} to be at {commit[:SHORT]}"
    return ""
