"""Composers: the second form of the SDK. A pure function from a parent to the children that it should have.

    class Shop(Composer[ShopSpec], group="shops.example.com"):
        def compose(self, spec, parent):
            name = parent["metadata"]["name"]
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"till": spec.till}}
            yield deployment(name, spec)

Children belong to their parent by an owner reference, and their declared fields to us by server-side apply. They come in the
order of their waves (annotation `homeostat.dev/wave`, a whole number, 0 unless said) and after what they name
(`homeostat.dev/after: ConfigMap/shop`); the next is made when those before it are as declared and healthy. What is no longer
wanted goes last, in reverse; only what has our owner reference and our fields ever goes. A parent that is gone wants nothing.

What is here decides, and does nothing. `children` runs it under the engine, where every change of a child goes through the gate
as one of its own kind.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast, get_args, get_origin

import msgspec

from homeostat.loop.applied import fields_of, view
from homeostat.loop.compare import compare
from homeostat.loop.diff import Diff
from homeostat.loop.failure import CONTAINED, Mistake, NoKind, check_type, shown
from homeostat.loop.fleet import Op
from homeostat.loop.observation import ABSENT
from homeostat.loop.provider import CATEGORY
from homeostat.model.kinds import Column, KindInfo, Spec, decode
from homeostat.model.kinds.definition import Scope
from homeostat.model.protocol import composed_by

WAVE = "homeostat.dev/wave"
AFTER = "homeostat.dev/after"

DEEPEST = 8
"""So many composers may stand one below the other."""

MESSAGE = Column("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1)
"""What `get -o wide` shows of every parent: which of its children are not as declared, and what holds them."""

Object = dict[str, Any]
SpecT = TypeVar("SpecT", bound=Spec)
Scopes = Mapping[tuple[str, str], bool]
"""By apiVersion and kind: whether objects of it are in a namespace."""


class ComposeError(ValueError):
    """What was composed cannot be made. Says which child, and why; nothing is changed then."""


def too_deep() -> ComposeError:
    """Of a parent that stands below `DEEPEST` others."""
    return ComposeError(f"more than {DEEPEST} composers stand one below the other: most likely one composes its own kind, or two each other's, without end")


class Child(msgspec.Struct, frozen=True, order=True, gc=False):
    """Which child: versions of one group are the same."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        kind = f"{self.kind}.{self.group}" if self.group else self.kind
        return f"{kind}/{self.name}"


class Foreseen(NamedTuple):
    """What a parent would lead to: the children that it wants, whole; what of theirs is there and would go; and how those are known."""

    wanted: dict[Child, Object]
    unwanted: list[Object]
    is_ours: Callable[[Object], bool]
    change_set: str = ""
    """As part of what it is done; empty: of the change of the parent."""


class Composer(Generic[SpecT]):
    """A kind whose objects stand for others. Class options: those of `Provider`, less what is about a state.

    `host=True` is for what composes things that act on the host: who declares one needs the verb `operate` on it as well.
    `force`: fields of children that others have taken are taken back; without, that is reported and held.
    """

    info: ClassVar[KindInfo] = cast(KindInfo, NoKind())
    force: ClassVar[bool] = True
    controller: ClassVar[type[Any] | None] = None
    """Who brings it before the engine, where that is not `ComposerController`."""

    def __init_subclass__(
        cls,
        *,
        group: str = "",
        version: str = "v1",
        kind: str = "",
        plural: str = "",
        scope: Scope = "Namespaced",
        short_names: tuple[str, ...] = (),
        columns: tuple[Column, ...] = (),
        host: bool = False,
        **options: Any,
    ) -> None:
        super().__init_subclass__(**options)
        spec = _spec_type(cls)
        if spec is None or not group:
            return  # a class in between: the kind is declared further down
        check_type(cls, spec, "spec")
        cls.info = KindInfo(
            group=group,
            version=version,
            kind=kind or cls.__name__,
            spec=spec,
            plural=plural,
            scope=scope,
            short_names=short_names,
            columns=columns if any(column.name == MESSAGE.name for column in columns) else (*columns, MESSAGE),
            host=host,
            categories=(CATEGORY,),
            description=(cls.__doc__ or "").strip().partition("\n")[0],
        )

    def compose(self, spec: SpecT, parent: Mapping[str, Any]) -> Iterable[Object]:
        """The children that there should be, as manifests: of the same spec and parent always the same.

        Raise where it cannot be told: then nothing is changed. To give none is to want none.
        """
        raise Mistake(f"{type(self).__name__} has no `compose`: nobody can tell what it declares")

    async def foresee(self, parent: Mapping[str, Any], *, gone: bool) -> Foreseen | None:
        """For plans, of a composer that has a `controller` of its own; others are asked by `compose`. None: it cannot be asked here.

        Raise `ComposeError` where it cannot be told. It writes nothing.
        """
        return None

    @property
    def manager(self) -> str:
        """The field manager that children are written as."""
        return composed_by(self.info.name)


def _spec_type(cls: type) -> type[Spec] | None:
    for base in getattr(cls, "__orig_bases__", ()):
        if get_origin(base) is Composer and not isinstance(found := get_args(base)[0], TypeVar):
            return cast(type[Spec], found)
    return None


# What is wanted


def manifests_of(composer: Composer[Any], parent: Object) -> list[Any]:
    """What is composed for a parent. Raises `ComposeError` where that is no collection, and whatever the composer does."""
    with CONTAINED:
        found: Any = composer.compose(decode(composer.info.spec, parent.get("spec") or {}), parent)
        if isinstance(found, Iterable) and not isinstance(found, (str, bytes, Mapping)):
            return list(found)
    name = f"{type(composer).__name__}.compose"
    if isinstance(found, (Coroutine, AsyncIterable)):
        if isinstance(found, Coroutine):
            found.close()
        raise ComposeError(f"{name} is to be written `def`, without async: children follow from the parent alone")
    raise ComposeError(f"{name} returned {shown(found)}; it returns the children as a list of manifests, or yields them")


def children_of(parent: Mapping[str, Any], manifests: Iterable[Any], scopes: Scopes) -> dict[Child, Object]:
    """The manifests as they are applied: in their namespace, with the parent as their owner. Raises `ComposeError`."""
    found: dict[Child, Object] = {}
    for manifest in manifests:
        child, whole = _complete(parent, manifest, scopes)
        if child in found:
            raise ComposeError(f"{child} is composed twice")
        found[child] = whole
    return found


def kind_of(manifest: Any) -> tuple[str, str]:
    """apiVersion and kind of what was composed. Raises `ComposeError` where it has none."""
    if type(manifest) is dict or isinstance(manifest, Mapping):
        version, kind = manifest.get("apiVersion"), manifest.get("kind")
        if isinstance(version, str) and isinstance(kind, str) and version and kind:
            return version, kind
    raise ComposeError(f"a child is an object with apiVersion, kind and metadata.name, not {str(manifest)[:100]}")


def child_of(manifest: Mapping[str, Any], namespace: str) -> Child:
    """Which child a manifest is of, in its namespace (empty: in none)."""
    return Child(manifest["apiVersion"].rpartition("/")[0], manifest["kind"], namespace, manifest["metadata"]["name"])


_OF_THE_SERVER = frozenset(("ownerReferences", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"))
"""Metadata that is not composed."""
_COMPOSED_ANEW = frozenset(("metadata", "status"))


def _complete(parent: Mapping[str, Any], manifest: Any, scopes: Scopes) -> tuple[Child, Object]:
    version, kind = kind_of(manifest)
    metadata, above = dict(manifest.get("metadata") or {}), parent["metadata"]
    name, home = metadata.get("name"), above.get("namespace", "")
    if not isinstance(name, str) or not name:
        raise ComposeError(f"a {kind} is composed without metadata.name: a name that is made up would be another each time")
    namespace = ""
    if scopes[version, kind]:
        namespace = metadata.get("namespace") or home
        if not namespace:
            raise ComposeError(f"{kind}/{name} needs metadata.namespace, for its parent has none")
        if home and namespace != home:
            raise ComposeError(f"{kind}/{name} is in namespace {namespace}: a parent in {home} cannot own it")
        metadata["namespace"] = namespace
    elif home:
        raise ComposeError(f"{kind}/{name} is in no namespace: a parent in {home} cannot own it")
    for given in _OF_THE_SERVER & metadata.keys():
        del metadata[given]
    metadata["ownerReferences"] = [owner_reference(parent)]
    whole = {field: value for field, value in manifest.items() if field not in _COMPOSED_ANEW}
    whole["metadata"] = metadata
    return child_of(manifest, namespace), whole


def owner_reference(parent: Mapping[str, Any]) -> Object:
    """Says whose a child is."""
    return {
        "apiVersion": parent["apiVersion"],
        "kind": parent["kind"],
        "name": parent["metadata"]["name"],
        "uid": parent["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controlled_by(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference of who controls an object; None where nobody does."""
    for reference in (obj.get("metadata") or {}).get("ownerReferences") or ():
        if reference.get("controller"):
            found: Mapping[str, Any] = reference
            return found
    return None


def owner_of(obj: Mapping[str, Any]) -> str:
    """The uid of who controls an object; empty where nobody does."""
    reference = controlled_by(obj)
    return "" if reference is None else str(reference.get("uid", ""))


def is_ours(obj: Mapping[str, Any], parent_uid: str, manager: str) -> bool:
    """Whether an object is a child of this very parent, made by us: both by its owner and by its fields."""
    return bool(parent_uid) and owner_of(obj) == parent_uid and bool(fields_of(obj, manager))


# In which order


def stages(children: Mapping[Child, Mapping[str, Any]]) -> list[list[Child]]:
    """The children in the order in which they are made: each stage when all before it are as declared and healthy.

    Raises `ComposeError` where a wave is no number, or something waits for what is not there, comes later, or waits for it.
    """
    if not any("annotations" in manifest["metadata"] for manifest in children.values()):
        return [list(children)] if children else []  # nobody says anything of an order
    waves = {child: wave_of(child, manifest) for child, manifest in children.items()}
    before = {child: _before(child, manifest, children) for child, manifest in children.items()}
    depth: dict[Child, int] = {}

    def measure(child: Child, way: tuple[Child, ...]) -> int:
        if child in way:
            circle = " → ".join(map(str, (*way[way.index(child) :], child)))
            raise ComposeError(f"these wait for each other: {circle}")
        if child not in depth:
            for other in before[child]:
                if waves[other] > waves[child]:
                    raise ComposeError(f"{child} waits for {other}, which comes in a later wave")
            same = [other for other in before[child] if waves[other] == waves[child]]
            depth[child] = max((measure(other, (*way, child)) + 1 for other in same), default=0)
        return depth[child]

    places: dict[tuple[int, int], list[Child]] = {}
    for child in children:
        places.setdefault((waves[child], measure(child, ())), []).append(child)
    return [places[place] for place in sorted(places)]


def wave_of(child: Child, manifest: Mapping[str, Any]) -> int:
    """The wave that a child says it is of; 0 where it says none."""
    text = ((manifest.get("metadata") or {}).get("annotations") or {}).get(WAVE, "0")
    try:
        return int(text)
    except (TypeError, ValueError):
        raise ComposeError(f"{child}: {WAVE} is a whole number, not {text!r}") from None


def _before(child: Child, manifest: Mapping[str, Any], children: Iterable[Child]) -> list[Child]:
    text = str((manifest["metadata"].get("annotations") or {}).get(AFTER, ""))
    found = []
    for named in filter(None, map(str.strip, text.split(","))):
        hits = [other for other in children if named in (str(other), f"{other.kind}/{other.name}")]
        if not hits:
            raise ComposeError(f"{child} waits for {named}, which is not composed")
        found += hits
    return found


# What to do


class Action(msgspec.Struct, frozen=True):
    """What is to be done with one child. `problem` says why it may not be done: then it never is."""

    op: Op
    child: Child
    diff: Diff
    manifest: Object | None = None
    uid: str = ""
    problem: str = ""


def plan_children(
    parent: Mapping[str, Any],
    desired: Mapping[Child, Object],
    existing: Mapping[Child, Mapping[str, Any]],
    manager: str,
) -> list[list[Action]]:
    """What would make the children as desired, stage by stage; empty where nothing is to be done.

    `existing` are live objects by their names: those of the parent, and others that stand in the way. What a server normalises
    (quantities, say) may show as a change here; the loop asks the server before it believes in one.
    """
    uid = str(parent["metadata"]["uid"])
    plan = [[_wish(child, desired[child], existing.get(child), uid, manager) for child in stage] for stage in stages(desired)]
    ours = {child: obj for child, obj in existing.items() if child not in desired and is_ours(obj, uid, manager)}
    plan += [[_removal(child, ours[child]) for child in stage] for stage in removals(ours)]
    return [found for stage in plan if (found := [action for action in stage if action.diff])]


def removals(unwanted: Mapping[Child, Mapping[str, Any]]) -> list[list[Child]]:
    """In which order children go: the last wave first. A wave that cannot be read counts as none."""
    places: dict[int, list[Child]] = {}
    for child, obj in unwanted.items():
        try:
            wave = wave_of(child, obj)
        except ComposeError:
            wave = 0
        places.setdefault(wave, []).append(child)
    return [places[wave] for wave in sorted(places, reverse=True)]


def _wish(child: Child, manifest: Object, obj: Mapping[str, Any] | None, uid: str, manager: str) -> Action:
    if obj is None:
        return Action(Op.CREATE, child, compare(manifest, None, ABSENT), manifest)
    found = view(manifest, obj, fields_of(obj), fields_of(obj, manager))
    mine = is_ours(obj, uid, manager)
    diff = compare(manifest, applied_by(obj, manager) if mine else None, found)
    problem = "" if mine else f"{child} exists and is not a child of this parent"
    return Action(Op.UPDATE, child, diff, manifest, obj["metadata"]["uid"], problem)


def _removal(child: Child, obj: Mapping[str, Any]) -> Action:
    return Action(Op.DELETE, child, compare(ABSENT, {}, obj), uid=obj["metadata"]["uid"])


def applied_by(obj: Mapping[str, Any], manager: str) -> Object:
    """What of an object we applied, with the values that it has now."""
    found: Object = view({}, obj, fields_of(obj), fields_of(obj, manager))
    return found


def named_kinds(kinds: Iterable[tuple[str, str]]) -> list[str]:
    """Kinds as the status of a parent has them: `apps/v1/Deployment`."""
    return sorted(f"{version}/{kind}" for version, kind in kinds)


def read_kinds(names: Sequence[str]) -> set[tuple[str, str]]:
    """The same, read back."""
    parts = (name.rpartition("/") for name in names)
    return {(version, kind) for version, _, kind in parts if version and kind}
