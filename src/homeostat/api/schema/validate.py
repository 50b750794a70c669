"""Does a custom object fit its schema? Two readers of the same rules.

`accepts` is compiled once per schema node and only says yes or no, fast. Where it says no, `explain` walks the object
again, slowly, and says what is wrong in upstream's words. A test holds the two together. `fits` is the stricter of two
compiled tests: what it says yes to is valid, and there is nothing to prune or to fill in either.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from homeostat.api.schema.compiled import Test, anywhere, compiled, constraints_of
from homeostat.api.schema.correlate import Correlated
from homeostat.api.schema.defaulting import wanted_fields
from homeostat.api.schema.embedded import embedded_errors, has_embedded, resource_errors
from homeostat.api.schema.explain import explain
from homeostat.api.schema.lists import distinct, list_errors
from homeostat.api.schema.prune import bare
from homeostat.api.schema.values import (
    INT64_MAX,
    INT64_MIN,
    Constraints,
    HeavyPattern,
    fits_format,
    in_enum,
    is_multiple,
    is_whole,
    patience,
    too_high,
    too_low,
)
from homeostat.model.errors import UNSET, FieldError
from homeostat.model.schema import Schema

Fitting = Mapping[str, Any]
"""Fields of an object that a schema has nothing against. They are known by being the very same."""
NOTHING: Fitting = MappingProxyType({})


def validate(
    schema: Schema, obj: Any, old: Any = None, path: str = "", *, current: bool = False, fitting: Fitting = NOTHING
) -> list[FieldError]:
    """Everything the schema has against an object; the rules about root metadata and CEL rules are not among it.

    `old` is the stored object of an update: errors about values that did not change are dropped, so that a schema that
    became stricter does not block unrelated changes. `path` is where the object sits (`status` for the status
    subresource); empty for a whole object. `current`: the stored object was judged by this very schema. `fitting`: fields of
    the object that were.
    """
    known = {**old, **fitting} if current and type(old) is dict else fitting
    if not is_heavy(schema):
        return _errors(schema, obj, old, path, known)
    with patience():
        return _errors(schema, obj, old, path, known)


def is_heavy(schema: Schema) -> bool:
    """Does the schema hold patterns that may take long, whatever the object? Compiles it, which may take long too."""
    memo = compiled(schema)
    if memo.heavy is None:
        memo.heavy = anywhere(schema, _has_heavy_pattern)
    return memo.heavy


def known_light(schema: Schema) -> bool:
    """Is the schema compiled already, and quick?"""
    memo = schema.compiled
    return memo is not None and memo.heavy is False


def _has_heavy_pattern(schema: Schema) -> bool:
    rules = constraints_of(schema)
    branches = [*rules.all_of, *rules.any_of, *rules.one_of, *([rules.not_] if rules.not_ else ())]
    return isinstance(rules.matches, HeavyPattern) or any(anywhere(branch, _has_heavy_pattern) for branch in branches)


def _errors(schema: Schema, obj: Any, old: Any, path: str, known: Fitting) -> list[FieldError]:
    if _accepts_news(schema, obj, known):
        return []
    change = None if old is None else Correlated(schema, obj, old)
    errors = explain(schema, obj, "", change).field_errors(path)
    errors.extend(embedded_errors(schema, obj, path))
    if old is None or not list_errors(schema, old, path):
        errors.extend(list_errors(schema, obj, path))
    return errors


def _accepts_news(schema: Schema, obj: Any, known: Fitting) -> bool:
    """`accepts`, where some fields are known to fit: those that are the very same are not looked at again."""
    parts = _parts(schema) if known and type(obj) is dict else None
    if not parts:
        return accepts(schema)(obj)
    each, together = parts
    return each({name: item for name, item in obj.items() if item is not known.get(name, UNSET)}) and together(obj)


def _parts(schema: Schema) -> tuple[Test, Test] | Literal[False]:
    """The tests of an object's fields one by one, and of which there are; False where what one may be hangs on the others."""
    memo = compiled(schema)
    if memo.parts is None:
        rules = constraints_of(schema)
        memo.parts = (_fields(schema, rules, exact=False), _names(schema, rules, exact=False)) if _are_apart(schema, rules) else False
    return memo.parts


def names_fit(schema: Schema) -> Test | Literal[False]:
    """Of what `fits` asks of an object, which fields it has; False where what one may be hangs on the others."""
    memo = compiled(schema)
    if memo.names_fit is None:
        rules = constraints_of(schema)
        memo.names_fit = _names(schema, rules, exact=True) if _are_apart(schema, rules) else False
    return memo.names_fit


def _are_apart(schema: Schema, rules: Constraints) -> bool:
    """Is an object right when its fields are, each by itself, and when it has those that it must have?"""
    of_objects = rules.types == ("object",) or not (rules.types or rules.format)
    joined = rules.all_of or rules.any_of or rules.one_of or rules.not_ or rules.enum
    return of_objects and not joined and not has_embedded(schema)


def accepts(schema: Schema) -> Test:
    """The compiled yes-or-no test of a schema."""
    memo = compiled(schema)
    if memo.accepts is None:
        memo.accepts = _compile(schema, exact=False)
    return memo.accepts


def fits(schema: Schema) -> Test:
    """The compiled test of what is valid and complete: nothing in it is unknown or null, and no default is missing.

    What it says no to may still be well, or may become so. It is not asked about embedded resources.
    """
    memo = compiled(schema)
    if memo.fits is None:
        memo.fits = _nothing if is_heavy(schema) else _compile(schema, exact=True)
    return memo.fits


def _compile(schema: Schema, *, exact: bool) -> Test:
    """`accepts`, or, where it is `exact`, `fits`."""
    rules = constraints_of(schema)
    if exact and schema.preserve_unknown:
        if not (schema.properties or schema.items or "additionalProperties" in schema.raw):
            valid = accepts(schema)
            return lambda value: value is not None and valid(value)  # whatever it holds is kept
        if schema.items:
            return _nothing
    by_type = _by_type(schema, rules, exact=exact)
    branches = _branches(rules)
    enum = rules.enum
    null = not exact and not enum and (rules.nullable or not rules.types)
    checks = set(by_type.values())
    if len(checks) == 1 and bool not in by_type and not branches and not null and (not enum or str in by_type):
        return checks.pop()  # it looks at the type itself, and that of strings at the enum
    find = by_type.get

    def test(value: Any) -> bool:
        if value is None:
            return null
        check = find(type(value))
        if check is None or not check(value) or (enum and not in_enum(rules, value)):
            return False
        return not branches or all(branch(value) for branch in branches)

    return test


def _by_type(schema: Schema, rules: Constraints, *, exact: bool) -> dict[type, Test]:
    """The test for each Python type that JSON decodes to and the schema allows."""
    types = rules.types or ("string", "boolean", "number", "integer", "array", "object")
    table: dict[type, Test] = {}
    if "string" in types:
        table[str] = _string(rules)
    if "boolean" in types:
        table[bool] = _anything
    if "number" in types or "integer" in types:
        table[int] = table[float] = _number(rules, whole="number" not in types)
    if "array" in types:
        table[list] = _array(schema, rules, exact=exact)
    if "object" in types:
        table[dict] = _object(schema, rules, exact=exact)
    if not rules.types and rules.format:
        table.pop(bool, None)  # a format without a type speaks of strings
        table.pop(int, None)
        table.pop(float, None)
        table.pop(dict, None)
    return table


def _anything(_: Any) -> bool:
    return True


def _nothing(_: Any) -> bool:
    return False


def _string(rules: Constraints) -> Test:
    low, high, matches, check = rules.min_length, rules.max_length, rules.matches, rules.format_check
    listed = rules.enum_keys if rules.enum else None
    if check is not None and rules.asked() == {"format"}:
        return lambda value: type(value) is str and check(value)
    if low is None and matches is None and check is None:
        longest = sys.maxsize if high is None else high
        if listed is None:
            return lambda value: type(value) is str and len(value) <= longest
        return lambda value: type(value) is str and len(value) <= longest and value in listed

    def test(value: Any) -> bool:
        return (
            type(value) is str
            and (high is None or len(value) <= high)
            and (low is None or len(value) >= low)
            and (matches is None or matches(value) is not None)
            and (check is None or check(value))
            and (listed is None or value in listed)
        )

    return test


def _number(rules: Constraints, *, whole: bool) -> Test:
    low, high, factor = rules.minimum, rules.maximum, rules.multiple_of
    type_name, fmt = (rules.types[0], rules.format) if len(rules.types) == 1 else ("", "")
    sane = all(fits_format(limit, type_name, fmt) for limit in (low, high, factor) if limit is not None)
    if not sane:
        return lambda _: False  # the limit itself is an error, whatever the value

    def test(value: Any) -> bool:
        if type(value) is not int and type(value) is not float:
            return False
        if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
            if whole:
                return False
            value = float(value)  # as Go reads it
        return (
            (not whole or type(value) is int or is_whole(value))
            and (low is None or not too_low(value, low, rules.exclusive_min))
            and (high is None or not too_high(value, high, rules.exclusive_max))
            and (factor is None or is_multiple(value, factor))
            and fits_format(value, type_name, fmt)
        )

    if factor is not None or fmt not in ("", "int64", "double"):
        return test
    least = INT64_MIN if low is None else int(low) + rules.exclusive_min
    most = INT64_MAX if high is None else int(high) - rules.exclusive_max
    least, most = max(least, INT64_MIN), min(most, INT64_MAX)
    return lambda value: (type(value) is int and least <= value <= most) or test(value)


def _array(schema: Schema, rules: Constraints, *, exact: bool) -> Test:
    low, high = rules.min_items, rules.max_items
    judge = fits if exact else accepts
    item = judge(schema.items) if schema.items is not None else bare if exact else _anything
    ruled = schema.list_type in ("set", "map")

    def test(value: Any) -> bool:
        if type(value) is not list:
            return False
        for entry in value:
            if not item(entry):
                return False
        if (low is not None and len(value) < low) or (high is not None and len(value) > high):
            return False
        return not ruled or distinct(schema, value)

    return test


def _object(schema: Schema, rules: Constraints, *, exact: bool) -> Test:
    if rules.min_properties is None and rules.max_properties is None and not schema.embedded:
        return _fields(schema, rules, exact=exact, required=_required(schema, rules, exact=exact))
    each, together = _fields(schema, rules, exact=exact), _names(schema, rules, exact=exact)
    return lambda value: each(value) and together(value)


def _fields(schema: Schema, rules: Constraints, *, exact: bool, required: Sequence[str] = ()) -> Test:
    """Is it an object with fields that are right, each by itself, and with those that are `required`?"""
    judge = fits if exact else accepts
    # Of most fields the type counts, how long a text is, or which it is, and no call is needed; the others have a test.
    fields: dict[str, Any] = {
        name: _plain(child, exact=exact) or judge(child) for name, child in schema.properties.items()
    }
    extra: Any = judge(schema.additional) if schema.additional is not None else None
    closed = not rules.extra_allowed
    if exact and extra is None:
        extra = _bare_value if "additionalProperties" in schema.raw else None
        closed = closed or (extra is None and not schema.preserve_unknown)
    find = fields.get

    def test(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name, item in value.items():
            check, kind = find(name), type(item)
            if check is kind:
                continue
            if check is None:
                if closed:
                    return False
                check = extra
                if check is None:
                    continue
            form = type(check)
            if form is int:
                if kind is not str or len(item) > check:
                    return False
            elif form is frozenset:
                if kind is not str or item not in check:
                    return False
            elif form is type or not check(item):
                return False
        return not required or all(map(value.__contains__, required))

    return test


def _bare_value(value: Any) -> bool:
    return value is not None and bare(value)


def _names(schema: Schema, rules: Constraints, *, exact: bool) -> Test:
    """Has an object the fields that it must have, and as many as it may?"""
    required = frozenset(_required(schema, rules, exact=exact))
    low, high, embedded = rules.min_properties, rules.max_properties, schema.embedded

    def test(value: dict[str, Any]) -> bool:
        if (low is not None and len(value) < low) or (high is not None and len(value) > high):
            return False
        return required <= value.keys() and not (embedded and resource_errors(value, ""))

    return test


def _required(schema: Schema, rules: Constraints, *, exact: bool) -> tuple[str, ...]:
    return (*rules.required, *wanted_fields(schema)) if exact else rules.required


def _plain(schema: Schema, *, exact: bool) -> type | int | frozenset[Any] | None:
    """The type, where nothing else is asked; of a text how long it may be, or which it may be; None where more is."""
    rules = constraints_of(schema)
    if len(rules.types) != 1 or (rules.nullable and not exact):
        return None
    kind, asked = rules.types[0], rules.asked()
    if kind == "string" and asked == {"max_length"}:
        return rules.max_length
    if kind == "string" and asked == {"enum"}:
        return rules.enum_keys
    if asked or (kind == "object" and (exact or schema.properties or schema.additional or schema.embedded)):
        return None
    return _PLAIN.get(kind)


_PLAIN: dict[str, type] = {"string": str, "boolean": bool, "object": dict}


def _branches(rules: Constraints) -> list[Test]:
    tests: list[Test] = [accepts(branch) for branch in rules.all_of]
    if rules.any_of:
        any_of = [accepts(branch) for branch in rules.any_of]
        tests.append(lambda value: any(branch(value) for branch in any_of))
    if rules.one_of:
        one_of = [accepts(branch) for branch in rules.one_of]
        tests.append(lambda value: sum(1 for branch in one_of if branch(value)) == 1)
    if rules.not_ is not None:
        unwanted = accepts(rules.not_)
        tests.append(lambda value: not unwanted(value))
    return tests
