"""The gate by policies: which fleet a resource belongs to, and what its policies let through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from homeostat.guards import health, invariant
from homeostat.guards.backoff import delays
from homeostat.guards.breaker import thresholds
from homeostat.guards.compose import combine, matching
from homeostat.guards.grants import Grants
from homeostat.guards.policy import GuardPolicy, Mode, default_policy
from homeostat.loop.fleet import Drift, Fleet, Taken, Unanswered, Verdict
from homeostat.loop.queue import Backoff

DEFAULT = "default/"
"""How the fleet is named that the default of its kind guards: `default/files.homeostat.dev`."""

Judged = Callable[[Fleet, Verdict], None]
"""Told of each verdict, right after it was entered."""


class PolicyGate:
    """A fleet is what the same set of policies selects; what none selects goes by its kind's default.

    `mode` is that of the defaults: Observe, so that a new kind reports and touches nothing until a person says otherwise.
    `built_in` are the defaults that people can see and change, by kind.
    `approvals` are the plans that people approved and that were not used yet, `grants` the approvals that change sets carry.
    `returned` says by fleet how it stands with change sets that were to go back, `interrupted` which of them waited for a verdict when
    the loop before this one ended, and since when.
    """

    def __init__(self, policies: Mapping[str, GuardPolicy] | None = None, mode: Mode = Mode.OBSERVE) -> None:
        self.policies = dict(policies or {})
        self.built_in: dict[str, GuardPolicy] = {}
        self.approvals: set[str] = set()
        self.grants = Grants()
        self.returned: dict[str, dict[str, Taken]] = {}
        self.interrupted: dict[str, dict[str, float]] = {}
        self.listener: Judged | None = None
        self.mode = mode
        self._names: dict[str, tuple[str, ...]] = {}
        self._stocked: dict[str, Fleet] = {}  # those that invariants are about

    def fleet_of(self, kind: str, namespace: str, labels: Mapping[str, str]) -> str:
        found = matching(self.policies, kind, namespace, labels)
        name = "+".join(found) or DEFAULT + kind
        self._names[name] = found
        return name

    def names(self, fleet: Fleet) -> tuple[str, ...]:
        """The policies that select a fleet; none where the default guards it."""
        return self._names.get(fleet.name, ())

    def policy(self, fleet: Fleet) -> GuardPolicy:
        """The strictest of all that select the fleet."""
        found = [self.policies[name] for name in self.names(fleet) if name in self.policies]
        return combine(found, fleet.size) if found else self._default(fleet.name.removeprefix(DEFAULT))

    def _default(self, kind: str) -> GuardPolicy:
        found = self.built_in.get(kind)
        if found is None:
            found = self.built_in[kind] = default_policy(kind, self.mode)
        return found

    def equip(self, fleet: Fleet) -> None:
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
        from homeostat.guards import decide

        fleet.approvals = frozenset(self.approvals)
        self.grants.hand_out(fleet)
        fleet.returned = self.returned.get(fleet.name, {})
        fleet.interrupted = self._still_interrupted(fleet)
        policy = self.policy(fleet)
        fleet.limits = thresholds(policy)
        return decide(policy, fleet, now)

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
        from homeostat.guards import admits

        policy = self.policy(fleet)
        fleet.limits = thresholds(policy)
        return admits(policy, fleet, drift, now)

    def backoff(self, fleet: Fleet) -> Backoff:
        return delays(self.policy(fleet))
