"""The gate by policies: which fleet a resource belongs to, and what its policies let through."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from homeostat.guards.backoff import delays
from homeostat.guards.compose import combine, matching
from homeostat.guards.policy import GuardPolicy, Mode, default_policy
from homeostat.loop.fleet import Fleet, Verdict
from homeostat.loop.queue import Backoff

DEFAULT = "default/"
"""How the fleet is named that the default of its kind guards: `default/files.homeostat.dev`."""

Judged = Callable[[Fleet, Verdict], None]
"""Told of each verdict, right after it was given."""


class PolicyGate:
    """A fleet is what the same set of policies selects; what none selects goes by its kind's default.

    `mode` is that of the defaults: Observe, so that a new kind reports and touches nothing until a person says otherwise.
    `built_in` are the defaults that people can see and change, by kind.
    `approvals` are the plans that people approved and that were not used yet.
    """

    def __init__(self, policies: Mapping[str, GuardPolicy] | None = None, mode: Mode = Mode.OBSERVE) -> None:
        self.policies = dict(policies or {})
        self.built_in: dict[str, GuardPolicy] = {}
        self.approvals: set[str] = set()
        self.listener: Judged | None = None
        self.mode = mode
        self._names: dict[str, tuple[str, ...]] = {}

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

    def judge(self, fleet: Fleet, now: float) -> Verdict:
        from homeostat.guards import decide

        fleet.approvals = frozenset(self.approvals)
        verdict = decide(self.policy(fleet), fleet, now)
        self.approvals -= verdict.used
        if self.listener is not None:
            self.listener(fleet, verdict)
        return verdict

    def backoff(self, fleet: Fleet) -> Backoff:
        return delays(self.policy(fleet))
