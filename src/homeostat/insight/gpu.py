"""What the server says of GPUs at one moment, and what the governor would decide on it: the same functions, run where somebody asks.

It needs numpy (`homeostat[gpu]`): import it late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any

import msgspec

from homeostat.client import Client
from homeostat.gpu.controller.notes import FIELD, NAME
from homeostat.gpu.decisions import Constraint, Decision, Memory, Plan, Verb
from homeostat.gpu.governor import decide
from homeostat.gpu.kinds import NODE, POLICY, POOL, TENANT, WORKLOAD, GpuPolicySpec
from homeostat.gpu.objects import Reader
from homeostat.gpu.snapshot import Snapshot
from homeostat.guards.policy import GROUP, KIND, VERSION
from homeostat.insight.loops import NOBODY, clock_of, loops_of
from homeostat.loop.election import NAMESPACE
from homeostat.model.errors import ApiError
from homeostat.model.kinds import InvalidSpec, decode

Object = dict[str, Any]
LEASES = ("coordination.k8s.io/v1", "Lease")
"""Of nodes and loops, in `NAMESPACE`."""
READ = (TENANT, NODE, POOL, WORKLOAD)
"""The kinds that a snapshot is read from, beside leases."""
_NONSENSE = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)


class NoGpus(Exception):
    """Nothing can be told of GPUs; says why, and what to do."""


class Facts(msgspec.Struct):
    """All of it at one moment (`now`, wall seconds)."""

    now: float
    workloads: dict[str, Object]
    """By uid, as all that follow are by name."""
    tenants: dict[str, Object]
    nodes: dict[str, Object]
    snapshot: Snapshot
    policy: GpuPolicySpec
    memory: Memory
    plan: Plan
    halts: list[Object] = msgspec.field(default_factory=list)
    """What the guards halt among workloads now."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What could not be read, and the like: for people to know."""

    def name_of(self, uid: str) -> str:
        """`namespace/name`; the uid itself where it is gone."""
        obj = self.workloads.get(uid)
        return uid if obj is None else title(obj)

    def decision_on(self, uid: str) -> Decision | None:
        """What the next cycle would do to a workload; what is only said of it is not done to it."""
        mine = (one for one in self.plan.decisions if one.kind == "Workload" and one.subject == uid)
        return next((one for one in mine if one.verb not in (Verb.REPORT, Verb.WARN)), None)


def title(obj: Object) -> str:
    """As people name a workload."""
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}".lstrip("/")


def phase_of(workload: Object) -> str:
    """Where nobody said anything yet, it is pending."""
    return (workload.get("status") or {}).get("phase") or "Pending"


async def gather(client: Client) -> Facts:
    """Reads everything once and decides on it. `NoGpus` where the server knows nothing of GPUs, or what it knows makes no sense."""

    async def listed(api_version: str, kind: str, namespace: str = "") -> list[Object]:
        return list(await client.kind(api_version, kind).list(namespace=namespace))

    notes: list[str] = []
    try:
        found = await _all(listed(info.api_version, info.kind) for info in (*READ, POLICY))
    except ApiError as error:
        if error.code == 404:
            raise NoGpus(
                "this server knows nothing of GPUs yet: `homeostat up --allow gpu` shares them out, and `homeostat agent` joins a machine"
            ) from None
        raise
    leases = await _unless_forbidden(listed(*LEASES, NAMESPACE), "the nodes' heartbeats", notes)
    reader = Reader()
    for kind, objects in [*((info.kind, some) for info, some in zip(READ, found, strict=False)), ("Lease", leases)]:
        for obj in objects:
            put(reader, kind, obj, notes)
    return facts_of(
        reader,
        clock_of(leases, client.now()),
        tenants=found[0],
        nodes=found[1],
        workloads=found[3],
        policy=policy_of(found[4], notes),
        memory=await _memory(client, notes),
        halts=await _halts(client),
        notes=[*notes, *loop_notes(leases, client.now())],
    )


async def _all(asked: Iterable[Coroutine[Any, Any, list[Object]]]) -> list[list[Object]]:
    """What all of them give. Raises what the first of them raises, when the others have ended too: none asks on behind the back of who closes."""
    found = await asyncio.gather(*asked, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]


def put(reader: Reader, kind: str, obj: Object, notes: list[str]) -> None:
    """Has a reader read an object; one that cannot be read is left out, and told."""
    try:
        reader.put({**obj, "kind": kind})
    except _NONSENSE as error:
        notes.append(f"{kind} {obj['metadata']['name']} cannot be read and is left out: {error}")


def facts_of(
    reader: Reader,
    now: float,
    *,
    tenants: Iterable[Object],
    nodes: Iterable[Object],
    workloads: Iterable[Object],
    policy: GpuPolicySpec,
    memory: Memory,
    halts: list[Object],
    notes: list[str],
) -> Facts:
    """Decides on what a reader has read. `NoGpus` where nothing can be made of it."""
    try:
        snapshot = reader.snapshot(now)
        plan = decide(snapshot, policy, memory)
    except _NONSENSE as error:
        raise NoGpus(f"the governor's functions can make nothing of what the server has, and neither can the governor: {error}") from None
    return Facts(
        now=now,
        workloads={obj["metadata"]["uid"]: obj for obj in workloads},
        tenants={obj["metadata"]["name"]: obj for obj in tenants},
        nodes={obj["metadata"]["name"]: obj for obj in nodes},
        snapshot=snapshot,
        policy=policy,
        memory=memory,
        plan=plan,
        halts=halts,
        notes=[*notes, *stands_still(plan)],
    )


def stands_still(plan: Plan) -> list[str]:
    """That nothing at all is decided, for too many nodes are silent, and what helps."""
    said = [one.reason for one in plan.of(Verb.REPORT) if one.constraint is Constraint.OBSERVER]
    return [f"{reason}. Look after their agents; where they are gone for good: `kubectl delete gpunode NAME`" for reason in said]


def loop_notes(leases: list[Object], now: float) -> list[str]:
    """That no loop shares out GPUs, where that is so."""
    if not leases or loops_of(leases, clock_of(leases, now)).get(WORKLOAD.name, NOBODY).there:
        return []
    return ["no loop shares out GPUs at present, so nothing will happen: `homeostat up --allow gpu`, or `homeostat controllers --allow gpu`"]


def policy_of(policies: Iterable[Object], notes: list[str]) -> GpuPolicySpec:
    """The one that is in force."""
    spec = next((obj.get("spec") or {} for obj in policies if obj["metadata"]["name"] == "default"), {})
    try:
        return decode(GpuPolicySpec, spec)
    except InvalidSpec as error:
        notes.append(f"the GpuPolicy cannot be read, and all defaults are taken instead: {error}")
        return GpuPolicySpec()


def memory_of(notebook: Object | None, notes: list[str]) -> Memory:
    """What the governor wrote down of the past, which it does once a minute."""
    if notebook is None:
        return Memory()
    try:
        return msgspec.json.decode((notebook.get("data") or {})[FIELD], type=Memory)
    except (KeyError, msgspec.MsgspecError):
        notes.append("what the governor wrote down of the past makes no sense, and does not count here")
        return Memory()


def halts_of(policies: Iterable[Object]) -> list[Object]:
    """What the guards halt among workloads."""
    mine = [one for one in policies if WORKLOAD.name in (one["spec"].get("fleet", {}).get("kinds") or ())]
    return [halt for one in mine for halt in (one.get("status") or {}).get("halts") or ()]


async def _unless_forbidden(work: Awaitable[list[Object]], what: str, notes: list[str]) -> list[Object]:
    try:
        return await work
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        notes.append(f"{what} cannot be read ({error.message}): what is said here is less exact")
        return []


async def _memory(client: Client, notes: list[str]) -> Memory:
    try:
        return memory_of(await client.kind("v1", "ConfigMap", namespace=NAMESPACE).get(NAME), notes)
    except ApiError as error:
        if error.code == 403:
            notes.append("past use cannot be read, and does not count here: the order may differ from the governor's")
        elif error.code != 404:
            raise
    return Memory()


async def _halts(client: Client) -> list[Object]:
    try:
        return halts_of(await client.kind(f"{GROUP}/{VERSION}", KIND).list())
    except ApiError as error:
        if error.code in (403, 404):
            return []
        raise
