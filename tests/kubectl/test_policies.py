"""Admission policies, written and met by people with kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.conftest import eventually
from kubectl.conftest import config_map
from kubectl.program import Kubectl

EXAMPLE = (Path(__file__).parents[2] / "docs/kubernetes.md").read_text().partition("```yaml\n")[2].partition("```")[0]


@pytest.fixture
def production(kubectl: Kubectl) -> Iterator[Kubectl]:
    """kubectl in a namespace under the example of the documentation."""
    kubectl("label", "namespace", kubectl.namespace, "environment=production")
    kubectl("apply", "-f", "-", stdin=EXAMPLE)
    yield kubectl
    kubectl("delete", "-f", "-", stdin=EXAMPLE)


def test_the_policy_of_the_documentation_refuses_is_met_and_warns(production: Kubectl) -> None:
    kubectl = production
    eventually(lambda: kubectl.run("create", "configmap", "probe", "--dry-run=server").returncode, "the policy")
    said = kubectl.refused("create", "configmap", "mine")
    assert (
        "configmaps \"mine\" is forbidden: ValidatingAdmissionPolicy 'owned' with binding 'owned-in-production' denied request: "
        "say in the label team whose mine is"
    ) in said
    kubectl("apply", "-f", "-", stdin=config_map("mine", {"labels": {"team": "red"}}))
    assert "denied request" in kubectl.refused("label", "configmap", "mine", "team-")
    softer = '{"spec":{"validationActions":["Warn"]}}'
    kubectl("patch", "validatingadmissionpolicybinding", "owned-in-production", "--type=merge", "-p", softer)
    said = eventually(lambda: kubectl.run("label", "configmap", "mine", "team-").stderr, "the warning")
    assert "Warning: Validation failed for ValidatingAdmissionPolicy 'owned' with binding 'owned-in-production'" in said


def test_policies_are_listed_with_what_matters(production: Kubectl) -> None:
    kubectl = production
    assert kubectl("get", "validatingadmissionpolicies", "owned", "--no-headers").split()[:3] == ["owned", "1", "<unset>"]
    bound = kubectl("get", "validatingadmissionpolicybindings", "owned-in-production", "--no-headers").split()
    assert bound[:3] == ["owned-in-production", "owned", "<unset>"]
    assert "validations" in kubectl("explain", "validatingadmissionpolicies.spec")
