"""What a plan leads to below the objects that it writes: asked of the composers at hand, else of those that run in the server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec

from homeostat.client import Unreachable
from homeostat.guards.policy import GROUP, Mode
from homeostat.insight.below import NOBODY, Answer, Below, Foresight
from homeostat.loop.fleet import Op
from homeostat.model.errors import ApiError
from homeostat.model.protocol import CHILDREN_PATH

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.insight.planning import Plan, Step

BATCH = 20
"""Parents that are asked about by one request."""
ANSWER_SECONDS = 60.0
"""So long an answer may take: a parent may have thousands of children."""

Object = dict[str, Any]


class Parent(msgspec.Struct):
    """A parent as it would be, or (`gone`) as it is before it goes."""

    object: Object
    gone: bool = False


class Question(msgspec.Struct):
    """What a server is asked."""

    parents: list[Parent]


class Reply(msgspec.Struct):
    """What it answers: of each parent in turn. `mode` is that of kinds that nobody has chosen one for."""

    answers: list[Answer]
    mode: Mode


async def foresee(client: Client, plan: Plan, parents: Sequence[Step], own: Foresight | None) -> Mode | None:
    """Enters what the plan does to what these steps declare. Gives the mode of kinds that nobody has chosen one for, where that was told."""
    here = [step for step in parents if own is not None and own.knows(step.document.api_version, step.document.kind)]
    there = [step for step in parents if step not in here]
    found: list[tuple[Step, Answer]] = []
    for step in here:
        assert own is not None
        parent = _parent(step)
        found.append((step, await own.of(parent.object, gone=parent.gone)))
    mode = None
    batches = [there[start : start + BATCH] for start in range(0, len(there), BATCH)]
    for steps, reply in zip(batches, await asyncio.gather(*(_ask(client, steps) for steps in batches)), strict=True):
        found += zip(steps, reply.answers, strict=True)
        mode = reply.mode if any(answer.asked for answer in reply.answers) else mode
    for step, answer in found:
        plan.below += answer.children
        if note := _note(step, answer):
            plan.notes.append(note)
    plan.notes += _contested(plan.below)
    return mode


def _contested(below: Sequence[Below]) -> list[str]:
    """Says which children several parents want. The first of them gets it, and finds it not to be the others': they are entered as it will be."""
    wanted: dict[tuple[str, str, str], list[Below]] = {}
    for one in below:
        if one.op is not Op.DELETE:
            wanted.setdefault((one.resource, one.namespace, one.name), []).append(one)
    notes = []
    for first, *others in wanted.values():
        for one in others:
            one.op, one.owned, one.changes = Op.UPDATE, False, []
            one.by_uid = one.declared_by if one.by_uid == NOBODY else one.by_uid  # several that are not there yet
        if others:
            whose = ", ".join(one.declared_by for one in (first, *others))
            notes.append(f"{first.title} is wanted by {whose}: one of them gets it, and the rest stop there. Give it another name in each")
    return notes


async def _ask(client: Client, steps: Sequence[Step]) -> Reply:
    question, patient = Question([_parent(step) for step in steps]), copy(client)
    patient.timeout = ANSWER_SECONDS
    try:
        answered = await patient.request("POST", CHILDREN_PATH, body=msgspec.json.encode(question))
    except Unreachable as error:
        return Reply([Answer(problem=str(error)) for _ in steps], Mode.OBSERVE)
    except ApiError as error:
        if error.code not in (403, 404, 405):  # another API server, or one without a loop
            raise
        return Reply([Answer(asked=False) for _ in steps], Mode.OBSERVE)
    return msgspec.json.decode(answered.body, type=Reply)


def _parent(step: Step) -> Parent:
    if step.op is Op.DELETE:
        return Parent(step.live or step.document.obj, gone=True)
    obj = step.would or step.document.obj
    if step.namespace:
        obj = {**obj, "metadata": {**obj["metadata"], "namespace": step.namespace}}
    return Parent(obj)


def _note(step: Step, answer: Answer) -> str:
    if answer.problem:
        what = f"a part of what {step.title} leads to" if answer.children else f"what {step.title} declares"
        return f"{what} cannot be told: {answer.problem}"
    if answer.asked:
        return ""
    plural = step.served.plural if step.served is not None else step.document.kind.lower()
    code = "" if step.document.api_version.startswith(f"{GROUP}/") else "Where you have its code, add --provider FILE; or see"  # ours are in the box
    return (
        f"what {step.title} declares is not shown: its composer does not run in this server. {code or 'See'} it before anything is done: "
        f"`homeostat observe {plural}`, declare it, then `homeostat plan {plural}`"
    )
