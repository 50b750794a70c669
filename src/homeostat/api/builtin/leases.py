"""Lease: who holds what, and since when. The ground of leader election and heartbeats."""

from __future__ import annotations

from collections.abc import Sequence

from homeostat.api.builtin.checks import not_negative, positive, subdomain_name
from homeostat.api.builtin.declare import kind
from homeostat.api.resource import Column, Object, Resource, Rules
from homeostat.api.table import AGE, NAME
from homeostat.model.errors import FieldError

_STRATEGIES = ("OldestEmulationVersion",)
_PATH = "spec.strategy"


class LeaseRules(Rules):
    """Durations make sense; a preferred holder needs a strategy to choose it by."""

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        errors = positive(spec.get("leaseDurationSeconds"), "spec.leaseDurationSeconds")
        errors += not_negative(spec.get("leaseTransitions"), "spec.leaseTransitions")
        strategy = spec.get("strategy")
        if strategy is not None:
            errors += _strategy_errors(strategy)
        if spec.get("preferredHolder") and not strategy:
            detail = "may only be specified when `strategy` is defined"
            errors.append(FieldError.forbidden("spec.preferredHolder", detail))
        return errors


def _strategy_errors(strategy: str) -> list[FieldError]:
    """A strategy is upstream's own, or named by its vendor (`example.com/Mine`)."""
    vendor, slash, name = strategy.partition("/")
    if not slash:
        return [] if strategy in _STRATEGIES else [FieldError.not_supported(_PATH, strategy, _STRATEGIES)]
    if "/" in name:
        return [FieldError.invalid(_PATH, strategy, "must be a fully qualified name")]
    return subdomain_name(vendor, _PATH)


def resources() -> list[Resource]:
    """Lease. It counts no generations: a heartbeat is no change of intent."""
    return [
        kind(
            "coordination.k8s.io/v1",
            "Lease",
            "leases",
            rules=LeaseRules(),
            columns=(
                NAME,
                Column(
                    "Holder", lambda o: (o.get("spec") or {}).get("holderIdentity") or "", description="Who holds it."
                ),
                AGE,
            ),
        )
    ]
