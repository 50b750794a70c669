"""Objects go back to what they were: as a plan that is shown, judged by the guards, and written as a change set of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from homeostat.insight.planning import (
    Document,
    Plan,
    Step,
    creation,
    difference,
    established,
    new_change_set,
    sensitive_of,
)
from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Cause, Op
from homeostat.loop.returned import put_back, returned
from homeostat.model.errors import ApiError
from homeostat.model.protocol import DELETION_CHANGE_SET
from homeostat.sources.kinds import API, SYNC_LABEL, SYNC_NAME

if TYPE_CHECKING:
    from homeostat.client import Client

Object = dict[str, Any]

MANAGER = "homeostat-rollback"
"""The field manager of what is taken back. Fields that it owns hold: who applies something else is told of the conflict."""
AT_ONCE = 16
"""Objects that are asked about, or written, at a time."""
_DEFINITION = "CustomResourceDefinition"


class Target(msgspec.Struct, frozen=True):
    """One object, and what it is to be again; None where it was not there."""

    api_version: str
    kind: str
    namespace: str
    name: str
    wanted: Object | None
    source: str = ""


async def plan_return(
    client: Client, targets: Sequence[Target], *, command: str = "rollback", done: Callable[[], None] = lambda: None
) -> Plan:
    """What has to be written so that each is as it was. Refusals stand at their steps; nothing is written."""
    plan = Plan(new_change_set(command))
    coming = [t for t in targets if t.wanted is not None]
    namespaces = {t.name for t in coming if t.kind == "Namespace"}
    kinds = {_defined(t.wanted) for t in coming if t.kind == _DEFINITION}
    turns = asyncio.Semaphore(AT_ONCE)

    async def step(target: Target) -> Step:
        async with turns:
            asked = await _step(client, target, namespaces, kinds)
        done()
        return asked

    plan.steps = list(await asyncio.gather(*map(step, targets)))
    known: dict[str, Any] = {}
    for changed in plan.changes:
        changed.sensitive = await sensitive_of(client, changed, known)
    return plan


def _defined(definition: Object | None) -> tuple[str, str]:
    spec = (definition or {}).get("spec") or {}
    return spec.get("group", ""), (spec.get("names") or {}).get("kind", "")


async def _step(client: Client, target: Target, namespaces: set[str], kinds: set[tuple[str, str]]) -> Step:
    shell = {"apiVersion": target.api_version, "kind": target.kind, "metadata": {"name": target.name}}
    step = Step(Document(target.wanted or shell, target.source), target.namespace)
    handle = client.kind(target.api_version, target.kind)
    try:
        step.served = await handle.served()
        step.live = await _live(client, target)
        step.diff = await _asked(client, target, step)
        if step.diff and step.live is not None and (keeper := await keeper_of(client, step.live)):
            step.error = f"{keeper} keeps it, and would undo this at once: {_way_back(keeper)}, or commit what you want"
    except ApiError as error:
        comes = target.namespace in namespaces or (target.api_version.rpartition("/")[0], target.kind) in kinds
        if target.wanted is not None and error.code == 404 and comes:
            step.diff = creation(target.wanted)
        elif target.wanted is not None or error.code != 404:
            step.error = error.message
    return step


async def keeper_of(client: Client, obj: Object) -> str:
    """`Sync default/shop`, where one declares the object: what is written over that does not hold. Empty where none does."""
    metadata = obj["metadata"]
    uid, (namespace, _, name) = (metadata.get("labels") or {}).get(SYNC_LABEL), (metadata.get("annotations") or {}).get(SYNC_NAME, "").partition("/")
    if not uid or not name:
        return ""
    try:
        sync = await client.kind(API, "Sync").get(name, namespace=namespace)
    except ApiError as error:
        if error.code != 404:
            raise
        return ""
    return f"Sync {namespace}/{name}" if sync["metadata"]["uid"] == uid else ""


def _way_back(keeper: str) -> str:
    namespace, _, name = keeper.removeprefix("Sync ").partition("/")
    return f"`homeostat rollback sync {name} -n {namespace}` takes all of it back"


async def _live(client: Client, target: Target) -> Object | None:
    try:
        return await client.kind(target.api_version, target.kind).get(target.name, namespace=target.namespace)
    except ApiError as error:
        if error.code == 404:
            return None
        raise


async def _asked(client: Client, target: Target, step: Step) -> Diff:
    """What the server would make of it."""
    from homeostat.loop.diff import NOTHING

    handle = client.kind(target.api_version, target.kind)
    live = step.live
    if live is not None and "deletionTimestamp" in live["metadata"]:
        if target.wanted is None:
            return NOTHING
        raise ApiError(409, "Conflict", "it is being deleted: wait until it is gone, and do this again")
    if target.wanted is None:
        if live is None:
            return NOTHING
        step.document = Document(live, step.document.source)
        return Diff(Op.DELETE, (), Cause.INTENT)
    body = returned(target.wanted, live, "")
    if live is None:
        step.would = await handle.create(body, namespace=target.namespace, dry_run=True, field_manager=MANAGER)
        return creation(step.would)
    if difference(live, body) is NOTHING:
        return NOTHING
    step.would = await _replace(client, step, target.wanted, "", dry_run=True)
    return difference(live, step.would)


async def _replace(client: Client, step: Step, wanted: Object, change_set: str, *, dry_run: bool = False) -> Object:
    """Writes over what the plan was made from."""
    handle = client.kind(step.document.api_version, step.document.kind)
    assert step.live is not None
    return await put_back(
        handle, wanted, step.live, change_set, manager=MANAGER, namespace=step.namespace, dry_run=dry_run
    )


async def carry_back(client: Client, plan: Plan, *, done: Callable[[], None] = lambda: None) -> list[Step]:
    """Writes the plan, rank by rank, and gives the steps that failed, each with its error. `done` is called for each that was tried."""
    failed: list[Step] = []
    turns = asyncio.Semaphore(AT_ONCE)

    async def write(step: Step) -> None:
        async with turns:
            await _write(client, plan, step)
        done()

    for rank in sorted({step.rank for step in plan.changes}):
        now = [step for step in plan.changes if step.rank == rank]
        await asyncio.gather(*map(write, now))
        failed += [step for step in now if step.error]
        await established(client, [s.document.name for s in now if not s.error and s.document.kind == _DEFINITION])
    return failed


async def _write(client: Client, plan: Plan, step: Step) -> None:
    document = step.document
    handle = client.kind(document.api_version, document.kind)
    try:
        if step.op is Op.DELETE:
            assert step.live is not None
            same = {"uid": step.live["metadata"]["uid"]}
            note = {"metadata": {**same, "annotations": {DELETION_CHANGE_SET: plan.change_set}}}
            await handle.patch(document.name, note, namespace=step.namespace, field_manager=MANAGER)
            await handle.delete(document.name, namespace=step.namespace, **same)
        elif step.op is Op.CREATE:
            body = returned(document.obj, None, plan.change_set)
            await handle.create(body, namespace=step.namespace, field_manager=MANAGER)
        else:
            await _replace(client, step, document.obj, plan.change_set)
    except ApiError as error:
        step.error = error.message
