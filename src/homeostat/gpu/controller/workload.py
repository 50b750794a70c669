"""Workloads under the loop: what is wanted of one is what the governor last decided, and agents do it once it is written down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from msgspec import structs

from homeostat.client import Client
from homeostat.gpu.controller.governing import Governor
from homeostat.gpu.controller.lane import Lane
from homeostat.gpu.controller.standing import WorkloadState, is_displaced, keeps_state, lagging
from homeostat.gpu.decisions import Constraint
from homeostat.gpu.kinds import GROUP, NODE, POLICY, POOL, TENANT, WORKLOAD, WorkloadSpec, WorkloadStatus
from homeostat.gpu.kinds import Phase as Stage
from homeostat.loop.controller import MANAGER
from homeostat.loop.definitions import define
from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Cause, Ref
from homeostat.loop.provider import Provider, current
from homeostat.model.clock import Clock
from homeostat.model.kinds import KindInfo, crd_for, schema_of
from homeostat.model.kinds.definition import status_schema
from homeostat.model.protocol import DELETION_CHANGE_SET

_OWN_GROUND = (Constraint.STOPPED, Constraint.NONE)
"""Reasons that are the workload's own: it belongs to whatever wrote it last."""


class Workload(Provider[WorkloadSpec, WorkloadState]):
    """A job, or a service, on GPUs.

    To place and to resume one harms nothing that is at work, and counts as a creation; so does going on elsewhere after its node was
    lost. To suspend, to move and to end one are changes, and the fleet that limits are a share of is what runs, and what is deleted while it
    is suspended with its state.
    """

    # Beside what people are told, the status has what the loop remembers. What is placed is held: the loop lets it go.
    info: ClassVar[KindInfo] = replace(
        WORKLOAD, status={**status_schema(WorkloadStatus), "x-kubernetes-preserve-unknown-fields": True}, held_by="assignment"
    )
    state_type = WorkloadState
    contested = False
    adopts = True
    journaled = False
    controller = Lane
    beside = frozenset(schema_of(WorkloadStatus)["properties"])

    def __init__(self, clock: Clock | None = None) -> None:
        self._governor = Governor(clock or Clock())
        self._asked: dict[str, WorkloadState] = {}  # by uid: what was last said to be wanted

    @property
    def governor(self) -> Governor:
        """Who decides, for the providers of nodes and pools as well."""
        return self._governor

    async def open(self, client: Client) -> None:
        for info in (TENANT, NODE, POOL, POLICY, self.info):
            await define(client, crd_for(info), MANAGER)
        self._governor.start(client)

    async def close(self) -> None:
        await self._governor.stop()

    def forget(self, ref: Ref) -> None:
        self._asked.pop(ref.uid, None)
        self._governor.bell.forget(ref)

    def watch(self) -> AsyncIterator[Ref]:
        return self._governor.bell.stream()

    async def observe(self, spec: WorkloadSpec) -> WorkloadState:
        await self._governor.ready()
        return self._governor.known.state(current().ref)

    async def wanted(self, spec: WorkloadSpec) -> WorkloadState:
        ref = current().ref
        self._governor.check_fresh()
        return self.ask(ref, self._governor.known.state(ref))

    def ask(self, ref: Ref, state: WorkloadState) -> WorkloadState:
        """What is wanted of a workload that stands like this."""
        wish = self._governor.wishes.get(ref.uid)
        self._governor.take_up(ref.uid)
        found = self._asked[ref.uid] = wish.target if wish is not None and wish.basis == state else state
        return found

    def asked(self, ref: Ref) -> WorkloadState:
        """What was last said to be wanted."""
        return self._asked[ref.uid]

    async def apply(self, spec: WorkloadSpec, diff: Diff) -> None:
        await self._governor.carry_out(current().ref, self.asked(current().ref))

    async def unhealthy(self, spec: WorkloadSpec, state: WorkloadState) -> str:
        task = current()
        return lagging(self._governor.known.status(task.ref), self._governor.lost, deleting=task.deleting)

    def leaves(self, spec: WorkloadSpec) -> bool:
        """Agents end what is deleted once it is at work no more; it is let go when none of them has a process of it."""
        return True

    def harmless(self, spec: WorkloadSpec, diff: Diff) -> bool:
        ref = current().ref
        if self._loses_state():
            return False
        return self._governor.known.state(ref).phase is not Stage.RUNNING or is_displaced(self._governor.known.status(ref), self._governor.lost)

    def holds(self, declaration: Mapping[str, Any]) -> bool:
        """One that only waits may go at once: nothing of it is anywhere."""
        return bool((declaration.get("status") or {}).get("assignment"))

    def tells(self, declaration: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._governor.says(declaration, status)

    def counts(self, spec: WorkloadSpec, state: WorkloadState) -> bool:
        return state.phase is Stage.RUNNING or self._loses_state()

    def _loses_state(self) -> bool:
        """Whether it is deleted while it lies suspended: to end it is to lose what it has done, as of one that runs."""
        task = current()
        return task.deleting and keeps_state(self._governor.known.status(task.ref), self._governor.lost)

    def attribute(self, spec: WorkloadSpec, diff: Diff) -> Diff:
        """Where a node was lost, nobody meant it: it is a repair."""
        displaced = is_displaced(self._governor.known.status(current().ref), self._governor.lost)
        return structs.replace(diff, cause=Cause.DRIFT) if displaced else diff

    def change_set(self, spec: WorkloadSpec, diff: Diff) -> str:
        """One decision of the governor: all that a quota as it stands now takes back is judged as one.

        Deletions that name no change set are each its own: people who share GPUs end their work all day, and have nothing to do with each
        other. Only how many are open at once counts.
        """
        task = current()
        if task.deleting:
            return "" if DELETION_CHANGE_SET in task.annotations else f"{GROUP}/deleted/{task.ref.uid}"
        wish = self._governor.wishes.get(task.ref.uid)
        if wish is None or wish.decision.constraint in _OWN_GROUND:
            return ""
        return f"{GROUP}/{wish.decision.constraint}/{spec.tenant}@{self._governor.generation(spec.tenant)}"
