"""Observes how many replicas a target is told to have, asks the laws how many there should be, and scales it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import msgspec
from msgspec.structs import replace

from homeostat.client import Client, Resource
from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Cause, Ref
from homeostat.loop.hints import Bell
from homeostat.loop.laws import Loop
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Moved, Provider, Task, current
from homeostat.loop.readings import MetricSource
from homeostat.loop.scaling import Scaled
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError
from homeostat.model.kinds import Column, decode
from homeostat.model.kinds.values import InvalidSpec
from homeostat.providers.addresses import Forbidden, Hosts
from homeostat.providers.autoscaler.deciding import (
    Outcome,
    Replicas,
    decide,
    digest,
    from_memory,
    retuned,
    scaling_of,
    to_memory,
    when,
)
from homeostat.providers.autoscaler.metrics import Sources
from homeostat.providers.autoscaler.spec import GROUP, VERSION, AutoscalerSpec, AutoscalerState

MANAGER = "homeostat-autoscaler"
REPORT_SECONDS = 300.0
"""How often numbers that changed nothing are reported. Each report is a write, and a metric is never twice the same."""


class Unreadable(Exception):
    """Nothing can be decided. The message says what cannot be read."""


class _Kept(msgspec.Struct):
    """What is kept in memory of one autoscaler."""

    scaled: Scaled
    loops: dict[str, Loop]
    report: AutoscalerState | None = None
    reported: float = 0.0
    spec: AutoscalerSpec | None = None
    sources: list[MetricSource] = msgspec.field(default_factory=list)
    outcome: Outcome | None = None
    due: bool = True
    timer: asyncio.TimerHandle | None = None
    scale: dict[str, Any] | None = None


class Autoscaler(
    Provider[AutoscalerSpec, AutoscalerState],
    group=GROUP,
    version=VERSION,
    columns=(
        Column("Kind", ".spec.target.kind"),
        Column("Target", ".spec.target.name"),
        Column("Min", ".spec.minReplicas", "integer"),
        Column("Max", ".spec.maxReplicas", "integer"),
        Column("Replicas", ".status.replicas", "integer", "How many the target is told to have."),
        Column("Desired", ".status.desired", "integer", "How many it should have."),
        Column("Last Scale", ".status.lastScaleTime", "date"),
        Column("Reason", ".status.reason", priority=1),
    ),
    shown=("replicas", "desired", "reason", "metrics", "lastScaleTime", "memory"),
    adopts=True,
):
    """Keeps the number of replicas of something as its metrics ask for.

    It decides once an interval; between two decisions it stands by the last one. Who declares an autoscaler may have anything scaled
    in its namespace, and may learn numbers of the objects there, Secrets excepted. `allowed_hosts` are the only servers whose pages
    are read; default: none, for CEL needs none; None: all but link-local and the like, see `addresses`.
    """

    def __init__(self, allowed_hosts: Collection[str] | None = (), *, clock: Clock | None = None) -> None:
        self._hosts = Hosts(allowed_hosts)
        self._clock = clock or Clock()
        self._client: Client
        self._sources: Sources
        self._known: dict[Ref, _Kept] = {}
        self._bell = Bell()

    async def open(self, client: Client) -> None:
        self._client = client
        self._sources = Sources(client, self._hosts, self._clock)

    async def close(self) -> None:
        for ref in list(self._known):
            self.forget(ref)
        await self._sources.close()

    def forget(self, ref: Ref) -> None:
        kept = self._known.pop(ref, None)
        self._bell.forget(ref)
        if kept is not None and kept.timer is not None:
            kept.timer.cancel()

    def watch(self) -> AsyncIterator[Ref]:
        return self._bell.stream()

    def identity(self, spec: AutoscalerSpec, state: AutoscalerState) -> str:
        scale = self._known[current().ref].scale or {}
        return f"{spec.target.kind}/{spec.target.name}@{scale['metadata'].get('uid', '')}"

    def leaves(self, spec: AutoscalerSpec) -> bool:
        return True

    # Looking

    async def observe(self, spec: AutoscalerSpec) -> AutoscalerState | Absent:
        task = current()
        if task.deleting:
            return ABSENT  # nothing in the world is of the autoscaler itself: the target stays as it is
        kept = self._known.get(task.ref)
        if kept is None:
            kept = self._known[task.ref] = self._remembered(task)
        try:
            return await self._look(spec, task.ref, kept)
        finally:
            if kept.timer is None:
                seconds = spec.interval.total_seconds()
                kept.timer = asyncio.get_running_loop().call_later(seconds, self._ring, task.ref, kept)

    def _remembered(self, task: Task) -> _Kept:
        """What the status tells of the time before a restart."""
        scaled, loops = from_memory(task.shown)
        try:
            report = decode(AutoscalerState, task.shown) if task.shown.get("desired") is not None else None
        except InvalidSpec:
            report = None
        return _Kept(scaled, loops, report, self._clock.now())

    def _ring(self, ref: Ref, kept: _Kept) -> None:
        kept.due, kept.timer = True, None
        self._bell.ring(ref)

    async def _look(self, spec: AutoscalerSpec, ref: Ref, kept: _Kept) -> AutoscalerState:
        kept.scale = await self._scale(spec, ref.namespace)
        replicas = _replicas(kept.scale)
        decided = kept.outcome
        if (
            decided is None
            or kept.due
            or kept.spec != spec
            or replicas.current not in (kept.scaled.seen, decided.desired)
        ):
            decided = await self._decide(spec, ref, kept, replicas)
        kept.scaled = scaling_of(spec).look(kept.scaled, replicas.current, self._clock.now())
        if decided.blind is not None:
            raise Unreadable(decided.blind.reason)
        return self._report(spec, kept, decided, replicas.current)

    async def _decide(self, spec: AutoscalerSpec, ref: Ref, kept: _Kept, replicas: Replicas) -> Outcome:
        if kept.spec != spec:
            sources = self._sources.make(spec.metrics, ref.namespace)
            if kept.spec is not None:
                kept.loops = retuned(spec, kept.spec, kept.loops)
            kept.spec, kept.sources = spec, sources
        measured = await asyncio.gather(*(source.read() for source in kept.sources))
        outcome = decide(spec, kept.scaled, kept.loops, measured, replicas, self._clock.now())
        kept.scaled, kept.loops, kept.outcome, kept.due = outcome.scaled, dict(outcome.loops), outcome, False
        return outcome

    def _report(self, spec: AutoscalerSpec, kept: _Kept, decided: Outcome, replicas: int) -> AutoscalerState:
        """What is shown: the same as before until something changes, or enough time has passed while nothing is to be done.

        While something is, an approval may be under way for exactly what was shown.
        """
        now, before, done = self._clock.now(), kept.report, replicas == decided.desired
        met = digest(spec) if done else _met(before)
        changed = before is None or (before.replicas, before.desired, _met(before)) != (replicas, decided.desired, met)
        if changed or (done and not 0 <= now - kept.reported < REPORT_SECONDS):
            kept.reported = now
            kept.report = AutoscalerState(
                replicas=replicas,
                desired=decided.desired,
                reason=decided.reason,
                metrics=list(decided.metrics),
                last_scale_time=when(kept.scaled.moved),
                memory=to_memory(replace(decided, scaled=kept.scaled), met),
            )
        assert kept.report is not None
        return kept.report

    async def wanted(self, spec: AutoscalerSpec) -> AutoscalerState:
        decided = self._known[current().ref].outcome
        assert decided is not None
        return AutoscalerState(replicas=decided.desired)

    def attribute(self, spec: AutoscalerSpec, diff: Diff) -> Diff:
        """Once a declaration was met, it is what is measured that asks for other replicas: a repair, and no change to be tried out."""
        met = _met(self._known[current().ref].report) == digest(spec)
        return replace(diff, cause=Cause.DRIFT) if met else diff

    # The target

    async def _target(self, spec: AutoscalerSpec) -> Resource[dict[str, Any]]:
        target = spec.target
        kind = self._client.kind(target.api_version, target.kind)
        try:
            served = await kind.served()
        except ApiError as error:
            raise Unreadable(f"spec.target: {error.message}") from None
        if not served.namespaced:
            raise Forbidden(
                f"spec.target.kind: a {target.kind} is in no namespace, and only what is in that of the autoscaler is scaled"
            )
        return kind

    async def _scale(self, spec: AutoscalerSpec, namespace: str) -> dict[str, Any]:
        kind = await self._target(spec)
        try:
            return await kind.get(spec.target.name, namespace=namespace, subresource="scale")
        except ApiError as error:
            if error.code == 404:
                raise Unreadable(
                    f"spec.target: there is no {spec.target.kind} {spec.target.name} here that can be scaled"
                ) from None
            raise

    async def apply(self, spec: AutoscalerSpec, diff: Diff) -> None:
        task = current()
        kept = self._known[task.ref]
        assert kept.outcome is not None
        assert kept.scale is not None
        kind = await self._target(spec)
        same = {"uid": kept.scale["metadata"].get("uid"), "resourceVersion": kept.scale["metadata"]["resourceVersion"]}
        patch = {"metadata": same, "spec": {"replicas": kept.outcome.desired}}
        try:
            await kind.patch(
                spec.target.name, patch, namespace=task.ref.namespace, subresource="scale", field_manager=MANAGER
            )
        except ApiError as error:
            if error.reason == "Conflict":
                raise Moved("the target was written to in the meantime") from error
            raise

    async def delete(self, spec: AutoscalerSpec) -> None:
        """Nothing: the target stays as it is."""


def _met(report: AutoscalerState | None) -> str:
    """Which declaration was met last."""
    return "" if report is None or report.memory is None else str(report.memory.get("met", ""))


def _replicas(scale: dict[str, Any]) -> Replicas:
    wanted: int = (scale.get("spec") or {}).get("replicas") or 0
    return Replicas(wanted, (scale.get("status") or {}).get("replicas") or wanted)
