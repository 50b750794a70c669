"""The table of functions: what each takes and gives, how it is done, and what a call of it costs.

A function is declared by its signature, read like the documentation writes it: `string.contains(string): bool` is a
method, `size(list(A)): int` a function, `_+_(int, int): int` an operator. One capital letter is a type parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from math import ceil
from typing import Any, TypeVar

from homeostat.model.cel.types import Type, parse_type, split_types
from homeostat.model.cel.values import OPAQUE_TYPES, kind_of

Cost = Callable[[Sequence[Any]], int]
"""The price of a call, from its arguments; it is paid before the call is made, so that no call outruns its budget."""

PER_CHARACTER = 0.1
PER_PATTERN_CHARACTER = 0.25
LIST_COST, MAP_COST = 10, 30
"""What it costs to build a list or a map, beside its members."""

Impl = TypeVar("Impl", bound=Callable[..., Any])


class Overload:
    """One signature of a function. `params` begins with the target where it is a method."""

    __slots__ = ("cost", "function", "id", "impl", "method", "params", "result")

    def __init__(self, signature: str, impl: Callable[..., Any], id_: str, cost: Cost | None) -> None:
        call, result = signature.rsplit(": ", 1)
        name, args = _split_arguments(call)
        target, self.function = _split_target(name)
        self.method = bool(target)
        self.params: list[Type] = [parse_type(t) for t in ([target] if target else []) + split_types(args)]
        self.result = parse_type(result)
        self.impl = impl
        self.id = id_ or signature
        self.cost = cost

    def accepts(self, args: Sequence[Any]) -> bool:
        """Whether these values fit, judged by their kinds alone (what dyn leaves to the moment of the call)."""
        return len(args) == len(self.params) and all(_fits(p, a) for p, a in zip(self.params, args, strict=True))


NAMESPACES = ("sets.", "ip.", "format.", "optional.", "cel.", "strings.", "lists.")
"""First words that are part of a function's name and no target."""


def _split_arguments(call: str) -> tuple[str, str]:
    depth = 0
    for i in range(len(call) - 1, -1, -1):
        depth += (call[i] == ")") - (call[i] == "(")
        if depth == 0:
            break
    return call[:i], call[i + 1 : -1]


def _split_target(name: str) -> tuple[str, str]:
    if name.startswith(("_", "@", "-", "!", *NAMESPACES)) or "." not in name:
        return "", name
    target, _, function = name.rpartition(".")
    return target, function


def _fits(param: Type, value: Any) -> bool:
    if param.kind in ("dyn", "param"):
        return True
    kind = kind_of(value)
    if kind != param.kind:
        return False
    return kind != "opaque" or OPAQUE_TYPES[value.__class__].name == param.name


FUNCTIONS: dict[str, list[Overload]] = {}


def overload(*signatures: str, id: str = "", cost: Cost | None = None) -> Callable[[Impl], Impl]:
    """Declares the decorated function for the given signatures. `cost` is 1 a call where nothing else is said."""

    def declare(impl: Impl) -> Impl:
        for signature in signatures:
            declared = Overload(signature, impl, id, cost)
            FUNCTIONS.setdefault(declared.function, []).append(declared)
        return impl

    return declare


def size_of(value: Any) -> int:
    """The size of a value for the purposes of cost: 1 for what has none."""
    return len(value) if value.__class__ in (str, bytes, list, dict) else 1


def per_character(args: Sequence[Any]) -> int:
    """The first argument is read once."""
    return ceil(size_of(args[0]) * PER_CHARACTER)


def per_character_twice(args: Sequence[Any]) -> int:
    """The first argument is read and something of its size is built."""
    return ceil(size_of(args[0]) * 2 * PER_CHARACTER)


def per_pattern(args: Sequence[Any]) -> int:
    """A regular expression runs over a text."""
    return ceil((1 + size_of(args[0])) * PER_CHARACTER) * ceil(size_of(args[1]) * PER_PATTERN_CHARACTER)


def per_pair(args: Sequence[Any]) -> int:
    """Every member of one list is held against every member of the other."""
    return deep_size(args[0]) * len(args[1])


def deep_size(items: list[Any] | dict[Any, Any]) -> int:
    """The members of a container, and those of the containers in it."""
    members = items.values() if items.__class__ is dict else items
    inner = [m for m in members if m.__class__ is list or m.__class__ is dict]
    return len(items) + sum(map(deep_size, inner)) if inner else len(items)


def traversal(value: Any) -> int:
    """The price of looking at every part of a value once."""
    kind = kind_of(value)
    if kind in ("string", "bytes"):
        return int(len(value) * PER_CHARACTER)
    if kind == "list":
        return sum(traversal(v) for v in value)
    if kind == "map":
        return sum(traversal(k) + traversal(v) for k, v in value.items())
    return 1


def per_traversal(args: Sequence[Any]) -> int:
    """Every part of the first argument is looked at."""
    return traversal(args[0])


def functions() -> dict[str, list[Overload]]:
    """Every function by name, with all libraries loaded."""
    for library in ("standard", "times", "strings", "lists", "addresses", "formats", "versions", "authorizers"):
        import_module(f"homeostat.model.cel.{library}")
    return FUNCTIONS
