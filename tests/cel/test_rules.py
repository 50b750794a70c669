"""Rules of a CRD at work on objects: who is refused, where, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.api.cel import compile_rules
from homeostat.api.cel.rules import RuleSet
from homeostat.model.schema import Schema

Raw = dict[str, Any]
INTEGER: Raw = {"type": "integer"}
TEXT: Raw = {"type": "string"}


def rules(*given: str | Raw) -> Raw:
    return {"x-kubernetes-validations": [{"rule": r} if isinstance(r, str) else r for r in given]}


def compiled(spec: Raw, root: Raw | None = None) -> RuleSet:
    found = compile_rules(Schema({"type": "object", "properties": {"spec": spec}, **(root or {})}))
    assert found is not None
    return found


def shown(ruleset: RuleSet, spec: Any, old: Any = None) -> list[str]:
    def whole(s: Any) -> Raw:
        return {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "spec": s}

    return [str(e) for e in ruleset.validate(whole(spec), None if old is None else whole(old))]


def test_a_schema_without_rules_compiles_to_nothing() -> None:
    assert (
        compile_rules(Schema({"type": "object", "properties": {"spec": {"type": "object", "properties": {}}}})) is None
    )


def test_a_failed_rule_is_reported_at_its_place_with_the_words_the_author_chose() -> None:
    ruleset = compiled(
        {
            "type": "object",
            "properties": {"a": INTEGER, "b": INTEGER, "name": TEXT},
            **rules(
                "self.a <= self.b",
                {"rule": "self.a != 7", "message": " not seven "},
                {"rule": "self.a != 8", "messageExpression": "'a is %d'.format([self.a])", "fieldPath": ".a"},
                {"rule": "self.a != 9", "messageExpression": "self.name", "message": "fallback"},
                {"rule": "self.a != 10", "reason": "FieldValueForbidden", "message": "no"},
                {"rule": "self.a != 11", "reason": "FieldValueRequired", "message": "no"},
                {"rule": "self.a != 12", "reason": "FieldValueDuplicate"},
            ),
        }
    )
    assert shown(ruleset, {"a": 1, "b": 2}) == []
    assert shown(ruleset, {"a": 3, "b": 2}) == ["spec: Invalid value: failed rule: self.a <= self.b"]
    assert shown(ruleset, {"a": 7, "b": 20}) == ["spec: Invalid value: not seven"]
    assert shown(ruleset, {"a": 8, "b": 20}) == ["spec.a: Invalid value: a is 8"]
    assert shown(ruleset, {"a": 9, "b": 20}) == ["spec: Invalid value: fallback"]
    assert shown(ruleset, {"a": 9, "b": 20, "name": "many\nlines"}) == ["spec: Invalid value: fallback"]
    assert shown(ruleset, {"a": 10, "b": 20}) == ["spec: Forbidden: no"]
    assert shown(ruleset, {"a": 11, "b": 20}) == ["spec: Required value: no"]
    assert shown(ruleset, {"a": 12, "b": 20}) == ["spec: Duplicate value"]


def test_a_rule_that_cannot_be_evaluated_refuses_and_says_why() -> None:
    ruleset = compiled(
        {
            "type": "object",
            "properties": {"a": INTEGER, "port": {"x-kubernetes-int-or-string": True}},
            **rules("self.a > 0", "!has(self.port) || self.port > 3"),
        }
    )
    assert shown(ruleset, {}) == ['spec: Invalid value: "object": no such key: a evaluating rule: self.a > 0']
    [problem] = shown(ruleset, {"a": 1, "port": "http"})
    assert problem == (
        "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, function "
        "or macro signature for rule: !has(self.port) || self.port > 3"
    )


def test_small_values_are_shown_where_a_rule_stands_on_them() -> None:
    ruleset = compiled(
        {
            "type": "object",
            "properties": {
                "n": {"type": "number", **rules("self < 1.5")},
                "on": {"type": "boolean", **rules("self")},
                "l": {"type": "array", "items": {**TEXT, **rules("self != 'no'")}},
                "m": {"type": "object", "additionalProperties": {**TEXT, **rules("self.size() < 3")}},
            },
        }
    )
    assert shown(ruleset, {"n": 1, "on": True, "l": ["a"], "m": {"k": "v"}}) == []
    assert shown(ruleset, {"n": 2, "on": False, "l": ["a", "no"], "m": {"k": "long"}}) == [
        "spec.n: Invalid value: 2: failed rule: self < 1.5",
        "spec.on: Invalid value: false: failed rule: self",
        "spec.l[1]: Invalid value: \"no\": failed rule: self != 'no'",
        'spec.m[k]: Invalid value: "long": failed rule: self.size() < 3',
    ]


def test_the_root_sees_its_names_and_is_called_nil() -> None:
    ruleset = compiled({"type": "object"}, rules("self.metadata.name != 'x' && self.kind == 'X'"))
    assert shown(ruleset, {}) == ["<nil>: Invalid value: failed rule: self.metadata.name != 'x' && self.kind == 'X'"]


def test_formats_and_names_that_cel_cannot_spell_are_translated() -> None:
    ruleset = compiled(
        {
            "type": "object",
            "properties": {
                "start-at": {**TEXT, "format": "date-time"},
                "for": {**TEXT, "format": "duration"},
                "all": {"type": "array", "items": {**TEXT, "format": "date-time"}},
                "raw": {**TEXT, "format": "byte"},
            },
            **rules(
                "!has(self.start__dash__at) || self.start__dash__at > timestamp('2024-01-01T00:00:00Z')",
                "!has(self.__for__) || self.__for__ < duration('1h')",
                "!has(self.all) || self.all.all(t, t.getFullYear() == 2024)",
                "!has(self.raw) || self.raw == b'abc'",
            ),
        }
    )
    good = {"start-at": "2024-06-01T00:00:00+01:00", "for": "59m", "all": ["2024-01-01T00:00:00Z"], "raw": "YWJj"}
    bad = {"start-at": "2023-06-01T00:00:00Z", "for": "60m", "all": ["2023-01-01T00:00:00Z"], "raw": "YWI="}
    assert shown(ruleset, good) == []
    assert len(shown(ruleset, bad)) == 4


def test_null_is_no_business_of_a_rule() -> None:
    ruleset = compiled({"type": "object", "properties": {"s": {**TEXT, "nullable": True, **rules("self != ''")}}})
    assert shown(ruleset, {"s": None}) == []
    assert shown(ruleset, {"s": ""}) == ["spec.s: Invalid value: \"\": failed rule: self != ''"]


def test_rules_inside_all_of_hold_too() -> None:
    ruleset = compiled({"type": "object", "properties": {"a": INTEGER}, "allOf": [rules("self.a > 0")]})
    assert shown(ruleset, {"a": 0}) == ["spec: Invalid value: failed rule: self.a > 0"]


class TestTransitions:
    """Rules that compare with what was there before."""

    def test_they_wait_until_there_is_something_to_compare_with(self) -> None:
        ruleset = compiled({"type": "object", "properties": {"a": {**INTEGER, **rules("self == oldSelf")}}})
        assert shown(ruleset, {"a": 1}) == []
        assert shown(ruleset, {"a": 1}, {}) == []
        assert shown(ruleset, {"a": 1}, {"a": 1}) == []
        assert shown(ruleset, {"a": 2}, {"a": 1}) == ["spec.a: Invalid value: 2: failed rule: self == oldSelf"]

    def test_an_optional_old_value_lets_a_rule_tell_creation_from_update(self) -> None:
        rule = {"rule": "oldSelf.hasValue() || self == 0", "optionalOldSelf": True, "message": "starts at 0"}
        ruleset = compiled({"type": "object", "properties": {"a": {**INTEGER, **rules(rule)}}})
        assert shown(ruleset, {"a": 1}) == ["spec.a: Invalid value: 1: starts at 0"]
        assert shown(ruleset, {"a": 0}) == []
        assert shown(ruleset, {"a": 1}, {"a": 0}) == []

    def test_items_of_a_list_with_keys_are_found_again_by_key(self) -> None:
        item = {"type": "object", "properties": {"name": TEXT, "v": INTEGER}, **rules("self.v >= oldSelf.v")}
        keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        ruleset = compiled({"type": "object", "properties": {"l": {"type": "array", "items": item, **keyed}}})
        old = {"l": [{"name": "a", "v": 1}, {"name": "b", "v": 5}]}
        assert shown(ruleset, {"l": [{"name": "b", "v": 5}, {"name": "c", "v": 0}, {"name": "a", "v": 2}]}, old) == []
        moved = {"l": [{"name": "b", "v": 4}, {"name": "a", "v": 1}]}
        assert shown(ruleset, moved, old) == ["spec.l[0]: Invalid value: failed rule: self.v >= oldSelf.v"]

    def test_a_set_that_changed_its_order_is_the_same_set(self) -> None:
        members = {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT, **rules("self == oldSelf")}
        ruleset = compiled({"type": "object", "properties": {"s": members}})
        assert shown(ruleset, {"s": ["b", "a"]}, {"s": ["a", "b"]}) == []
        assert shown(ruleset, {"s": ["b", "c"]}, {"s": ["a", "b"]}) != []


RATCHETED_ITEM: Raw = {
    "type": "object",
    "properties": {"name": TEXT, "v": {**INTEGER, **rules("self < 10")}},
    **rules("self.v != 99"),
}
BY_NAME: Raw = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
RATCHETED: Raw = {
    "type": "object",
    "properties": {
        "a": {**INTEGER, **rules("self >= 0")},
        "other": TEXT,
        "keyed": {"type": "array", "items": RATCHETED_ITEM, **BY_NAME},
        "plain": {"type": "array", "items": RATCHETED_ITEM},
    },
    **rules("!has(self.a) || self.a != -1"),
}


class TestRatcheting:
    """What was stored before a rule came may stay as it is."""

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ({"a": -1}, {"a": -1}),
            ({"a": -2}, {"a": -2, "other": "changed"}),
            ({"keyed": [{"name": "x", "v": 50}]}, {"keyed": [{"name": "y", "v": 1}, {"name": "x", "v": 50}]}),
            ({"plain": [{"v": 50}]}, {"plain": [{"v": 50}], "other": "changed"}),
        ],
    )
    def test_an_unchanged_value_is_forgiven(self, old: Raw, new: Raw) -> None:
        assert shown(compiled(RATCHETED), new, old) == []

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ({"a": -1}, {"a": -2}),
            ({"a": -1}, {"a": -1, "other": "changed"}),
            ({"keyed": [{"name": "x", "v": 50}]}, {"keyed": [{"name": "x", "v": 51}]}),
            ({"plain": [{"v": 50}]}, {"plain": [{"v": 50}, {"v": 1}]}),
        ],
    )
    def test_a_changed_one_is_not(self, old: Raw, new: Raw) -> None:
        assert shown(compiled(RATCHETED), new, old) != []

    def test_a_transition_is_never_forgiven(self) -> None:
        ruleset = compiled({"type": "object", "properties": {"a": {**INTEGER, **rules("self != oldSelf")}}})
        assert shown(ruleset, {"a": 1}, {"a": 1}) != []


def test_what_was_judged_by_these_rules_and_is_the_very_same_is_not_judged_again() -> None:
    kept: Raw = {"n": 3}
    small = compiled({"type": "object", "properties": {"n": INTEGER}, **rules("self.n < 2")})
    assert small.validate({"spec": kept}, {"spec": kept}, current=True) == []
    assert [str(e) for e in small.validate({"spec": {"n": 4}}, {"spec": kept}, current=True)] == [str(e) for e in small.validate({"spec": {"n": 4}})]
    warned: list[str] = []
    assert small.validate({"spec": kept}, {"spec": kept}, forgiven=warned) == []
    assert len(warned) == 1  # the rules may be new: then it is forgiven, and said

    growing = compiled({"type": "object", "properties": {"n": INTEGER}, **rules("self.n > oldSelf.n")})
    assert len(growing.validate({"spec": kept}, {"spec": kept}, current=True)) == 1
