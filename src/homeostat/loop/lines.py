"""From what was seen of a resource to its line in the ledger."""

from __future__ import annotations

from homeostat.loop.changesets import ChangeSets, Write, last_write
from homeostat.loop.controller import Controller, Seen
from homeostat.loop.diff import Diff, path_text
from homeostat.loop.fleet import Cause, Drift, Fleet, Op
from homeostat.loop.record import Record, reversed_since
from homeostat.loop.render import render
from homeostat.loop.writers import Writers, attribute
from homeostat.model.clock import parse_time
from homeostat.model.conditions import find_condition

REPORTED_SECONDS = 5.0
"""Within so long after an act its status says how it went."""


def line_of(controller: Controller, seen: Seen, known: Drift | None, sets: ChangeSets, now: float) -> Drift:
    """The line of a difference: a new one; or the one that is `known`, with what is new, where it is about the same."""
    assert seen.diff.op is not None
    assert seen.diff.cause is not None
    if known is not None and known.made_from == seen.made_from:
        known.owned, known.foreign, known.touches = seen.owned, seen.foreign, _touches(seen)
        return known
    record, metadata = seen.record, seen.obj["metadata"]
    diff = attribute(seen.diff, declared_by=Writers(metadata.get("managedFields") or (), root=("spec",)))
    told = record.change_set if known is None and record.made_from == seen.made_from else ""
    since = min(known.since if known else record.since or now, now)  # the clock may have been set back
    gone = metadata.get("deletionTimestamp")  # what is deleted was not to go before it was deleted
    write = Write(name=seen.change_set) if seen.change_set else last_write(metadata, diff.changes)
    line = Drift(
        ref=seen.ref,
        op=seen.diff.op,
        cause=seen.diff.cause,
        since=max(since, parse_time(gone)) if gone else since,
        made_from=seen.made_from,
        generation=metadata.get("generation", 0),
        paths=tuple([path_text(c.path) for c in diff.changes]),
        changes=tuple(render(diff, controller.sensitive)) if diff.op is Op.UPDATE else (),
        owned=seen.owned,
        foreign=seen.foreign,
        change_set=sets.place(seen.ref.uid, write, now, told),
        by=() if gone else _by(seen, diff, known, write.by),  # who deleted it, no field tells
        reversals=_reversals(controller, record, seen.diff, now) if known is None else known.reversals,
        target=seen.target or str(seen.ref),
        domain=seen.domain,
        part_of=controller.part_of(seen.ref),
        touches=_touches(seen),
        parts=seen.parts,
    )
    if known is not None:
        line.attempts, line.failures, line.retry_at = known.attempts, known.failures, known.retry_at
        line.error, line.unseen, line.against = known.error, known.unseen, known.against
    return line


def repaired_in_vain(seen: Seen) -> bool:
    """Whether what is not well was repaired, and was not seen well since: it has not been Ready from the repair on."""
    ready, repaired = find_condition(seen.obj, "Ready") or {}, seen.record.repaired_at
    return bool(repaired) and ready.get("status") == "False" and parse_time(ready["lastTransitionTime"]) <= repaired + REPORTED_SECONDS


def judged_in(seen: Seen, fleet: Fleet | None) -> str:
    """The name of the fleet that judges a change of what exists, whatever its labels say by now; empty where they do. `fleet` is the one
    that it is in, where its policies are those of before.

    Who changes a thing does not choose, by the same edit, who judges that. Labels that are edited alone are followed at once, and so are
    policies.
    """
    if not seen.diff or seen.diff.cause is Cause.DRIFT or seen.record.last_applied is None:
        return ""
    if fleet is None:
        return seen.record.judged_in
    known = fleet.drifts.get(seen.ref)
    alone = known is not None and known.made_from == seen.made_from and seen.ref not in fleet.moving
    return "" if alone else fleet.name


def _by(seen: Seen, diff: Diff, known: Drift | None, last: str) -> tuple[str, ...]:
    """Who made it differ. Where the fields that differ are not those that people write, such as the digest of a content, it is who wrote the
    `last` where that is why it differs; not where what it refers to changed."""
    named = tuple(dict.fromkeys([c.who.manager for c in diff.changes if c.who is not None]))
    if named or diff.cause is Cause.DRIFT:
        return named
    generation = seen.obj["metadata"].get("generation", 0)
    if known is not None and known.generation == generation:
        return known.by
    if (seen.obj.get("status") or {}).get("observedGeneration") == generation:
        return seen.record.by  # of before a restart
    return (last,) if last else ()


def _touches(seen: Seen) -> Op:
    assert seen.diff.op is not None
    return Op.CREATE if seen.harmless else seen.diff.op


def _reversals(controller: Controller, record: Record, diff: Diff, now: float) -> tuple[float, ...]:
    """What was undone so far. Of fields that nobody touched nothing was, whatever the provider says of the whole."""
    touched = diff.op is not Op.UPDATE or any(change.cause is not Cause.INTENT for change in diff.changes)
    cause = diff.cause if touched and diff.cause is not None else Cause.INTENT
    return reversed_since(record, cause, now) if controller.provider.contested else ()
