"""GpuPolicy: which policies run, and their thresholds."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Meta, field

from homeostat.gpu import GROUP, VERSION
from homeostat.gpu.kinds.amounts import Amount, Fraction
from homeostat.model.kinds import KindInfo, Length, Span, Spec


class FairShare(Spec):
    enabled: bool = True
    half_life: Length = timedelta(hours=24)
    """After so long, past use counts half."""
    past: Fraction = 0.5
    """How much past use weighs against the use of this moment."""


class Preempting(Spec):
    enabled: bool = True
    per_hour: Annotated[int, Meta(ge=0)] = 60
    """In the whole fleet."""
    per_workload: Annotated[int, Meta(ge=0)] = 3
    """Of one workload in a day."""
    past_minimum_runtime: bool = False
    """Whether quota and priority may take off what has not run for its minimum."""
    start_over_after: Amount = 1.0
    """So many times as long as it has run, suspended work waits for the GPUs where its state lies from when it could have had them. Then it
    takes others as well, and begins anew there: its state is worth what it took to get there, and no longer wait."""


class TimeSharing(Spec):
    """Long work makes room for short work: by what it has used so far, a workload is expected to go on as long again."""

    enabled: bool = False
    expected: Length = timedelta(minutes=10)
    """What a workload that has not run yet is expected to take; one with a maximum runtime never more than is left of it."""
    at_most: Length = timedelta(hours=24)
    """No more is expected of any: among those that have run for longer, it is again who came first."""
    slice: Length = timedelta(minutes=10)
    """For so long a run is left alone."""
    ratio: Annotated[float, Meta(ge=2)] = 16.0
    """How many times more GPU time must be expected of what is suspended than of what it makes room for."""
    per_doubling: Amount = 100.0
    """Points of priority that twice the expected GPU time costs in the queue of its tenant."""
    share_per_doubling: Amount = 0.1
    """The part of the fleet that a tenant may have more than another, for its weight and beyond what is kept of their quotas, while its work is
    expected to be short: for each halving of GPU time. So much where twice as much is wanted as there is; in proportion less where it is less."""
    lends: Fraction = 0.0
    """The part of its own quota that a tenant leaves to shorter work of others even while it wants it itself. The rest of it is kept for it at each
    moment, and more while it has had less than that lately; what has waited too long has a right to the whole quota."""


class IdleReclaim(Spec):
    enabled: bool = True
    window: Length = timedelta(minutes=30)
    gpu_below: Fraction = 0.05
    memory_traffic_below: Fraction = 0.02
    cpu_below: Fraction = 0.10
    """All three, over the whole window."""
    grace: Span = timedelta(minutes=10)
    """From the warning to the reclaim."""
    pause: Span = timedelta(hours=1)
    """After so long what was taken back comes back by itself: twice as long each time that it has used its GPUs for less than the window since, and
    a day at most, or this if that is longer."""
    stale_after: Span = timedelta(minutes=2)
    """A reading older than this is none."""


class FailurePolicy(Spec):
    enabled: bool = True
    lease: Length = timedelta(seconds=40)
    """A node not heard of for so long is lost."""
    flaps: Annotated[int, Meta(ge=1)] = 3
    flap_window: Length = timedelta(minutes=30)
    suspect_observer_above: Fraction = 0.5
    """More of the fleet silent at once than this, and the observer is suspected: nothing is done."""
    replace: bool = True


class Scaling(Spec):
    enabled: bool = True
    backlog_age: Span = timedelta(minutes=5)
    idle_nodes_after: Span = timedelta(minutes=15)


class Cost(Spec):
    """What is spent on nodes. Work goes on the cheapest that do, in every policy; the rest is said here."""

    alike: Fraction = 0.05
    """A GPU that is no more than this part dearer than another counts as costing the same: then it is packing that decides."""
    spot_slack: Span = timedelta(hours=1)
    """Work that would miss its deadline if it lost this much time keeps off spot nodes, and so does what may never be preempted."""
    consolidate: bool = False
    """Whether part-empty nodes of a pool are emptied to give them back, while nothing waits for GPUs."""
    emptier_than: Fraction = 0.5
    """Only nodes of which less than this part is in use are emptied."""
    moves: Annotated[int, Meta(ge=1)] = 8
    """Workloads that are on their way for that at a time, in the whole fleet."""


class Ageing(Spec):
    enabled: bool = True
    per_hour: Amount = 10.0
    """Points of priority that an hour of waiting is worth."""
    most: Amount = 1000.0
    overdue_after: Span = timedelta(hours=24)
    """What waited longer comes first; of work beyond the quota, the one of each tenant that waited longest."""


class GpuPolicySpec(Spec):
    """Which policies run, and by which thresholds. One policy is in force: the one named `default`, or all defaults."""

    fair_share: FairShare = field(default_factory=FairShare)
    preemption: Preempting = field(default_factory=Preempting)
    time_sharing: TimeSharing = field(default_factory=TimeSharing)
    idle: IdleReclaim = field(default_factory=IdleReclaim)
    failure: FailurePolicy = field(default_factory=FailurePolicy)
    scaling: Scaling = field(default_factory=Scaling)
    cost: Cost = field(default_factory=Cost)
    ageing: Ageing = field(default_factory=Ageing)
    backfill: bool = True
    defragment: bool = False
    """Whether work that keeps its state is moved together, within the budget of preemptions, to make room for what needs many GPUs of a node."""
    every: Length = timedelta(seconds=5)
    """How often it is decided when nothing happens."""


POLICY = KindInfo(GROUP, VERSION, "GpuPolicy", GpuPolicySpec, scope="Cluster", categories=("gpu",))
