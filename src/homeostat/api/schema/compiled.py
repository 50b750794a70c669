"""What is computed once per schema node and kept with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from homeostat.api.schema.values import Constraints
from homeostat.model.schema import Schema

Test = Callable[[Any], bool]


class Compiled:
    """The memo of one node. Each test answers a single question about a value, without changing it."""

    __slots__ = (
        "accepts", "constraints", "decodes", "embedded", "fill", "fits", "heavy", "lists", "names_fit", "parts", "pruned", "pruned_root",
        "settled", "wanted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.constraints: Constraints | None = None
        self.accepts: Test | None = None  # is the value valid?
        self.parts: tuple[Test, Test] | Literal[False] | None = None  # are its fields, each by itself, and is it by their names?
        self.fits: Test | None = None  # is it valid, and nothing has to be done to it?
        self.names_fit: Test | Literal[False] | None = None  # is it, as far as that hangs on which fields it has?
        self.pruned: Test | None = None  # is it free of unknown fields?
        self.pruned_root: Test | None = None  # the same, where it is a whole resource
        self.settled: Test | None = None  # are its defaults filled in and its stray nulls gone?
        self.wanted: frozenset[str] | None = None  # which of its fields have defaults?
        self.fill: Callable[[Any, int], int] | None = None  # fills them in
        self.decodes: Test | None = None  # can it be read as a built-in type?
        self.embedded: bool | None = None  # does the schema hold embedded resources?
        self.lists: bool | None = None  # does it hold sets or keyed lists?
        self.heavy: bool | None = None  # does it hold patterns that may take long?


def compiled(schema: Schema) -> Compiled:
    """The memo of a node; made when first asked for."""
    memo = schema.compiled
    if memo is None:
        memo = schema.compiled = Compiled()
    assert isinstance(memo, Compiled)
    return memo


def constraints_of(schema: Schema) -> Constraints:
    """The parsed rules of a node."""
    memo = compiled(schema)
    if memo.constraints is None:
        memo.constraints = Constraints(schema)
    return memo.constraints


def anywhere(schema: Schema, found: Callable[[Schema], bool]) -> bool:
    """Does something hold for the node or any node under it?"""
    if found(schema):
        return True
    children = [*schema.properties.values(), schema.items, schema.additional]
    return any(child is not None and anywhere(child, found) for child in children)
