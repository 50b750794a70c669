"""From what was measured to how many replicas there should be. Nothing here waits, and nothing looks at a clock."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson
from msgspec.structs import asdict, replace

from homeostat.loop.laws import PID, Limits, Loop, OnOff, Sense, Step, Steps, Switch
from homeostat.loop.observation import Unknown
from homeostat.loop.readings import Metric, Reading, usable
from homeostat.loop.scaling import Asked, Demand, Pace, Proportion, Scaled, Scaling, blind, whole
from homeostat.model.clock import format_time, parse_time
from homeostat.model.kinds import encode
from homeostat.providers.autoscaler.spec import AutoscalerSpec, MetricSpec, OnOffLaw, PaceSpec, PidLaw, Shown, StepLaw

_UP, _DOWN = Scaling(most=1).up, Scaling(most=1).down
_SENSES = {"Lowers": Sense.LOWERS, "Raises": Sense.RAISES}


class Replicas(msgspec.Struct, frozen=True):
    """How many a target is told to have, and how many of them run; where nobody counts those, it is taken for all."""

    current: int
    running: int


class Outcome(msgspec.Struct, frozen=True):
    """What was decided, and what the next decision goes on from."""

    desired: int
    reason: str
    blind: Unknown | None
    """Why nothing could be decided, where that is so."""
    scaled: Scaled
    loops: Mapping[str, Loop] = msgspec.field(default_factory=dict)
    """The PID loops, by metric."""
    metrics: tuple[Shown, ...] = ()


def decide(
    spec: AutoscalerSpec,
    scaled: Scaled,
    loops: Mapping[str, Loop],
    measured: Sequence[Metric],
    replicas: Replicas,
    now: float,
) -> Outcome:
    """How many replicas there should be. `measured` is in the order of the metrics; a stale reading is none."""
    scaling = scaling_of(spec)
    scaled = scaling.look(scaled, replicas.current, now)
    stale_after = spec.stale_after.total_seconds()
    asked: list[Asked] = []
    kept: dict[str, Loop] = {}
    for metric, found in zip(spec.metrics, measured, strict=True):
        reading = usable(found, now, stale_after)
        if metric.law.pid is not None:
            before = loops.get(metric.name) or Loop.at_rest(replicas.current)
            kept[metric.name], demand = _follow(metric.law.pid, spec, before, reading, now)
        else:
            demand = reading if isinstance(reading, Unknown) else _ask(metric, spec, reading, replicas, scaled, now)
        asked.append(_named(metric.name, demand))
    state, desired, reason = scaling.decide(scaled, asked, replicas.current, now)
    unseen = blind(asked, replicas.current)
    return Outcome(
        desired,
        reason,
        unseen if desired == replicas.current else None,  # limits hold whatever can be seen
        state,
        kept,
        tuple(_shown(metric.name, found) for metric, found in zip(spec.metrics, measured, strict=True)),
    )


def scaling_of(spec: AutoscalerSpec) -> Scaling:
    """The limits and the pace that are declared. A proportion wants a window on the way down; the other laws have a pace of their
    own, and a window would only make them late."""
    slow = any(metric.law.proportional is not None for metric in spec.metrics)
    down = _DOWN if slow else replace(_DOWN, window=0.0)
    return Scaling(spec.max_replicas, spec.min_replicas, _pace(spec.scale_up, _UP), _pace(spec.scale_down, down))


def _pace(spec: PaceSpec, default: Pace) -> Pace:
    return Pace(
        default.window if spec.window is None else spec.window.total_seconds(),
        default.percent if spec.percent is None else spec.percent,
        default.count if spec.replicas is None else spec.replicas,
        default.period if spec.period is None else spec.period.total_seconds(),
    )


def _limits(spec: AutoscalerSpec) -> Limits:
    return Limits(spec.min_replicas, spec.max_replicas)


def _ask(
    metric: MetricSpec, spec: AutoscalerSpec, reading: Reading, replicas: Replicas, scaled: Scaled, now: float
) -> Asked:
    """What the laws say that go on from how many replicas there are, and since when."""
    law = metric.law
    if law.proportional is not None:
        proportion = Proportion(law.proportional.target, law.proportional.total, law.proportional.tolerance)
        return proportion.demand(reading.value, replicas.current, replicas.running)
    if law.step is not None:
        return _step(law.step, spec, reading, replicas.current, scaled.moved, now)
    if law.on_off is not None:
        return _switch(law.on_off, spec, reading, replicas.current, scaled.moved, now)
    return Unknown("it has no law")


def _step(
    law: StepLaw, spec: AutoscalerSpec, reading: Reading, current: int, moved: float | None, now: float
) -> Demand:
    step = Step(
        law.target,
        law.band,
        _limits(spec),
        up=law.up,
        down=law.down,
        rest_up=law.rest_up.total_seconds(),
        rest_down=law.rest_down.total_seconds(),
        sense=_SENSES[law.sense],
    )
    decision = step.decide(Steps(current, moved), reading, now)
    return Demand(round(decision.output), decision.reason)


def _switch(
    law: OnOffLaw, spec: AutoscalerSpec, reading: Reading, current: int, moved: float | None, now: float
) -> Demand:
    on = spec.max_replicas if law.on_replicas is None else law.on_replicas
    off = spec.min_replicas if law.off_replicas is None else law.off_replicas
    switch = OnOff(
        law.low,
        law.high,
        _SENSES[law.sense],
        least_on=law.least_on.total_seconds(),
        least_off=law.least_off.total_seconds(),
    )
    decision = switch.decide(Switch(current > off, moved), reading, now)
    return Demand(on if decision.output else off, decision.reason)


def pid_of(law: PidLaw, spec: AutoscalerSpec) -> PID:
    """The declared law, within the limits of the replicas."""
    return PID(
        law.target,
        law.kp,
        _limits(spec),
        ki=law.ki,
        kd=law.kd,
        band=law.band,
        smoothing=law.smoothing.total_seconds(),
        longest=max(60.0, 2 * spec.interval.total_seconds()),
        sense=_SENSES[law.sense],
        stale_after=spec.stale_after.total_seconds(),
    )


def _follow(law: PidLaw, spec: AutoscalerSpec, loop: Loop, metric: Metric, now: float) -> tuple[Loop, Asked]:
    state, output, reason = pid_of(law, spec).decide(loop, metric, now)
    return state, metric if isinstance(metric, Unknown) else Demand(whole(output), reason)


def retuned(spec: AutoscalerSpec, before: AutoscalerSpec, loops: Mapping[str, Loop]) -> dict[str, Loop]:
    """The PID loops under another declaration: they go on from the output that they came to."""
    was = {metric.name: metric.law.pid for metric in before.metrics}
    return {
        metric.name: pid_of(law, spec).retuned(loops[metric.name], pid_of(old, before))
        for metric in spec.metrics
        if metric.name in loops and (law := metric.law.pid) is not None and (old := was.get(metric.name)) is not None
    }


def _named(name: str, asked: Asked) -> Asked:
    return (
        Unknown(f"{name}: {asked.reason}") if isinstance(asked, Unknown) else asked._replace(why=f"{name}: {asked.why}")
    )


def _shown(name: str, metric: Metric) -> Shown:
    return Shown(name=name, value="unknown" if isinstance(metric, Unknown) else f"{metric.value:.3g}")


# What outlives a restart


def digest(spec: AutoscalerSpec) -> str:
    """The same for the same declaration, and for no other."""
    return hashlib.sha256(orjson.dumps(encode(spec), option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def to_memory(outcome: Outcome, met: str) -> dict[str, Any]:
    """What goes into the status: which declaration was met last, the changes that the pace counts, and the PID loops.

    Windows begin anew after a restart, which shrinks nothing.
    """
    memory: dict[str, Any] = {"met": met} if met else {}
    if outcome.scaled.changes:
        memory["changes"] = [[round(at, 3), by] for at, by in outcome.scaled.changes]
    if outcome.loops:
        memory["loops"] = {name: _rounded(loop) for name, loop in outcome.loops.items()}
    return memory


def _rounded(loop: Loop) -> dict[str, Any]:
    return {
        name: None if value is None else float(f"{value:.6g}") if name != "at" else round(value, 3)
        for name, value in asdict(loop).items()
    }


class _Memory(msgspec.Struct):
    changes: tuple[tuple[float, int], ...] = ()
    loops: dict[str, Loop] = {}


def from_memory(status: Mapping[str, Any]) -> tuple[Scaled, dict[str, Loop]]:
    """What a status tells of the time before a restart; what makes no sense is as new."""
    try:
        memory = msgspec.convert(status.get("memory") or {}, _Memory)
        moved = parse_time(status["lastScaleTime"]) if status.get("lastScaleTime") else None
        return Scaled(changes=memory.changes, seen=status.get("replicas"), moved=moved), memory.loops
    except (msgspec.ValidationError, ValueError):
        return Scaled(), {}


def when(moved: float | None) -> str | None:
    """A time as a status has it."""
    return None if moved is None else format_time(moved)
