"""What is checked of validation rules when a CRD is written: their text, their types, and what they may cost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from homeostat.api.cel.declare import LARGEST_REQUEST, declare, has_rules
from homeostat.api.cel.estimate import worst_cost
from homeostat.api.cel.fieldpath import InvalidPath, parse_path
from homeostat.api.cel.rules import build, compile_checked
from homeostat.api.wording import escaped
from homeostat.model.cel.syntax import InvalidExpression
from homeostat.model.cel.types import BOOL, STRING, UNBOUNDED, Type
from homeostat.model.errors import UNSET, FieldError
from homeostat.model.schema import Schema

RULE_ESTIMATE_LIMIT = 10_000_000
CRD_ESTIMATE_LIMIT = 100_000_000
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_NEWLINE = re.compile(r"[\n\r]").search


class _Report(msgspec.Struct):
    """What was found: mistakes in the text of rules, mistakes of expressions, and what all rules cost together."""

    schema: list[FieldError] = msgspec.field(default_factory=list)
    cel: list[FieldError] = msgspec.field(default_factory=list)
    total: int = 0
    expensive: list[tuple[int, str]] = msgspec.field(default_factory=list)

    def observe(self, path: str, cost: int) -> None:
        self.total = min(self.total + cost, UNBOUNDED)
        if cost >= CRD_ESTIMATE_LIMIT // 100:
            self.expensive = sorted([*self.expensive, (cost, path)], key=lambda e: -e[0])[:4]


class _Place(msgspec.Struct, frozen=True):
    """Where in the schema we are: how often it can occur in one object, and whether `oldSelf` can be found there."""

    path: str
    root: bool = False
    count: int | None = 1
    uncorrelatable: str = ""


def check(schema: Schema, path: str) -> list[FieldError]:
    """Checks every rule of a schema that stands at `path` of a CRD."""
    report = _Report()
    _check(report, schema, _Place(path, root=True))
    if report.total > CRD_ESTIMATE_LIMIT:
        contributed = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        report.cel += [FieldError.forbidden(place, contributed) for _, place in report.expensive]
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        report.cel.append(FieldError.forbidden(path, too_costly(what, report.total, CRD_ESTIMATE_LIMIT)))
    return report.schema + report.cel or _default_errors(schema, path)


def _default_errors(schema: Schema, path: str) -> list[FieldError]:
    """What sound rules have against the defaults that stand beside them or above them."""
    errors: list[FieldError] = []
    if schema.default is not UNSET and schema.default is not None and has_rules(schema.raw):
        errors += build(schema, schema.embedded).validate(schema.default, path=f"{path}.default")
    if schema.items is not None:
        errors += _default_errors(schema.items, f"{path}.items")
    for name, child in schema.properties.items():
        errors += _default_errors(child, f"{path}.properties[{name}]")
    return errors


def _check(report: _Report, schema: Schema, here: _Place) -> None:
    before = len(report.schema)
    count = _multiplied(here.count, _occurrences(schema))
    additional, items = schema.additional, schema.items
    if additional is not None and has_rules(additional.raw):
        below = _Place(f"{here.path}.additionalProperties", additional.embedded, count, here.uncorrelatable)
        _check(report, additional, below)
    for name, child in schema.properties.items():
        if has_rules(child.raw):
            place = f"{here.path}.properties[{name}]"
            _check(report, child, _Place(place, child.embedded, count, here.uncorrelatable))
    if items is not None and has_rules(items.raw):
        lost = here.uncorrelatable or ("" if schema.list_type == "map" else here.path)
        _check(report, items, _Place(f"{here.path}.items", items.embedded, count, lost))
    rules = schema.raw.get("x-kubernetes-validations", ())
    for i, rule in enumerate(rules):
        _check_text(report, schema, rule, f"{here.path}.x-kubernetes-validations[{i}]")
    if len(report.schema) > before or not rules:
        return
    type_ = declare(schema, here.root)
    if type_ is None:
        unseen = "unable to convert structural schema to CEL declarations"
        detail = f"Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: {unseen}"
        report.cel.append(FieldError("InternalError", f"{here.path}.x-kubernetes-validations", detail))
        return
    for i, rule in enumerate(rules):
        _check_rule(report, rule, here, type_, f"{here.path}.x-kubernetes-validations[{i}]")


def _occurrences(schema: Schema) -> int | None:
    """By how much a container multiplies what is inside it; None where nothing limits it."""
    limit = "maxItems" if schema.type == "array" else "maxProperties" if schema.additional is not None else ""
    if not limit:
        return 1
    bound = schema.raw.get(limit)
    return max(0, int(bound)) if bound is not None else None


def _multiplied(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a * b, UNBOUNDED)


def _check_text(report: _Report, schema: Schema, rule: Mapping[str, Any], path: str) -> None:
    text, message, expression = (rule.get(k, "") for k in ("rule", "message", "messageExpression"))
    field_path, reason = rule.get("fieldPath", ""), rule.get("reason")
    errors = report.schema
    if not text.strip():
        errors.append(FieldError.required(f"{path}.rule", "rule is not specified"))
    elif message and not message.strip():
        errors.append(FieldError.invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif _NEWLINE(message.strip()):
        errors.append(FieldError.invalid(f"{path}.message", message, "must not contain line breaks"))
    elif _NEWLINE(text.strip()) and not message.strip():
        errors.append(FieldError.required(f"{path}.message", "message must be specified if rule contains line breaks"))
    if expression and not expression.strip():
        errors.append(
            FieldError.required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
        )
    if reason is not None and reason not in _REASONS:
        errors.append(FieldError.not_supported(f"{path}.reason", reason, _REASONS))
    if field_path and not field_path.strip():
        errors.append(FieldError.invalid(f"{path}.fieldPath", field_path, "must be non-empty if specified"))
    if _NEWLINE(field_path):
        errors.append(FieldError.invalid(f"{path}.fieldPath", field_path, "must not contain line breaks"))
    if field_path:
        try:
            parse_path(field_path, schema)
        except InvalidPath:
            errors.append(FieldError.invalid(f"{path}.fieldPath", field_path, "must be a valid path"))


def _check_rule(report: _Report, rule: Mapping[str, Any], here: _Place, type_: Type, path: str) -> None:
    optional_old = rule.get("optionalOldSelf")
    errors = report.cel
    times = here.count if here.count is not None else LARGEST_REQUEST // (type_.min_size + 1)
    try:
        tree, used = compile_checked(rule["rule"], type_, optional_old is True, BOOL)
    except InvalidExpression as error:
        errors.append(_invalid_rule(f"{path}.rule", rule, str(error)))
        used = set()
    else:
        cost = min(worst_cost(tree, type_) * times, UNBOUNDED)
        if cost > RULE_ESTIMATE_LIMIT:
            detail = too_costly("estimated rule cost", cost, RULE_ESTIMATE_LIMIT)
            errors.append(FieldError.forbidden(f"{path}.rule", detail))
        report.observe(f"{path}.rule", cost)
        _check_message(report, rule, type_, path)
    if "oldSelf" in used:
        if here.uncorrelatable:
            where = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {here.uncorrelatable}"
            errors.append(FieldError.invalid(f"{path}.rule", rule["rule"], where))
    elif optional_old is not None:
        unused = "may not be set if oldSelf is not used in rule"
        errors.append(FieldError.invalid(f"{path}.optionalOldSelf", optional_old, unused))


def _check_message(report: _Report, rule: Mapping[str, Any], type_: Type, path: str) -> None:
    expression = rule.get("messageExpression", "")
    if not expression:
        return
    place = f"{path}.messageExpression"
    try:
        tree, _ = compile_checked(expression, type_, rule.get("optionalOldSelf") is True, STRING)
    except InvalidExpression as error:
        report.cel.append(_invalid_rule(place, rule, str(error)))
        return
    cost = worst_cost(tree, type_)
    if cost > RULE_ESTIMATE_LIMIT:
        detail = too_costly("estimated messageExpression cost", cost, RULE_ESTIMATE_LIMIT)
        report.cel.append(FieldError.forbidden(place, detail))
    report.observe(place, cost)


def too_costly(what: str, cost: int, limit: int) -> str:
    """By how much an estimate is over its limit, and what helps."""
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:.6f}x" if factor < 1.5 else f"{factor:.1f}x"
    hint = "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared"
    return f"{what} exceeds budget by factor of {shown} ({hint})"


def _invalid_rule(path: str, rule: Mapping[str, Any], detail: str) -> FieldError:
    """The error shows the whole rule, in JSON as Go writes it."""
    names = ("Rule", "Message", "MessageExpression", "Reason", "FieldPath", "OptionalOldSelf")
    optional = ("Reason", "OptionalOldSelf")
    value = {n: rule.get(n[0].lower() + n[1:], None if n in optional else "") for n in names}
    text = escaped(orjson.dumps(value).decode())
    return FieldError("FieldValueInvalid", path, f"Invalid value: {text}: {detail}")
