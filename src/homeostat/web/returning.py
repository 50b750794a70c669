"""The way back from the page: a plan that is shown first, and then exactly that plan, written as who is signed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import orjson
from xxhash import xxh3_64_hexdigest

from homeostat.client import Client
from homeostat.insight.changesets import targets_before, touched
from homeostat.insight.planned import guards_on, plan_data
from homeostat.insight.planning import Document, Plan, Step, creation, difference, sensitive_of
from homeostat.insight.returning import Target, carry_back, plan_return
from homeostat.loop.returned import declared_of
from homeostat.model.errors import ApiError, bad_request

Object = dict[str, Any]


class Asked(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """An object and the revision it goes back to, or a change set that never was. `shown` is the plan that the person said yes to."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    revision: int = 0
    since: int = 0
    change_set: str = ""
    shown: str = ""


def asked_of(body: bytes) -> Asked:
    """400 where it cannot be understood."""
    try:
        asked = msgspec.json.decode(body, type=Asked)
    except msgspec.DecodeError as error:
        raise bad_request(f"what to go back to cannot be read: {error}") from None
    if not asked.change_set and not (asked.api_version and asked.kind and asked.name and asked.revision):
        raise bad_request("say which object (apiVersion, kind, name) goes back to which revision, or which changeSet")
    return asked


async def go_back(client: Client, asked: Asked, writer: Callable[[str], Client]) -> Object:
    """The plan as data, with its `shown`. Where `asked.shown` is that, it is written; where something moved meanwhile, nothing is (409).

    `writer` gives a client of the same person whose writes name a change set.
    """
    plan = await plan_return(client, await _targets(client, asked), command="rollback")
    if plan.errors:
        lines = "; ".join(f"{step.title}: {step.error}" for step in plan.errors)
        raise ApiError(409, "Conflict", f"the server refuses it, so nothing was done: {lines}")
    verdicts = await guards_on(client, plan)
    told = plan_data(plan, verdicts)
    told["shown"] = _fingerprint(plan, told["actions"])
    if not asked.shown:
        return told
    if asked.shown != told["shown"]:
        raise ApiError(409, "Conflict", "something moved since this plan was shown, so nothing was done: look at it again")
    async with writer(plan.change_set) as writing:
        failed = await carry_back(writing, plan)
    return told | {"failed": [{"object": step.title, "error": step.error} for step in failed], "written": True}


def _fingerprint(plan: Plan, actions: Sequence[Object]) -> str:
    """Of what would be written over what: the lines alone would not do, for secrets are masked in them."""
    bodies = [[None if obj is None else declared_of(obj) for obj in (step.live, step.document.obj)] for step in plan.changes]
    return xxh3_64_hexdigest(orjson.dumps([actions, bodies], option=orjson.OPT_SORT_KEYS))


async def _targets(client: Client, asked: Asked) -> list[Target]:
    if not asked.change_set:
        wanted = await _at(client, asked, asked.revision)
        if wanted is None:
            raise ApiError(404, "NotFound", f"{asked.kind} {asked.name} was not there at revision {asked.revision}")
        return [Target(asked.api_version, asked.kind, asked.namespace, asked.name, wanted, f"revision {asked.revision}")]
    items = await touched(client, asked.change_set)
    if not items:
        raise ApiError(404, "NotFound", f"nothing is known of a change set {asked.change_set}")
    moved = [f"{item['kind']} {item['name']}" for item in items if item["changedSince"]]
    if moved:
        raise ApiError(409, "Conflict", f"declared otherwise since by somebody else: {', '.join(moved)}. Roll the others back one by one")
    return targets_before(asked.change_set, items)


async def _at(client: Client, asked: Asked, revision: int) -> Object | None:
    served = await client.kind(asked.api_version, asked.kind).served()
    try:
        found: Object = (await client.request("GET", served.path(asked.namespace, asked.name), {"at": str(revision)})).json()
    except ApiError as error:
        if error.code == 404:
            return None
        raise
    return found


async def compare(client: Client, asked: Asked) -> Object:
    """What was declared otherwise at `revision` than at `since`: a line a field, secrets masked."""
    old, new = await _at(client, asked, asked.since), await _at(client, asked, asked.revision)
    some = new or old
    if some is None:
        raise ApiError(404, "NotFound", f"{asked.kind} {asked.name} was there at neither revision")
    step = Step(Document(some, ""), asked.namespace, await client.kind(asked.api_version, asked.kind).served())
    step.sensitive = await sensitive_of(client, step, {})
    if new is None:
        return {"lines": [], "words": f"it was not there at revision {asked.revision}"}
    step.diff = creation(new) if old is None else difference(old, new)
    return {"lines": step.lines(), "words": "" if step.diff.op else "both declare the same"}
