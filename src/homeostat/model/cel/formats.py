"""Quantities, and the named formats of names and values."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import date
from math import ceil
from typing import Any

from homeostat.model import names
from homeostat.model.cel.overloads import PER_CHARACTER, overload, per_character
from homeostat.model.cel.values import NONE, CelError, Optional, declare_opaque, parse_timestamp
from homeostat.model.quantity import Quantity, parse_quantity

declare_opaque(Quantity, "kubernetes.Quantity")
_NANO = 10**9


@overload("quantity(string): kubernetes.Quantity", cost=per_character)
def quantity(text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except ValueError as error:
        raise CelError(str(error)) from None


@overload("isQuantity(string): bool", cost=per_character)
def is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True


@overload("sign(kubernetes.Quantity): int")
def sign(q: Quantity) -> int:
    return (q.nanos > 0) - (q.nanos < 0)


@overload("kubernetes.Quantity.isInteger(): bool")
def is_integer(q: Quantity) -> bool:
    return q.nanos % _NANO == 0 and abs(q.nanos // _NANO) < 2**63


@overload("kubernetes.Quantity.asInteger(): int")
def as_integer(q: Quantity) -> int:
    if not is_integer(q):
        raise CelError("cannot convert value to integer")
    return q.nanos // _NANO


@overload("kubernetes.Quantity.asApproximateFloat(): double")
def as_float(q: Quantity) -> float:
    return q.nanos / _NANO


def _amount(value: Any) -> Quantity:
    return Quantity(value * _NANO) if isinstance(value, int) else value


@overload("kubernetes.Quantity.add(kubernetes.Quantity): kubernetes.Quantity",
          "kubernetes.Quantity.add(int): kubernetes.Quantity")  # fmt: skip
def add(q: Quantity, other: Any) -> Quantity:
    return q + _amount(other)


@overload("kubernetes.Quantity.sub(kubernetes.Quantity): kubernetes.Quantity",
          "kubernetes.Quantity.sub(int): kubernetes.Quantity")  # fmt: skip
def subtract(q: Quantity, other: Any) -> Quantity:
    return q - _amount(other)


@overload("kubernetes.Quantity.isGreaterThan(kubernetes.Quantity): bool")
def is_greater(q: Quantity, other: Quantity) -> bool:
    return q.nanos > other.nanos


@overload("kubernetes.Quantity.isLessThan(kubernetes.Quantity): bool")
def is_less(q: Quantity, other: Quantity) -> bool:
    return q.nanos < other.nanos


@overload("kubernetes.Quantity.compareTo(kubernetes.Quantity): int")
def compare(q: Quantity, other: Quantity) -> int:
    return (q.nanos > other.nanos) - (q.nanos < other.nanos)


class NamedFormat:
    """A format by name; `problems` says what is wrong with a text."""

    __slots__ = ("name", "problems")

    def __init__(self, name: str, problems: Callable[[str], Sequence[str]]) -> None:
        self.name = name
        self.problems = problems


declare_opaque(NamedFormat, "kubernetes.NamedFormat")


def _prefix(problems: Callable[[str], Sequence[str]]) -> Callable[[str], Sequence[str]]:
    # A name to be continued may end in a dash: what is checked is the name with a letter after it.
    return lambda text: problems(text[:-1] + "a" if text.endswith("-") else text)


def _uri_problems(text: str) -> Sequence[str]:
    from homeostat.model.cel.addresses import is_url

    return [] if is_url(text) else ["must be a valid URI"]


_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}").fullmatch


def _byte_problems(text: str) -> Sequence[str]:
    try:
        b64decode(text, validate=True)
    except ValueError:
        return ["invalid base64"]
    return []


def _date_problems(text: str) -> Sequence[str]:
    try:
        date.fromisoformat(text)
    except ValueError:
        return ["invalid date"]
    return [] if len(text) == 10 else ["invalid date"]


def _datetime_problems(text: str) -> Sequence[str]:
    try:
        parse_timestamp(text)
    except CelError:
        return ["invalid datetime"]
    return []


FORMATS = {
    f.name: f
    for f in (
        NamedFormat("dns1123Label", names.dns_label_problems),
        NamedFormat("dns1123Subdomain", names.dns_subdomain_problems),
        NamedFormat("dns1035Label", names.dns1035_problems),
        NamedFormat("qualifiedName", names.qualified_name_problems),
        NamedFormat("dns1123LabelPrefix", _prefix(names.dns_label_problems)),
        NamedFormat("dns1123SubdomainPrefix", _prefix(names.dns_subdomain_problems)),
        NamedFormat("dns1035LabelPrefix", _prefix(names.dns1035_problems)),
        NamedFormat("labelValue", names.label_value_problems),
        NamedFormat("uri", _uri_problems),
        NamedFormat("uuid", lambda text: [] if _UUID(text) else ["does not match the UUID format"]),
        NamedFormat("byte", _byte_problems),
        NamedFormat("date", _date_problems),
        NamedFormat("datetime", _datetime_problems),
    )
}


def _declare(found: NamedFormat) -> None:
    overload(f"format.{found.name}(): kubernetes.NamedFormat")(lambda: found)


for _format in FORMATS.values():
    _declare(_format)


@overload("format.named(string): optional_type(kubernetes.NamedFormat)")
def named(name: str) -> Optional:
    return Optional(True, FORMATS[name]) if name in FORMATS else NONE


def _per_checked(args: Sequence[Any]) -> int:
    # As if a pattern of a middling length ran over the text.
    return ceil((1 + len(args[1])) * PER_CHARACTER) * 15


@overload("kubernetes.NamedFormat.validate(string): optional_type(list(string))", cost=_per_checked)
def validate(which: NamedFormat, text: str) -> Optional:
    problems = list(which.problems(text))
    return Optional(True, problems) if problems else NONE
