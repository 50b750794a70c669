"""Says what is wrong with a value, in the words and the order of upstream's OpenAPI validator.

This is the slow and exact reader of a schema: it runs only where the fast one refused. Beside the errors it counts how
many checks passed, because upstream reports the branch of an `anyOf` that came closest.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from homeostat.api.schema.compiled import compiled, constraints_of
from homeostat.api.schema.correlate import Correlated
from homeostat.api.schema.values import (
    INT64_MAX,
    INT64_MIN,
    Constraints,
    fits_format,
    in_enum,
    is_multiple,
    is_whole,
    kind_of,
    plain_number,
    show_number,
    too_high,
    too_low,
)
from homeostat.api.wording import quoted
from homeostat.model.errors import FieldError
from homeostat.model.schema import Schema

ENOUGH = 100
"""Problems after which nobody looks further: an answer names half of them."""

_NOWHERE = "<nil>"  # upstream's path of an error about no field in particular


class Problem(msgspec.Struct, frozen=True):
    """One error, before it is known where the value sits in the object."""

    message: str
    name: str | None = None  # the field; None where upstream names none
    reason: str = "Invalid"
    value: Any = ""
    limit: int = 0
    allowed: tuple[str, ...] = ()

    def field_error(self, prefix: str) -> FieldError:
        name = (self.name or "").removeprefix(".")
        path = f"{prefix}.{name}" if prefix and name else prefix or name or _NOWHERE
        if self.name is None:
            path = prefix or _NOWHERE
        if self.reason == "Required":
            return FieldError.required(path)
        if self.reason == "NotSupported":
            return FieldError.not_supported(path, plain_number(self.value), self.allowed)
        if self.reason == "TooLong":
            return FieldError.too_long(path, self.limit)
        if self.reason == "TooMany":
            return FieldError.too_many(path, self.value, self.limit)
        if self.reason == "TypeInvalid":
            return FieldError.type_invalid(path, self.value, self.message)
        return FieldError.invalid(path, plain_number(self.value), self.message)


class Findings:
    """Errors without repetition, and how many checks passed."""

    __slots__ = ("_seen", "passed", "problems")

    def __init__(self, passed: int = 0) -> None:
        self.problems: list[Problem] = []
        self.passed = passed
        self._seen: set[str] = set()

    def add(self, problem: Problem) -> None:
        if problem.message not in self._seen:
            self._seen.add(problem.message)
            self.problems.append(problem)

    def merge(self, other: Findings) -> None:
        for problem in other.problems:
            self.add(problem)
        self.passed += other.passed

    def field_errors(self, prefix: str = "") -> list[FieldError]:
        return [p.field_error(prefix) for p in self.problems]


def explain(schema: Schema, value: Any, name: str = "", change: Correlated | None = None) -> Findings:
    """Everything wrong with a value. `change` pairs it with its old self: what did not change is forgiven."""
    findings = _explain(schema, value, name, change)
    if findings.problems and change is not None and change.unchanged():
        return Findings(findings.passed)
    return findings


def _explain(schema: Schema, value: Any, name: str, change: Correlated | None) -> Findings:
    rules = constraints_of(schema)
    findings = Findings()
    if value is None:
        findings.merge(_check_type(rules, value, name))
        findings.merge(_check_enum(rules, value, name))
        return findings
    checks = [_check_branches(rules, value, name)]
    if rules.types or rules.format:
        checks.insert(0, _check_type(rules, value, name))
    kind = type(value)
    if kind is str:
        checks.append(_check_string(rules, value, name))
        if rules.format_check is not None:
            checks.append(_check_format(rules, value, name))
    elif kind is int or kind is float:
        checks.append(_check_number(rules, value, name))
    elif kind is list:
        checks.append(_check_items(schema, rules, value, name, change))
    checks.append(_check_enum(rules, value, name))
    if kind is dict:
        checks.append(_check_fields(schema, rules, value, name, change))
    for check in checks:
        findings.merge(check)
    findings.passed += len(checks) + 1
    return findings


def _one(problem: Problem | None, passed: int = 0) -> Findings:
    findings = Findings(0 if problem else passed)
    if problem:
        findings.add(problem)
    return findings


def _type_problem(name: str, wanted: str, got: str) -> Findings:
    return _one(Problem(f'{name} in body must be of type {wanted}: "{got}"', name, "TypeInvalid", got))


def _check_type(rules: Constraints, value: Any, name: str) -> Findings:
    types = rules.types
    wanted = ",".join(types)
    if value is None:
        return _type_problem(name, wanted, "null") if types and not rules.nullable else Findings(1)
    kind, number_format = kind_of(value)
    fits = (
        kind in types
        or (kind == "integer" and "number" in types)
        or (kind == "number" and "integer" in types and is_whole(value))
    )
    if fits:
        return Findings(1)
    if rules.format and kind not in ("string", "array"):
        if number_format == rules.format:
            return Findings(1) if not types else _type_problem(name, wanted, kind)
        return _type_problem(name, rules.format, number_format)
    if not types and rules.format:
        return Findings(1)
    return _type_problem(name, wanted, kind)


def _check_enum(rules: Constraints, value: Any, name: str) -> Findings:
    if not rules.enum or in_enum(rules, value):
        return Findings()
    allowed = tuple(v if type(v) is str else orjson.dumps(v).decode() for v in rules.enum[:ENOUGH])
    return _one(Problem(f"{name} in body should be one of {allowed}", name, "NotSupported", value, allowed=allowed))


def _check_string(rules: Constraints, value: str, name: str) -> Findings:
    if rules.max_length is not None and len(value) > rules.max_length:
        message = f"{name} in body should be at most {rules.max_length} chars long"
        return _one(Problem(message, name, "TooLong", value, rules.max_length))
    if rules.min_length is not None and len(value) < rules.min_length:
        return _one(Problem(f"{name} in body should be at least {rules.min_length} chars long", name, value=value))
    if rules.matches is not None and not rules.matches(value):
        return _one(Problem(f"{name} in body should match '{rules.pattern}'", name, value=value))
    return Findings()


def _check_format(rules: Constraints, value: str, name: str) -> Findings:
    if rules.format_check is None or rules.format_check(value):
        return Findings()
    message = f"{name} in body must be of type {rules.format}: {quoted(value)}"
    return _one(Problem(message, name, "TypeInvalid", value))


def _check_number(rules: Constraints, value: float, name: str) -> Findings:
    findings = Findings(1)
    if not INT64_MIN <= value <= INT64_MAX:
        value = float(value)  # as Go reads it
    type_name = rules.types[0] if len(rules.types) == 1 else ""
    described = f"{type_name} with format {rules.format}" if rules.format else f"{type_name} (default format)"

    def in_range(number: float, what: str) -> None:
        if not fits_format(number, type_name, rules.format):
            findings.add(Problem(f"{what} value must be of type {described} in {name}"))

    def breach(words: str, limit: float) -> None:
        native = type(value) is int and fits_format(limit, type_name, rules.format)
        shown = show_number(int(limit) if native else limit)
        findings.add(Problem(f"{name} in body should be {words} {shown}", name, value=value))

    in_range(value, "Checked")
    if rules.multiple_of is not None:
        in_range(rules.multiple_of, "MultipleOf")
        if not is_multiple(value, rules.multiple_of):
            breach("a multiple of", rules.multiple_of)
    if rules.minimum is not None:
        in_range(rules.minimum, "Minimum boundary")
        if too_low(value, rules.minimum, rules.exclusive_min):
            breach("greater than" if rules.exclusive_min else "greater than or equal to", rules.minimum)
    if rules.maximum is not None:
        in_range(rules.maximum, "Maximum boundary")
        if too_high(value, rules.maximum, rules.exclusive_max):
            breach("less than" if rules.exclusive_max else "less than or equal to", rules.maximum)
    return findings


def _check_items(
    schema: Schema, rules: Constraints, value: list[Any], name: str, change: Correlated | None
) -> Findings:
    findings = Findings(1)
    items = schema.items
    if items is not None:
        fits = compiled(items).accepts
        for i, item in enumerate(value):
            if i >= ENOUGH and fits is not None and fits(item):
                continue  # of a long list, only what is wrong is looked at closely
            findings.merge(explain(items, item, f"{name}[{i}]", change.item(i) if change is not None else None))
            if len(findings.problems) >= ENOUGH:
                break
    size = len(value)
    if rules.min_items is not None and size < rules.min_items:
        findings.add(Problem(f"{name} in body should have at least {rules.min_items} items", name, value=size))
    if rules.max_items is not None and size > rules.max_items:
        message = f"{name} in body should have at most {rules.max_items} items"
        findings.add(Problem(message, name, "TooMany", size, rules.max_items))
    return findings


def _check_fields(
    schema: Schema, rules: Constraints, value: dict[str, Any], name: str, change: Correlated | None
) -> Findings:
    findings = Findings()
    size = len(value)
    if rules.min_properties is not None and size < rules.min_properties:
        message = f"{name} in body should have at least {rules.min_properties} properties"
        findings.add(Problem(message, name, value=size))
    if rules.max_properties is not None and size > rules.max_properties:
        message = f"{name} in body should have at most {rules.max_properties} properties"
        findings.add(Problem(message, name, "TooMany", size, rules.max_properties))
    properties, extra = schema.properties, schema.additional
    for key, item in value.items():
        if len(findings.problems) >= ENOUGH:
            break
        if key in properties:
            continue
        if not rules.extra_allowed:
            findings.add(Problem(f"{name}.{key} in body is a forbidden property", name, value=key))
        elif extra is not None:
            findings.merge(explain(extra, item, f"{name}.{key}", change.field(key) if change is not None else None))
    for key, child in properties.items():
        if key in value:
            paired = change.field(key) if change is not None else None
            if not name and key in ("apiVersion", "kind"):
                paired = None  # both sides were converted to one version: a change there cannot be seen
            findings.merge(explain(child, value[key], f"{name}.{key}" if name else key, paired))
    for key in rules.required:
        if key not in value:
            findings.add(Problem(f"{name}.{key} in body is required", f"{name}.{key}", "Required"))
    return findings


def _check_branches(rules: Constraints, value: Any, name: str) -> Findings:
    findings = Findings(1)
    which = quoted(name)
    if rules.any_of:
        best, valid = _best(rules.any_of, value, name, stop=True)
        if not valid:
            findings.add(Problem(f"{which} must validate at least one schema (anyOf)"))
        findings.merge(best)
    if rules.one_of:
        best, valid = _best(rules.one_of, value, name, stop=False)
        if valid == 1:
            findings.merge(best)
        else:
            found = f"Found {valid} valid alternatives" if valid else "Found none valid"
            findings.add(Problem(f"{which} must validate one and only one schema (oneOf). {found}"))
            if not valid:
                findings.merge(best)
    if rules.all_of:
        results = [explain(branch, value, name) for branch in rules.all_of]
        valid = sum(1 for r in results if not r.problems)
        for result in results:
            findings.merge(result)
        if valid != len(results):
            none = "" if valid else ". None validated"
            findings.add(Problem(f"{which} must validate all the schemas (allOf){none}"))
    if rules.not_ is not None and not explain(rules.not_, value, name).problems:
        findings.add(Problem(f"{which} must not validate the schema (not)"))
    return findings


def _best(branches: list[Schema], value: Any, name: str, *, stop: bool) -> tuple[Findings, int]:
    """The first branch that fits, or the one that came closest; and how many fit (1 at most where `stop`)."""
    first: Findings | None = None
    closest: Findings | None = None
    valid = 0
    for branch in branches:
        result = explain(branch, value, name)
        if not result.problems:
            valid += 1
            first = first or result
            if stop:
                break
        elif closest is None or result.passed > closest.passed:
            closest = result
    return first or closest or Findings(), valid
