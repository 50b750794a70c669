"""The gate by policies: which fleet a resource belongs to, and what its policies let through."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec import structs
from msgspec.structs import replace

from homeostat.guards import admits, beside, decide, health, invariant
from homeostat.guards.backoff import delays
from homeostat.guards.breaker import thresholds
from homeostat.guards.compose import combine, matching, whole
from homeostat.guards.grants import Grants
from homeostat.guards.policy import GuardPolicy, Mode, default_policy
from homeostat.loop.fleet import Drift, Fleet, Halt, Ref, Taken, Unanswered, Verdict, Whole
from homeostat.loop.queue import Backoff

DEFAULT = "default/"
"""How the fleet is named that the default of its kind guards: `default/files.homeostat.dev`."""

UNDECIDED = "guards"
"""Who halts a fleet of which no guard can say anything."""

Judged = Callable[[Fleet, Verdict], None]
"""Told of each verdict, right after it was entered."""


log = logging.getLogger("homeostat.guards")


class PolicyGate:
    """A fleet is what the same set of policies selects; what none selects goes by its kind's default.

    `mode` is that of the defaults: Observe, so that a new kind reports and touches nothing until a person says otherwise.
    `built_in` are the defaults that people can see and change, by kind.
    `approvals` are the plans that people approved and that were not used yet, `grants` the approvals that change sets carry.
    `returned` says by fleet how it stands with change sets that were to go back, `interrupted` which of them waited for a verdict when
    the loop before this one ended, and since when. `halted` says by fleet, guard and change set since when the loop before had it halted.
    """

    def __init__(self, policies: Mapping[str, GuardPolicy] | None = None, mode: Mode = Mode.OBSERVE) -> None:
        self.policies = dict(policies or {})
        self.built_in: dict[str, GuardPolicy] = {}
        self.approvals: set[str] = set()
        self.grants = Grants()
        self.returned: dict[str, dict[str, Taken]] = {}
        self.interrupted: dict[str, dict[str, float]] = {}
        self.halted: dict[str, dict[tuple[str, str], float]] = {}
        self.replaced: dict[str, tuple[GuardPolicy, str]] = {}
        """By name, what a policy was before it was written last, and by which change set that was."""
        self.listener: Judged | None = None
        self.mode = mode
        self._names: dict[str, tuple[str, ...]] = {}
        self._stocked: dict[str, Fleet] = {}  # those that invariants are about
        self._guarded: dict[str, dict[str, Fleet]] = {}  # by policy, the fleets that it selects

    def fleet_of(self, kind: str, namespace: str, labels: Mapping[str, str]) -> str:
        found = matching(self.policies, kind, namespace, labels)
        name = "+".join(found) or DEFAULT + kind
        self._names[name] = found
        return name

    def keeps(self, fleet: str) -> bool:
        """Not where nobody guards it any more, nor where it is only observed: a label is how people let the loop act on a thing."""
        names = () if fleet.startswith(DEFAULT) else tuple(fleet.split("+"))
        if not all(name in self.policies for name in names):
            return False
        self._names.setdefault(fleet, names)
        return self._policy(fleet, 0).mode is Mode.ENFORCE

    def names(self, fleet: Fleet) -> tuple[str, ...]:
        """The policies that select a fleet; none where the default guards it."""
        return self._names.get(fleet.name, ())

    def policy(self, fleet: Fleet) -> GuardPolicy:
        """The strictest of all that select the fleet; with the freezes that stand in the defaults of its kinds."""
        return self._frozen(fleet, fleet.drifts)

    def _frozen(self, fleet: Fleet, refs: Iterable[Ref]) -> GuardPolicy:
        """A default steps aside where other policies select a thing, but nobody lifts a freeze by writing another policy; and who
        freezes what a composer declares need not know which policies guard it."""
        policy = self._policy(fleet.name, fleet.size)
        frozen = {kind: one for kind, one in self.built_in.items() if one.freezes and DEFAULT + kind != fleet.name}
        if not frozen:
            return policy
        kinds = {ref.kind for ref in refs}.union(*(self.policies[n].fleet.kinds for n in self.names(fleet) if n in self.policies))
        freezes = [
            freeze if freeze.kinds else structs.replace(freeze, kinds=(kind,))
            for kind in sorted(kinds & frozen.keys())
            for freeze in frozen[kind].freezes
        ]
        return structs.replace(policy, freezes=tuple(dict.fromkeys((*policy.freezes, *freezes))))

    def _policy(self, fleet: str, size: int) -> GuardPolicy:
        found = [self.policies[name] for name in self._names.get(fleet, ()) if name in self.policies]
        return combine(found, size) if found else self._default(fleet.removeprefix(DEFAULT))

    def _default(self, kind: str) -> GuardPolicy:
        found = self.built_in.get(kind)
        if found is None:
            found = self.built_in[kind] = default_policy(kind, self.mode)
        return found

    def know(self, fleet: Fleet) -> None:
        """Has a fleet counted where its policies count all that they select."""
        for name in self.names(fleet):
            self._guarded.setdefault(name, {})[fleet.name] = fleet

    def equip(self, fleet: Fleet) -> None:
        self.know(fleet)
        declared = [(name, self.policies[name]) for name in self.names(fleet) if name in self.policies]
        if not declared and fleet.name.startswith(DEFAULT):
            declared = [(fleet.name, self._default(fleet.name.removeprefix(DEFAULT)))]
        fleet.invariants = tuple(
            invariant.check_of(one, fleet, partial(self._selected, name, fleet))
            for name, policy in declared
            for one in policy.invariants
        )
        fleet.health = tuple(health.check_of(one) for _, policy in declared for one in policy.health)
        fleet.stock_since = fleet.passes_begun
        if fleet.invariants:
            self._stocked[fleet.name] = fleet
        else:
            fleet.observed.clear()
            self._stocked.pop(fleet.name, None)

    def wholes(self, fleet: Fleet) -> tuple[Whole, ...]:
        """What the policies of a fleet select beside it."""
        found = []
        for name in self.names(fleet):
            others = [one for one in self._guarded.get(name, {}).values() if one is not fleet and (one.size or one.drifts)]
            if others and name in self.policies:
                found.append(whole(name, self.policies[name], fleet, others))
        return tuple(found)

    def _selected(self, name: str, but: Fleet | None = None) -> list[Fleet]:
        """The fleets that a policy selects: more than one where others select a part of the same."""
        stocked = self._stocked.values()
        return [one for one in stocked if one is not but and name in (self.names(one) or (one.name,))]

    def broken(self, name: str) -> list[str] | Unanswered | None:
        """Which invariants of a policy are broken now, in words, or that it cannot be told; None where it has none."""
        policy, fleets = self.policies.get(name), self._selected(name)
        if policy is None:
            policy, fleets = self.built_in.get(name), self._selected(DEFAULT + name)
        if policy is None or not policy.invariants or not fleets:
            return None
        try:
            return invariant.broken_now(policy.invariants, fleets)
        except Unanswered as why:
            return why

    def judge(self, fleet: Fleet, now: float) -> Verdict:
        fleet.approvals = frozenset(self.approvals)
        self.grants.hand_out(fleet)
        fleet.wholes = self.wholes(fleet)
        fleet.returned = self.returned.get(fleet.name, {})
        fleet.interrupted = self._still_interrupted(fleet)
        try:
            return self._dated(fleet, self._decide(fleet, now))
        except Exception as error:  # whatever it is, nobody has said yes: nothing is done, and people are told
            log.exception("the guards of %s cannot decide", fleet.name)
            return _undecided(fleet, now, f"the guards cannot decide: {str(error) or type(error).__name__}")

    def _decide(self, fleet: Fleet, now: float) -> Verdict:
        policy = self.policy(fleet)
        fleet.limits = thresholds(policy)
        if not (self.replaced or fleet.moving):
            return decide(policy, fleet, now)
        policy, as_before = beside.as_before(policy, fleet, self._replaced(fleet))
        verdict = decide(policy, fleet, now)
        beside.say(fleet, verdict, as_before)
        for name in dict.fromkeys(fleet.moving.values()):
            beside.where_they_go(self._policy(name, fleet.size), name, fleet, verdict, now)
        return verdict

    def _dated(self, fleet: Fleet, verdict: Verdict) -> Verdict:
        """A halt that stood when the loop before this one ended, and stands, has stood since then. What does not when all was looked at is over."""
        known = self.halted.get(fleet.name)
        if known:
            for key, halt in verdict.halts.items():
                if key not in fleet.halts:
                    verdict.halts[key] = replace(halt, since=known.get((halt.guard, halt.change_set), halt.since))
            if fleet.passes_done:
                del self.halted[fleet.name]
        return verdict

    def _replaced(self, fleet: Fleet) -> dict[str, tuple[GuardPolicy, str]]:
        names = self.names(fleet) or (fleet.name.removeprefix(DEFAULT),)
        return {name: self.replaced[name] for name in names if name in self.replaced}

    def _still_interrupted(self, fleet: Fleet) -> dict[str, float]:
        """Those of which something is not well. What is well once all was looked at has had its verdict, and later ills are not its own."""
        known = self.interrupted.get(fleet.name, {})
        if known and fleet.passes_done:
            ill = set(fleet.unhealthy.values()) | {drift.wave for drift in fleet.drifts.values()}
            known = self.interrupted[fleet.name] = {name: at for name, at in known.items() if name in ill}
        return known

    def taken(self, fleet: Fleet, verdict: Verdict) -> None:
        self.approvals -= verdict.used
        self.grants.taken(fleet, verdict)
        if self.listener is not None:
            self.listener(fleet, verdict)

    def admits(self, fleet: Fleet, drift: Drift, now: float) -> bool:
        try:
            policy = self._frozen(fleet, (drift.ref,))
            fleet.limits = thresholds(policy)
            return admits(policy, fleet, drift, now)
        except Exception:  # it waits for the decision on the whole, which tells people why there is none
            log.exception("the guards of %s cannot decide on %s", fleet.name, drift.ref)
            return False

    def backoff(self, fleet: Fleet) -> Backoff:
        return delays(self._policy(fleet.name, fleet.size))


def _undecided(fleet: Fleet, now: float, why: str) -> Verdict:
    """Halts all of a fleet. What halted it before goes on doing so."""
    verdict = Verdict(allowed=[drift for drift in fleet.drifts.values() if not drift.in_flight], halts=dict(fleet.halts))
    since = before.since if (before := fleet.halts.get(UNDECIDED)) else now
    verdict.halts[UNDECIDED] = Halt(UNDECIDED, why, since, "", "Look at the GuardPolicies of the fleet, and at the log of the loop.")
    verdict.hold_all(UNDECIDED, why)
    return verdict
