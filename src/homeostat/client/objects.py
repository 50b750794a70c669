"""Objects as the client hands them out: plain dicts, or msgspec Structs of the caller's own."""

from __future__ import annotations

import zlib
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast

import msgspec
import orjson

T = TypeVar("T")


class Key(msgspec.Struct, frozen=True, order=True, gc=False):
    """Which object of a kind; the namespace is empty where the kind has none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Selection(NamedTuple):
    """Which objects of a collection: a namespace (empty: all), a label selector, a field selector."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    @property
    def params(self) -> dict[str, str]:
        """The selectors as the API names them; empty ones are left out."""
        named = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: text for name, text in named.items() if text}


class OwnerReference(msgspec.Struct, rename="camel", omit_defaults=True):
    """Whose an object is: it goes when its owner goes."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    """`metadata` for typed kinds: the fields that programs use. Anything else is dropped when it is decoded."""

    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Identity(msgspec.Struct, frozen=True, gc=False):
    """Who an object is and which state of it this is."""

    key: Key
    uid: str
    revision: str


class _Head(msgspec.Struct):
    metadata: Metadata


SQUEEZE_ABOVE = 12_000
"""So many objects of a collection, those that changed last, are kept as they came; the others are squeezed. It costs some microseconds to do
that, and to open one."""
WINDOW, EFFORT, ROOM = 12, 1, 4
"""How they are squeezed (zlib's window bits, level and memory level): what is alike is near, and memory to do it costs time."""


class Squeezed(msgspec.Struct, frozen=True, gc=False, weakref=False):
    """Bytes without what they have in common with a pattern."""

    data: bytes
    pattern: bytes

    @classmethod
    def of(cls, body: bytes, pattern: bytes) -> Self:
        way = zlib.compressobj(EFFORT, zlib.DEFLATED, WINDOW, ROOM, zdict=pattern)
        return cls(way.compress(body) + way.flush(), pattern)

    def body(self) -> bytes:
        return zlib.decompressobj(WINDOW, zdict=self.pattern).decompress(self.data)


class Packed(msgspec.Struct, eq=False, gc=False, weakref=False):
    """An object as the bytes that it came as, and beside them what programs look at without opening it.

    For large collections that are rarely looked into: an informer of these takes a fifth of the memory; and where they are very many,
    what is alike in them is kept once (`squeeze`). Nobody changes one in any other way.
    """

    key: Key
    uid: str
    revision: str
    generation: int
    owner: str
    """The uid of who controls it; empty where nobody does."""
    deleting: bool
    mark: int
    """Another when generation, labels, annotations or the wish to delete it are; the same, within a process, while none is."""
    content: bytes | Squeezed
    api_version: str
    kind: str

    @property
    def body(self) -> bytes:
        """The bytes that it came as."""
        content = self.content  # once: another thread may squeeze it
        return content if isinstance(content, bytes) else content.body()

    @property
    def loose(self) -> bool:
        """Whether it is as it came."""
        return isinstance(self.content, bytes)

    def squeeze(self, pattern: bytes) -> None:
        """Keeps only what `pattern` does not have as well."""
        if isinstance(self.content, bytes):
            self.content = Squeezed.of(self.content, pattern)

    def load(self) -> dict[str, Any]:
        """The object, decoded anew: it is the caller's own."""
        found: dict[str, Any] = _named(orjson.loads(self.body), self.api_version, self.kind)
        return found


class _Owner(msgspec.Struct, gc=False):
    uid: str = ""
    controller: bool = False


class _Facts(msgspec.Struct, rename="camel", gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: msgspec.Raw = msgspec.Raw(b"")
    annotations: msgspec.Raw = msgspec.Raw(b"")
    owner_references: list[_Owner] | None = None


class _FactsOf(msgspec.Struct, gc=False):
    metadata: _Facts


_facts = msgspec.json.Decoder(_FactsOf)


def _pack(body: bytes, api_version: str, kind: str) -> Packed:
    head = _facts.decode(body).metadata
    return Packed(
        Key(head.namespace, head.name),
        head.uid,
        head.resource_version,
        head.generation,
        next((owner.uid for owner in head.owner_references if owner.controller), "") if head.owner_references else "",
        head.deletion_timestamp is not None,
        hash((head.uid, head.generation, head.deletion_timestamp, bytes(head.labels), bytes(head.annotations))),
        body,
        api_version,
        kind,
    )


class Form(Generic[T]):
    """How the objects of one handle are decoded and encoded.

    `form` is `dict`, `Packed`, or a Struct type with a field `metadata: Metadata`. Such a Struct drops what it does not declare:
    write such kinds with `apply` and `patch`, which leave the rest alone, rather than with `replace`.
    """

    def __init__(self, form: type[T]) -> None:
        self.plain = form is dict
        self._packed = form is Packed
        self._packs, self._pattern = 0, b""
        self._decode = None if self.plain or self._packed else msgspec.json.Decoder(form)
        self._form = form

    def decode(self, body: bytes, api_version: str = "", kind: str = "") -> T:
        """One object; what lacks them, as the items of a list do, is given apiVersion and kind."""
        if self._decode is not None:
            return self._decode.decode(body)
        return cast(T, _pack(body, api_version, kind) if self._packed else _named(orjson.loads(body), api_version, kind))

    def listed(self, body: bytes, api_version: str, kind: str) -> T:
        """The same of one of a whole collection: of very many, most are not looked at soon."""
        one = self.decode(body, api_version, kind)
        if isinstance(one, Packed):
            self._packs += 1
            if self._packs > SQUEEZE_ABOVE:
                self.squeeze(cast(T, one))
        return one

    def squeeze(self, one: T) -> None:
        """Keeps of a packed object what it does not have in common with others."""
        if isinstance(one, Packed):
            self._pattern = self._pattern or one.body[-(1 << WINDOW) :]
            one.squeeze(self._pattern)

    def shares(self, obj: object) -> bool:
        """Whether an object that another handle decoded may stand for one that this handle would decode."""
        return self._packed if isinstance(obj, Packed) else self.plain and isinstance(obj, dict)

    def to_dict(self, obj: T | dict[str, Any], api_version: str, kind: str) -> dict[str, Any]:
        """An object as a dict of its own, with apiVersion and kind filled in."""
        built = dict(obj) if isinstance(obj, dict) else obj.load() if isinstance(obj, Packed) else msgspec.to_builtins(obj)
        return cast(dict[str, Any], _named(built, api_version, kind))

    def identity(self, obj: T) -> Identity:
        """Key, uid and resourceVersion."""
        if isinstance(obj, Packed):
            return Identity(obj.key, obj.uid, obj.revision)
        if isinstance(obj, dict):
            meta = obj["metadata"]
            key = Key(meta.get("namespace", ""), meta["name"])
            return Identity(key, meta.get("uid", ""), meta.get("resourceVersion", ""))
        typed = cast(_Head, obj).metadata
        return Identity(Key(typed.namespace, typed.name), typed.uid, typed.resource_version)

    def labels(self, obj: T) -> dict[str, str]:
        """The labels; empty where there are none."""
        if isinstance(obj, Packed):
            raw = bytes(_facts.decode(obj.body).metadata.labels)
            return (orjson.loads(raw) if raw else None) or {}
        found = obj["metadata"].get("labels") if isinstance(obj, dict) else cast(_Head, obj).metadata.labels
        return found or {}


def _named(obj: Any, api_version: str, kind: str) -> Any:
    if api_version:
        obj.setdefault("apiVersion", api_version)
        obj.setdefault("kind", kind)
    return obj


def newer(revision: str, than: str) -> bool:
    """Whether a resourceVersion is later than another. They are counters; where one is not, the first is believed."""
    try:
        return int(revision) > int(than or 0)
    except ValueError:
        return revision != than
