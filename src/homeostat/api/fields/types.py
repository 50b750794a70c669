"""What field ownership needs to know of a type: which parts are owned apart from each other, and which only as a whole.

A `Schema` is compiled once, lazily and level by level (types may contain themselves), into `Type` nodes that the
walkers of this package read without asking anything twice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from homeostat.api.wording import json_text
from homeostat.model.errors import UNSET
from homeostat.model.schema import ANY, OBJECT_META, Schema

ATOMIC, SET, MAP = 0, 1, 2
"""How the items of a list are owned: all together, each by its value, each by its key fields."""

ANY_SCALAR, TEXT, NUMBER, FLAG = 1, 2, 3, 4


class Untypable(ValueError):
    """A value that cannot be indexed by its type: an item of a keyed list without its key, a set of maps."""


class Type:
    """One compiled node. `is_map`, `is_list` and `scalar` say which forms are legal; what nobody described allows all.

    `fields` holds the declared fields, each with its path element; `element` is the type of any other key, None where
    other keys are not legal. `zero` holds what a field of a built-in kind is when nobody set it (Go has no absent
    structs).
    """

    __slots__ = (
        "_element",
        "_fields",
        "_item",
        "_zero",
        "is_list",
        "is_map",
        "key_defaults",
        "key_heads",
        "keys",
        "list_kind",
        "map_atomic",
        "open",
        "root",
        "scalar",
        "schema",
    )

    def __init__(self, schema: Schema, root: bool = False) -> None:
        raw = schema.raw
        self.schema = schema
        self.root = root
        kind = schema.type
        declared = bool(raw.get("properties")) or root or schema.embedded
        deduced = kind == "" and not declared
        self.is_map = kind == "object" or kind == ""
        self.is_list = kind == "array" or deduced
        self.scalar = _scalar(schema) if kind not in ("object", "array", "") else ANY_SCALAR if deduced else 0
        self.map_atomic = schema.map_type == "atomic"
        additional = raw.get("additionalProperties")
        self.open = (
            deduced
            or (schema.preserve_unknown and additional is None)
            or additional is True
            or (additional is None and not declared)
        )
        self.keys: tuple[str, ...] = ()
        self.list_kind = ATOMIC
        if kind == "array":
            self._index_list(schema)
        self._fields: dict[str, tuple[str, Type]] | None = None
        self._element: Type | None = None
        self._item: Type | None = None
        self._zero: dict[str, Any] | None = None

    def _index_list(self, schema: Schema) -> None:
        keys: tuple[str, ...] = ()
        if "x-kubernetes-list-type" in schema.raw:
            kind = schema.list_type
            keys = schema.list_keys if kind == "map" else ()
        else:
            kind = "set" if "merge" in schema.merge_strategy else "atomic"
            if kind == "set" and schema.merge_key:
                kind, keys = "map", (schema.merge_key,)
        self.list_kind = {"set": SET, "map": MAP}.get(kind, ATOMIC)
        self.keys = tuple(sorted(keys))
        self.key_heads = tuple(f",{json_text(key)}:" for key in self.keys)
        items = schema.items
        properties = items.properties if items is not None else {}
        defaults = (properties[key].default if key in properties else UNSET for key in self.keys)
        self.key_defaults = tuple(UNSET if default is None else default for default in defaults)

    @property
    def fields(self) -> dict[str, tuple[str, Type]]:
        """Declared fields: name → (`f:name`, type)."""
        if self._fields is None:
            raw = self.schema.raw.get("properties", {})
            fields = {
                name: ("f:" + name, OPAQUE if raw[name].get("$ref", "").endswith(".RawExtension") else Type(child))
                for name, child in self.schema.properties.items()
            }
            if self.root or self.schema.embedded:
                fields["metadata"] = ("f:metadata", METADATA)
                for name in ("apiVersion", "kind"):
                    fields.setdefault(name, ("f:" + name, _TEXT))
            self._fields = fields
        return self._fields

    @property
    def element(self) -> Type | None:
        """The type of keys that are not declared; None where there may be none."""
        if self._element is None:
            if self.schema.additional is not None:
                self._element = Type(self.schema.additional)
            elif self.open:
                self._element = DEDUCED
        return self._element

    @property
    def item(self) -> Type:
        """The type of a list's items."""
        if self._item is None:
            items = self.schema.items
            self._item = DEDUCED if items is None else Type(items)
        return self._item

    @property
    def zero(self) -> dict[str, Any]:
        """Fields of a built-in kind that are there even when nobody set them, with what they then hold."""
        if self._zero is None:
            self._zero = _zeroes(self.schema, self.root)
        return self._zero

    def item_key(self, item: Any) -> str:
        """The path element of a list's item. Raises `Untypable` with upstream's words where it has none."""
        if self.list_kind == SET:
            if item is None or isinstance(item, (dict, list)):
                raise Untypable(_SET_ITEM_PROBLEMS[type(item)])
            return "v:" + scalar_text(item)
        if type(item) is not dict:
            what = "a null element" if item is None else "non-map elements"
            raise Untypable(f"associative list with keys may not have {what}")
        if len(self.keys) == 1 and type(value := item.get(self.keys[0])) is str:
            return f"k:{{{self.key_heads[0][1:]}{scalar_text(value)}}}"
        text = ""
        for name, head, default in zip(self.keys, self.key_heads, self.key_defaults, strict=True):
            value = item.get(name, default)
            if value is not UNSET:
                text += head + (json_text(value) if isinstance(value, (dict, list)) else scalar_text(value))
        if not text:
            names = " ".join(json_text(name) for name in self.schema.list_keys or self.keys)
            raise Untypable(
                f"associative list with keys has an element that omits all key fields [{names}] "
                "(and doesn't have default values for any key fields)"
            )
        return "k:{" + text[1:] + "}"


_SET_ITEM_PROBLEMS: dict[type, str] = {
    dict: "associative list without keys has an element that's a map type",
    list: "not supported: associative list with lists as elements",
    type(None): "associative list without keys has an element that's an explicit null",
}


def _scalar(schema: Schema) -> int:
    if schema.int_or_string:
        return ANY_SCALAR
    if schema.type == "string":
        return TEXT if schema.raw.get("format", "") in ("", "byte") else ANY_SCALAR
    return {"integer": NUMBER, "number": NUMBER, "boolean": FLAG}.get(schema.type, ANY_SCALAR)


def _zeroes(schema: Schema, root: bool) -> dict[str, Any]:
    if schema is OBJECT_META:
        return {"creationTimestamp": None}
    out: dict[str, Any] = {}
    if not schema.builtin:  # custom kinds have no Go type behind them: what is absent is absent
        return out
    fields = schema.raw.get("properties", {})
    required = schema.raw.get("required", ())
    by_value = ("podSelector", "spec", "status") if root else ("podSelector",)
    # A ReplicationController, alone, points at its template; it is told by its plain map of a selector.
    points = "additionalProperties" in fields.get("selector", ()) and "template" in fields
    for name, raw in fields.items():
        target = raw.get("$ref", "").rpartition(".")[2]
        if target in ("Time", "MicroTime"):
            out[name] = None
        elif target and (target in _GO_VALUES or name in required or name in by_value):
            out[name] = {}
        elif name in required or name in _NEVER_OMITTED:
            out[name] = _ZERO.get(raw.get("type", ""))
    if points:
        out.pop("template", None)
    return out


_ZERO: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}
_NEVER_OMITTED = frozenset(("reportingComponent", "reportingInstance"))

_GO_VALUES = frozenset(
    (
        "CustomResourceDefinitionNames",
        "DaemonEndpoint",
        "DaemonSetUpdateStrategy",
        "DeploymentStrategy",
        "EventSource",
        "JobSpec",
        "JobTemplateSpec",
        "LoadBalancerStatus",
        "NodeDaemonEndpoints",
        "NodeSystemInfo",
        "ObjectMeta",
        "PodSpec",
        "PodTemplateSpec",
        "ResourceRequirements",
        "StatefulSetUpdateStrategy",
        "VolumeResourceRequirements",
    )
)
"""Types that upstream embeds by value: such a field is never absent, so nobody comes to own it by creating it."""


def scalar_text(value: str | float | bool | None) -> str:
    """`json_text` of a scalar; the same few names come again and again, so short ones are remembered."""
    return json_text(value) if type(value) is str and len(value) > _LONG else _scalar_text(value)


_LONG = 256
_scalar_text = lru_cache(maxsize=4096, typed=True)(json_text)


@lru_cache(maxsize=1024)
def type_of(schema: Schema) -> Type:
    """The compiled type of a kind. Kept for the schemas used last: one that changes is a new `Schema`."""
    return Type(schema, root=True)


DEDUCED = Type(ANY)
"""What nobody described: maps are owned key by key, lists as a whole."""

OPAQUE = Type(Schema({"x-kubernetes-map-type": "atomic"}))
"""Foreign data inside a built-in kind: owned as a whole."""

_TEXT = Type(Schema({"type": "string"}))
METADATA = Type(OBJECT_META)
