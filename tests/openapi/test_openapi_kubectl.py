"""What the real kubectl makes of our discovery and OpenAPI documents."""

from __future__ import annotations

from collections.abc import Callable

Kubectl = Callable[..., str]


def test_api_resources_lists_every_kind_with_its_short_names(kubectl: Kubectl) -> None:
    listed = kubectl("api-resources", "--no-headers")
    lines = {line.split()[0]: line.split() for line in listed.splitlines()}
    assert lines["configmaps"] == ["configmaps", "cm", "v1", "true", "ConfigMap"]
    assert lines["widgets"] == ["widgets", "wd", "example.com/v1", "true", "Widget"]
    assert lines["namespaces"] == ["namespaces", "v1", "false", "Namespace"]


def test_api_versions_lists_served_versions_only(kubectl: Kubectl) -> None:
    assert kubectl("api-versions").split() == [
        "apiextensions.k8s.io/v1",
        "apps/v1",
        "authentication.k8s.io/v1",
        "events.k8s.io/v1",
        "example.com/v1",
        "example.com/v1beta1",
        "v1",
    ]


def test_explain_shows_a_custom_kind_with_its_own_words(kubectl: Kubectl) -> None:
    shown = kubectl("explain", "widgets")
    assert "A widget that turns." in shown
    assert "How it should turn." in shown


def test_explain_goes_down_into_custom_fields(kubectl: Kubectl) -> None:
    shown = kubectl("explain", "widgets.spec.parts")
    assert "name" in shown
    assert "Turns a second." in kubectl("explain", "widgets.spec.speed")


def test_explain_shows_metadata_of_a_custom_kind(kubectl: Kubectl) -> None:
    assert "ownerReferences" in kubectl("explain", "widgets.metadata")


def test_explain_shows_built_in_kinds_at_every_depth(kubectl: Kubectl) -> None:
    assert "binaryData" in kubectl("explain", "configmaps")
    assert "The image that the container runs." in kubectl("explain", "deployments.spec.template.spec.containers.image")
    assert "containerPort" in kubectl("explain", "pods.spec.containers.ports")


def test_explain_recursive_survives_types_that_contain_themselves(kubectl: Kubectl) -> None:
    shown = kubectl("explain", "customresourcedefinitions.spec.versions", "--recursive")
    assert "openAPIV3Schema" in shown


def test_explain_of_an_unknown_field_says_so(kubectl: Kubectl) -> None:
    shown = kubectl("explain", "pods.spec.nonsense")
    assert 'field "nonsense" does not exist' in shown
