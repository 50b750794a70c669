"""Pairs the parts of an updated object with what they were before.

Fields pair by name and items of keyed lists by key; sets and atomic lists only as a whole. An error about a part that
is equal to its pair is forgiven: a schema may become stricter without blocking changes elsewhere in old objects.
"""

from __future__ import annotations

from typing import Any

from homeostat.model.equality import same
from homeostat.model.schema import Schema


class Correlated:
    """One value, its schema, and its old self."""

    __slots__ = ("_by_key", "_unchanged", "old", "schema", "value")

    def __init__(self, schema: Schema, value: Any, old: Any) -> None:
        self.schema = schema
        self.value = value
        self.old = old
        self._by_key: dict[tuple[Any, ...], Any] | None = None
        self._unchanged: bool | None = None

    def field(self, name: str) -> Correlated | None:
        """The pair under one field; None where one side or the schema has no such field."""
        old, value = self.old, self.value
        if type(old) is not dict or type(value) is not dict or name not in old or name not in value:
            return None
        child = self.schema.child(name)
        return None if child is None else Correlated(child, value[name], old[name])

    def item(self, index: int) -> Correlated | None:
        """The pair of one item of a keyed list; None for every other list."""
        schema = self.schema
        if type(self.old) is not list or schema.list_type != "map" or not schema.list_keys or schema.items is None:
            return None
        if self._by_key is None:
            self._by_key = {}
            for item in self.old:
                key = item_key(schema, item)
                if key is not None:
                    self._by_key.setdefault(key, item)
        key = item_key(schema, self.value[index])
        old = None if key is None else self._by_key.get(key)
        return None if old is None else Correlated(schema.items, self.value[index], old)

    def unchanged(self) -> bool:
        """Is the value what it was? The order of a keyed list does not matter."""
        if self._unchanged is None:
            self._unchanged = self._compare()
        return self._unchanged

    def _compare(self) -> bool:
        value, old = self.value, self.old
        if type(value) is dict and type(old) is dict:
            if len(value) != len(old):
                return False
            pairs = [self.field(name) for name in value]
            return all(pair is not None and pair.unchanged() for pair in pairs)
        if type(value) is list and type(old) is list and self.schema.list_type == "map" and value and old:
            if len(value) != len(old):
                return False
            pairs = [self.item(i) for i in range(len(value))]
            return all(pair is not None and pair.unchanged() for pair in pairs)
        return type(value) is type(old) and same(value, old)


def item_key(schema: Schema, item: Any) -> tuple[Any, ...] | None:
    """The key of an item of a keyed list; None where a part is missing or no scalar."""
    if type(item) is not dict:
        return None
    key: list[Any] = []
    for name in schema.list_keys:
        part = item.get(name)
        if part is None or type(part) in (dict, list):
            return None
        key.append((type(part), part))  # 1, 1.0 and true are different keys
    return tuple(key)
