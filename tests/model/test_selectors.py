"""Selectors select what a naive reading of them says, and are refused in upstream's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeostat.model.errors import ApiError
from homeostat.model.selectors import (
    label_selector_errors,
    label_selector_from,
    parse_field_selector,
    parse_label_selector,
    selector_text,
)

KEYS = st.sampled_from(["app", "tier", "example.com/zone", "in", "n"])
VALUES = st.sampled_from(["", "web", "db", "notin", "3", "12", "a.b-c_d"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=5)


def naive(key, operator, values, labels):
    present = key in labels
    if operator in ("=", "==", "in"):
        return present and labels[key] in values
    if operator in ("!=", "notin"):
        return not present or labels[key] not in values
    if operator == "exists":
        return present
    if operator == "!":
        return not present
    if not present or not labels[key].lstrip("-").isdigit():
        return False
    return int(labels[key]) > int(values[0]) if operator == ">" else int(labels[key]) < int(values[0])


@st.composite
def requirements(draw):
    key = draw(KEYS)
    operator = draw(st.sampled_from(["=", "==", "!=", "in", "notin", "exists", "!", ">", "<"]))
    if operator in ("in", "notin"):
        values = draw(st.lists(VALUES, min_size=1, max_size=3))
        return (key, operator, values), f"{key} {operator} ({', '.join(values)})"
    if operator == "exists":
        return (key, operator, []), key
    if operator == "!":
        return (key, operator, []), f"!{key}"
    if operator in (">", "<"):
        number = str(draw(st.integers(-20, 20)))
        # A leading minus is no label value, and upstream says so.
        number = number.lstrip("-")
        return (key, operator, [number]), f"{key}{operator}{number}"
    value = draw(VALUES)
    return (key, operator, [value]), f"{key}{operator}{value}"


@given(st.lists(requirements(), max_size=4), LABELS)
def test_a_selector_selects_what_it_says(parts, labels):
    selector = parse_label_selector(",".join(text for _, text in parts))
    assert selector.matches(labels) == all(naive(*facts, labels) for facts, _ in parts)
    assert selector.empty == (not parts)
    assert parse_label_selector(str(selector)).matches(labels) == selector.matches(labels)


def test_no_labels_at_all_are_like_an_empty_map():
    assert parse_label_selector("!a").matches(None)
    assert not parse_label_selector("a").matches(None)
    assert parse_label_selector("a!=b,c notin (d)").matches(None)


def test_an_empty_value_can_be_meant():
    assert parse_label_selector("x in (foo,,baz)").matches({"x": ""})
    assert parse_label_selector("x=").matches({"x": ""})
    assert not parse_label_selector("x=").matches({})
    assert parse_label_selector("x in ()").matches({"x": ""})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a IN (b)", "unable to parse requirement: found 'IN', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a==(", "unable to parse requirement: found '(', expected: identifier"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!,", "unable to parse requirement: found ',', expected: identifier"),
        (
            "a>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be "
            "an integer",
        ),
        (
            "#a",
            'unable to parse requirement: <nil>: Invalid value: "#a": name part must consist of alphanumeric '
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
            "'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ],
)
def test_nonsense_is_refused_in_upstreams_words(text, message):
    with pytest.raises(ApiError) as refusal:
        parse_label_selector(text)
    assert refusal.value.code == 400
    assert refusal.value.message == message


def test_a_bad_value_is_named_with_its_key():
    with pytest.raises(
        ApiError, match=r'unable to parse requirement: values\[0\]\[a\]: Invalid value: "\*": a valid label'
    ):
        parse_label_selector("a=*")


def test_structured_selectors_select_likewise():
    selector = label_selector_from(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "gone", "operator": "DoesNotExist"},
            ],
        }
    )
    assert selector.matches({"app": "web", "tier": "b"})
    assert not selector.matches({"app": "web", "tier": "c"})
    assert not selector.matches({"app": "web", "tier": "a", "gone": ""})
    assert str(selector) == "app=web,!gone,tier in (a,b)"
    assert label_selector_from({}).matches({"anything": "goes"})
    assert label_selector_from(None) is None


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        (
            {"key": "a", "operator": "In"},
            "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            {"key": "a", "operator": "Exists", "values": ["x"]},
            "s.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or "
            "'DoesNotExist'",
        ),
        (
            {"key": "a", "operator": "Near"},
            's.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator',
        ),
    ],
)
def test_structured_selectors_are_validated(expression, error):
    (found,) = label_selector_errors({"matchExpressions": [expression]}, "s")
    assert str(found) == error


def test_selectors_are_written_on_one_line():
    assert selector_text({"matchLabels": {"b": "2", "a": "1"}}) == "a=1,b=2"
    assert selector_text({"b": "2", "a": "1"}) == "a=1,b=2"
    assert selector_text({}) == selector_text(None) == ""


ODD_TEXT = st.text(alphabet="ab=,\\!.", max_size=6)


@given(st.lists(st.tuples(st.sampled_from(["metadata.name", "spec.x"]), st.booleans(), ODD_TEXT), max_size=3), ODD_TEXT)
def test_field_selectors_survive_escaping(terms, actual):
    def escape(value):
        return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")

    selector = parse_field_selector(",".join(f"{n}{'=' if same else '!='}{escape(v)}" for n, same, v in terms))
    fields = {"metadata.name": actual}
    assert selector.matches(fields) == all((fields.get(n, "") == v) is same for n, same, v in terms)
    assert selector.names == {n for n, _, _ in terms}
    assert parse_field_selector(str(selector)).requirements == selector.requirements


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
        (r"a=\b", r"invalid field selector: invalid escape sequence: \b"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_field_selectors_are_refused_in_upstreams_words(text, message):
    with pytest.raises(ApiError) as refusal:
        parse_field_selector(text)
    assert refusal.value.message == message


def test_the_exact_value_of_a_field_can_be_asked():
    selector = parse_field_selector("metadata.name==x,spec.y!=z")
    assert selector.exact("metadata.name") == "x"
    assert selector.exact("spec.y") is None
