"""What the server knows of a kind: its names, versions, schema, columns and rules. Built-in and custom kinds alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from homeostat.model.errors import FieldError
from homeostat.model.names import dns_subdomain_problems
from homeostat.model.schema import ANY, Schema

if TYPE_CHECKING:
    from homeostat.api.cel.rules import RuleSet

Object = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def at(obj: Any, *path: str) -> Any:
    """What stands at a path of fields; None where any part of it is absent."""
    for step in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(step)
    return obj


def split_key(key: str) -> tuple[str, str, str]:
    """Kind (`pods`, `widgets.example.com`), namespace (empty where there is none) and name of what lives under a key."""
    kind, _, rest = key.partition("/")
    namespace, _, name = rest.rpartition("/")
    return kind, namespace, name


class Column(msgspec.Struct, frozen=True):
    """A printer column.

    `path` is a JSONPath (`.spec.replicas`) or a function of the object; `priority` > 0 shows with `-o wide`. `type` is
    string, integer, number, boolean or date; a date is given as it is stored and shown as an age by the server.
    """

    name: str
    path: str | Callable[[Object], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class Scale(msgspec.Struct, frozen=True):
    """Where the scale subresource finds its numbers, as JSONPaths."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


class Rules:
    """What a built-in kind adds to the rules that hold for all. Every method may change or inspect plain dicts only.

    Errors carry field paths and upstream's wording. The common rules (metadata, names, labels, schema types, immutable
    name and namespace, finalizers, managed fields) are checked elsewhere, once.
    """

    counts_annotations = False
    """Whether a change of annotations counts as one of intent, as the generation counts it."""

    orphans = False
    """Whether dependents stay where a delete does not say what becomes of them: so it was in the first version of some kinds."""
    orphans_warning = ""
    """What such a delete is told."""

    kept_by_status: tuple[str, ...] | None = ()
    """The metadata that a write of the status leaves as it is, where it may change others; None: it changes none at all."""

    parts: Mapping[str, Rules] = {}
    """The rules of writes through subresources, where they are others. All but that of the status change their part and no metadata."""

    changes: Mapping[str, Any] = {}
    """The part that such a write changes, as managed fields name it; `*` stands for any item of a list. That of the status is known."""

    graceful = False
    """Whether objects of the kind are given time to end: a delete then shows them with their deletion times."""

    def default(self, obj: Object) -> None:
        """Fills in what upstream's defaulting fills in, on every write before validation."""

    def prepare_create(self, obj: Object) -> None:
        """Drops or sets what a client may not choose at creation (most often `status`)."""

    def prepare_update(self, obj: Object, old: Object) -> None:
        """Restores what a client may not change through the main resource."""

    def validate(self, obj: Object) -> Sequence[FieldError]:
        """What is wrong with the object by itself."""
        return ()

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        """What a new object may not have, beside what is wrong with any."""
        return ()

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        """What is wrong with going from `old` to `obj` (immutable fields)."""
        return ()

    def warnings(self, obj: Object, old: Object | None) -> Sequence[str]:
        """Sent as `Warning:` headers: legal, but probably not meant."""
        return ()

    def fields(self, obj: Object) -> Mapping[str, str]:
        """Fields that field selectors may use, beside metadata.name and metadata.namespace."""
        return {}

    def begin_deletion(self, obj: Object) -> None:
        """What else changes when deletion is asked for (a phase, a finalizer of the kind's own)."""

    def holds(self, obj: Object) -> bool:
        """Whether something beside metadata.finalizers keeps the object from going."""
        return False

    def name_problems(self, name: str) -> Sequence[str]:
        """Why a name is not legal for the kind; most are DNS-1123 subdomains."""
        return dns_subdomain_problems(name)


@dataclass(slots=True)
class Version:
    """One served form of a kind."""

    name: str
    schema: Schema = ANY
    served: bool = True
    status: bool = False  # has the status subresource
    scale: Scale | None = None
    columns: Sequence[Column] = ()
    selectable: Sequence[str] = ()  # JSONPaths of selectable fields
    deprecated: bool = False
    deprecation_warning: str = ""
    encode: Callable[[Object], Object] | None = None  # from the stored form; None where it is the same
    decode: Callable[[Object], Object] | None = None  # to the stored form
    _cel: RuleSet | Literal[False] | None = field(default=None, init=False, repr=False)  # False: there are none

    def cel_rules(self) -> RuleSet | None:
        """The validation rules of the schema, compiled when first asked for; None where it has none."""
        if self._cel is None:
            from homeostat.api.cel import compile_rules

            self._cel = compile_rules(self.schema) or False
        return self._cel or None


class Resource(msgspec.Struct):
    """A kind as it is served. `storage` names the version that is stored."""

    group: str
    plural: str
    kind: str
    singular: str
    namespaced: bool
    versions: dict[str, Version]
    storage: str
    list_kind: str = ""
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    verbs: Sequence[str] = ALL_VERBS
    rules: Rules = msgspec.field(default_factory=Rules)
    custom: bool = False  # declared by a CustomResourceDefinition
    host: bool = False  # acts on the host: who writes it needs the verb `operate` as well
    held_by: str = ""  # the field of the status by which an object is held: what writes it puts our finalizer on
    counts_generation: bool = True  # metadata.generation is kept
    create_on_update: bool = False  # a PUT of an object that is not there creates it
    unconditional_update: bool = True  # a PUT may leave the resourceVersion out
    returns_deleted: bool = False  # a delete answers with the object instead of a Status
    subresources: Sequence[str] = ()  # beyond status and scale: "token", "eviction", …
    qualified: str = ""  # `widgets.example.com`, or `pods` in the core group
    prefix: str = ""  # where its objects live in the store
    uid: str = ""  # of the CustomResourceDefinition
    ending: bool = False  # the definition is being deleted: nothing new may come

    def __post_init__(self) -> None:
        self.qualified = f"{self.plural}.{self.group}" if self.group else self.plural
        if not self.prefix:
            self.prefix = f"{self.qualified}/"
        if not self.list_kind:
            self.list_kind = f"{self.kind}List"

    def api_version(self, version: str) -> str:
        """`example.com/v1`, or `v1` in the core group."""
        return f"{self.group}/{version}" if self.group else version

    def collection(self, namespace: str) -> str:
        """Where the objects of a namespace live in the store, or all where it is empty."""
        return f"{self.prefix}{namespace}/" if namespace else self.prefix

    def key(self, namespace: str, name: str) -> str:
        """Where an object lives in the store."""
        return f"{self.prefix}{namespace}/{name}" if self.namespaced else self.prefix + name
