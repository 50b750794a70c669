"""Rules as they are checked when a CRD is written. Texts and figures were compared with kube-apiserver 1.36."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.api.cel import check_rules
from homeostat.model.schema import Schema

PATH = "spec.validation.openAPIV3Schema"
SPEC = f"{PATH}.properties[spec]"
HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)

FIELDS: dict[str, Any] = {
    "i": {"type": "integer"},
    "s": {"type": "string"},
    "s10": {"type": "string", "maxLength": 10},
    "l": {"type": "array", "items": {"type": "string"}},
    "l10": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 20}},
    "li": {"type": "array", "maxItems": 100, "items": {"type": "integer"}},
    "m": {"type": "object", "additionalProperties": {"type": "string"}},
    "o": {"type": "object", "properties": {"a": {"type": "string"}}},
    "o2": {"type": "object", "properties": {"a": {"type": "string"}}},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "raw": {"x-kubernetes-preserve-unknown-fields": True},
    "if": {"type": "string"},
    "pod": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
}


def problems(*rules: dict[str, Any] | str) -> list[str]:
    given = [{"rule": r} if isinstance(r, str) else r for r in rules]
    spec = {"type": "object", "properties": FIELDS, "x-kubernetes-validations": given}
    return [str(e) for e in check_rules(Schema({"type": "object", "properties": {"spec": spec}}), PATH)]


@pytest.mark.parametrize(
    "rule",
    [
        "self.i > 1 && self.s == 'abc'",
        "self.o == self.o && self.o.a == self.o2.a",
        "self.if == 'x' && self.__if__ == 'x'",
        "self.pod.kind == 'Pod' && self.pod.metadata.name == 'x'",
        "has(self.any) && self.m.all(k, self.m[k].startsWith('a'))",
        "self.l10.all(x, self.l10.all(y, x == y))",
        "self.i == oldSelf.i",
        "'%s %d'.format([self.s, self.i]) == 'a'",
    ],
)
def test_a_good_rule_passes(rule: str) -> None:
    assert problems(rule) == []


def test_a_rule_that_does_not_compile_is_shown_whole_with_the_place_of_the_mistake() -> None:
    assert problems("self.nope > 1") == [
        f"{SPEC}.x-kubernetes-validations[0].rule: Invalid value: "
        '{"Rule":"self.nope \\u003e 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"",'
        '"OptionalOldSelf":null}: compilation failed: '
        "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope > 1\n | ....^"
    ]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("self.i", "cel expression must evaluate to a bool"),
        ("self.i > 'a'", "found no matching overload for '_>_' applied to '(int, string)'"),
        ("self.o == self.o2", "found no matching overload for '_==_' applied to '(selfType.o, selfType.o2)'"),
        ("self.any.x == 1", "undefined field 'x'"),
        ("self.raw == 1", "undefined field 'raw'"),
        ("self.pod.metadata.namespace == 'x'", "undefined field 'namespace'"),
        ("self.s == null", "found no matching overload for '_==_' applied to '(string, null)'"),
        (
            "self.i.all(x, true)",
            "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("self.s.foo()", "undeclared reference to 'foo' (in container '')"),
        ("self.i && true", "expected type 'bool' but found 'int'"),
        ("has(self)", "invalid argument to has() macro"),
        ("self.l.all(1, true)", "argument must be a simple name"),
    ],
)
def test_a_mistake_is_named_in_the_words_of_the_real_server(rule: str, words: str) -> None:
    [problem] = problems(rule)
    assert words in problem


@pytest.mark.parametrize(
    ("rule", "factor"),
    [
        ("self.s.contains(self.s)", "more than 100x"),
        ("self.l.all(x, self.l.all(y, x == y))", "more than 100x"),
        ("self.l10.all(x, self.l.exists(y, y == x))", "14.7x"),
        ("self.s.split(',').all(x, x == 'a')", "1.321205x"),
        ("self.l.filter(x, x == 'a').map(x, x + 'b').exists(y, y.matches('z'))", "3.7x"),
        ("format.dns1123Label().validate(self.s).hasValue()", "1.006634x"),
    ],
)
def test_a_rule_that_may_cost_too_much_is_forbidden(rule: str, factor: str) -> None:
    words = f"estimated rule cost exceeds budget by factor of {factor} {HINT}"
    assert problems(rule)[0] == f"{SPEC}.x-kubernetes-validations[0].rule: Forbidden: {words}"


def test_rules_that_together_cost_too_much_are_forbidden_and_the_dearest_named() -> None:
    found = problems("self.l10.all(x, self.l.exists(y, y == x))", "self.i > 1")
    contributed = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
    assert found[1] == f"{SPEC}.x-kubernetes-validations[0].rule: Forbidden: {contributed}"
    total = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of"
    assert found[2] == f"{PATH}: Forbidden: {total} 1.468006x {HINT}"


def test_the_texts_around_a_rule_are_checked_before_it_is_compiled() -> None:
    at = f"{SPEC}.x-kubernetes-validations"
    assert problems(
        {"rule": " "},
        {"rule": "tr\nue"},
        {"rule": "true", "message": "a\nb"},
        {"rule": "true", "message": " "},
        {"rule": "true", "reason": "Because"},
        {"rule": "true", "fieldPath": ".nope"},
        {"rule": "true", "messageExpression": " "},
    ) == [
        f"{at}[0].rule: Required value: rule is not specified",
        f"{at}[1].message: Required value: message must be specified if rule contains line breaks",
        f'{at}[2].message: Invalid value: "a\\nb": must not contain line breaks',
        f'{at}[3].message: Invalid value: " ": must be non-empty if specified',
        f'{at}[4].reason: Unsupported value: "Because": supported values: "FieldValueDuplicate", "FieldValueForbidden", '
        '"FieldValueInvalid", "FieldValueRequired"',
        f'{at}[5].fieldPath: Invalid value: ".nope": must be a valid path',
        f"{at}[6].messageExpression: Required value: messageExpression must be non-empty if specified",
    ]


def test_a_message_has_to_be_a_string_and_old_values_optional_only_where_they_are_used() -> None:
    first, second = problems(
        {"rule": "true", "messageExpression": "1"},
        {"rule": "self.i == oldSelf.orValue(self).i", "optionalOldSelf": True},
        {"rule": "true", "optionalOldSelf": True},
    )
    assert first.endswith(": messageExpression must evaluate to a string")
    at = f"{SPEC}.x-kubernetes-validations[2].optionalOldSelf"
    assert second == f"{at}: Invalid value: true: may not be set if oldSelf is not used in rule"


def test_old_values_cannot_be_found_inside_a_list_without_keys() -> None:
    item = {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    schema = {"type": "object", "properties": {"l": {"type": "array", "maxItems": 5, "items": item}}}
    [problem] = check_rules(Schema(schema), PATH)
    assert str(problem) == (
        f'{PATH}.properties[l].items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be '
        f"used on the uncorrelatable portion of the schema within {PATH}.properties[l]"
    )
