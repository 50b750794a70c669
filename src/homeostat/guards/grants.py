"""The approvals that change sets carry, shared out between the fleets that a change set touches.

Who applies a change set is shown how many things of each kind it changes and deletes, and says yes to so many. Each fleet gets what
covers all that is open of the change set there, or nothing; what it uses is gone for all others. A fleet that has used its part and
forgotten the change set gets no more of it, and a restart ends what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from homeostat.loop.fleet import Drift, Fleet, Grant, Op, Verdict

_COUNTED = (Op.UPDATE, Op.DELETE)


class Carried(msgspec.Struct, eq=False):
    """The approval of one change set: what is `left` of it by kind (plural and group), and the fleets that `used` of it."""

    change_set: str
    left: dict[str, Grant]
    used: set[str] = msgspec.field(default_factory=set)

    def covers(self, asked: Mapping[str, Grant]) -> bool:
        """Whether it is enough for so many of each kind."""
        pairs = ((self.left.get(kind, Grant()), grant) for kind, grant in asked.items())
        return all(ours.changes >= grant.changes and ours.deletions >= grant.deletions for ours, grant in pairs)

    def spend(self, fleet: Fleet, asked: Mapping[str, Grant]) -> None:
        """So many of each kind were let through in a fleet."""
        self.used.add(fleet.name)
        for kind, grant in asked.items():
            ours = self.left.get(kind, Grant())
            self.left[kind] = Grant(max(0, ours.changes - grant.changes), max(0, ours.deletions - grant.deletions))


class Grants:
    """All approvals of change sets that count, by the uid of their objects."""

    def __init__(self) -> None:
        self.carried: dict[str, Carried] = {}
        self._handed: dict[tuple[str, str], Carried] = {}  # by fleet and change set

    def hand_out(self, fleet: Fleet) -> None:
        """Gives a fleet what covers the change sets that are open in it, and takes back what was withdrawn."""
        valid = list(self.carried.values())
        for change_set in [n for n in fleet.grants if self._handed.get((fleet.name, n)) not in (None, *valid)]:
            del fleet.grants[change_set]
        for change_set in dict.fromkeys(one.change_set for one in valid):
            asked = counted(d for d in fleet.drifts.values() if d.wave == change_set and not d.is_approved and d.parts is None)
            if not asked:
                continue
            fitting = (one for one in valid if one.change_set == change_set and self._fits(one, fleet, asked))
            found = next(fitting, None)
            if found is None:
                fleet.grants.pop(change_set, None)
            else:
                parts = [found.left[kind] for kind in asked]
                fleet.grants[change_set] = Grant(sum(p.changes for p in parts), sum(p.deletions for p in parts))
                self._handed[fleet.name, change_set] = found

    def _fits(self, one: Carried, fleet: Fleet, asked: Mapping[str, Grant]) -> bool:
        forgotten = fleet.name in one.used and one.change_set not in fleet.grants
        return not forgotten and one.covers(asked)

    def taken(self, fleet: Fleet, verdict: Verdict) -> None:
        """A verdict counts, and what it approved by change sets is used up."""
        for change_set in verdict.grants:
            if (one := self._handed.get((fleet.name, change_set))) is not None:
                approved = (fleet.drifts[ref] for ref in verdict.approved & fleet.drifts.keys())
                one.spend(fleet, counted(d for d in approved if d.wave == change_set))

    def used(self) -> Iterator[str]:
        """The uids of those that were used."""
        return (uid for uid, one in self.carried.items() if one.used)


def counted(drifts: Iterable[Drift]) -> dict[str, Grant]:
    """How many are changed and deleted, by kind."""
    found: dict[str, Grant] = {}
    for drift in drifts:
        if drift.touches in _COUNTED:
            before = found.get(drift.ref.kind, Grant())
            deletes = drift.touches is Op.DELETE
            found[drift.ref.kind] = Grant(before.changes + (not deletes), before.deletions + deletes)
    return found
