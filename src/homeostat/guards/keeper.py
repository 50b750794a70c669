"""Keeps the gate in step with what people declare: GuardPolicy and Approval objects, and what they are told in return.

A policy that cannot be read closes its gate: it observes. An approval is good once; when it was used, its object says so.
The default of a kind is an object too, so that people see its halts and can change it; it steps aside where another policy selects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from homeostat.client import Client, Key, Unreachable
from homeostat.guards.gate import DEFAULT, PolicyGate
from homeostat.guards.grants import Carried
from homeostat.guards.policy import GROUP, KIND, VERSION, GuardPolicy, Mode, definition, parse_policy
from homeostat.guards.returning import Returning
from homeostat.guards.status import status
from homeostat.loop.changesets import last_write
from homeostat.loop.definitions import define
from homeostat.loop.engine import Engine
from homeostat.loop.fleet import Fleet, Grant, Verdict
from homeostat.model.errors import ApiError
from homeostat.model.kinds import Column, InvalidSpec, KindInfo, Rule, Spec, crd_for, decode
from homeostat.model.protocol import CHANGE_SET_NAME

if TYPE_CHECKING:
    from homeostat.guards.telling import Telling

log = logging.getLogger("homeostat.guards")

MANAGER = "homeostat-guards"
BUILT_IN = "homeostat.dev/built-in"
"""Label of the policy that is the default of the kind whose name it has."""
REMEMBERED_SECONDS = 86400.0
"""For so long after a restart the change set is asked about that changed a policy."""
SELECTED_SECONDS = 2.0
"""So long after a policy changed it is told when it selects nothing, and later where all is still being looked at."""
REPORT_SECONDS = 0.5
"""How long a change of a policy's status waits for the next, so that a busy wave is not a storm of writes."""


Many = Annotated[int, Meta(ge=0)]


class Counts(Spec):
    """How many existing things of a kind."""

    changes: Many = 0
    deletions: Many = 0


class ChangeSetApproval(Spec):
    """What a change set may do, as its author was shown it."""

    name: Annotated[str, Meta(pattern=CHANGE_SET_NAME)]
    """As `homeostat apply` and `homeostat history` print it."""
    kinds: Annotated[dict[str, Counts], Meta(min_length=1, max_length=64)]
    """By plural and group, such as `files.files.homeostat.dev`. What has more than this is not covered."""


class ApprovalSpec(Spec):
    """A person's yes to one exact plan, or to a change set that is about to come. It is good once."""

    plan: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")] | None = None
    """The hash that the halt, `homeostat plan` and the runbook print. It is used up when it lets that plan through."""
    change_set: ChangeSetApproval | None = None
    """Covers the change set as it comes in. It counts as used from the first that it lets through."""
    reason: Annotated[str, Meta(max_length=1024)] = ""

    rules = [Rule("!has(self.plan) || !has(self.changeSet)", message="an approval is for a plan or for a changeSet, not for both")]


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
    columns=(Column("Plan", ".spec.plan"), Column("Change Set", ".spec.changeSet.name"), Column("Used", ".status.used", "boolean")),
)


class Keeper:
    """Follows policies and approvals. Start it before the engine, and stop it after.

    `kinds` (plural and group) are those that get a default policy of their own to see.
    """

    def __init__(self, client: Client, gate: PolicyGate, kinds: Iterable[str] = ()) -> None:
        self._gate = gate
        self._kinds = tuple(kinds)
        self._engine: Engine | None = None
        self._client = client
        self._policies = client.kind(f"{GROUP}/{VERSION}", KIND)
        self._approvals = client.kind(APPROVAL_KIND.api_version, APPROVAL_KIND.kind)
        self._policy_copy = self._policies.informer()
        self._approval_copy = self._approvals.informer()
        self._spent: set[str] = set()  # approvals that were used, by uid: the same plan may be approved anew
        self._told: set[str] = set()  # policies of which there is something new to tell
        self._unreadable: dict[str, str] = {}  # policies that cannot be read, and why
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._selecting: set[asyncio.Task[None]] = set()
        self._last: dict[str, dict[str, tuple[Fleet, Verdict]]] = {}  # by policy and fleet
        self.telling: Telling | None = None
        """Who tells people, once it is attached; it ends with the keeper."""
        self._returning = Returning(client, gate, self)
        gate.listener = self._judged

    async def start(self) -> None:
        """Makes the kinds known and reads what there is."""
        for crd in (definition(), crd_for(APPROVAL_KIND)):
            await define(self._client, crd, MANAGER)
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
        self._returning.engine = engine
        for obj in self._policy_copy.all() if self._task is not None else ():  # else each comes by as it is read
            self._remember(obj["metadata"]["name"], obj, None)

    async def stop(self) -> None:
        tasks = [*self._selecting, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._returning.stop()
        if self.telling is not None:
            await self.telling.stop()
        await self._policy_copy.stop()
        await self._approval_copy.stop()

    def _policy_changed(self, key: Key) -> None:
        obj = self._policy_copy.get(key.name)
        before = self._gate.policies.get(key.name), self._gate.built_in.get(key.name)
        self._note_unreadable(key.name, obj)
        self._returning.restore(key.name)
        if obj is None:
            self._gate.policies.pop(key.name, None)
            self._gate.built_in.pop(key.name, None)
        elif is_built_in(obj):
            self._gate.built_in[key.name] = readable_policy(obj)
        else:
            self._gate.policies[key.name] = readable_policy(obj)
        after = self._gate.policies.get(key.name), self._gate.built_in.get(key.name)
        if self._engine is not None and after != before:  # our own reports come by here too
            self._remember(key.name, obj, before[0] or before[1])
            self._engine.regroup()
        if key.name in self._gate.policies and after != before:
            telling = asyncio.get_running_loop().create_task(self._tell_selected(key.name), name="what a policy selects")
            self._selecting.add(telling)
            telling.add_done_callback(self._selecting.discard)

    async def _tell_selected(self, name: str) -> None:
        """Has it told, once all was looked at, whether a policy selects anything: who mistyped a label believes that it guards."""
        await asyncio.sleep(SELECTED_SECONDS)
        while self._engine is None or self._engine.passes.under_way:
            await asyncio.sleep(SELECTED_SECONDS)
        self._told.add(name)
        self._wake.set()

    def _remember(self, name: str, obj: dict[str, Any] | None, before: GuardPolicy | None) -> None:
        """What a policy was counts, too, for the change set that changed it: a commit must not open its own gate. Where nobody knows what
        it was, as after a restart, the defaults count. Writes that nobody put together by a name stand for themselves."""
        known = self._gate.replaced.pop(name, None)
        if obj is None or self._engine is None or (before is None and not self._is_new(obj, self._engine.clock.now())):
            return
        change_set = last_write(obj["metadata"]).name
        if change_set:
            first = known[0] if known is not None and known[1] == change_set else before
            self._gate.replaced[name] = (first or GuardPolicy(), change_set)

    @staticmethod
    def _is_new(obj: dict[str, Any], now: float) -> bool:
        return not is_built_in(obj) and last_write(obj["metadata"]).at > now - REMEMBERED_SECONDS

    def _note_unreadable(self, name: str, obj: dict[str, Any] | None) -> None:
        problem = problem_of(obj) if obj is not None else ""
        if problem != self._unreadable.get(name, ""):
            self._unreadable[name] = problem
            self._told.add(name)
            self._wake.set()

    def _approval_changed(self, key: Key) -> None:
        """What is approved is what the objects say now: one that was taken back, or used, is good for nothing any more."""
        there = {obj["metadata"]["uid"]: obj for obj in self._approval_copy.all()}
        unused = {
            uid: obj["spec"]
            for uid, obj in there.items()
            if uid not in self._spent and not (obj.get("status") or {}).get("used")
        }
        before, carried = self._gate.approvals, self._gate.grants.carried
        self._gate.approvals = {spec["plan"] for spec in unused.values() if "plan" in spec}
        fresh = {uid: _carried(spec["changeSet"]) for uid, spec in unused.items() if "changeSet" in spec and uid not in carried}
        self._gate.grants.carried = {uid: one for uid, one in carried.items() if uid in there} | fresh
        if self._engine is not None and (fresh or self._gate.approvals - before):
            self._engine.decide_all()

    # What people are told

    def _judged(self, fleet: Fleet, verdict: Verdict) -> None:
        if verdict.used:
            of_them = (obj for obj in self._approval_copy.all() if obj["spec"].get("plan") in verdict.used)
            self._spent.update(obj["metadata"]["uid"] for obj in of_them)
        self._spent.update(self._gate.grants.used())
        names = self._gate.names(fleet) or (fleet.name.removeprefix(DEFAULT),)
        for name in names:
            self._last.setdefault(name, {})[fleet.name] = (fleet, verdict)
            self._told.add(name)
        self._wake.set()
        self._returning.judged(fleet, verdict, names)

    def policy(self, name: str) -> dict[str, Any] | None:
        """A policy as an object, as it was seen last."""
        return self._policy_copy.get(name)

    def report_again(self, name: str) -> None:
        """What people were told of a policy's fleets has changed."""
        if name in self._last:
            self._told.add(name)
            self._wake.set()

    async def _report_forever(self) -> None:
        said = ""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._report()
                said = ""
            except (ApiError, Unreachable) as error:
                if str(error) != said:  # once, not at each of the tries
                    log.warning("the guards' status could not be written, and will be again: %s", error)
                said = str(error)
                self._wake.set()
            await asyncio.sleep(REPORT_SECONDS)

    async def _report(self) -> None:
        for name in sorted(self._told):
            self._told.discard(name)
            try:
                await self._report_policy(name)
            except BaseException:
                self._told.add(name)
                raise
        for obj in self._approval_copy.all():
            if obj["metadata"]["uid"] in self._spent and not (obj.get("status") or {}).get("used"):
                patch = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": {"used": True}}
                await self._approvals.patch(
                    obj["metadata"]["name"], patch, subresource="status", field_manager=MANAGER
                )

    async def _report_policy(self, name: str) -> None:
        obj, last = self._policy_copy.get(name), self._last.get(name, {})
        if obj is None and DEFAULT + name in last:  # of a kind that came up later, as those of composed children do
            await self._declare_default(name)
            self.report_again(name)
        if obj is None or self._engine is None:
            return
        policy = self._gate.policies.get(name) or self._gate.built_in.get(name)
        judged, problem = [last[fleet] for fleet in sorted(last)], self._unreadable.get(name, "")
        selects = is_built_in(obj) or any(fleet.size for fleet, _ in judged)
        wanted = status(obj, policy or GuardPolicy(), judged, self._engine.clock.now(), self._gate.broken(name), problem, selects=selects)
        wanted["returns"] = self._returning.shown(name)
        if self.telling is not None:
            wanted = self.telling.alerts.show(name, wanted)
        if wanted != (obj.get("status") or {}):
            try:
                await self._policies.patch(name, {"status": wanted}, subresource="status", field_manager=MANAGER)
            except ApiError as error:
                if error.reason != "NotFound":
                    raise


def _carried(said: Mapping[str, Any]) -> Carried:
    kinds = {kind: decode(Counts, counts) for kind, counts in said["kinds"].items()}
    return Carried(said["name"], {kind: Grant(counts.changes, counts.deletions) for kind, counts in kinds.items()})


def built_in_policy(kind: str, mode: Mode = Mode.OBSERVE) -> dict[str, Any]:
    """The default policy of a kind (plural and group), as an object that people can see and change."""
    return {
        "metadata": {"name": kind, "labels": {BUILT_IN: "true"}},
        "spec": {"fleet": {"kinds": [kind]}, "mode": str(mode)},
    }


def is_built_in(obj: Mapping[str, Any]) -> bool:
    """Whether a policy is the default of the kind whose name it has."""
    return BUILT_IN in (obj["metadata"].get("labels") or {})


def problem_of(obj: dict[str, Any]) -> str:
    """Why a policy cannot be read; empty where it can."""
    try:
        parse_policy(obj)
    except InvalidSpec as error:
        return str(error)
    return ""


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
