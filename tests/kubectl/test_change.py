"""Changing what is there: patch, edit, label, annotate, scale, set, replace, expose, rollout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubectl.conftest import Kind, config_map, deployment
from kubectl.program import Kubectl


@pytest.fixture
def one(kubectl: Kubectl, widgets: Kind) -> list[str]:
    """A widget; what names it on the command line."""
    kubectl("create", "-f", "-", stdin=widgets.new("one", 3, {"labels": {"a": "1"}}, tags=["x", "y"]))
    return [widgets.plural, "one"]


def test_a_merge_patch(kubectl: Kubectl, widgets: Kind, one: list[str]) -> None:
    said = kubectl("patch", *one, "--type=merge", "-p", '{"spec":{"size":4,"tags":null}}')
    assert said == f"widget.{widgets.group}/one patched\n"
    assert kubectl.json("get", *one)["spec"] == {"size": 4, "color": "red", "replicas": 1}
    said = kubectl("patch", *one, "--type=merge", "-p", '{"spec":{"size":4}}')
    assert said == f"widget.{widgets.group}/one patched (no change)\n"


def test_a_json_patch(kubectl: Kubectl, one: list[str]) -> None:
    steps = [{"op": "test", "path": "/spec/size", "value": 3}, {"op": "add", "path": "/spec/tags/-", "value": "z"}]
    kubectl("patch", *one, "--type=json", "-p", json.dumps(steps))
    assert kubectl.json("get", *one)["spec"]["tags"] == ["x", "y", "z"]
    steps[0]["value"] = 9
    said = kubectl.refused("patch", *one, "--type=json", "-p", json.dumps(steps))
    assert "The request is invalid" in said


def test_a_strategic_patch_is_for_built_in_kinds(kubectl: Kubectl, one: list[str]) -> None:
    kubectl("create", "-f", "-", stdin=deployment())
    change = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}}}
    kubectl("patch", "deployment", "web", "-p", json.dumps(change))
    container = kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "nginx:2"
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    said = kubectl.refused("patch", *one, "--type=strategic", "-p", '{"spec":{"size":4}}')
    assert "UnsupportedMediaType" in said or "application/strategic-merge-patch+json is not supported" in said


def test_a_patch_of_the_status_leaves_the_spec_alone(kubectl: Kubectl, widgets: Kind, one: list[str]) -> None:
    change = {"spec": {"size": 9}, "status": {"phase": "Ready"}}
    if kubectl.minor >= 24:
        kubectl("patch", *one, "--subresource=status", "--type=merge", "-p", json.dumps(change))
    else:
        path = f"/apis/{widgets.group}/v1/namespaces/{kubectl.namespace}/widgets/one/status"
        kubectl("replace", "--raw", path, "-f", "-", stdin=json.dumps(kubectl.json("get", *one) | change))
    found = kubectl.json("get", *one)
    assert found["status"] == {"phase": "Ready"}
    assert found["spec"]["size"] == 3
    kubectl("patch", *one, "--type=merge", "-p", '{"status":{"phase":"Lost"}}')
    assert kubectl.json("get", *one)["status"] == {"phase": "Ready"}


def test_a_patch_that_breaks_the_schema_is_refused(kubectl: Kubectl, one: list[str]) -> None:
    said = kubectl.refused("patch", *one, "--type=merge", "-p", '{"spec":{"size":99}}')
    assert 'The Widget "one" is invalid: spec.size: Invalid value: 99: ' in said
    said = kubectl.refused("patch", *one, "--type=merge", "-p", '{"metadata":{"name":"two"}}')
    assert "the name of the object (two) does not match the name on the URL (one)" in said


def editor(tmp_path: Path, *commands: str) -> str:
    """An editor that makes the given sed changes."""
    script = tmp_path / "editor"
    script.write_text("#!/bin/sh\nset -e\n" + "".join(f"sed -i '{command}' \"$1\"\n" for command in commands))
    script.chmod(0o755)
    return str(script)


def test_edit_saves_what_the_editor_left(kubectl: Kubectl, widgets: Kind, one: list[str], tmp_path: Path) -> None:
    said = kubectl("edit", *one, EDITOR=editor(tmp_path, "s/size: 3/size: 5/"))
    assert said == f"widget.{widgets.group}/one edited\n"
    assert kubectl.json("get", *one)["spec"]["size"] == 5
    done = kubectl.run("edit", *one, EDITOR=editor(tmp_path))
    assert "Edit cancelled, no changes made" in done.stderr


def test_edit_of_a_built_in_kind(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "-f", "-", stdin=deployment())
    kubectl("edit", "deployment", "web", EDITOR=editor(tmp_path, "s/replicas: 2/replicas: 7/", "s/nginx:1/nginx:7/"))
    spec = kubectl.json("get", "deployment", "web")["spec"]
    assert (spec["replicas"], spec["template"]["spec"]["containers"][0]["image"]) == (7, "nginx:7")


def test_edit_comes_back_with_what_was_wrong(kubectl: Kubectl, one: list[str], tmp_path: Path) -> None:
    # The editor is opened again with the reason as a comment, and this one then changes nothing more.
    done = kubectl.run("edit", *one, EDITOR=editor(tmp_path, "s/size: 3/size: 55/"))
    assert done.returncode != 0
    assert "is invalid" in done.stderr or "were not valid" in done.stderr
    assert kubectl.json("get", *one)["spec"]["size"] == 3


def test_labels_are_added_overwritten_and_removed(kubectl: Kubectl, widgets: Kind, one: list[str]) -> None:
    name = f"widget.{widgets.group}/one"
    assert kubectl("label", *one, "b=2").startswith(f"{name} labeled")
    assert "--overwrite is false" in kubectl.refused("label", *one, "a=9")
    kubectl("label", *one, "a=9", "--overwrite")
    kubectl("label", *one, "b-")
    assert kubectl.json("get", *one)["metadata"]["labels"] == {"a": "9"}
    assert "a valid label must be" in kubectl.refused("label", *one, "c=not valid!")
    kubectl("label", widgets.plural, "--all", "all=yes")
    kubectl("label", widgets.plural, "-l", "all=yes", "picked=yes")
    assert kubectl.json("get", *one)["metadata"]["labels"] == {"a": "9", "all": "yes", "picked": "yes"}


def test_annotations_too(kubectl: Kubectl, one: list[str]) -> None:
    kubectl("annotate", *one, "note=Hello, world!", "example.com/x=1")
    kubectl("annotate", *one, "note=Bye", "--overwrite")
    kubectl("annotate", *one, "example.com/x-")
    assert kubectl.json("get", *one)["metadata"]["annotations"] == {"note": "Bye"}
    said = kubectl.refused("annotate", *one, "note=Late", "--overwrite", "--resource-version=1")
    assert "the object has been modified" in said


def test_scaling_a_custom_kind(kubectl: Kubectl, widgets: Kind, one: list[str]) -> None:
    assert kubectl("scale", *one, "--replicas=4") == f"widget.{widgets.group}/one scaled\n"
    assert kubectl.json("get", *one)["spec"]["replicas"] == 4
    said = kubectl.refused("scale", *one, "--replicas=5", "--current-replicas=9")
    assert "Expected replicas to be 9, was 4" in said


def test_scaling_a_deployment(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=deployment())
    kubectl("scale", "deployment/web", "--replicas=0")
    assert kubectl.json("get", "deployment", "web")["spec"]["replicas"] == 0
    kubectl(
        "autoscale", "deployment", "web", "--max=5", *(["--cpu=80%"] if kubectl.minor >= 34 else ["--cpu-percent=80"])
    )
    assert kubectl.json("get", "hpa", "web")["spec"]["maxReplicas"] == 5


def test_replacing_an_object(kubectl: Kubectl, widgets: Kind, one: list[str]) -> None:
    before = kubectl.json("get", *one)
    assert kubectl("replace", "-f", "-", stdin=widgets.new("one", 8)) == f"widget.{widgets.group}/one replaced\n"
    after = kubectl.json("get", *one)
    assert after["spec"] == {"size": 8, "color": "red", "replicas": 1}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert "labels" not in after["metadata"]
    said = kubectl.refused("replace", "-f", "-", stdin=before)
    assert "the object has been modified; please apply your changes to the latest version and try again" in said
    assert "NotFound" in kubectl.refused("replace", "-f", "-", stdin=widgets.new("none"))


def test_replacing_by_force_makes_a_new_object(kubectl: Kubectl, widgets: Kind, one: list[str]) -> None:
    before = kubectl.json("get", *one)["metadata"]["uid"]
    said = kubectl("replace", "--force", "-f", "-", stdin=widgets.new("one", 8))
    assert f"widget.{widgets.group}/one replaced" in said
    assert kubectl.json("get", *one)["metadata"]["uid"] != before


def test_what_may_not_change_does_not(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=[{**config_map("fixed", a="1"), "immutable": True}, deployment()])
    said = kubectl.refused("patch", "configmap", "fixed", "-p", '{"data":{"a":"2"}}')
    assert "field is immutable when `immutable` is set" in said
    other = deployment()
    other["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    other["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    assert "field is immutable" in kubectl.refused("replace", "-f", "-", stdin=other)


def test_set_changes_images_and_environment(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=deployment())
    assert kubectl("set", "image", "deployment/web", "main=nginx:9") == "deployment.apps/web image updated\n"
    kubectl("set", "env", "deployment/web", "LEVEL=debug")
    kubectl("set", "resources", "deployment/web", "--limits=cpu=200m,memory=512Mi")
    kubectl("set", "serviceaccount", "deployment/web", "robot")
    spec = kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"] == "nginx:9"
    assert container["env"] == [{"name": "LEVEL", "value": "debug"}]
    assert container["resources"]["limits"] == {"cpu": "200m", "memory": "512Mi"}
    assert spec["serviceAccountName"] == "robot"


def test_expose_makes_a_service(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=deployment())
    assert kubectl("expose", "deployment", "web", "--port=8080", "--target-port=80") == "service/web exposed\n"
    spec = kubectl.json("get", "service", "web")["spec"]
    assert spec["selector"] == {"app": "web"}
    assert spec["ports"] == [{"port": 8080, "protocol": "TCP", "targetPort": 80}]


def test_run_makes_a_pod(kubectl: Kubectl) -> None:
    kubectl("run", "box", "--image=busybox", "--env=A=1", "--labels=a=b", "--restart=Never", "--", "sleep", "1")
    pod = kubectl.json("get", "pod", "box")
    assert pod["metadata"]["labels"] == {"a": "b"}
    assert pod["spec"]["containers"][0]["args"] == ["sleep", "1"]
    assert pod["status"]["phase"] == "Pending"


def test_rollouts_say_what_is_known(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=deployment())
    kubectl("rollout", "restart", "deployment/web")
    template = kubectl.json("get", "deployment", "web")["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]
    kubectl("rollout", "pause", "deployment/web")
    assert kubectl.json("get", "deployment", "web")["spec"]["paused"] is True
    kubectl("rollout", "resume", "deployment/web")
    assert "Waiting for deployment" in kubectl("rollout", "status", "deployment/web", "--watch=false")
    assert "deployment.apps/web" in kubectl("rollout", "history", "deployment/web")


def test_drain_evicts_the_pods_of_a_node(kubectl: Kubectl) -> None:
    name = kubectl.namespace
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    try:
        spec = {"nodeName": name, "containers": [{"name": "main", "image": "busybox"}]}
        kubectl(
            "create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "box"}, "spec": spec}
        )
        said = kubectl("drain", name, "--force", "--grace-period=0")
        assert "evict" in said
        assert kubectl("get", "pods", "-o", "name") == ""
        assert kubectl.json("get", "node", name)["spec"]["unschedulable"] is True
    finally:
        kubectl("delete", "node", name)


def test_cordon_and_taint_change_a_node(kubectl: Kubectl) -> None:
    name = kubectl.namespace
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    try:
        kubectl("cordon", name)
        assert kubectl.json("get", "node", name)["spec"]["unschedulable"] is True
        assert "SchedulingDisabled" in kubectl("get", "node", name)
        kubectl("uncordon", name)
        kubectl("taint", "node", name, "dedicated=gpu:NoSchedule")
        taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
        assert taint in kubectl.json("get", "node", name)["spec"]["taints"]
        kubectl("taint", "node", name, "dedicated-")
    finally:
        kubectl("delete", "node", name)
