"""What a change of a parent would do to the objects that it declares: composed by its composer, tried on the server, nothing written.

A composer's code is where its loop is: in a server (`web.children` answers there) or elsewhere. Who has the code at hand can ask it here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from homeostat.client import Key, Packed, Served, Unreachable
from homeostat.insight.planning import Document, Step, creation, difference, sensitive_of
from homeostat.loop.applied import fields_of, view
from homeostat.loop.compose import (
    DEEPEST,
    Child,
    ComposeError,
    Composer,
    Foreseen,
    children_of,
    is_ours,
    kind_of,
    manifests_of,
    owner_of,
    read_kinds,
    stages,
    too_deep,
)
from homeostat.loop.declarations import ADOPT
from homeostat.loop.diff import NOTHING, Diff
from homeostat.loop.failure import told
from homeostat.loop.fleet import Cause, Op
from homeostat.loop.lineage import Lineage
from homeostat.loop.provider import CATEGORY
from homeostat.model.errors import ApiError
from homeostat.model.kinds import InvalidSpec
from homeostat.model.protocol import CHILD_KINDS

if TYPE_CHECKING:
    from homeostat.client import Client

log = logging.getLogger("homeostat.insight")

Object = dict[str, Any]
Kind = tuple[str, str]

NOBODY = "00000000-0000-0000-0000-000000000000"
"""The uid of a parent that is not there yet."""
AT_ONCE = 16
"""Children that are asked about at a time."""
_OWNERS = ("metadata", "ownerReferences")


class Below(msgspec.Struct, rename="camel", omit_defaults=True):
    """One object that would be made, changed or deleted because of what its parent declares. Its secrets are masked."""

    op: Op
    api_version: str
    kind: str
    resource: str
    name: str
    declared_by: str
    """`Shop default/hall`."""
    by_kind: str
    by_uid: str
    change_set: str = ""
    """As part of what it is done; empty: of the plan."""
    namespace: str = ""
    labels: dict[str, str] = {}
    changes: list[str] = []
    """None of what somebody else made."""
    kept: bool = False
    """Whether a loop keeps things of its kind: then the declaration is guarded, and what becomes of it."""
    spec: Object | None = None
    """Of what is kept and has no secrets: what would be declared."""
    owned: bool = True
    with_parent: bool = False
    """Whether it goes because its parent does."""
    problem: str = ""
    """Why the server refuses it."""

    @property
    def title(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Answer(msgspec.Struct, rename="camel", omit_defaults=True):
    """What was found out about one parent."""

    children: list[Below] = []
    problem: str = ""
    """Why it cannot be told, or not all of it. Nothing changes then of what cannot be composed."""
    asked: bool = True
    """Whether there was a composer to ask."""


class Foresight:
    """Asks these composers. It reads and tries by `client`, and so with its rights; make a new one for each plan."""

    def __init__(self, client: Client, composers: Iterable[Composer[Any]]) -> None:
        self._client = client
        self._composers = {(one.info.group, one.info.kind): one for one in composers}
        self._listed: dict[tuple[Kind, str], list[Packed]] = {}
        self._sensitive: dict[str, Any] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    def knows(self, api_version: str, kind: str) -> bool:
        """Whether it has the composer of a kind."""
        return (api_version.rpartition("/")[0], kind) in self._composers

    async def of(self, parent: Object, *, gone: bool = False) -> Answer:
        """What becomes of the children of a parent as it would be; of one that is `gone`, they go."""
        return await self._of(parent, gone, 1)

    async def _of(self, parent: Object, gone: bool, depth: int) -> Answer:
        if not self.knows(parent["apiVersion"], parent["kind"]):
            return Answer(asked=False)
        try:
            if depth > DEEPEST:
                raise too_deep()
            return await self._below(parent, gone, depth)
        except (ComposeError, InvalidSpec, ApiError, Unreachable) as error:
            return Answer(problem=str(error))
        except Exception as error:  # of somebody's composer
            log.exception("%s %s cannot be composed", parent["kind"], parent["metadata"]["name"])
            return Answer(problem=told(error, self._composers[parent["apiVersion"].rpartition("/")[0], parent["kind"]]))

    async def _below(self, parent: Object, gone: bool, depth: int) -> Answer:
        """The children, each followed by its own where that is a parent, too."""
        composer = self._composers[parent["apiVersion"].rpartition("/")[0], parent["kind"]]
        parent = {**parent, "metadata": {**parent["metadata"], "uid": parent["metadata"].get("uid") or NOBODY}}
        foreseen = await (self._composed(composer, parent, gone) if composer.controller is None else composer.foresee(parent, gone=gone))
        if foreseen is None:
            return Answer(asked=False)
        family, answer = _Family(composer, parent, gone, foreseen), Answer(children=[])
        wishes = await asyncio.gather(*(self._wish(family, *one) for one in foreseen.wanted.items()))
        removals = [await self._removal(family, obj) for obj in foreseen.unwanted]
        for step in (*(wish for wish in wishes if wish is not None), *removals):
            step.sensitive = await sensitive_of(self._client, step, self._sensitive)
            answer.children.append(_told(family, step))
            if step.would is not None:
                under = await self._of(step.would, step.op is Op.DELETE, depth + 1)
                answer.children += under.children
                answer.problem = answer.problem or (under.problem and f"{step.title}: {under.problem}")
        return answer

    async def _composed(self, composer: Composer[Any], parent: Object, gone: bool) -> Foreseen:
        """By `compose`, and by the owner references of what there is."""
        manifests = [] if gone else manifests_of(composer, parent)
        kinds = {kind_of(one) for one in manifests}
        wanted = children_of(parent, manifests, {kind: (await self._client.kind(*kind).served()).namespaced for kind in sorted(kinds)})
        stages(wanted)
        metadata, manager = parent["metadata"], composer.manager
        key, lineage = Key(metadata.get("namespace", ""), metadata["name"]), Lineage(composer.info, manager, lambda _: "")

        def made(obj: Object) -> bool:
            """Whether it is a child of this parent, or of one that had its name before, and made by the loop."""
            mine = owner_of(obj) == metadata["uid"] or (not gone and lineage.names(obj, key))
            return mine and is_ours(obj, owner_of(obj), manager)

        unwanted = []
        for kind in sorted(kinds | await self._ever(composer)):
            for one in await self._all(kind, key.namespace):
                child = Child(kind[0].rpartition("/")[0], kind[1], one.key.namespace, one.key.name)
                if one.owner and child not in wanted and not one.deleting and made(obj := one.load()):
                    unwanted.append(obj)
        return Foreseen(wanted, unwanted, made)

    async def _wish(self, family: _Family, child: Child, manifest: Object) -> Step | None:
        """What making a child so would change; None where it is so."""
        handle = self._client.kind(manifest["apiVersion"], manifest["kind"])
        step = Step(Document(manifest, family.title), child.namespace, await self._served(manifest))
        manager, force = family.composer.manager, family.composer.force
        async with self._turns:
            await asyncio.sleep(0)  # a server in the same process has others to serve
            step.live = live = await _get(self._client, manifest, child)
            if live is not None and view(manifest, live, fields_of(live), fields_of(live, manager)) == manifest:
                return None
            try:
                step.would = await handle.apply(manifest, field_manager=manager, force=force and live is not None, namespace=child.namespace, dry_run=True)
                step.diff = creation(step.would) if live is None else _unowned(difference(live, step.would))
            except ApiError as error:
                step.diff = creation(manifest) if live is None else Diff(Op.UPDATE, (), Cause.INTENT)
                if live is None and error.code == 404:  # its namespace may come with the same plan
                    step.would = manifest
                else:
                    step.error = error.message
        return step if step.op is not None else None

    async def _removal(self, family: _Family, obj: Object) -> Step:
        document, namespace = Document(obj, family.title), obj["metadata"].get("namespace", "")
        return Step(document, namespace, await self._served(obj), obj, Diff(Op.DELETE, (), Cause.INTENT), would=obj)

    async def _served(self, obj: Object) -> Served:
        version, kind = obj["apiVersion"], obj["kind"]
        try:
            return await self._client.kind(version, kind).served()
        except ApiError as error:
            if error.code != 404:
                raise
            return Served(version, kind, f"{kind.lower()}s", namespaced=bool(obj["metadata"].get("namespace")))  # it comes with the same commit

    async def _all(self, kind: Kind, namespace: str) -> list[Packed]:
        """What there is of a kind: in a namespace (empty: in all), where it is in one."""
        namespace = namespace if (await self._client.kind(*kind).served()).namespaced else ""
        if (kind, namespace) not in self._listed:
            self._listed[kind, namespace] = list(await self._client.kind(*kind, Packed).list(namespace=namespace))
        return self._listed[kind, namespace]

    async def _ever(self, composer: Composer[Any]) -> set[Kind]:
        """The kinds that children were ever of; none where the definition is not there yet, or not ours to read."""
        try:
            crd = await self._client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").get(composer.info.name)
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            return set()
        text = (crd["metadata"].get("annotations") or {}).get(CHILD_KINDS, "")
        return read_kinds(text.split(",")) if text else set()


class _Family:
    """A parent, and what it would lead to."""

    def __init__(self, composer: Composer[Any], parent: Object, gone: bool, foreseen: Foreseen) -> None:
        metadata = parent["metadata"]
        namespace = metadata.get("namespace", "")
        self.composer, self.gone, self.foreseen = composer, gone, foreseen
        self.uid = str(metadata["uid"])
        self.title = f"{parent['kind']} {namespace}/{metadata['name']}" if namespace else f"{parent['kind']} {metadata['name']}"
        self.adopts = (metadata.get("annotations") or {}).get(ADOPT) == "true"


def _told(family: _Family, step: Step) -> Below:
    assert step.op is not None
    assert step.served is not None
    document, kept = step.document, CATEGORY in step.served.categories
    ours = step.live is None or family.foreseen.is_ours(step.live)
    group = document.api_version.rpartition("/")[0]
    metadata = document.obj["metadata"]
    return Below(
        op=step.op,
        api_version=document.api_version,
        kind=document.kind,
        resource=f"{step.served.plural}.{group}" if group else step.served.plural,
        name=document.name,
        declared_by=family.title,
        by_kind=family.composer.info.name,
        by_uid=family.uid,
        change_set=family.foreseen.change_set,
        namespace=step.namespace,
        labels=metadata.get("labels") or {},
        changes=step.lines() if ours else [],  # what it holds may not be for who asks to read
        kept=kept,
        spec=((step.would or {}) if ours else document.obj).get("spec") if kept and not step.sensitive and step.op is not Op.DELETE else None,
        owned=ours or family.adopts,
        with_parent=family.gone,
        problem=step.error,
    )


def _unowned(diff: Diff) -> Diff:
    """Without what is only about whose it is: one that gets a new parent of the same name is not changed by that."""
    left = tuple(change for change in diff.changes if change.path[:2] != _OWNERS)
    return replace(diff, changes=left) if left else NOTHING


async def _get(client: Client, manifest: Object, child: Child) -> Object | None:
    try:
        return await client.kind(manifest["apiVersion"], manifest["kind"]).get(child.name, namespace=child.namespace)
    except ApiError as error:
        if error.code != 404:
            raise
        return None
