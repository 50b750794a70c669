"""Tenant: who may use how much."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta

from homeostat.gpu import GROUP, VERSION
from homeostat.gpu.kinds.amounts import Amount, Fraction, Model, Name, Share
from homeostat.model.kinds import Column, KindInfo, Length, ListMap, Span, Spec


class Quota(Spec):
    """What a tenant may use of one type of GPU."""

    model: Model
    """`*` is any type that has no entry of its own."""
    nominal: Share
    """What is its own: others may borrow it, and give it back when it is wanted."""
    borrowing_limit: Share | None = None
    """How much more it may use of what its cohort leaves idle. Without: no limit; 0: none."""
    lending_limit: Share | None = None
    """How much of its own others may borrow. Without: all of it."""


class Budget(Spec):
    """GPU hours that may be used in a period."""

    gpu_hours: Amount
    period: Length = timedelta(days=30)
    on_exceeded: Literal["Warn", "Hold", "Suspend"] = "Hold"
    """`Hold` admits nothing more, `Suspend` also takes back what runs."""


class Sla(Spec):
    """What the tenant was promised. A promise that is not kept is told, and moves its work ahead."""

    max_wait: Span | None = None
    """From submission to start."""
    share_of_time: Fraction | None = None
    """The part of time in which all that it wants, up to its nominal quota, must run; over the last day."""


class TenantSpec(Spec):
    """Who uses GPUs, and how many."""

    quotas: Annotated[tuple[Quota, ...], ListMap("model"), Meta(max_length=64)] = ()
    """Types without an entry cannot be used, unless there is one for `*`."""
    cohort: str = ""
    """Tenants of one cohort borrow from each other; empty: it neither lends nor borrows."""
    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    """How much of what is shared it is entitled to, in proportion to the others."""
    budget: Budget | None = None
    sla: Sla | None = None
    namespaces: Annotated[tuple[Name, ...], Meta(max_length=256)] = ()
    """Whose workloads may name this tenant; none: those of the namespace of its own name."""


class Usage(Spec):
    """How a tenant stands with one type of GPU."""

    model: str
    nominal: str = "0"
    used: str = "0"
    borrowed: str = "0"
    lent: str = "0"


class TenantStatus(Spec):
    """How a tenant stands."""

    used: str = "0"
    usage: Annotated[tuple[Usage, ...], ListMap("model")] = ()
    pending: int = 0
    running: int = 0
    suspended: int = 0
    dominant_share: float = 0.0
    """Its part of the fleet, the past counted in, over its weight."""
    gpu_hours: float = 0.0
    """Used in the period of its budget."""
    cost: float = 0.0
    oldest_wait: timedelta = timedelta(0)
    sla_misses: int = 0


TENANT = KindInfo(
    GROUP,
    VERSION,
    "Tenant",
    TenantSpec,
    status=TenantStatus,
    scope="Cluster",
    categories=("gpu",),
    columns=(
        Column("Cohort", ".spec.cohort"),
        Column("Used", ".status.used"),
        Column("Running", ".status.running", "integer"),
        Column("Pending", ".status.pending", "integer"),
        Column("Share", ".status.dominantShare", "number"),
    ),
)
