"""The rules about metadata that every kind keeps."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.api.schema import metadata_type_error, validate_metadata
from homeostat.model.names import dns_subdomain_problems

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1"}


def said(meta: dict[str, Any], old: dict[str, Any] | None = None, *, namespaced: bool = True, **more: Any) -> list[str]:
    base = {"name": "a", **({"namespace": "d"} if namespaced else {})}
    before = None if old is None else {**base, **old}
    found = validate_metadata(
        {**base, **meta}, namespaced=namespaced, name_problems=dns_subdomain_problems, old=before, **more
    )
    return [str(e) for e in found]


def test_ordinary_metadata_is_fine() -> None:
    assert (
        said({"labels": {"app.io/a": "b", "c": ""}, "annotations": {"X/y": "any thing"}, "finalizers": ["x.io/y"]})
        == []
    )


CASES: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "metadata.name: Required value: name or generateName is required"),
    ({"name": "A"}, 'metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of'),
    ({"generateName": "AB-"}, 'metadata.generateName: Invalid value: "AB-": a lowercase RFC 1123 subdomain'),
    ({"namespace": ""}, "metadata.namespace: Required value"),
    ({"generation": -1}, "metadata.generation: Invalid value: -1: must be greater than or equal to 0"),
    ({"labels": {"a b": "c"}}, 'metadata.labels: Invalid value: "a b": name part must consist of alphanumeric'),
    ({"labels": {"a": "-"}}, 'metadata.labels: Invalid value: "-": a valid label must be an empty string or consist'),
    ({"annotations": {"a b": "c"}}, 'metadata.annotations: Invalid value: "a b": name part must consist of'),
    ({"annotations": {"a": "x" * 262145}}, "metadata.annotations: Too long: may not be more than 262144 bytes"),
    ({"finalizers": ["a b"]}, 'metadata.finalizers: Invalid value: "a b": name part must consist of'),
    (
        {"finalizers": ["orphan", "foregroundDeletion"]},
        'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion '
        "cannot be both set",
    ),
    ({"ownerReferences": [{**OWNER, "uid": ""}]}, 'metadata.ownerReferences.uid: Invalid value: "": must not be empty'),
    (
        {"ownerReferences": [{**OWNER, "apiVersion": ""}]},
        'metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty',
    ),
    (
        {"managedFields": [{"manager": "m", "operation": "Steal"}]},
        'metadata.managedFields[0].operation: Invalid value: "Steal": must be `Apply` or `Update`',
    ),
]


@pytest.mark.parametrize(("meta", "expected"), CASES)
def test_an_error_reads_as_upstream_words_it(meta: dict[str, Any], expected: str) -> None:
    [error] = said(meta)
    assert error.startswith(expected)


def test_a_prefix_may_end_in_a_dash() -> None:
    assert said({"generateName": "web-"}) == []


def test_a_cluster_wide_kind_has_no_namespace() -> None:
    assert said({"namespace": "d"}, namespaced=False) == ["metadata.namespace: Forbidden: not allowed on this type"]


def test_an_event_owns_nothing() -> None:
    [error] = said({"ownerReferences": [{**OWNER, "kind": "Event"}]})
    assert error.endswith("/v1, Kind=Event is disallowed from being an owner")


def test_there_is_one_controller_at_most() -> None:
    owners = [{**OWNER, "controller": True}, {**OWNER, "name": "p", "controller": True}]
    [error] = said({"ownerReferences": owners})
    assert error.endswith(
        'Only one reference can have Controller set to true. Found "true" in references for ConfigMap/o and ConfigMap/p'
    )


class TestUpdates:
    @pytest.mark.parametrize("field", ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"])
    def test_what_the_server_set_stays(self, field: str) -> None:
        assert said({field: "x"}, {field: "y"}) == [f'metadata.{field}: Invalid value: "x": field is immutable']

    def test_a_generation_never_goes_back(self) -> None:
        assert said({"generation": 1}, {"generation": 2}) == [
            "metadata.generation: Invalid value: 1: must not be decremented"
        ]

    def test_a_dying_object_takes_no_new_finalizers(self) -> None:
        gone = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.io/x"]}
        assert said({**gone, "finalizers": ["a.io/y", "a.io/x"]}, gone) == [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new "
            'finalizers []string{"a.io/y"}'
        ]
        assert said({**gone, "finalizers": []}, gone) == []


def test_metadata_of_the_wrong_type_is_refused_without_touching_it() -> None:
    meta = {"labels": {"a": None, "b": 1}, "odd": 1}
    assert metadata_type_error(meta) == (
        "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"
    )
    assert meta == {"labels": {"a": None, "b": 1}, "odd": 1}
    assert metadata_type_error({"odd": 1, "labels": {"a": None}}) == ""
    assert metadata_type_error([]) == "json: cannot unmarshal array into Go value of type v1.ObjectMeta"
