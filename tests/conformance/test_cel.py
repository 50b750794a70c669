"""Validation rules (CEL): checked when a kind is defined, run when its objects are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Answer, Api, Kind, Object, eventually

pytestmark = pytest.mark.usefixtures("modern")

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
INT: Object = {"type": "integer"}
TEXT: Object = {"type": "string", "maxLength": 80}
LONG: Object = {"type": "string"}


def ruled(schema: Object, *rules: str | Object) -> Object:
    """A schema with rules; a rule that is just text has nothing beside it."""
    return {**schema, "x-kubernetes-validations": [{"rule": r} if isinstance(r, str) else r for r in rules]}


def fields(properties: Object, **rest: Any) -> Object:
    return {"type": "object", "properties": properties, **rest}


def with_spec(properties: Object, *rules: str | Object) -> Object:
    spec = fields(properties)
    return fields({"spec": ruled(spec, *rules) if rules else spec})


def some(items: Object, most: int = 10, **rest: Any) -> Object:
    return {"type": "array", "items": items, "maxItems": most, **rest}


KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


def define(api: Api, schema: Object) -> Answer:
    """Asks whether a kind with this schema could be defined."""
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.cel.conformance.example"},
        "spec": {
            "group": "cel.conformance.example",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    return api.post(CRDS, crd, dryRun="All")


def causes(answer: Answer) -> list[tuple[str, str]]:
    return [(c["field"], c["message"]) for c in answer.expect(422)["details"]["causes"]]


ROOT = "spec.validation.openAPIV3Schema"
SPEC = f"{ROOT}.properties[spec]"
RULE = f"{SPEC}.x-kubernetes-validations[0]"
HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)


def wrong(rule: str, problem: str) -> str:
    """How the server shows a rule that does not compile."""
    shown = rule.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return (
        f'Invalid value: {{"Rule":"{shown}","Message":"","MessageExpression":"","Reason":null,"FieldPath":"",'
        f'"OptionalOldSelf":null}}: {problem}'
    )


REFUSED: list[tuple[Object, str, str]] = [
    (with_spec({"a": INT}, "self.a"), f"{RULE}.rule", wrong("self.a", "cel expression must evaluate to a bool")),
    (
        with_spec({"a": INT}, "self.b > 1"),
        f"{RULE}.rule",
        wrong("self.b > 1", "compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b > 1\n | ....^"),
    ),
    (
        with_spec({"a": INT}, "foo(self.a)"),
        f"{RULE}.rule",
        wrong(
            "foo(self.a)",
            "compilation failed: ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')\n"
            " | foo(self.a)\n | ...^",
        ),
    ),
    (
        with_spec({"a": INT}, "self.a == 'x'"),
        f"{RULE}.rule",
        wrong(
            "self.a == 'x'",
            "compilation failed: ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, string)'\n"
            " | self.a == 'x'\n | .......^",
        ),
    ),
    (
        fields({"spec": fields({})}, **ruled({}, "self.metadata.namespace == 'x'")),
        f"{ROOT}.x-kubernetes-validations[0].rule",
        wrong(
            "self.metadata.namespace == 'x'",
            "compilation failed: ERROR: <input>:1:14: undefined field 'namespace'\n"
            " | self.metadata.namespace == 'x'\n | .............^",
        ),
    ),
    (
        with_spec({"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}, "self.a.foo == 1"),
        f"{RULE}.rule",
        wrong(
            "self.a.foo == 1",
            "compilation failed: ERROR: <input>:1:7: undefined field 'foo'\n | self.a.foo == 1\n | ......^",
        ),
    ),
    (with_spec({"a": INT}, ""), f"{RULE}.rule", "Required value: rule is not specified"),
    (
        with_spec({"a": INT}, "self.a > 1\n&& true"),
        f"{RULE}.message",
        "Required value: message must be specified if rule contains line breaks",
    ),
    (
        with_spec({"a": INT}, {"rule": "self.a > 1", "message": "a\nb"}),
        f"{RULE}.message",
        'Invalid value: "a\\nb": must not contain line breaks',
    ),
    (
        with_spec({"a": INT}, {"rule": "self.a > 1", "message": "  "}),
        f"{RULE}.message",
        'Invalid value: "  ": must be non-empty if specified',
    ),
    (
        with_spec({"a": INT}, {"rule": "self.a > 1", "reason": "Foo"}),
        f"{RULE}.reason",
        'Unsupported value: "Foo": supported values: "FieldValueDuplicate", "FieldValueForbidden", '
        '"FieldValueInvalid", "FieldValueRequired"',
    ),
    *(
        (
            with_spec({"a": INT}, {"rule": "self.a > 1", "fieldPath": path}),
            f"{RULE}.fieldPath",
            f'Invalid value: "{path}": must be a valid path',
        )
        for path in (".b", "a", ".a[0]")
    ),
    (
        with_spec({"a": INT}, {"rule": "self.a > 1", "messageExpression": " "}),
        f"{RULE}.messageExpression",
        "Required value: messageExpression must be non-empty if specified",
    ),
    (
        with_spec({"l": {"type": "array", "items": LONG}}, "self.l.all(x, self.l.exists_one(y, x == y))"),
        f"{RULE}.rule",
        f"Forbidden: estimated rule cost exceeds budget by factor of more than 100x {HINT}",
    ),
    (
        with_spec({"l": {"type": "array", "items": ruled(LONG, "self.matches('a*')")}}),
        ROOT,
        "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by "
        f"factor of more than 100x {HINT}",
    ),
    (
        with_spec({"l": {"type": "array", "items": ruled(INT, "self > oldSelf")}}),
        f"{SPEC}.properties[l].items.x-kubernetes-validations[0].rule",
        'Invalid value: "self > oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within '
        f"{SPEC}.properties[l]",
    ),
    (
        with_spec({"a": ruled(INT, {"rule": "self > 0", "optionalOldSelf": True})}),
        f"{SPEC}.properties[a].x-kubernetes-validations[0].optionalOldSelf",
        "Invalid value: true: may not be set if oldSelf is not used in rule",
    ),
    (
        with_spec({"a": ruled({**INT, "default": 1}, {"rule": "self > 5", "message": "too small"})}),
        f"{SPEC}.properties[a].default",
        "Invalid value: 1: too small",
    ),
]


@pytest.mark.parametrize(("schema", "field", "message"), REFUSED)
def test_a_rule_is_refused_where_it_is_written(api: Api, schema: Object, field: str, message: str) -> None:
    assert (field, message) in causes(define(api, schema))


def test_a_syntax_error_shows_where_it_is(api: Api) -> None:
    [(field, message)] = causes(define(api, with_spec({"a": INT}, "self.a >")))
    assert field == f"{RULE}.rule"
    assert "compilation failed: ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>'" in message


@pytest.mark.parametrize(
    "schema",
    [
        with_spec({"a": INT}, "self.a > 1.5"),
        with_spec({"a": INT}, {"rule": "self.a > 1", "reason": "FieldValueForbidden", "fieldPath": ".a"}),
        with_spec(
            {"namespace": TEXT, "if": TEXT, "a-b": TEXT, "a.b": TEXT, "a__b": TEXT, "x/y": TEXT},
            "self.__namespace__ == self.__if__ && self.a__dash__b == self.a__dot__b && "
            "self.a__underscores__b == self.x__slash__y",
        ),
        fields({}, **ruled({}, "self.metadata.name.startsWith('a') && self.kind == 'Widget' && self.apiVersion != ''")),
        with_spec({"l": some(fields({"name": TEXT, "v": ruled(INT, "self >= oldSelf")}, required=["name"]), **KEYED)}),
        with_spec({"a": {"x-kubernetes-int-or-string": True}}, "type(self.a) == int ? self.a > 1 : self.a == 'x'"),
    ],
)
def test_what_a_rule_may_say(api: Api, schema: Object) -> None:
    define(api, schema).expect(201)


LIMITED = "self < 10"
SPEC_FIELDS: Object = {
    "plain": ruled(INT, LIMITED),
    "said": ruled(INT, {"rule": LIMITED, "message": "keep it small"}),
    "computed": ruled(INT, {"rule": LIMITED, "messageExpression": "self > 12 ? 'much' : 'more'", "message": "plain"}),
    "lines": ruled(INT, {"rule": LIMITED, "messageExpression": "'a\\nb'", "message": "fallback"}),
    "silent": ruled(INT, {"rule": LIMITED, "messageExpression": "''", "message": "fallback"}),
    "broken": ruled(INT, {"rule": LIMITED, "messageExpression": "1 / (self - 10) > 1 ? 'a' : 'b'"}),
    "forbidden": ruled(INT, {"rule": LIMITED, "reason": "FieldValueForbidden"}),
    "required": ruled(INT, {"rule": LIMITED, "reason": "FieldValueRequired", "message": "needed"}),
    "duplicate": ruled(INT, {"rule": LIMITED, "reason": "FieldValueDuplicate"}),
    "pointing": ruled(
        fields({"x": INT, "y.z": INT}),
        {"rule": "self.x < 10", "fieldPath": ".x"},
        {"rule": "!has(self.y__dot__z) || self.y__dot__z < 10", "fieldPath": "['y.z']"},
    ),
    "division": ruled(INT, "10 / self > 1"),
    "first": ruled(some(INT), "self[0] > 1"),
    "key": ruled({"type": "object", "additionalProperties": INT, "maxProperties": 10}, "self['a'] > 1"),
    "items": some(fields({"v": ruled(INT, "self < 5")})),
    "values": {"type": "object", "maxProperties": 10, "additionalProperties": ruled(INT, "self < 5")},
    "quantity": ruled(TEXT, "quantity(self).isLessThan(quantity('1Gi'))"),
    "ip": ruled(TEXT, "isIP(self) && ip(self).family() == 4 && !ip(self).isLoopback()"),
    "cidr": ruled(TEXT, "isCIDR(self) && cidr(self).containsIP('10.0.0.1') && cidr(self).prefixLength() == 8"),
    "url": ruled(TEXT, "isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() == 'a.b'"),
    "label": ruled(TEXT, "!format.dns1123Label().validate(self).hasValue()"),
    "semver": ruled(TEXT, "semver(self).compareTo(semver('1.2.3')) >= 0"),
    "loose": ruled(TEXT, "isSemver(self, true)"),
    "subset": ruled(some(TEXT, 5), "sets.contains(['a', 'b', 'c'], self)"),
    "regex": ruled(TEXT, "self.matches('^[a-z]+$') && self.find('b+') == 'bb' && self.findAll('[ab]').size() == 3"),
    "optional": ruled(fields({"x": INT}), "self.?x.orValue(5) == 5"),
    "sorted": ruled(some(INT), "self.isSorted() && self.sum() < 10 && self.min() > 0 && self.indexOf(3) == -1"),
    "text": ruled(
        {**TEXT, "maxLength": 50},
        "self.lowerAscii() == 'abc' && self.replace('a', 'b').size() == 3 && self.charAt(0) == 'A' && "
        "self.substring(1) == 'BC' && ' q '.trim() == 'q' && 'x-y'.split('-').size() == 2",
    ),
    "instant": ruled({"type": "string", "format": "date-time"}, "self.getFullYear() > 2000"),
    "span": ruled({"type": "string", "format": "duration"}, "self < duration('1h')"),
    "either": {
        "x-kubernetes-int-or-string": True,
        **ruled({}, "type(self) == int ? self < 10 : self.endsWith('%')"),
    },
    "indexed": ruled(some(INT), "self.all(i, v, i == v)"),
    "growing": ruled(INT, {"rule": "self >= oldSelf", "message": "only up"}),
    "fixed": ruled(TEXT, {"rule": "self == oldSelf", "message": "immutable"}),
    "maybe": ruled(
        INT,
        {"rule": "!oldSelf.hasValue() || oldSelf.value() <= self", "optionalOldSelf": True, "message": "never less"},
    ),
    "keyed": some(fields({"name": TEXT, "v": ruled(INT, "self >= oldSelf")}, required=["name"]), 5, **KEYED),
}


@pytest.fixture(scope="module")
def widgets(definer: Any) -> Kind:
    status = fields({"done": ruled(INT, "self >= 0")})
    schema = ruled(
        fields({"spec": fields(SPEC_FIELDS), "status": status}),
        {"rule": "self.metadata.name != 'bad'", "message": "bad name"},
        {
            "rule": "!has(self.status) || !has(self.status.done) || !has(self.spec.plain) || "
            "self.status.done <= self.spec.plain",
            "message": "done beyond what was wanted",
        },
    )
    kind: Kind = definer(schema, subresources={"status": {}})
    return kind


def send(kind: Kind, spec: Object, name: str = "x") -> Answer:
    return kind.api.post(kind.path("default"), kind.new(name, spec=spec), dryRun="All")


FAILED: list[tuple[str, Any, str, str, str]] = [
    ("plain", 15, "FieldValueInvalid", "spec.plain", "Invalid value: 15: failed rule: self < 10"),
    ("said", 15, "FieldValueInvalid", "spec.said", "Invalid value: 15: keep it small"),
    ("computed", 15, "FieldValueInvalid", "spec.computed", "Invalid value: 15: much"),
    ("lines", 15, "FieldValueInvalid", "spec.lines", "Invalid value: 15: fallback"),
    ("silent", 15, "FieldValueInvalid", "spec.silent", "Invalid value: 15: fallback"),
    ("broken", 10, "FieldValueInvalid", "spec.broken", "Invalid value: 10: failed rule: self < 10"),
    ("forbidden", 15, "FieldValueForbidden", "spec.forbidden", "Forbidden: failed rule: self < 10"),
    ("required", 15, "FieldValueRequired", "spec.required", "Required value: needed"),
    ("duplicate", 15, "FieldValueDuplicate", "spec.duplicate", "Duplicate value: 15"),
    ("pointing", {"x": 15}, "FieldValueInvalid", "spec.pointing.x", "Invalid value: failed rule: self.x < 10"),
    (
        "pointing",
        {"x": 1, "y.z": 15},
        "FieldValueInvalid",
        "spec.pointing.y.z",
        "Invalid value: failed rule: !has(self.y__dot__z) || self.y__dot__z < 10",
    ),
    (
        "division",
        0,
        "FieldValueInvalid",
        "spec.division",
        'Invalid value: "integer": division by zero evaluating rule: 10 / self > 1',
    ),
    ("division", 100, "FieldValueInvalid", "spec.division", "Invalid value: 100: failed rule: 10 / self > 1"),
    (
        "first",
        [],
        "FieldValueInvalid",
        "spec.first",
        'Invalid value: "array": index out of bounds: 0 evaluating rule: self[0] > 1',
    ),
    ("first", [1], "FieldValueInvalid", "spec.first", "Invalid value: failed rule: self[0] > 1"),
    (
        "key",
        {},
        "FieldValueInvalid",
        "spec.key",
        "Invalid value: \"object\": no such key: a evaluating rule: self['a'] > 1",
    ),
    ("key", {"a": 1}, "FieldValueInvalid", "spec.key", "Invalid value: failed rule: self['a'] > 1"),
    ("items", [{"v": 1}, {"v": 9}], "FieldValueInvalid", "spec.items[1].v", "Invalid value: 9: failed rule: self < 5"),
    ("values", {"k": 9}, "FieldValueInvalid", "spec.values[k]", "Invalid value: 9: failed rule: self < 5"),
    ("values", {"a.b/c": 9}, "FieldValueInvalid", "spec.values[a.b/c]", "Invalid value: 9: failed rule: self < 5"),
    (
        "quantity",
        "2Gi",
        "FieldValueInvalid",
        "spec.quantity",
        "Invalid value: \"2Gi\": failed rule: quantity(self).isLessThan(quantity('1Gi'))",
    ),
    (
        "quantity",
        "zz",
        "FieldValueInvalid",
        "spec.quantity",
        "Invalid value: \"string\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$' evaluating rule: quantity(self).isLessThan(quantity('1Gi'))",
    ),
    (
        "ip",
        "::1",
        "FieldValueInvalid",
        "spec.ip",
        'Invalid value: "::1": failed rule: isIP(self) && ip(self).family() == 4 && !ip(self).isLoopback()',
    ),
    (
        "ip",
        "127.0.0.1",
        "FieldValueInvalid",
        "spec.ip",
        'Invalid value: "127.0.0.1": failed rule: isIP(self) && ip(self).family() == 4 && !ip(self).isLoopback()',
    ),
    (
        "ip",
        "x",
        "FieldValueInvalid",
        "spec.ip",
        'Invalid value: "x": failed rule: isIP(self) && ip(self).family() == 4 && !ip(self).isLoopback()',
    ),
    (
        "cidr",
        "x",
        "FieldValueInvalid",
        "spec.cidr",
        "Invalid value: \"x\": failed rule: isCIDR(self) && cidr(self).containsIP('10.0.0.1') && cidr(self).prefixLength() == 8",
    ),
    (
        "url",
        "http://a.b",
        "FieldValueInvalid",
        "spec.url",
        "Invalid value: \"http://a.b\": failed rule: isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() == 'a.b'",
    ),
    (
        "url",
        "x",
        "FieldValueInvalid",
        "spec.url",
        "Invalid value: \"x\": failed rule: isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() == 'a.b'",
    ),
    (
        "label",
        "A b",
        "FieldValueInvalid",
        "spec.label",
        'Invalid value: "A b": failed rule: !format.dns1123Label().validate(self).hasValue()',
    ),
    (
        "semver",
        "1.0.0",
        "FieldValueInvalid",
        "spec.semver",
        "Invalid value: \"1.0.0\": failed rule: semver(self).compareTo(semver('1.2.3')) >= 0",
    ),
    (
        "semver",
        "x",
        "FieldValueInvalid",
        "spec.semver",
        "Invalid value: \"string\": No Major.Minor.Patch elements found evaluating rule: semver(self).compareTo(semver('1.2.3')) >= 0",
    ),
    ("loose", "x", "FieldValueInvalid", "spec.loose", 'Invalid value: "x": failed rule: isSemver(self, true)'),
    (
        "subset",
        ["z"],
        "FieldValueInvalid",
        "spec.subset",
        "Invalid value: failed rule: sets.contains(['a', 'b', 'c'], self)",
    ),
    (
        "regex",
        "b",
        "FieldValueInvalid",
        "spec.regex",
        "Invalid value: \"b\": failed rule: self.matches('^[a-z]+$') && self.find('b+') == 'bb' && self.findAll('[ab]').size() == 3",
    ),
    ("optional", {"x": 4}, "FieldValueInvalid", "spec.optional", "Invalid value: failed rule: self.?x.orValue(5) == 5"),
    (
        "sorted",
        [2, 1],
        "FieldValueInvalid",
        "spec.sorted",
        "Invalid value: failed rule: self.isSorted() && self.sum() < 10 && self.min() > 0 && self.indexOf(3) == -1",
    ),
    (
        "sorted",
        [1, 2, 3],
        "FieldValueInvalid",
        "spec.sorted",
        "Invalid value: failed rule: self.isSorted() && self.sum() < 10 && self.min() > 0 && self.indexOf(3) == -1",
    ),
    (
        "text",
        "abc",
        "FieldValueInvalid",
        "spec.text",
        "Invalid value: \"abc\": failed rule: self.lowerAscii() == 'abc' && self.replace('a', 'b').size() == 3 && self.charAt(0) == 'A' && self.substring(1) == 'BC' && ' q '.trim() == 'q' && 'x-y'.split('-').size() == 2",
    ),
    (
        "instant",
        "1999-01-01T00:00:00Z",
        "FieldValueInvalid",
        "spec.instant",
        'Invalid value: "1999-01-01T00:00:00Z": failed rule: self.getFullYear() > 2000',
    ),
    ("span", "2h", "FieldValueInvalid", "spec.span", "Invalid value: \"2h\": failed rule: self < duration('1h')"),
    (
        "either",
        15,
        "FieldValueInvalid",
        "spec.either",
        "Invalid value: 15: failed rule: type(self) == int ? self < 10 : self.endsWith('%')",
    ),
    (
        "either",
        "5",
        "FieldValueInvalid",
        "spec.either",
        "Invalid value: \"5\": failed rule: type(self) == int ? self < 10 : self.endsWith('%')",
    ),
    ("indexed", [1], "FieldValueInvalid", "spec.indexed", "Invalid value: failed rule: self.all(i, v, i == v)"),
]


@pytest.mark.parametrize(("field", "value", "reason", "where", "message"), FAILED)
def test_a_failed_rule_names_the_field_and_why(
    widgets: Kind, field: str, value: Any, reason: str, where: str, message: str
) -> None:
    found = send(widgets, {field: value}).expect(422)["details"]["causes"]
    assert found == [{"reason": reason, "field": where, "message": message}]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("plain", 5),
        ("division", 1),
        ("first", [2]),
        ("key", {"a": 2}),
        ("quantity", "1Mi"),
        ("ip", "1.2.3.4"),
        ("cidr", "10.0.0.0/8"),
        ("url", "https://a.b/c"),
        ("label", "abc"),
        ("semver", "1.2.3"),
        ("loose", "v1.2"),
        ("subset", ["a"]),
        ("regex", "abb"),
        ("optional", {}),
        ("optional", {"x": 5}),
        ("sorted", [1, 2]),
        ("text", "ABC"),
        ("instant", "2020-01-01T00:00:00Z"),
        ("span", "30m"),
        ("either", 5),
        ("either", "5%"),
        ("indexed", [0, 1]),
        ("growing", -1),
        ("fixed", "a"),
        ("maybe", 1),
    ],
)
def test_a_value_that_keeps_the_rules_is_taken(widgets: Kind, field: str, value: Any) -> None:
    send(widgets, {field: value}).expect(201)


def test_a_rule_at_the_root_sees_the_name(widgets: Kind) -> None:
    assert causes(send(widgets, {}, "bad")) == [("<nil>", "Invalid value: bad name")]


def test_rules_are_not_run_on_values_of_the_wrong_type(widgets: Kind) -> None:
    assert causes(send(widgets, {"plain": "x", "said": 15})) == [
        ("spec.plain", 'Invalid value: "string": spec.plain in body must be of type integer: "string"'),
        (
            "<nil>",
            "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
            "existing errors to complete validation",
        ),
    ]


@pytest.fixture
def stored(api: Api, widgets: Kind, namespace: str) -> Callable[..., Answer]:
    """An object, and a way to ask what a patch of it would give."""
    keyed = [{"name": "a", "v": 5}, {"name": "b", "v": 5}]
    spec = {"plain": 5, "growing": 5, "fixed": "a", "maybe": 5, "keyed": keyed}
    api.post(widgets.path(namespace), widgets.new("x", spec=spec)).expect(201)

    def patch(subresource: str = "", **body: Any) -> Answer:
        return api.patch(widgets.path(namespace, "x", subresource), body, dryRun="All")

    return patch


def test_a_rule_about_the_change_sees_the_old_value(stored: Any) -> None:
    stored(spec={"growing": 6}).expect(200)
    stored(spec={"growing": None}).expect(200)
    assert causes(stored(spec={"growing": 4})) == [("spec.growing", "Invalid value: 4: only up")]
    assert causes(stored(spec={"fixed": "b"})) == [("spec.fixed", 'Invalid value: "b": immutable')]
    assert causes(stored(spec={"maybe": 4})) == [("spec.maybe", "Invalid value: 4: never less")]


def test_items_of_a_keyed_list_are_compared_by_key(stored: Any) -> None:
    keyed = [{"name": "b", "v": 4}, {"name": "c", "v": 1}, {"name": "a", "v": 6}]
    assert causes(stored(spec={"keyed": keyed})) == [
        ("spec.keyed[0].v", "Invalid value: 4: failed rule: self >= oldSelf")
    ]


def test_rules_hold_for_the_status_as_well(stored: Any) -> None:
    stored("status", status={"done": 3}).expect(200)
    assert causes(stored("status", status={"done": -3})) == [
        ("status.done", "Invalid value: -3: failed rule: self >= 0")
    ]
    assert causes(stored("status", status={"done": 30})) == [("<nil>", "Invalid value: done beyond what was wanted")]


def test_an_unchanged_value_is_forgiven_with_a_warning(api: Api, definer: Any, namespace: str) -> None:
    kind = definer(with_spec({"a": INT, "b": INT, "o": fields({"x": INT})}))
    api.post(kind.path(namespace), kind.new("x", spec={"a": 50, "b": 1, "o": {"x": 50}})).expect(201)
    small = {"rule": "self.x < 10", "message": "small"}
    schema = with_spec({"a": ruled(INT, LIMITED), "b": INT, "o": ruled(fields({"x": INT}), small)})

    def tighten() -> bool:
        crd = api.get(f"{CRDS}/{kind.qualified}").expect(200)
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
        return api.put(f"{CRDS}/{kind.qualified}", crd).status == 200

    eventually(tighten)
    eventually(lambda: send(kind, {"a": 50}).status == 422)
    path = kind.path(namespace, "x")
    answer = api.patch(path, {"spec": {"b": 2}}, dryRun="All")
    answer.expect(200)
    assert sorted(answer.warnings) == [
        "spec.a: Invalid value: 50: failed rule: self < 10",
        "spec.o: Invalid value: small",
    ]
    assert causes(api.patch(path, {"spec": {"a": 51}}, dryRun="All")) == [
        ("spec.a", "Invalid value: 51: failed rule: self < 10")
    ]
    fixed = api.patch(path, {"spec": {"a": 9, "o": {"x": 9}}}, dryRun="All")
    fixed.expect(200)
    assert fixed.warnings == []
