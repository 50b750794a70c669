"""CEL's values as Python holds them, and what they mean: equality, order, kinds, text.

bool, int, float, str, bytes, None, list and dict are themselves, so that objects from JSON need no conversion. What
Python has no word for stands here.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from homeostat.model.cel.types import SCALARS, Type, list_of, map_of, optional_of

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1
_NANOS = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP_RANGE = (-62135596800 * _NANOS, 253402300799 * _NANOS + _NANOS - 1)  # years 1 to 9999


class CelError(Exception):
    """An expression could not be evaluated on this data. `&&`, `||`, `all` and `exists` can absorb it."""


class BudgetExceeded(Exception):
    """An expression cost more than it may. Nothing absorbs this."""


def no_such_overload() -> CelError:
    """The values do not fit what is done with them."""
    return CelError("no such overload")


LARGEST_TEXT, LONGEST_LIST = 10_000_000, 1_000_000
"""How large a value may become while an expression builds it: short ones can double what they hold again and again."""


def bounded(size: int, limit: int) -> None:
    """Stops an expression that is about to build something larger than the limit."""
    if size > limit:
        raise BudgetExceeded


class Uint(int):
    """An unsigned integer: a type of its own in CEL."""

    __slots__ = ()


class Duration:
    """A span of time in nanoseconds."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        if not INT_MIN <= nanos <= INT_MAX:
            raise CelError("integer overflow")
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and other.nanos == self.nanos

    def __hash__(self) -> int:
        return hash(("duration", self.nanos))

    def __lt__(self, other: Duration) -> bool:
        return self.nanos < other.nanos

    def __str__(self) -> str:
        seconds, nanos = divmod(abs(self.nanos), _NANOS)
        fraction = f".{nanos:09}".rstrip("0") if nanos else ""
        return f"{'-' if self.nanos < 0 else ''}{seconds}{fraction}s"


class Timestamp:
    """A moment, in nanoseconds since 1970 UTC."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        if not _TIMESTAMP_RANGE[0] <= nanos <= _TIMESTAMP_RANGE[1]:
            raise CelError("timestamp overflow")
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and other.nanos == self.nanos

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanos))

    def __lt__(self, other: Timestamp) -> bool:
        return self.nanos < other.nanos

    def moment(self) -> datetime:
        """As a datetime in UTC; microseconds at the finest."""
        return _EPOCH + timedelta(microseconds=self.nanos // 1000)

    def __str__(self) -> str:
        nanos = self.nanos % _NANOS
        fraction = f".{nanos:09}".rstrip("0") if nanos else ""
        moment = _EPOCH + timedelta(seconds=self.nanos // _NANOS)
        return f"{moment.year:04}-{moment:%m-%dT%H:%M:%S}{fraction}Z"


class Optional:
    """A value that may be absent."""

    __slots__ = ("present", "value")

    def __init__(self, present: bool, value: Any = None) -> None:
        self.present = present
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Optional) or self.present != other.present:
            return False
        return not self.present or equal(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.present)


NONE = Optional(False)


_DURATION_PART = re.compile(r"([0-9]{0,19})(?:\.([0-9]{0,30}))?(ns|us|µs|μs|ms|s|m|h)")
_DURATION_UNIT = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": _NANOS, "m": 60 * _NANOS, "h": 3600 * _NANOS,
}  # fmt: skip


def parse_duration(text: str) -> Duration:
    """Reads Go's notation: `1h30m`, `-1.5s`, `0`."""
    sign, body = (-1, text[1:]) if text[:1] == "-" else (1, text[1:] if text[:1] == "+" else text)
    if body == "0":
        return Duration(0)
    total, pos = 0, 0
    while pos < len(body):
        part = _DURATION_PART.match(body, pos)
        if part is None or not (part[1] or part[2]):
            pos = -1
            break
        unit = _DURATION_UNIT[part[3]]
        total += int(part[1] or 0) * unit
        if part[2]:
            total += int(part[2][:18]) * unit // 10 ** len(part[2][:18])
        pos = part.end()
    if not body or pos < 0:
        raise CelError("type conversion error from 'string' to 'google.protobuf.Duration'")
    return Duration(sign * total)


_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?(?:[Zz]|([+-])(\d\d):(\d\d))"
)


def parse_timestamp(text: str) -> Timestamp:
    """Reads RFC 3339, to the nanosecond."""
    m = _TIMESTAMP.fullmatch(text)
    if m is not None:
        try:
            year, month, day, hour, minute, second = map(int, m.groups()[:6])
            moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        except ValueError:
            m = None
    if m is None:
        raise CelError(f'invalid RFC 3339 timestamp "{text}"')
    nanos = int((moment - _EPOCH) / timedelta(seconds=1)) * _NANOS
    if m[7]:
        nanos += int(m[7].ljust(9, "0"))
    if m[8]:
        offset = (int(m[9]) * 3600 + int(m[10]) * 60) * _NANOS
        nanos += offset if m[8] == "-" else -offset
    return Timestamp(nanos)


_KINDS: dict[type, str] = {
    bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", bytes: "bytes", type(None): "null",
    list: "list", dict: "map", Duration: "duration", Timestamp: "timestamp", Type: "type", Optional: "opaque",
}  # fmt: skip


def kind_of(value: Any) -> str:
    """The kind of a value at run time, as `Type.kind` spells it."""
    return _KINDS.get(value.__class__, "opaque")


def type_of_value(value: Any) -> Type:
    """What `type(value)` gives."""
    kind = kind_of(value)
    if kind == "list":
        return LIST_TYPE
    if kind == "map":
        return MAP_TYPE
    if kind == "opaque":
        return OPAQUE_TYPES[value.__class__]
    return SCALARS[kind]


LIST_TYPE = list_of(SCALARS["dyn"])
MAP_TYPE = map_of(SCALARS["dyn"], SCALARS["dyn"])
OPTIONAL_TYPE = optional_of(SCALARS["dyn"])

TYPE_NAMES: dict[str, Type] = {
    **{name: SCALARS[name] for name in ("bool", "bytes", "double", "int", "string", "uint", "type", "dyn")},
    "list": LIST_TYPE,
    "map": MAP_TYPE,
    "null_type": SCALARS["null"],
    "google.protobuf.Duration": SCALARS["duration"],
    "google.protobuf.Timestamp": SCALARS["timestamp"],
    "optional_type": OPTIONAL_TYPE,
}
"""Types that an expression can name, for `type(x) == string`."""

OPAQUE_TYPES: dict[type, Type] = {Optional: OPTIONAL_TYPE}
"""The types of values that libraries bring: URLs, addresses, quantities, …"""


def declare_opaque(cls: type, name: str) -> None:
    """Makes a Python class a CEL type of that name."""
    OPAQUE_TYPES[cls] = TYPE_NAMES[name] = Type("opaque", name)


def equal(a: Any, b: Any) -> bool:
    """CEL's `==` on values of any kind: numbers compare by value, other kinds never equal each other."""
    ca, cb = a.__class__, b.__class__
    if ca is bool or cb is bool:
        return a is b
    if ca is list:
        return cb is list and len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    if ca is dict:
        if cb is not dict or len(a) != len(b):
            return False
        return all(k in b and equal(v, b[k]) for k, v in a.items())
    return bool(a == b)


def contains(items: list[Any], x: Any) -> bool:
    """CEL's `x in list`."""
    if x.__class__ is str:
        return x in items
    return any(equal(x, y) for y in items)


def map_key(value: Any) -> Any:
    """A value as the key of a map; Python would take True for 1 and 1.0 for 1."""
    if value.__class__ in (str, int, Uint):
        return value
    if value.__class__ is float and value.is_integer():
        return int(value)
    if value.__class__ is bool:
        return value
    raise CelError(f"unsupported key type: {type_of_value(value)}")


def show_text(value: Any) -> str:
    """What `string(value)` gives."""
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, float):
        return show_double(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
    return str(value)


def show_double(value: float) -> str:
    """A double as Go writes it with the fewest digits: from a million on, and below a ten-thousandth, with an exponent."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    exact = Decimal(repr(value))
    exponent = exact.adjusted()
    if value == 0 or -4 <= exponent < 6:
        return repr(value).removesuffix(".0")
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{'-' if value < 0 else ''}{digits[0]}{fraction}e{exponent:+03}"
