"""What can be declared of an autoscaler, and what is shown of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from homeostat.model.kinds import ListMap, MapAtomic, Rule, Spec

GROUP, VERSION = "homeostat.dev", "v1alpha1"
MOST_REPLICAS = 100_000

Count = Annotated[int, Meta(ge=0, le=MOST_REPLICAS)]
Name = Annotated[str, Meta(min_length=1, max_length=253)]
Positive = Annotated[float, Meta(gt=0)]
Gain = Annotated[float, Meta(ge=0)]
Sense = Literal["Lowers", "Raises"]
"""What more replicas do to the measurement: they lower it, as that of a queue, or raise it, as that of idle workers."""
Span = Annotated[
    timedelta,
    Rule("duration(self) >= duration('0s') && duration(self) <= duration('24h')", message="must be from 0s to 24h"),
]


class Target(Spec):
    """Something of the same namespace that has a scale subresource."""

    api_version: Name
    kind: Name
    name: Name


class Prometheus(Spec):
    """A number on a page of Prometheus text. The administrator has to allow its host."""

    url: Annotated[str, Meta(pattern="^https?://[^/?#@]+", max_length=2048)]
    series: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Which series, as PromQL selects them: `queue_length{queue="mail", zone!~"test.*"}`."""
    aggregation: Literal["sum", "avg", "max", "min", "count"] = "sum"
    """What several series come to."""
    per_second: bool = False
    """For counters: by how much it grew a second since the evaluation before."""


class Over(Spec):
    """Objects of the same namespace."""

    api_version: Name
    kind: Name
    labels: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    """A label selector, as `app=web,tier!=test`. Default: all objects of the kind."""


class Cel(Spec):
    """A number that a CEL expression makes of objects on the API."""

    expression: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Over `objects`, the list of them: `objects.filter(o, !has(o.status.completionTime)).size()`. It gives a number."""
    over: Over


class Proportional(Spec):
    """As many replicas as bring the metric to its target: replicas × value / target, rounded up. Near it, nothing moves."""

    target: Positive
    total: bool = False
    """The metric is of all replicas together, such as the length of a queue, and is divided among them: value / target."""
    tolerance: Annotated[float, Meta(ge=0, le=10)] = 0.1
    """The dead band, as a part of the target."""


class StepLaw(Spec):
    """A few replicas more or fewer when the metric leaves the band around its target; then a rest, for it to show."""

    target: float
    band: Gain = 0.0
    up: Annotated[int, Meta(ge=1, le=MOST_REPLICAS)] = 1
    down: Annotated[int, Meta(ge=1, le=MOST_REPLICAS)] = 1
    rest_up: Span = timedelta(seconds=60)
    """From the last change, in either direction, to a step up."""
    rest_down: Span = timedelta(seconds=300)
    sense: Sense = "Lowers"


class OnOffLaw(Spec):
    """`onReplicas` from `high` on, `offReplicas` from `low` down; between them it stays as it is."""

    low: float
    high: float
    on_replicas: Count | None = None
    """Default: maxReplicas."""
    off_replicas: Count | None = None
    """Default: minReplicas."""
    least_on: Span = timedelta(0)
    """How long it stays on at least."""
    least_off: Span = timedelta(0)
    sense: Sense = "Lowers"

    rules = [
        Rule("self.low < self.high", message="must be more than low", field_path=".high"),
        Rule(
            "!has(self.onReplicas) || !has(self.offReplicas) || self.offReplicas < self.onReplicas",
            message="must be more than offReplicas",
            field_path=".onReplicas",
        ),
    ]


class PidLaw(Spec):
    """Follows a set point smoothly: proportional to the error, to its sum over time, and against the slope of the measurement."""

    target: float
    kp: Gain
    ki: Gain = 0.0
    """Per second."""
    kd: Gain = 0.0
    """Seconds."""
    band: Gain = 0.0
    """Errors of at most this much count as none."""
    smoothing: Span = timedelta(0)
    """Over which the slope is averaged."""
    sense: Sense = "Lowers"


class Law(Spec):
    """How replicas follow the metric."""

    proportional: Proportional | None = None
    step: StepLaw | None = None
    on_off: OnOffLaw | None = None
    pid: PidLaw | None = None

    rules = [
        Rule(
            "[has(self.proportional), has(self.step), has(self.onOff), has(self.pid)].filter(x, x).size() == 1",
            message="a law is exactly one of proportional, step, onOff and pid",
        )
    ]


class MetricSpec(Spec):
    """Something that is measured, and how replicas follow it."""

    name: Annotated[str, Meta(min_length=1, max_length=63)]
    law: Law
    prometheus: Prometheus | None = None
    cel: Cel | None = None

    rules = [Rule("has(self.prometheus) != has(self.cel)", message="a metric has exactly one of prometheus and cel")]


class PaceSpec(Spec):
    """How fast replicas change in one direction. What is not set is as HorizontalPodAutoscalers have it."""

    window: Span | None = None
    """Over which the most cautious recommendation counts. Default: 5m on the way down by a proportional law, else 0s."""
    percent: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None
    """In a period they change by so many percent. Default: 100."""
    replicas: Count | None = None
    """Or by so many, if that is more. Default: 4 up, 0 down."""
    period: (
        Annotated[
            timedelta,
            Rule(
                "duration(self) > duration('0s') && duration(self) <= duration('24h')",
                message="must be from 1ms to 24h",
            ),
        ]
        | None
    ) = None
    """Default: 15s."""

    rules = [
        Rule(
            "!has(self.percent) || !has(self.replicas) || self.percent > 0.0 || self.replicas > 0",
            message="with percent 0 and replicas 0 nothing would ever change",
        )
    ]


class AutoscalerSpec(Spec):
    """How many replicas something has, by what is measured. It goes up when any metric asks for it, and down only when all agree."""

    target: Annotated[Target, MapAtomic]
    max_replicas: Count
    metrics: Annotated[list[MetricSpec], ListMap("name"), Meta(min_length=1, max_length=16)]
    min_replicas: Count = 1
    interval: Annotated[
        timedelta,
        Rule("duration(self) >= duration('1s') && duration(self) <= duration('1h')", message="must be from 1s to 1h"),
    ] = timedelta(seconds=15)
    """From one evaluation to the next."""
    stale_after: Annotated[timedelta, Rule("duration(self) > duration('0s')", message="must be more than nothing")] = (
        timedelta(minutes=3)
    )
    """A reading that says that it is older is no reading."""
    scale_up: PaceSpec = field(default_factory=PaceSpec)
    scale_down: PaceSpec = field(default_factory=PaceSpec)

    rules = [
        Rule("self.minReplicas <= self.maxReplicas", message="must be at least minReplicas", field_path=".maxReplicas")
    ]


class Shown(Spec):
    """A metric as it was when it was last reported."""

    name: str
    value: str


class AutoscalerState(Spec):
    """The replicas that the target is told to have; and why. Only `replicas` is compared."""

    replicas: int
    desired: int | None = None
    reason: str | None = None
    """What the last report of a decision said."""
    metrics: list[Shown] | None = None
    """What it rested on. Reported when a decision changes something, and every few minutes where the numbers changed."""
    last_scale_time: str | None = None
    memory: dict[str, Any] | None = None
    """What the laws go on from after a restart."""
