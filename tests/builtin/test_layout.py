"""What built-in types leave out when it is empty: the same as upstream's structs do."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.api.builtin.layout import absent_when_zero
from homeostat.api.builtin.types import schema_of
from homeostat.api.schema import decode_errors


def read(obj: dict[str, Any]) -> dict[str, Any]:
    """The object as the decoder leaves it."""
    assert decode_errors(schema_of(obj["apiVersion"], obj["kind"]), obj) == ([], [])
    return obj


def pod(**spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": {"containers": [container], **spec}}


def test_empty_maps_and_lists_go() -> None:
    empty = {"labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []}
    sent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", **empty}, "data": {}}
    assert read(sent) == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}


@pytest.mark.parametrize("field", ["hostNetwork", "nodeName", "volumes", "nodeSelector", "tolerations"])
def test_zeros_go_where_absent_means_the_same(field: str) -> None:
    zero = {"hostNetwork": False, "nodeName": "", "nodeSelector": {}}.get(field, [])
    assert field not in read(pod(**{field: zero}))["spec"]


@pytest.mark.parametrize(
    ("field", "zero"),
    [("automountServiceAccountToken", False), ("terminationGracePeriodSeconds", 0), ("securityContext", {})],
)
def test_zeros_stay_where_they_say_something(field: str, zero: Any) -> None:
    assert read(pod(**{field: zero}))["spec"][field] == zero


def test_zeros_go_at_every_depth() -> None:
    sent = pod()
    sent["spec"]["containers"][0] |= {"args": [], "tty": False, "resources": {"limits": {}}}
    assert read(sent)["spec"]["containers"] == [{"name": "main", "image": "busybox", "resources": {}}]


def test_what_must_be_there_stays_empty() -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "one"}, "rules": []}
    assert read(role)["rules"] == []


def test_parts_that_stand_in_the_outer_object_count_as_its_own() -> None:
    assert "rollingUpdate" not in absent_when_zero("io.k8s.api.apps.v1.DeploymentStrategy")
    assert "medium" in absent_when_zero("io.k8s.api.core.v1.EmptyDirVolumeSource")
    assert "command" in absent_when_zero("io.k8s.api.core.v1.EphemeralContainer")
