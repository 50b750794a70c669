"""What the loop remembers of a resource, in the resource's own status: so that a restart, or another replica, knows it.

`lastApplied` is what we last made true, for the three-way diff; `identity` says of which very thing. `drift` is the ledger's line. `intent` is the journal: it is written
before an action and taken away after it, so that whoever finds one knows that the world must be looked at first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from homeostat.loop.fleet import Cause, Drift, Op, Ref
from homeostat.model.clock import format_time, parse_time

REVERSALS_KEPT = 10
PATHS_KEPT = 20


class Intent(msgspec.Struct, gc=False):
    """An action that was begun."""

    op: Op
    made_from: str
    key: str
    at: float

    def to_status(self) -> dict[str, Any]:
        return {"op": str(self.op), "madeFrom": self.made_from, "key": self.key, "at": format_time(self.at)}


def journal_of(status: Mapping[str, Any]) -> list[Any]:
    """What in a status says what is ours, and what may have been done: lost, it could never be told again."""
    return [status.get(name) for name in ("lastApplied", "identity", "intent")]


class Record(msgspec.Struct, gc=False):
    """The part of a status that the loop itself reads back."""

    last_applied: dict[str, Any] | None = None
    intent: Intent | None = None
    since: float = 0.0
    made_from: str = ""
    attempts: int = 0
    failures: int = 0
    reversals: tuple[float, ...] = ()
    repaired_at: float = 0.0
    change_set: str = ""
    by: tuple[str, ...] = ()
    approved: str = ""  # the `made_from` that a person approved
    converged_seconds: float | None = None
    identity: str = ""
    judged_in: str = ""  # the fleet that judges the difference, where its labels lead to another

    @classmethod
    def read(cls, status: Mapping[str, Any]) -> Record:
        """From a status; what is not there, or not ours, is as new."""
        if not status:
            return cls()
        drift = status.get("drift") or {}
        intent = status.get("intent")
        return cls(
            last_applied=status.get("lastApplied"),
            intent=Intent(Op(intent["op"]), intent["madeFrom"], intent["key"], _time(intent["at"])) if intent else None,
            since=_time(drift.get("since")),
            made_from=drift.get("madeFrom", ""),
            attempts=drift.get("attempts", 0),
            failures=drift.get("failures", 0),
            reversals=tuple(_time(t) for t in status.get("reversals") or ()),
            repaired_at=_time(status.get("repairedAt")),
            change_set=drift.get("changeSet", ""),
            by=tuple(drift.get("by") or ()),
            approved=drift.get("approved", ""),
            converged_seconds=status.get("convergedSeconds"),
            identity=status.get("identity", ""),
            judged_in=drift.get("judgedIn", ""),
        )

    def to_status(self, drift: Drift | None) -> dict[str, Any]:
        """The fields of the status that this record stands for; absent where there is nothing to say."""
        shown: dict[str, Any] = {}
        if self.last_applied is not None:
            shown["lastApplied"] = self.last_applied
        if self.identity:
            shown["identity"] = self.identity
        if self.intent is not None:
            shown["intent"] = self.intent.to_status()
        if self.reversals:
            shown["reversals"] = [format_time(t) for t in self.reversals[-REVERSALS_KEPT:]]
        if self.repaired_at:
            shown["repairedAt"] = format_time(self.repaired_at)
        if self.converged_seconds is not None:
            shown["convergedSeconds"] = self.converged_seconds
        if drift is not None:
            line: dict[str, Any] = {
                "op": str(drift.op),
                "cause": str(drift.cause),
                "since": format_time(drift.since),
                "madeFrom": drift.made_from,
                "paths": list(drift.paths[:PATHS_KEPT]),
            }
            if drift.changes:
                line["changes"] = list(drift.changes[:PATHS_KEPT])
            if drift.attempts:
                line["attempts"] = drift.attempts
            if drift.failures:
                line["failures"] = drift.failures
            if drift.change_set:
                line["changeSet"] = drift.change_set
            if drift.is_approved:
                line["approved"] = drift.approved
            if drift.judged_in:
                line["judgedIn"] = drift.judged_in
            if drift.by:
                line["by"] = list(drift.by)
            if drift.parts is not None:
                line["parts"] = drift.parts._asdict()
            shown["drift"] = line
        return shown


def reversed_since(record: Record, cause: Cause, now: float) -> tuple[float, ...]:
    """The reversals, with one more where somebody undid what we had repaired."""
    known = tuple(min(at, now) for at in record.reversals)  # by a clock that may have been set back
    if cause is Cause.INTENT or not record.repaired_at:
        return known
    return (*known, now)[-REVERSALS_KEPT:]


def creation_key(ref: Ref, resource_version: str) -> str:
    """A key for one creation, which the journal keeps for every try of it.

    By uid, so that a namesake is another; by version, so that what is made again after it was lost is another too.
    """
    return f"{ref.uid}.{resource_version}"


def _time(text: str | None) -> float:
    try:
        return parse_time(text) if text else 0.0
    except ValueError:
        return 0.0
