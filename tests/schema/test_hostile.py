"""Whatever is sent, the answer is a list of errors, never an exception."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.schema.generated import json_values

from homeostat.api.schema import (
    check_crd,
    decode_errors,
    default,
    default_crd,
    format_warnings,
    metadata_type_error,
    prune,
    validate,
    validate_metadata,
)
from homeostat.api.schema.formats import FORMATS
from homeostat.model.names import dns_subdomain_problems
from homeostat.model.schema import OBJECT_META, Schema

KEYWORDS = (
    *(
        "type",
        "format",
        "title",
        "pattern",
        "items",
        "properties",
        "additionalProperties",
        "additionalItems",
        "required",
    ),
    *("enum", "default", "nullable", "allOf", "anyOf", "oneOf", "not", "$ref", "$schema", "id", "definitions"),
    *("dependencies", "patternProperties", "uniqueItems", "minimum", "maximum", "exclusiveMinimum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "x-kubernetes-list-type"),
    *("x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-int-or-string"),
    *("x-kubernetes-embedded-resource", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
)
WORDS = st.sampled_from(["object", "array", "string", "integer", "map", "set", "a", "metadata", "(", "^a", "", "ipv4"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS) | WORDS, inner, max_size=4),
    max_leaves=20,
)
slow = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def definition(raw: Any, **more: Any) -> dict[str, Any]:
    v = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": raw}, **more}
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": "e.com", "scope": "Cluster", "names": names, "versions": [v]}
    return {"metadata": {"name": "widgets.e.com"}, "spec": spec}


@slow
@given(JUNK, json_values())
@example({"type": "object", "items": None}, {})
@example({"type": "object", "properties": None}, {})
@example({"type": "object", "x-kubernetes-list-map-keys": None}, {})
def test_a_schema_of_junk_is_refused_or_works(raw: Any, value: Any) -> None:
    made = definition({"type": "object", "properties": {"spec": raw}})
    default_crd(made)
    format_warnings(made)
    if check_crd(made) == []:
        schema = Schema(made["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
        obj = {"spec": value}
        prune(schema, obj)
        default(schema, obj)
        validate(schema, obj)
        validate(schema, {"spec": value}, obj)


@slow
@given(JUNK, JUNK, JUNK, JUNK)
def test_a_definition_of_junk_is_refused(spec: Any, columns: Any, subresources: Any, fields: Any) -> None:
    for made in (
        {"metadata": spec, "spec": spec, "status": spec},
        definition(spec, additionalPrinterColumns=columns, subresources=subresources, selectableFields=fields),
        {"spec": {"versions": [spec, columns], "names": spec, "conversion": columns, "group": subresources}},
        {
            "spec": {
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": spec, "conversionReviewVersions": columns},
                }
            }
        },
    ):
        if isinstance(made, dict):
            default_crd(made)
            assert isinstance(check_crd(made), list)
            assert isinstance(check_crd(made, made), list)


@slow
@given(
    st.dictionaries(
        st.sampled_from(list(OBJECT_META.properties)),
        JUNK | st.lists(st.dictionaries(st.sampled_from(["apiVersion", "kind", "name", "uid", "operation"]), WORDS)),
    ),
)
def test_metadata_of_junk_is_refused_or_works(meta: dict[str, Any]) -> None:
    if metadata_type_error(meta) == "":
        assert decode_errors(OBJECT_META, meta)[1] == []
        for old in (None, meta):
            validate_metadata(meta, namespaced=True, name_problems=dns_subdomain_problems, old=old)


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("text", ["a", "1", "1a", "@", "a@", "aa.", "-", ":", "a ", '"', "%41", "1 a "])
def test_no_format_is_slow_on_long_text(name: str, text: str) -> None:
    started = time.perf_counter()
    FORMATS[name](text * (100_000 // len(text)) + "\x01!")
    assert time.perf_counter() - started < 1


def test_a_pattern_that_would_explode_elsewhere_is_answered_at_once() -> None:
    schema = Schema({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
    assert len(validate(schema, {"a": "a" * 50_000 + "!"})) == 1
