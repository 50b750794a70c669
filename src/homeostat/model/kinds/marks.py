"""What a type cannot say by itself: how a list is merged, what is a secret, and rules that bind several fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

_C = TypeVar("_C", bound=type)


class Mark:
    """Stands in `Annotated[…]` beside a type. Those that take no arguments may be written without parentheses."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, init=False)
class ListMap(Mark):
    """A list whose items are told apart by these of their fields: `Annotated[list[Port], ListMap("name")]`.

    Several writers can each own an item. The keys are scalars that every item has: required, or with a default.
    """

    keys: tuple[str, ...]

    def __init__(self, *keys: str) -> None:
        if not keys:
            raise TypeError('ListMap names the fields that tell the items apart: ListMap("name")')
        object.__setattr__(self, "keys", keys)


class ListSet(Mark):
    """A list of scalars in which each stands once and the order means nothing. Python's `set` is one by itself."""

    __slots__ = ()


class Atomic(Mark):
    """A list that is owned and replaced as a whole. So are all lists that are not marked."""

    __slots__ = ()


class MapAtomic(Mark):
    """A map or struct that is owned and replaced as a whole; others are owned field by field."""

    __slots__ = ()


class Sensitive(Mark):
    """A text that plans, diffs and logs must not show. `format: password` on the wire; the store keeps it as it is."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Rule(Mark):
    """A CEL rule that the API server checks, with fields named as on the wire.

    Three places: in the class attribute `rules` of a struct, as its decorator (where it has a field called `rules`), or
    in `Annotated[…]` for one field. `self` is the value, `oldSelf` the one before an update.

    The server estimates what a rule may cost: lists, maps and texts that it walks want a `max_length`.
    """

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    optional_old_self: bool = False

    def __call__(self, struct: _C) -> _C:
        struct.__rules__ = (*vars(struct).get("__rules__", ()), self)  # type: ignore[attr-defined]
        return struct

    def wire(self) -> dict[str, Any]:
        """As it stands under `x-kubernetes-validations`."""
        texts = {
            "rule": self.rule,
            "message": self.message,
            "messageExpression": self.message_expression,
            "reason": self.reason,
            "fieldPath": self.field_path,
            "optionalOldSelf": self.optional_old_self,
        }
        return {name: value for name, value in texts.items() if value}


def rules_of(struct: type) -> list[Rule]:
    """The rules of a struct, those of its bases first."""
    found: list[Rule] = []
    for base in reversed(struct.__mro__):
        declared = vars(base).get("rules", ())
        if isinstance(declared, list | tuple):  # a field of that name leaves a descriptor here
            found.extend(rule for rule in declared if isinstance(rule, Rule))
        found.extend(reversed(vars(base).get("__rules__", ())))  # decorators run from the bottom up
    return found
