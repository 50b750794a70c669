"""How upstream's structs lay out the built-in types: numbers on the wire, and what is left out when it is zero.

`wire.tsv` has one line a type, fields as `number name kind`: `[]` repeated, `{}` a map by string, `~` a part whose
fields stand in the outer object, `?` absent when zero.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

_PLAIN = frozenset({"string", "bytes", "int", "bool", "double"})


class Field(NamedTuple):
    """One field of a type."""

    name: str
    kind: str
    repeated: bool
    mapped: bool
    absent_when_zero: bool


@cache
def _table() -> dict[str, str]:
    lines = Path(__file__).with_name("wire.tsv").read_text().splitlines()
    return {name: fields for name, _, fields in (line.partition("\t") for line in lines)}


@cache
def layout(name: str) -> dict[int, Field]:
    """The fields of a type by their number; none where the type is not known."""
    found: dict[int, Field] = {}
    for field in _table()[name].split(",") if _table().get(name) else ():
        number, json_name, kind = field.split(" ")
        absent = kind.endswith("?")
        kind = kind.removesuffix("?")
        repeated, mapped = kind.endswith("[]"), kind.endswith("{}")
        found[int(number)] = Field(json_name, kind.rstrip("[]{}"), repeated, mapped, absent)
    return found


@cache
def absent_when_zero(name: str) -> frozenset[str]:
    """The fields of a type that are never written as `""`, `0`, `false`, `[]` or `{}`. Structs are always written."""
    absent: set[str] = set()
    for field in layout(name).values():
        if field.name == "~":
            absent |= absent_when_zero(field.kind)
        elif field.absent_when_zero and (field.repeated or field.mapped or field.kind in _PLAIN):
            absent.add(field.name)
    return frozenset(absent)
