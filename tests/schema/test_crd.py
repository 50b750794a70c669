"""What is refused in a CustomResourceDefinition, at upstream's paths and in its words."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from homeostat.api.schema import check_crd, default_crd, format_warnings

ROOT = "spec.validation.openAPIV3Schema"


def crd(**changes: Any) -> dict[str, Any]:
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [version("v1", {"spec": {"type": "object"}})],
        **changes,
    }
    made = {"metadata": {"name": f"{spec['names'].get('plural')}.{spec['group']}"}, "spec": spec}
    default_crd(made)
    return made


def version(name: str, properties: dict[str, Any], *, storage: bool = True, **more: Any) -> dict[str, Any]:
    root = {"type": "object", "properties": properties}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": root}, **more}


def said(definition: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    return [str(e) for e in check_crd(definition, old)]


def about_schema(raw: Any) -> list[str]:
    v = version("v1", {})
    v["schema"]["openAPIV3Schema"] = raw
    return said(crd(versions=[v]))


def about_spec(raw: Any) -> list[str]:
    return about_schema({"type": "object", "properties": {"spec": raw}})


def test_a_plain_definition_is_fine_once_defaulted() -> None:
    made = crd()
    assert said(made) == []
    assert made["spec"]["names"] == {
        "plural": "widgets",
        "kind": "Widget",
        "singular": "widget",
        "listKind": "WidgetList",
    }
    assert made["spec"]["conversion"] == {"strategy": "None"}


def test_the_name_must_be_plural_and_group() -> None:
    made = crd()
    made["metadata"]["name"] = "other.example.com"
    assert said(made) == ['metadata.name: Invalid value: "other.example.com": must be spec.names.plural+"."+spec.group']


SPEC_CASES: list[tuple[dict[str, Any], str]] = [
    ({"group": "plain"}, 'spec.group: Invalid value: "plain": should be a domain with at least one dot'),
    ({"group": ""}, "spec.group: Required value"),
    ({"scope": ""}, "spec.scope: Required value"),
    ({"scope": "World"}, 'spec.scope: Unsupported value: "World": supported values: "Cluster", "Namespaced"'),
    ({"names": {"kind": "Widget"}}, "spec.names.plural: Required value"),
    ({"names": {"plural": "widgets"}}, "spec.names.kind: Required value"),
    (
        {"names": {"plural": "widgets", "kind": "Widget", "listKind": "Widget"}},
        'spec.names.listKind: Invalid value: "Widget": kind and listKind may not be the same',
    ),
    (
        {"preserveUnknownFields": True},
        "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
        "x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
    ),
    (
        {"conversion": {"strategy": "Magic"}},
        'spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook"',
    ),
    (
        {"conversion": {"strategy": "Webhook"}},
        "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), SPEC_CASES)
def test_the_spec_is_checked(changes: dict[str, Any], expected: str) -> None:
    assert expected in said(crd(**changes))


def test_exactly_one_version_is_stored() -> None:
    none = crd(versions=[version("v1", {}, storage=False)])
    assert any(e.endswith("must have exactly one version marked as storage version") for e in said(none))


def test_version_names_are_unique() -> None:
    twice = crd(versions=[version("v1", {}), version("v1", {}, storage=False)])
    assert any(e.endswith("must contain unique version names") for e in said(twice))


def test_every_version_has_a_schema() -> None:
    v = version("v1", {})
    del v["schema"]
    assert said(crd(versions=[v])) == ["spec.versions[0].schema.openAPIV3Schema: Required value"]


def test_errors_are_at_the_version_where_versions_differ() -> None:
    made = crd(versions=[version("v1", {"a": {}}), version("v2", {"b": {}}, storage=False)])
    assert said(made) == [
        "spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: "
        "must not be empty for specified object fields",
        "spec.versions[1].schema.openAPIV3Schema.properties[b].type: Required value: "
        "must not be empty for specified object fields",
    ]


P = f"{ROOT}.properties[spec]"
STRUCTURAL_CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("no type", {}, [f"{P}.type: Required value: must not be empty for specified object fields"]),
    ("no items", {"type": "array"}, [f"{P}.items: Required value: must be specified"]),
    (
        "items without a type",
        {"type": "array", "items": {}},
        [f"{P}.items.type: Required value: must not be empty for specified array items"],
    ),
    (
        "a type nobody knows",
        {"type": "text"},
        [
            f'{P}.type: Unsupported value: "text": supported values: '
            '"array", "boolean", "integer", "number", "object", "string"'
        ],
    ),
    (
        "a type inside logic",
        {"type": "string", "anyOf": [{"type": "string"}]},
        [f"{P}.anyOf[0].type: Forbidden: must be empty to be structural"],
    ),
    (
        "a default inside logic",
        {"type": "string", "allOf": [{"default": "x"}]},
        [f"{P}.allOf[0].default: Forbidden: must be undefined to be structural"],
    ),
    (
        "a pattern that is none",
        {"type": "string", "pattern": "("},
        [
            f'{P}.pattern: Invalid value: "(": must be a valid regular expression, but isn\'t: '
            "error parsing regexp: missing closing ): `(`"
        ],
    ),
    (
        "both fields and a map",
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
        [f"{P}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
    ),
    (
        "unique items",
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        [
            f"{P}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes "
            "quadratic"
        ],
    ),
    (
        "a reference",
        {"type": "object", "$ref": "#/x"},
        [f"{P}.$ref: Forbidden: $ref is not supported"],
    ),
    (
        "pattern properties",
        {"type": "object", "patternProperties": {"a": {"type": "string"}}},
        [f"{P}.patternProperties: Forbidden: patternProperties is not supported"],
    ),
    (
        "preserve set to false",
        {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
        [f"{P}.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"],
    ),
    (
        "an embedded resource that is no object",
        {"type": "string", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
        [f'{P}.type: Invalid value: "string": must be object if x-kubernetes-embedded-resource is true'],
    ),
    (
        "an embedded resource that nothing is known of",
        {"type": "object", "x-kubernetes-embedded-resource": True},
        [
            f"{P}.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields"
        ],
    ),
    (
        "a keyed list without keys",
        {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}},
        [f"{P}.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"],
    ),
    (
        "a key that may be missing",
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
        [
            f"{P}.items.properties[name].default: Required value: this property is in x-kubernetes-list-map-keys, so "
            "it must have a default or be a required property"
        ],
    ),
    (
        "keys on a list that is not keyed",
        {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["a"]},
        [f"{P}.x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty"],
    ),
    (
        "a set of objects that are not atomic",
        {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}},
        [
            f"{P}.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with "
            "x-kubernetes-list-type=set"
        ],
    ),
    (
        "a default of the wrong type",
        {"type": "integer", "default": "x"},
        [f'{P}.default: Invalid value: "string":  in body must be of type integer: "string"'],
    ),
    (
        "a default with fields nobody knows",
        {"type": "object", "default": {"a": 1}},
        [f'{P}.default: Invalid value: {{"a":1}}: must not have unknown fields'],
    ),
    (
        "integers or strings, the usual way",
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        [],
    ),
]


@pytest.mark.parametrize(("raw", "expected"), [c[1:] for c in STRUCTURAL_CASES], ids=[c[0] for c in STRUCTURAL_CASES])
def test_a_schema_must_be_structural(raw: dict[str, Any], expected: list[str]) -> None:
    assert about_spec(raw) == expected


def test_the_root_is_an_object_without_a_map() -> None:
    assert about_schema({"type": "string"}) == [f'{ROOT}.type: Invalid value: "string": must be object at the root']
    assert about_schema({"type": "object", "additionalProperties": {"type": "string"}}) == [
        f"{ROOT}.additionalProperties: Forbidden: must not be used at the root"
    ]


def test_what_the_logic_at_the_root_speaks_of_is_declared_outside_of_it() -> None:
    raw = {"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}]}
    assert about_schema(raw) == [
        f"{ROOT}.properties[a]: Required value: because it is defined in {ROOT}.anyOf[0].properties[a]"
    ]


def test_metadata_may_be_restricted_by_name_only() -> None:
    named = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}
    assert about_schema({"type": "object", "properties": {"metadata": named}}) == []
    labelled = {"type": "object", "properties": {"labels": {"type": "object"}}}
    assert about_schema({"type": "object", "properties": {"metadata": labelled}}) == [
        f"{ROOT}.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but "
        "metadata is implicitly specified"
    ]


def test_defaults_are_forbidden_in_root_metadata() -> None:
    meta = {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}
    assert about_schema({"type": "object", "properties": {"metadata": meta}}) == [
        f"{ROOT}.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata"
    ]


def test_a_status_subresource_limits_the_root() -> None:
    v = version("v1", {}, subresources={"status": {}})
    v["schema"]["openAPIV3Schema"]["maxProperties"] = 3
    [error] = said(crd(versions=[v]))
    assert error.startswith(f"{ROOT}: Invalid value: ")
    assert "fields are allowed at the root of the schema if the status subresource is enabled" in error


SUBRESOURCE_CASES: list[tuple[dict[str, Any], str]] = [
    ({"statusReplicasPath": ".status.r"}, "spec.subresources.scale.specReplicasPath: Required value"),
    (
        {"specReplicasPath": "spec.r", "statusReplicasPath": ".status.r"},
        'spec.subresources.scale.specReplicasPath: Invalid value: "spec.r": must be a simple json path starting with .',
    ),
    (
        {"specReplicasPath": ".status.r", "statusReplicasPath": ".status.r"},
        'spec.subresources.scale.specReplicasPath: Invalid value: ".status.r": should be a json path under .spec',
    ),
    (
        {"specReplicasPath": ".spec.r", "statusReplicasPath": ".status.r", "labelSelectorPath": ".metadata.l"},
        'spec.subresources.scale.labelSelectorPath: Invalid value: ".metadata.l": should be a json path under either '
        ".spec or .status",
    ),
]


@pytest.mark.parametrize(("scale", "expected"), SUBRESOURCE_CASES)
def test_scale_paths_lead_where_they_should(scale: dict[str, Any], expected: str) -> None:
    assert said(crd(versions=[version("v1", {}, subresources={"scale": scale})])) == [expected]


def test_printer_columns_are_checked() -> None:
    columns = [{"name": "", "type": "text", "format": "odd", "jsonPath": "spec"}]
    assert said(crd(versions=[version("v1", {}, additionalPrinterColumns=columns)])) == [
        "spec.additionalPrinterColumns[0].name: Required value",
        'spec.additionalPrinterColumns[0].type: Invalid value: "text": must be one of '
        "boolean,date,integer,number,string",
        'spec.additionalPrinterColumns[0].format: Invalid value: "odd": must be one of '
        "byte,date,date-time,double,float,int32,int64,password",
        'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec": must be a simple json path starting with .',
    ]


def test_selectable_fields_lead_to_scalars_of_the_schema() -> None:
    spec = {"type": "object", "properties": {"a": {"type": "string"}, "o": {"type": "object"}}}
    paths = [".spec.a", ".spec.a", ".spec.o", ".spec.zz", ".spec.a[0]", ""]
    fields = [{"jsonPath": p} for p in paths]
    at = "spec.selectableFields"
    assert said(crd(versions=[version("v1", {"spec": spec}, selectableFields=fields)])) == [
        f'{at}[1].jsonPath: Duplicate value: ".spec.a"',
        f'{at}[2].jsonPath: Invalid value: ".spec.o": must point to a field of type string, boolean or integer. Enum '
        "string fields and strings with formats are allowed.",
        f'{at}[3].jsonPath: Invalid value: ".spec.zz": is an invalid path: does not refer to a valid field',
        f'{at}[4].jsonPath: Invalid value: ".spec.a[0]": is an invalid path: array notation is not allowed',
        f"{at}[5].jsonPath: Required value",
    ]


class TestUpdates:
    def established(self) -> dict[str, Any]:
        old = crd()
        old["status"] = {"conditions": [{"type": "Established", "status": "True"}], "storedVersions": ["v1"]}
        return old

    def test_scope_and_kind_are_fixed_once_established(self) -> None:
        old = self.established()
        new = copy.deepcopy(old)
        new["spec"]["scope"] = "Cluster"
        new["spec"]["names"]["kind"] = "Gadget"
        assert said(new, old) == [
            'spec.scope: Invalid value: "Cluster": field is immutable',
            'spec.names.kind: Invalid value: "Gadget": field is immutable',
        ]

    def test_before_that_they_may_still_change(self) -> None:
        new = crd()
        new["spec"]["scope"] = "Cluster"
        assert said(new, crd()) == []

    def test_a_version_with_stored_objects_must_stay(self) -> None:
        new = self.established()
        new["spec"]["versions"][0]["name"] = "v2"
        new["status"]["storedVersions"] = ["v1", "v2"]
        [error] = said(new, self.established())
        assert error.startswith(
            'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously'
        )


class TestProtectedGroups:
    def protected(self, annotation: str | None) -> list[str]:
        made = crd(group="apps.k8s.io")
        if annotation is not None:
            made["metadata"]["annotations"] = {"api-approved.kubernetes.io": annotation}
        return said(made)

    def test_they_need_a_sign_of_approval(self) -> None:
        assert self.protected(None) == [
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval "
            'annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'
        ]

    @pytest.mark.parametrize("annotation", ["https://github.com/kubernetes/x/pull/1", "unapproved, testing"])
    def test_a_link_or_an_admission_will_do(self, annotation: str) -> None:
        assert self.protected(annotation) == []

    def test_anything_else_will_not(self) -> None:
        assert len(self.protected("because")) == 1


def test_unknown_formats_are_warned_about_once() -> None:
    v = version("v1", {"a": {"type": "string", "format": "shape"}, "b": {"type": "string", "format": "date-time"}})
    new = crd(versions=[v])
    assert format_warnings(new) == ['unrecognized format "shape"']
    assert format_warnings(new, new) == []


def test_rules_are_checked_when_the_schema_is_sound() -> None:
    ruled = {"type": "object", "x-kubernetes-validations": [{"rule": "self.nope == 1"}]}
    assert any("x-kubernetes-validations[0].rule" in e for e in about_spec(ruled))
