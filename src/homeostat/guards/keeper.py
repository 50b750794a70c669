"""Keeps the gate in step with what people declare: GuardPolicy and Approval objects, and what they are told in return.

A policy that cannot be read closes its gate: it observes. An approval is good once; when it was used, its object says so.
The default of a kind is an object too, so that people see its halts and can change it; it steps aside where another policy selects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta

from homeostat.client import Client, Key, Unreachable
from homeostat.guards.gate import DEFAULT, PolicyGate
from homeostat.guards.policy import GROUP, KIND, VERSION, GuardPolicy, Mode, definition, parse_policy
from homeostat.guards.status import status
from homeostat.loop.engine import Engine
from homeostat.loop.fleet import Fleet, Verdict
from homeostat.model.errors import ApiError
from homeostat.model.kinds import Column, InvalidSpec, KindInfo, Spec, crd_for, decode

log = logging.getLogger("homeostat.guards")

MANAGER = "homeostat-guards"
BUILT_IN = "homeostat.dev/built-in"
"""Label of the policy that is the default of the kind whose name it has."""
REPORT_SECONDS = 0.5
"""How long a change of a policy's status waits for the next, so that a busy wave is not a storm of writes."""


class ApprovalSpec(Spec):
    """A person's yes to one exact plan. It is used up when it lets that plan through."""

    plan: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    """The hash that the halt, `homeostat plan` and the runbook print."""
    reason: Annotated[str, Meta(max_length=1024)] = ""


class ApprovalStatus(Spec):
    """Whether it was used."""

    used: bool = False


APPROVAL_KIND = KindInfo(
    GROUP,
    VERSION,
    "Approval",
    ApprovalSpec,
    status=ApprovalStatus,
    scope="Cluster",
    categories=("homeostat",),
    columns=(Column("Plan", ".spec.plan"), Column("Used", ".status.used", "boolean")),
)


class Keeper:
    """Follows policies and approvals. Start it before the engine, and stop it after.

    `kinds` (plural and group) are those that get a default policy of their own to see.
    """

    def __init__(self, client: Client, gate: PolicyGate, kinds: Iterable[str] = ()) -> None:
        self._gate = gate
        self._kinds = tuple(kinds)
        self._engine: Engine | None = None
        self._definitions = client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        self._policies = client.kind(f"{GROUP}/{VERSION}", KIND)
        self._approvals = client.kind(APPROVAL_KIND.api_version, APPROVAL_KIND.kind)
        self._policy_copy = self._policies.informer()
        self._approval_copy = self._approvals.informer()
        self._spent: set[str] = set()  # plans whose approvals were used, not yet said so
        self._told: dict[str, tuple[Fleet, Verdict]] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        gate.listener = self._judged

    async def start(self) -> None:
        """Makes the kinds known and reads what there is."""
        for crd in (definition(), crd_for(APPROVAL_KIND)):
            await self._definitions.apply(crd, field_manager=MANAGER, force=True)
        for kind in self._kinds:
            await self._declare_default(kind)
        for copy, handler in ((self._policy_copy, self._policy_changed), (self._approval_copy, self._approval_changed)):
            copy.subscribe(handler)
            copy.start()
            await copy.wait_synced()
        self._task = asyncio.get_running_loop().create_task(self._report_forever(), name="guard reports")

    async def _declare_default(self, kind: str) -> None:
        try:
            await self._policies.apply(built_in_policy(kind, self._gate.mode), field_manager=MANAGER)
        except ApiError as error:
            if error.reason != "Conflict":  # a person has chosen otherwise, and it stays so
                raise

    def attach(self, engine: Engine) -> None:
        """Has an engine told when policies change."""
        self._engine = engine

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._policy_copy.stop()
        await self._approval_copy.stop()

    def _policy_changed(self, key: Key) -> None:
        obj = self._policy_copy.get(key.name)
        before = self._gate.policies.get(key.name), self._gate.built_in.get(key.name)
        if obj is None:
            self._gate.policies.pop(key.name, None)
            self._gate.built_in.pop(key.name, None)
        elif is_built_in(obj):
            self._gate.built_in[key.name] = readable_policy(obj)
        else:
            self._gate.policies[key.name] = readable_policy(obj)
        after = self._gate.policies.get(key.name), self._gate.built_in.get(key.name)
        if self._engine is not None and after != before:  # our own reports come by here too
            self._engine.regroup()

    def _approval_changed(self, key: Key) -> None:
        obj = self._approval_copy.get(key.name)
        if obj is None or (obj.get("status") or {}).get("used"):
            return
        plan = obj["spec"]["plan"]
        if plan not in self._spent:
            self._gate.approvals.add(plan)
            if self._engine is not None:
                self._engine.decide_all()

    # What people are told

    def _judged(self, fleet: Fleet, verdict: Verdict) -> None:
        self._spent |= verdict.used
        for name in self._gate.names(fleet) or (fleet.name.removeprefix(DEFAULT),):
            self._told[name] = (fleet, verdict)
        if self._told or verdict.used:
            self._wake.set()

    async def _report_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._report()
            except (ApiError, Unreachable) as error:
                log.warning("the guards' status could not be written, and will be again: %s", error)
                self._wake.set()
            await asyncio.sleep(REPORT_SECONDS)

    async def _report(self) -> None:
        for name, told in tuple(self._told.items()):
            await self._report_policy(name, *told)
            if self._told.get(name) is told:  # not before it was written: what failed is tried again
                del self._told[name]
        for obj in self._approval_copy.all():
            if obj["spec"]["plan"] in self._spent and not (obj.get("status") or {}).get("used"):
                patch = {"status": {"used": True}}
                await self._approvals.patch(
                    obj["metadata"]["name"], patch, subresource="status", field_manager=MANAGER
                )

    async def _report_policy(self, name: str, fleet: Fleet, verdict: Verdict) -> None:
        obj = self._policy_copy.get(name)
        if obj is None or self._engine is None:
            return
        policy = self._gate.policies.get(name) or self._gate.built_in.get(name)
        wanted = status(obj, policy or GuardPolicy(), fleet, verdict, self._engine.clock.now())
        if wanted != (obj.get("status") or {}):
            try:
                await self._policies.patch(name, {"status": wanted}, subresource="status", field_manager=MANAGER)
            except ApiError as error:
                if error.reason != "NotFound":
                    raise


def built_in_policy(kind: str, mode: Mode = Mode.OBSERVE) -> dict[str, Any]:
    """The default policy of a kind (plural and group), as an object that people can see and change."""
    return {
        "metadata": {"name": kind, "labels": {BUILT_IN: "true"}},
        "spec": {"fleet": {"kinds": [kind]}, "mode": str(mode)},
    }


def is_built_in(obj: Mapping[str, Any]) -> bool:
    """Whether a policy is the default of the kind whose name it has."""
    return BUILT_IN in (obj["metadata"].get("labels") or {})


def readable_policy(obj: dict[str, Any]) -> GuardPolicy:
    """The policy; where it cannot be read, one that selects what it can and only observes."""
    try:
        return parse_policy(obj)
    except InvalidSpec as error:
        log.error("GuardPolicy %s cannot be read, and only observes: %s", obj["metadata"]["name"], error)
        fleet = {"kinds": (obj.get("spec") or {}).get("fleet", {}).get("kinds", [])}
        try:
            return decode(GuardPolicy, {"fleet": fleet, "mode": str(Mode.OBSERVE)})
        except InvalidSpec:
            return GuardPolicy()
