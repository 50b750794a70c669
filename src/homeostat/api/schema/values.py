"""What one schema node asks of one value, parsed once: types, limits, patterns, enums, branches."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from homeostat.model.patterns import compile_re2
from homeostat.model.schema import Schema

if TYPE_CHECKING:
    from homeostat.api.schema.formats import Check

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_EXACT_FLOAT = 2.0**53 - 1  # beyond it a float no longer names one integer

SHORT = 64
"""Characters of a text of which it is worth remembering what was found of it: much that is short comes again."""
REMEMBERED = 256
"""Texts that each pattern remembers."""

_RANGES = {"int32": (-(2**31), 2**31 - 1), "float": (-3.4028234663852886e38, 3.4028234663852886e38)}


class Constraints:
    """The rules of one node in a form that can be checked; children are reached through the `Schema` itself."""

    __slots__ = (
        "all_of",
        "any_of",
        "enum",
        "enum_keys",
        "exclusive_max",
        "exclusive_min",
        "extra_allowed",
        "format",
        "format_check",
        "matches",
        "max_items",
        "max_length",
        "max_properties",
        "maximum",
        "min_items",
        "min_length",
        "min_properties",
        "minimum",
        "multiple_of",
        "not_",
        "nullable",
        "one_of",
        "pattern",
        "required",
        "types",
    )

    def __init__(self, schema: Schema) -> None:
        raw = schema.raw
        get = raw.get
        int_or_string = get("x-kubernetes-int-or-string") is True
        self.types: tuple[str, ...] = ("integer", "string") if int_or_string else (schema.type,) if schema.type else ()
        self.nullable = schema.nullable
        self.format = ""
        self.format_check: Check | None = None
        if get("format") and not int_or_string:
            from homeostat.api.schema.formats import effective_format, format_check

            self.format = effective_format(schema.type, get("format"))
            self.format_check = format_check(self.format) if self.format else None
        self.minimum: float | None = get("minimum")
        self.maximum: float | None = get("maximum")
        self.exclusive_min = get("exclusiveMinimum") is True
        self.exclusive_max = get("exclusiveMaximum") is True
        self.multiple_of: float | None = get("multipleOf")
        self.min_length: int | None = get("minLength")
        self.max_length: int | None = get("maxLength")
        self.pattern: str = get("pattern") or ""
        self.matches: Callable[[str], object] | None = compile_pattern(self.pattern) if self.pattern else None
        self.min_items: int | None = get("minItems")
        self.max_items: int | None = get("maxItems")
        self.min_properties: int | None = get("minProperties")
        self.max_properties: int | None = get("maxProperties")
        self.enum: list[Any] = get("enum") or []
        self.enum_keys = frozenset(_identity(v) for v in self.enum if v is not None)
        self.required: tuple[str, ...] = tuple(get("required") or ())
        self.extra_allowed = get("additionalProperties") is not False
        self.all_of = [Schema(r) for r in get("allOf") or ()]
        self.any_of = [Schema(r) for r in get("anyOf") or ()]
        self.one_of = [Schema(r) for r in get("oneOf") or ()]
        self.not_ = Schema(raw["not"]) if get("not") is not None else None

    def asked(self) -> set[str]:
        """What is asked beside the type."""
        asked = {name for name in _ASKED if getattr(self, name)}
        asked |= {name for name in _LIMITS if getattr(self, name) is not None}
        return asked if self.extra_allowed else asked | {"extra_allowed"}


_ASKED = ("format", "enum", "pattern", "required", "all_of", "any_of", "one_of", "not_")
_LIMITS = tuple(name for name in Constraints.__slots__ if name.startswith(("min", "max", "multiple")))


HEAVY = 500
"""Steps of a compiled pattern from which on a long text may keep it busy for seconds."""
MATCH_LIMIT = 10**9
"""Characters times steps of one match; a few seconds at worst. What is longer does not match."""
MATCH_SECONDS = 2.0
"""Time that all heavy patterns of a schema together may take for one object."""


class _Patience(threading.local):
    until = math.inf


_patience = _Patience()


@contextmanager
def patience(seconds: float = MATCH_SECONDS) -> Iterator[None]:
    """Within it, in this thread, heavy patterns match nothing more once the time is over."""
    _patience.until = time.perf_counter() + seconds
    try:
        yield
    finally:
        _patience.until = math.inf


def compile_pattern(pattern: str) -> Callable[[str], object]:
    """A search for a user's pattern, in RE2, which cannot explode. ValueError where RE2 refuses the pattern.

    It takes no more than characters times steps; where that can be long, the search is one of bounded `patience`.
    """
    compiled = compile_re2(pattern)
    search: Callable[[str], object] = compiled.search
    if compiled.programsize > HEAVY:
        return HeavyPattern(search, compiled.programsize)
    known = lru_cache(REMEMBERED)(search)
    return lambda text: known(text) if len(text) <= SHORT else search(text)


class HeavyPattern:
    """A search that gives up: on texts that are too long for it, and when the patience is over."""

    __slots__ = ("_longest", "_search")

    def __init__(self, search: Callable[[str], object], steps: int) -> None:
        self._search = search
        self._longest = MATCH_LIMIT // steps

    def __call__(self, text: str) -> object:
        return self._search(text) if len(text) <= self._longest and time.perf_counter() < _patience.until else None


def kind_of(value: Any) -> tuple[str, str]:
    """The JSON type of a value and the number format upstream sees in it."""
    kind = type(value)
    if kind is str:
        return "string", ""
    if kind is bool:
        return "boolean", ""
    if kind is int:
        return ("integer", "int64") if INT64_MIN <= value <= INT64_MAX else ("number", "float64")
    if kind is float:
        return "number", "float64"
    return ("array", "") if kind is list else ("object", "")


def is_whole(value: float) -> bool:
    """Is this number one that JSON would call an integer (1.0 is)?"""
    if math.isnan(value) or abs(value) > _EXACT_FLOAT:
        return False
    nearest = float(math.floor(value + 0.5))
    return value == nearest or (nearest != 0 and abs(value - nearest) < 1e-9 * abs(nearest))


def show_number(value: float) -> str:
    """A number as Go prints it."""
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e21):
        return str(int(value))
    return repr(value)


def plain_number(value: Any) -> Any:
    """A whole float as the integer it prints as; anything else unchanged."""
    whole = type(value) is float and abs(value) < INT64_MAX and value == int(value)
    return int(value) if whole else value


def fits_format(value: float, type_name: str, format_name: str) -> bool:
    """Does a number fit into the machine type that a schema names?"""
    if type_name == "integer":
        if type(value) is float and value != math.floor(value):
            return False
        low, high = _RANGES.get(format_name, (INT64_MIN, INT64_MAX))
        return low <= value <= high
    if format_name == "float":
        low, high = _RANGES["float"]
        return low <= value <= high
    return True


def too_high(value: float, limit: float, exclusive: bool) -> bool:
    """Is a value beyond a maximum? For an integer the limit counts as an integer too."""
    if type(value) is int:
        limit = int(limit)
    return value >= limit if exclusive else value > limit


def too_low(value: float, limit: float, exclusive: bool) -> bool:
    """Is a value under a minimum?"""
    if type(value) is int:
        limit = int(limit)
    return value <= limit if exclusive else value < limit


def is_multiple(value: float, factor: float) -> bool:
    """Is a value a multiple of a factor? A factor of nothing divides nothing."""
    if type(value) is int and int(factor) != 0:
        return value % int(factor) == 0
    return factor > 0 and is_whole(value / factor)


def in_enum(constraints: Constraints, value: Any) -> bool:
    """Is the value one of those listed? null never is, as upstream has it."""
    return _identity(value) in constraints.enum_keys


def _identity(value: Any) -> Any:
    """What equal JSON values have in common, and no others: by it a list of any length is searched in one step."""
    if isinstance(value, bool):
        return (value,)  # Python takes True for 1
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS) if isinstance(value, (dict, list)) else value
