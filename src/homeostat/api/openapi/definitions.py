"""The types in a document: built-in ones from the table, custom ones from their schemas, in v2 or v3 dress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from homeostat.api.builtin import types
from homeostat.api.discovery import Kind
from homeostat.api.openapi import texts
from homeostat.api.openapi.custom import custom_v2, custom_v3
from homeostat.api.resource import Resource

Json = dict[str, Any]

STATUS = types.META + "Status"
DELETE_OPTIONS = types.META + "DeleteOptions"
PATCH = types.META + "Patch"
OBJECT_META = types.META + "ObjectMeta"
LIST_META = types.META + "ListMeta"

_ONLY_OURS = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
# Types with two JSON forms: how v2 and v3 say it.
_TWO_FORMS: dict[str, tuple[Json, Json]] = {
    "int-or-string": (
        {"type": "string", "format": "int-or-string"},
        {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    ),
    "quantity": ({"type": "string"}, {"oneOf": [{"type": "string"}, {"type": "number"}]}),
}


def type_name(resource: Resource, version: str, kind: str = "") -> str:
    """Upstream's name of a kind: `io.k8s.api.core.v1.Pod`, or for a custom one `com.example.v1.Widget`."""
    kind = kind or resource.kind
    if not resource.custom:
        try:
            whole = types.definition_name(resource.api_version(version), resource.kind)
            return whole.removesuffix(resource.kind) + kind
        except KeyError:
            pass
    reversed_group = ".".join(reversed(resource.group.split("."))) or "core"
    return f"{reversed_group}.{version}.{kind}"


class Definitions:
    """Collects the types that a document needs, each with everything that it refers to."""

    def __init__(self, *, v3: bool) -> None:
        self._v3 = v3
        self._root = "#/components/schemas/" if v3 else "#/definitions/"
        self.schemas: dict[str, Json] = {}

    def ref(self, name: str) -> Json:
        """A reference to a type; a built-in one is added with it."""
        if name not in self.schemas and types.is_defined(name):  # custom types and lists are added with their kind
            self._add_builtin(name)
        return {"$ref": self._root + name}

    def add_kind(self, resource: Resource, version: str) -> None:
        """A served kind and its list."""
        kind = (resource.group, version, resource.kind)
        name = type_name(resource, version)
        if not resource.custom and types.is_defined(name):
            self.ref(name)
            self.mark(name, kind)
        else:
            raw = resource.versions[version].schema.raw
            convert = custom_v3 if self._v3 else custom_v2
            schema = convert(raw, self._head())
            self.schemas[name] = {**schema, **_marks(resource, kind)}
        if "list" in resource.verbs:
            self._add_list(resource, version, name)

    def mark(self, name: str, kind: Kind) -> None:
        """Says which kind a type is, so that clients find it."""
        self.ref(name)
        marks = self.schemas[name].setdefault("x-kubernetes-group-version-kind", [])
        if _as_json(kind) not in marks:
            marks.append(_as_json(kind))

    def _add_list(self, resource: Resource, version: str, item: str) -> None:
        items = {"type": "array", "items": self.ref(item), "description": texts.FIELDS["items"]}
        head = {key: value for key, value in self._head().items() if key != "metadata"}
        self.schemas[type_name(resource, version, resource.list_kind)] = {
            "description": f"{resource.list_kind} is a list of {resource.kind}",
            "type": "object",
            "required": ["items"],
            "properties": {**head, "items": items, "metadata": self._described(self.ref(LIST_META), "Of the list.")},
            **_marks(resource, (resource.group, version, resource.list_kind)),
        }

    def _head(self) -> dict[str, Json]:
        return {
            "apiVersion": {"type": "string", "description": texts.FIELDS["apiVersion"]},
            "kind": {"type": "string", "description": texts.FIELDS["kind"]},
            "metadata": self._described(self.ref(OBJECT_META), texts.FIELDS["metadata"]),
        }

    def _add_builtin(self, name: str) -> None:
        self.schemas[name] = {}  # in place before its fields are walked: a type may contain itself
        facts = types.definition(name)
        short = name.rsplit(".", 1)[1]
        schema = self._schema(facts, short)
        if short in texts.KINDS:
            schema = {"description": texts.KINDS[short], **schema}
        self.schemas[name].update(schema)

    def _schema(self, facts: Mapping[str, Any], owner: str) -> Json:
        schema: Json = {key: value for key, value in facts.items() if key not in _ONLY_OURS}
        if "$ref" in schema:
            return self._described(self.ref(schema.pop("$ref")), "", schema)
        if schema.get("format") in _TWO_FORMS:
            return _TWO_FORMS[schema["format"]][self._v3]
        if not self._v3:
            schema.pop("default", None)
        if "properties" in schema:
            schema["properties"] = dict(self._fields(schema["properties"], owner))
        for inner in ("items", "additionalProperties"):
            if inner in schema:
                schema[inner] = self._schema(schema[inner], "")
        return schema

    def _fields(self, properties: Mapping[str, Any], owner: str) -> Iterator[tuple[str, Json]]:
        for field, facts in properties.items():
            schema = self._schema(facts, "")
            text = texts.of_field(owner, field)
            if text:
                schema = self._described(schema, text) if "$ref" in schema else {"description": text, **schema}
            yield field, schema

    def _described(self, ref: Json, text: str, more: Json | None = None) -> Json:
        """A reference that says something more; v3 allows no words beside a `$ref`."""
        said = {**({"description": text} if text else {}), **(more or {})}
        if not said:
            return ref
        return {"allOf": [ref], **said} if self._v3 else {**said, **ref}


def _marks(resource: Resource, kind: Kind) -> Json:
    """Which kind a type is, and by which of its fields objects can be selected."""
    marks: Json = {"x-kubernetes-group-version-kind": [_as_json(kind)]}
    if paths := resource.versions[kind[1]].selectable:
        marks["x-kubernetes-selectable-fields"] = [{"fieldPath": path.lstrip(".")} for path in paths]
    return marks


def _as_json(kind: Kind) -> Json:
    group, version, name = kind
    return {"group": group, "kind": name, "version": version}
