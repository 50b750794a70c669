"""CEL's types: how they print in messages, and when one may stand for another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

UNBOUNDED = 2**64 - 1
"""How large a thing of unknown size may be, for cost estimates."""


class Type:
    """A type, as the checker, the cost estimate and `type(x)` see it.

    `kind` groups types ("list", "object", "opaque", …), `name` tells apart objects, opaque types and type parameters.
    Types that come from a schema also carry sizes: `max_elements` items or characters, `min_size` bytes as JSON.
    """

    __slots__ = ("fields", "kind", "list_keys", "list_type", "max_elements", "min_size", "name", "params", "text")

    def __init__(
        self,
        kind: str,
        name: str = "",
        params: tuple[Type, ...] = (),
        *,
        fields: Mapping[str, Field] | None = None,
        max_elements: int = UNBOUNDED,
        min_size: int = 0,
        list_type: str = "atomic",
        list_keys: tuple[str, ...] = (),
    ) -> None:
        self.kind = kind
        self.name = name
        self.params = params
        self.fields = fields
        self.max_elements = max_elements
        self.min_size = min_size
        self.list_type = list_type
        self.list_keys = list_keys
        self.text = self._format()

    def _format(self) -> str:
        if self.kind in ("list", "map"):
            return f"{self.kind}({', '.join(p.text for p in self.params)})"
        if self.kind == "type":
            return f"type({self.params[0].text})" if self.params else "type"
        if self.kind == "opaque" and self.params:
            return f"{self.name}({', '.join(p.text for p in self.params)})"
        return self.name or self.kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


class Field(msgspec.Struct, frozen=True):
    """A field of an object type: `name` is the JSON name, the key under which it is kept is the escaped one."""

    name: str
    type: Type


DYN = Type("dyn")
ERROR = Type("error", "!error!")
NULL = Type("null")
BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
DURATION = Type("duration")
TIMESTAMP = Type("timestamp")
TYPE = Type("type")

SCALARS = {t.kind: t for t in (DYN, NULL, BOOL, INT, UINT, DOUBLE, STRING, BYTES, DURATION, TIMESTAMP, TYPE)}

_NULLABLE = frozenset({"null", "opaque", "object", "duration", "timestamp"})


def list_of(item: Type) -> Type:
    """`list(item)`."""
    return Type("list", params=(item,))


def map_of(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type("map", params=(key, value))


def optional_of(item: Type) -> Type:
    """`optional_type(item)`."""
    return Type("opaque", "optional_type", (item,))


def type_of(target: Type) -> Type:
    """`type(target)`: the type of the type itself."""
    return Type("type", params=(target,))


def parameter(name: str) -> Type:
    """A type that is not known yet."""
    return Type("param", name)


def is_optional(t: Type) -> bool:
    """Whether it is an `optional_type` of something."""
    return t.kind == "opaque" and t.name == "optional_type"


def parse_type(text: str) -> Type:
    """Reads `list(string)`, `map(string, A)`, `optional_type(A)`, `net.IP`; one capital letter is a type parameter."""
    head, _, inner = text.partition("(")
    if inner:
        params = tuple(parse_type(p) for p in split_types(inner[:-1]))
        if head in ("list", "map", "type"):
            return Type(head, params=params)
        return Type("opaque", head, params)
    if head in SCALARS:
        return SCALARS[head]
    return parameter(head) if len(head) == 1 else Type("opaque", head)


def split_types(text: str) -> list[str]:
    """Splits at the commas that are not inside parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


class Substitution:
    """What the type parameters of one expression have turned out to be."""

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []
        self._fresh = 0

    def fresh(self) -> Type:
        """A type parameter that nothing else uses."""
        self._fresh += 1
        return parameter(f"_var{self._fresh}")

    def instantiate(self, types: Sequence[Type]) -> list[Type]:
        """The same types with fresh parameters, the same letter becoming the same parameter."""
        names: dict[str, Type] = {}

        def renamed(t: Type) -> Type:
            if t.kind == "param":
                if t.name not in names:
                    names[t.name] = self.fresh()
                return names[t.name]
            return _rebuilt(t, (renamed(p) for p in t.params)) if t.params else t

        return [renamed(t) for t in types]

    def resolve(self, t: Type, open_as_dyn: bool = False) -> Type:
        """The type with all known parameters filled in; unknown ones become dyn on demand."""
        if t.kind == "param":
            bound = self._bound.get(t.name)
            if bound is not None:
                return self.resolve(bound, open_as_dyn)
            return DYN if open_as_dyn else t
        return _rebuilt(t, (self.resolve(p, open_as_dyn) for p in t.params)) if t.params else t

    def assignable(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """Whether values of the given types may stand where the wanted ones are; binds parameters only if so."""
        if len(given) != len(wanted):
            return False
        self._trail.clear()
        if all(self._fits(g, w) for g, w in zip(given, wanted, strict=True)):
            return True
        for name, before in reversed(self._trail):
            if before is None:
                del self._bound[name]
            else:
                self._bound[name] = before
        return False

    def _set(self, param: str, meaning: Type) -> None:
        self._trail.append((param, self._bound.get(param)))
        self._bound[param] = meaning

    def _fits(self, t1: Type, t2: Type) -> bool:
        if t2.kind == "param":
            valid, bound = self._bind(t1, t2)
            if valid or bound:
                return valid
        if t1.kind == "param":
            return self._bind(t2, t1)[0]
        if t1.kind in ("dyn", "error") or t2.kind in ("dyn", "error"):
            return True
        if t1.kind == "null" or t2.kind == "null":
            return (t2 if t1.kind == "null" else t1).kind in _NULLABLE
        if t1.kind != t2.kind:
            return False
        if t1.kind == "type":
            return True
        if t1.kind in ("object", "opaque") and t1.name != t2.name:
            return False
        return len(t1.params) == len(t2.params) and all(
            self._fits(p, q) for p, q in zip(t1.params, t2.params, strict=True)
        )

    def _bind(self, t: Type, param: Type) -> tuple[bool, bool]:
        """(whether t is a valid meaning of the parameter, whether the parameter had a meaning before)."""
        bound = self._bound.get(param.name)
        if bound is not None:
            if t == bound:
                return True, True
            if self._fits(t, bound):
                self._set(param.name, _more_general(t, bound))
                return True, True
            return False, True
        if self._occurs(param, t):
            return False, False
        self._set(param.name, t)
        return True, False

    def _occurs(self, param: Type, within: Type) -> bool:
        if within.kind == "param":
            if within.name == param.name:
                return True
            bound = self._bound.get(within.name)
            return bound is not None and self._occurs(param, bound)
        return any(self._occurs(param, p) for p in within.params)

    def join(self, first: Type | None, second: Type) -> Type | None:
        """The common type of two members of a list or map literal; None where there is none."""
        if first is None:
            return second
        return _more_general(first, second) if self.assignable([first], [second]) else None


def _rebuilt(t: Type, params: Iterable[Type]) -> Type:
    new = tuple(params)
    if all(a is b for a, b in zip(new, t.params, strict=True)):
        return t
    return Type(t.kind, t.name, new, list_type=t.list_type, list_keys=t.list_keys)


def _more_general(t1: Type, t2: Type) -> Type:
    return t1 if _less_specific(t1, t2) else t2


def _less_specific(t1: Type, t2: Type) -> bool:
    if t1.kind in ("dyn", "param"):
        return True
    if t2.kind in ("dyn", "param") or t1.kind != t2.kind:
        return False
    if t1.kind in ("list", "map", "opaque") and t1.name == t2.name and len(t1.params) == len(t2.params):
        return all(_less_specific(p, q) for p, q in zip(t1.params, t2.params, strict=True))
    return t1 == t2
