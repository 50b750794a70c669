"""What applying declarations would do: asked of the server itself, by a dry run of each object, before anything is written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from homeostat.loop.diff import NOTHING, Change, Diff, Item, Path
from homeostat.loop.fleet import Cause, Op
from homeostat.loop.observation import ABSENT
from homeostat.loop.render import Pattern, render, sensitive_paths
from homeostat.loop.returned import declared_of
from homeostat.model.errors import ApiError
from homeostat.model.protocol import CHANGE_SET, DELETION_CHANGE_SET
from homeostat.model.schema import Schema

if TYPE_CHECKING:
    from homeostat.client import Client, Served
    from homeostat.insight.below import Below

Object = dict[str, Any]
T = TypeVar("T")

MANAGER = "homeostat-cli"
"""The field manager of what people apply by the command line."""
SIGNS = {Op.CREATE: "+", Op.UPDATE: "~", Op.DELETE: "-"}

_SECRET: frozenset[Pattern] = frozenset([("data", "*"), ("stringData", "*")])
_DEFINITION = "CustomResourceDefinition"
_FIRST = {"Namespace": 0, _DEFINITION: 1, "ServiceAccount": 2, "Secret": 2, "ConfigMap": 2, "GuardPolicy": 2}
_LAST = 3
_EMPTY: tuple[Any, ...] = ({}, [], "", None)
"""What a server fills in and nobody misses in the plan of a creation."""
_ESTABLISH_SECONDS = 10.0


class Document(msgspec.Struct, frozen=True):
    """One declared object, and where it stands."""

    obj: dict[str, Any]
    source: str

    @property
    def kind(self) -> str:
        return str(self.obj["kind"])

    @property
    def api_version(self) -> str:
        return str(self.obj["apiVersion"])

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])


class Step(msgspec.Struct):
    """One object of a plan. `served` is None where its kind comes with the plan itself."""

    document: Document
    namespace: str
    served: Served | None = None
    live: Object | None = None
    diff: Diff = NOTHING
    sensitive: frozenset[Pattern] = frozenset()
    error: str = ""
    kept: bool = False  # whether the loop keeps things of its kind
    would: Object | None = None  # as the server says that it would be

    @property
    def op(self) -> Op | None:
        return self.diff.op

    @property
    def rank(self) -> int:
        """What others need goes first; what is deleted, last."""
        return 9 if self.op is Op.DELETE else _FIRST.get(self.document.kind, _LAST)

    @property
    def title(self) -> str:
        """`Lamp default/hall`."""
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.document.kind} {where}{self.document.name}"

    def lines(self) -> list[str]:
        """What changes in it, a line each, secrets masked."""
        return render(self.diff, self.sensitive)


class Plan(msgspec.Struct):
    """All of one change set. `below` is what it leads to, by composers; `notes` say what cannot be told of that."""

    change_set: str
    steps: list[Step] = msgspec.field(default_factory=list)
    below: list[Below] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def errors(self) -> list[Step]:
        return [step for step in self.steps if step.error]

    @property
    def changes(self) -> list[Step]:
        return [step for step in self.steps if step.op is not None]

    def count(self, op: Op) -> int:
        return sum(step.op is op for step in self.steps) + sum(one.op is op for one in self.below)

    @property
    def closing(self) -> str:
        """`Plan: 3 to add, 1 to change, 0 to destroy`."""
        add, change, destroy = (self.count(op) for op in (Op.CREATE, Op.UPDATE, Op.DELETE))
        return f"Plan: {add} to add, {change} to change, {destroy} to destroy"


def new_change_set(command: str = "apply") -> str:
    """A name for everything that one command writes."""
    import time

    from homeostat.model.clock import Ids

    return f"{command}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{Ids().suffix()}"


def _unheard() -> None:
    """Where nobody wants to know how far it is."""


async def _told(work: Coroutine[Any, Any, T], done: Callable[[], object]) -> T:
    found = await work
    done()
    return found


async def make_plan(
    client: Client,
    documents: Sequence[Document],
    *,
    force: bool = False,
    prune: str = "",
    change_set: str = "",
    done: Callable[[], object] = _unheard,
) -> Plan:
    """Asks the server what each declaration would change. Refusals stand at their steps; nothing is written.

    `prune` is a label selector: what has these labels, was applied by this command line, is of a kind that is declared here, and
    is not declared here, is deleted. `done` is called after each.
    """
    plan = Plan(change_set or new_change_set())
    coming = _Coming.of(documents)
    plan.steps = list(await asyncio.gather(*(_told(_step(client, document, coming, force), done) for document in documents)))
    if prune:
        plan.steps += await _unwanted(client, plan.steps, prune)
    schemas: dict[str, frozenset[Pattern]] = {}
    for step in plan.changes:
        step.sensitive = await sensitive_of(client, step, schemas)
    return plan


class _Coming(msgspec.Struct, frozen=True):
    """What the plan itself brings, and what others in it may rest on."""

    kinds: frozenset[tuple[str, str]]
    namespaces: frozenset[str]

    @classmethod
    def of(cls, documents: Sequence[Document]) -> _Coming:
        definitions = [d.obj.get("spec") or {} for d in documents if d.kind == _DEFINITION]
        return cls(
            frozenset((spec.get("group", ""), (spec.get("names") or {}).get("kind", "")) for spec in definitions),
            frozenset(d.name for d in documents if d.kind == "Namespace"),
        )


async def _step(client: Client, document: Document, coming: _Coming, force: bool) -> Step:
    handle = client.kind(document.api_version, document.kind)
    asked = str(document.obj["metadata"].get("namespace") or "")
    step = Step(document, asked)
    try:
        step.served = await handle.served()
    except ApiError as error:
        if (document.api_version.rpartition("/")[0], document.kind) in coming.kinds:
            step.diff = creation(document.obj)
        else:
            step.error = error.message
        return step
    step.namespace = (asked or client.namespace) if step.served.namespaced else ""
    try:
        step.live = await _get(client, step)
        body = declared(step, "")
        step.would = await handle.apply(body, field_manager=MANAGER, force=force, namespace=step.namespace, dry_run=True)
        step.diff = creation(step.would) if step.live is None else difference(step.live, step.would)
    except ApiError as error:
        if error.code == 404 and step.namespace in coming.namespaces:
            step.diff = creation(document.obj)
        else:
            step.error = error.message
    return step


async def _get(client: Client, step: Step) -> Object | None:
    try:
        handle = client.kind(step.document.api_version, step.document.kind)
        return await handle.get(step.document.name, namespace=step.namespace)
    except ApiError as error:
        if error.code == 404:
            return None
        raise


def declared(step: Step, change_set: str) -> Object:
    """The body to apply. What has nothing to change keeps the change set that it came with."""
    body = dict(step.document.obj)
    metadata = dict(body["metadata"])
    before = ((step.live or {}).get("metadata", {}).get("annotations") or {}).get(CHANGE_SET, "")
    mark = change_set if change_set and step.op is not None else before
    if mark:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), CHANGE_SET: mark}
    if step.namespace:
        metadata["namespace"] = step.namespace
    return {**body, "metadata": metadata}


async def _unwanted(client: Client, steps: Sequence[Step], selector: str) -> list[Step]:
    kept = {(s.document.api_version, s.document.kind, s.namespace, s.document.name) for s in steps}
    places = sorted({(s.document.api_version, s.document.kind, s.namespace) for s in steps if s.served is not None})
    found = []
    for api_version, kind, namespace in places:
        handle = client.kind(api_version, kind)
        for obj in await handle.list(namespace=namespace, labels=selector):
            metadata = obj["metadata"]
            managers = {entry.get("manager") for entry in metadata.get("managedFields") or ()}
            if (api_version, kind, namespace, metadata["name"]) not in kept and MANAGER in managers:
                document = Document(obj, f"not declared any more, and labelled {selector}")
                found.append(Step(document, namespace, await handle.served(), obj, Diff(Op.DELETE, (), Cause.INTENT)))
    return found


async def sensitive_of(client: Client, step: Step, known: dict[str, frozenset[Pattern]]) -> frozenset[Pattern]:
    """Where objects of this kind have secrets, as their definition says it."""
    if step.document.kind == "Secret" and step.document.api_version == "v1":
        return _SECRET
    if step.served is None or "." not in step.document.api_version.rpartition("/")[0]:
        return frozenset()
    group, _, version = step.document.api_version.rpartition("/")
    name = f"{step.served.plural}.{group}"
    if name not in known:
        try:
            definition = await client.kind("apiextensions.k8s.io/v1", _DEFINITION).get(name)
            raw = [v["schema"]["openAPIV3Schema"] for v in definition["spec"]["versions"] if v["name"] == version]
            known[name] = sensitive_paths(Schema(raw[0])) if raw else frozenset()
        except (ApiError, KeyError):
            known[name] = frozenset()  # built in, or not ours to read
    return known[name]


# Differences between two objects


def creation(obj: Object) -> Diff:
    """All that an object declares, as new."""
    shown = {k: v for k, v in declared_of(obj).items() if k not in ("apiVersion", "kind", "metadata")}
    changes: list[Change] = []
    for name, value in shown.items():
        inside = value.items() if isinstance(value, dict) else ()
        changes += [Change((name, below), ABSENT, v, Cause.INTENT) for below, v in inside if v not in _EMPTY]
        if not inside:
            changes.append(Change((name,), ABSENT, value, Cause.INTENT))
    return Diff(Op.CREATE, tuple(changes), Cause.INTENT)


def difference(old: Object, new: Object) -> Diff:
    """What is declared otherwise in two states of an object."""
    changes = tuple(_changes(declared_of(old), declared_of(new), ()))
    return Diff(Op.UPDATE, changes, Cause.INTENT) if changes else NOTHING


def _changes(old: Any, new: Any, path: Path) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from _changes(old.get(name, ABSENT), new.get(name, ABSENT), (*path, name))
    elif isinstance(old, list) and isinstance(new, list) and (pairs := _paired(old, new)) is not None:
        for step, before, after in pairs:
            yield from _changes(before, after, (*path, step))
    elif old != new or type(old) is not type(new):
        yield Change(path, old, new, Cause.INTENT)


def _paired(old: list[Any], new: list[Any]) -> list[tuple[str | Item, Any, Any]] | None:
    """The items of two lists side by side: by name where all have one, else by place where they are as many."""
    before, after = _named(old), _named(new)
    if before is not None and after is not None:
        names = [*after, *(name for name in before if name not in after)]
        return [(Item.keyed({"name": n}), before.get(n, ABSENT), after.get(n, ABSENT)) for n in names]
    if len(old) == len(new):
        return [(str(i), a, b) for i, (a, b) in enumerate(zip(old, new, strict=True))]
    return None


def _named(items: list[Any]) -> dict[str, Any] | None:
    named = {item["name"]: item for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)}
    return named if len(named) == len(items) and items else None


# Writing


async def carry_out(
    client: Client, plan: Plan, *, force: bool = False, done: Callable[[], object] = _unheard
) -> list[Step]:
    """Writes the plan, rank by rank, and gives the steps that failed, each with its error. `client` carries the change set's header.

    `done` is called after each.
    """
    failed: list[Step] = []
    for rank in sorted({step.rank for step in plan.steps}):
        now = [step for step in plan.steps if step.rank == rank]
        await asyncio.gather(*(_told(_write(client, plan, step, force), done) for step in now))
        failed += [step for step in now if step.error]
        if rank == _FIRST[_DEFINITION]:
            await established(client, [s.document.name for s in now if not s.error and s.document.kind == _DEFINITION])
    return failed


async def _write(client: Client, plan: Plan, step: Step, force: bool) -> None:
    handle = client.kind(step.document.api_version, step.document.kind)
    try:
        if step.op is Op.DELETE:
            assert step.live is not None
            name, same = step.document.name, {"uid": step.live["metadata"]["uid"]}
            # What the loop keeps stays until it is cleaned up, and has to tell by whom it was deleted; of all else the history should.
            note = {"metadata": {**same, "annotations": {DELETION_CHANGE_SET: plan.change_set}}}
            try:
                await handle.patch(name, note, namespace=step.namespace, field_manager=MANAGER)
            except ApiError as error:
                if step.kept or error.code != 403:
                    raise
            await handle.delete(name, namespace=step.namespace, **same)
        else:
            await handle.apply(
                declared(step, plan.change_set), field_manager=MANAGER, force=force, namespace=step.namespace
            )
    except ApiError as error:
        step.error = error.message


async def established(client: Client, names: Sequence[str]) -> None:
    """Waits until kinds can be used; where one never can, what is applied next says so."""
    from homeostat.model.conditions import condition_is

    definitions = client.kind("apiextensions.k8s.io/v1", _DEFINITION)
    for name in names:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ESTABLISH_SECONDS), definitions.watch(fields=f"metadata.name={name}") as events:
                async for event in events:
                    if condition_is(event.object, "Established"):
                        break
