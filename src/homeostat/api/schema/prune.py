"""Removes what a schema does not know. Unknown fields are named as upstream names them in strict and warning mode.

Never pruned: apiVersion and kind of the root and of embedded resources. Their metadata is held to the type of metadata
that all kinds share, whatever the schema says of it.
"""

from __future__ import annotations

from typing import Any

from homeostat.api.schema.compiled import Test, compiled
from homeostat.model.schema import OBJECT_META, TYPE_AND_METADATA, Schema

_TEXTS = ("labels", "annotations")
_CONTAINERS = frozenset({dict, list})


def prune(schema: Schema, obj: Any, *, root: bool = True) -> list[str]:
    """Drops unknown fields in place; gives one line for each (`unknown field "spec.foo"`), metadata first, then sorted.

    `root`: the object is a whole resource (the default), not a part of one. Values of the wrong type stay: reporting
    them is for `validate`.
    """
    if pruned(schema, root)(obj):
        return []
    walk = _Walk()
    walk.prune(obj, schema, "", root)
    walk.metadata.sort(key=lambda path: (not path.startswith("metadata."), path))
    own = [path for path in walk.metadata if path.startswith("metadata.")]
    embedded = walk.metadata[len(own) :]
    return [f'unknown field "{path}"' for path in (*own, *sorted(walk.unknown), *embedded)]


def pruned(schema: Schema, root: bool = False) -> Test:
    """The compiled test: is there nothing to prune?"""
    memo = compiled(schema)
    if root and not schema.embedded:
        if memo.pruned_root is None:
            memo.pruned_root = _compile(schema, resource=True)
        return memo.pruned_root
    if memo.pruned is None:
        memo.pruned = _compile(schema, resource=schema.embedded)
    return memo.pruned


def _compile(schema: Schema, *, resource: bool) -> Test:
    keeps = schema.preserve_unknown
    if keeps and not resource and not (schema.properties or schema.items or "additionalProperties" in schema.raw):
        return _anything
    leaves: set[str] = set()  # fields that hold scalars: they only must not hold something with fields of its own
    nested: dict[str, Test] = {}
    for name, child in schema.properties.items():
        if resource and name in TYPE_AND_METADATA:
            continue
        if child.properties or child.items or "additionalProperties" in child.raw or child.preserve_unknown:
            nested[name] = pruned(child)
        else:
            leaves.add(name)
    extra: Test | None = None
    if "additionalProperties" in schema.raw:
        extra = pruned(schema.additional) if schema.additional is not None else bare
    items = schema.items
    each = pruned(items) if items is not None else bare
    find = nested.get

    def test(value: Any) -> bool:
        kind = type(value)
        if kind is dict:
            if value.keys() <= leaves and _CONTAINERS.isdisjoint(map(type, value.values())):
                return True
            for name, item in value.items():
                if name in leaves:
                    if (type(item) is dict or type(item) is list) and not bare(item):
                        return False
                    continue
                check = find(name) or extra
                if resource and name in TYPE_AND_METADATA:
                    if name == "metadata" and not tidy(item):
                        return False
                elif check is None:
                    if not keeps:
                        return False
                elif not check(item):
                    return False
        elif kind is list:
            if keeps:
                return items is None
            for item in value:
                if not each(item):
                    return False
        return True

    return test


def _anything(_: Any) -> bool:
    return True


def bare(value: Any) -> bool:
    """No fields at any depth: what nothing is known about may hold no more than scalars and lists of them."""
    if type(value) is dict:
        return not value
    return type(value) is not list or all(bare(item) for item in value)


def tidy(meta: Any) -> bool:
    """Is metadata as it would be written: nothing unknown, nothing empty, no null for a text?"""
    if type(meta) is not dict:
        return meta is not None
    if _nulls(meta, "labels") or _nulls(meta, "annotations"):
        return False
    return all(meta.values()) and pruned(OBJECT_META)(meta)


def _nulls(meta: dict[str, Any], field: str) -> bool:
    texts = meta.get(field)
    return type(texts) is dict and None in texts.values()


class _Walk:
    """The slow pruner: changes the object and keeps the paths of what it dropped."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.metadata: list[str] = []

    def prune(self, value: Any, schema: Schema | None, path: str, root: bool = False, keep: bool = False) -> None:
        keep = keep or (schema is not None and schema.preserve_unknown)
        if type(value) is dict:
            self._fields(value, schema, path, root, keep)
        elif type(value) is list:
            items = schema.items if schema is not None else None
            if keep and items is None:
                return
            for i, item in enumerate(value):
                self.prune(item, items, f"{path}[{i}]", keep=keep)

    def _fields(self, value: dict[str, Any], schema: Schema | None, path: str, root: bool, keep: bool) -> None:
        resource = schema is not None and (root or schema.embedded)
        for name in list(value):
            at = f"{path}.{name}" if path else name
            if resource and name in TYPE_AND_METADATA:
                if name == "metadata":
                    if value[name] is None:
                        value[name] = {}
                    self._resource_metadata(value[name], at)
            elif schema is None:
                self._drop(value, name, at)
            elif name in schema.properties:
                self.prune(value[name], schema.properties[name], at)
            elif "additionalProperties" in schema.raw:
                self.prune(value[name], schema.additional, at)
            elif not keep:
                self._drop(value, name, at)

    def _drop(self, value: dict[str, Any], name: str, at: str) -> None:
        self.unknown.append(at)
        del value[name]

    def _resource_metadata(self, meta: Any, path: str) -> None:
        if type(meta) is not dict:
            return
        inner = _Walk()
        inner.prune(meta, OBJECT_META, path)
        self.metadata.extend(inner.unknown)
        # Go writes metadata without what is empty, and reads null as absent, or as an empty text in labels.
        for name in _TEXTS:
            if _nulls(meta, name):
                meta[name] = {key: "" if text is None else text for key, text in meta[name].items()}
        for name, item in list(meta.items()):
            if not item and (name != "deletionGracePeriodSeconds" or item is None):
                del meta[name]
