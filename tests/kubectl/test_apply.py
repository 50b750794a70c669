"""`kubectl apply`, on the client's and on the server's side, and `diff`, which is apply that only looks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl.conftest import Kind, config_map, deployment
from kubectl.program import Kubectl


def test_apply_creates_then_configures_then_leaves_alone(kubectl: Kubectl, widgets: Kind) -> None:
    name = f"widget.{widgets.group}/one"
    assert kubectl("apply", "-f", "-", stdin=widgets.new("one", 1)) == f"{name} created\n"
    assert kubectl("apply", "-f", "-", stdin=widgets.new("one", 2)) == f"{name} configured\n"
    before = kubectl.json("get", widgets.plural, "one")["metadata"]
    assert kubectl("apply", "-f", "-", stdin=widgets.new("one", 2)) == f"{name} unchanged\n"
    assert kubectl.json("get", widgets.plural, "one")["metadata"] == before
    assert before["generation"] == 2


def test_a_built_in_kind_is_applied_the_same_way(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=deployment()) == "deployment.apps/web created\n"
    assert kubectl("apply", "-f", "-", stdin=deployment(replicas=3)) == "deployment.apps/web configured\n"
    assert kubectl("apply", "-f", "-", stdin=deployment(replicas=3)) == "deployment.apps/web unchanged\n"


def test_apply_takes_away_what_it_no_longer_declares(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=config_map("one", {"labels": {"keep": "x", "drop": "x"}}, a="1", b="2"))
    kubectl("annotate", "configmap", "one", "by=somebody-else")
    kubectl("apply", "-f", "-", stdin=config_map("one", {"labels": {"keep": "x"}}, a="1"))
    found = kubectl.json("get", "configmap", "one")
    assert found["data"] == {"a": "1"}
    assert found["metadata"]["labels"] == {"keep": "x"}
    assert found["metadata"]["annotations"]["by"] == "somebody-else"


def test_what_is_empty_is_not_kept(kubectl: Kubectl) -> None:
    empty = {"labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []}
    kubectl("create", "-f", "-", stdin=config_map("one", empty))
    found = kubectl.json("get", "configmap", "one")
    assert "data" not in found
    assert not set(empty) & set(found["metadata"])


def test_apply_keeps_what_others_set(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("apply", "-f", "-", stdin=widgets.new("one", 1))
    kubectl("patch", widgets.plural, "one", "--type=merge", "-p", '{"spec":{"color":"blue"}}')
    kubectl("apply", "-f", "-", stdin=widgets.new("one", 2))
    assert kubectl.json("get", widgets.plural, "one")["spec"] == {"size": 2, "color": "blue", "replicas": 1}


def test_apply_merges_lists_of_built_in_kinds_by_key(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=deployment())
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    kubectl("patch", "deployment", "web", "-p", json.dumps(sidecar))
    kubectl("apply", "-f", "-", stdin=deployment(image="nginx:2"))
    containers = kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]["containers"]
    assert {c["name"]: c["image"] for c in containers} == {"side": "side:1", "main": "nginx:2"}


def test_apply_on_what_was_created_otherwise_warns_and_takes_it_over(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "one", "--from-literal=a=1")
    done = kubectl.run("apply", "-f", "-", stdin=config_map("one", a="2"))
    assert "missing the kubectl.kubernetes.io/last-applied-configuration annotation" in done.stderr
    assert kubectl.json("get", "configmap", "one")["data"] == {"a": "2"}


def test_last_applied_can_be_looked_at_and_set(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("apply", "-f", "-", stdin=config_map("one", a="1"))
    assert yaml.safe_load(kubectl("apply", "view-last-applied", "configmap/one"))["data"] == {"a": "1"}
    manifest = tmp_path / "one.yaml"
    manifest.write_text(yaml.safe_dump(config_map("one", a="2")))
    kubectl("apply", "set-last-applied", "-f", str(manifest))
    assert yaml.safe_load(kubectl("apply", "view-last-applied", "configmap/one"))["data"] == {"a": "2"}


def test_apply_prunes_what_left_the_manifest(kubectl: Kubectl) -> None:
    labels = {"labels": {"app": "pruned"}}
    kubectl("apply", "-f", "-", "-l", "app=pruned", stdin=[config_map("stay", labels, a="1"), config_map("go", labels)])
    kinds = "--prune-allowlist" if kubectl.minor >= 26 else "--prune-whitelist"
    said = kubectl(
        "apply",
        "-f",
        "-",
        "--prune",
        "-l",
        "app=pruned",
        f"{kinds}=core/v1/ConfigMap",
        stdin=config_map("stay", labels, a="1"),
    )
    assert said == "configmap/stay unchanged\nconfigmap/go pruned\n"


def test_apply_of_a_whole_folder(kubectl: Kubectl, widgets: Kind, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(config_map("one", a="1")))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.json").write_text(json.dumps(widgets.new("two")))
    said = kubectl("apply", "-R", "-f", str(tmp_path))
    assert said == f"configmap/one created\nwidget.{widgets.group}/two created\n"


def test_apply_of_a_kustomization(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(deployment()))
    kustomization = {
        "resources": ["base.yaml"],
        "namePrefix": "my-",
        "configMapGenerator": [{"name": "settings", "literals": ["a=1"]}],
        "images": [{"name": "nginx", "newTag": "9"}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    said = kubectl("apply", "-k", str(tmp_path))
    assert "deployment.apps/my-web created" in said
    assert "configmap/my-settings-" in said
    image = kubectl("get", "deployment", "my-web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
    assert image == "nginx:9"
    kubectl("delete", "-k", str(tmp_path))
    assert kubectl("get", "deployments", "-o", "name") == ""


@pytest.mark.parametrize("side", [[], ["--server-side"]], ids=["client", "server"])
def test_a_dry_run_of_apply_shows_what_would_be(kubectl: Kubectl, widgets: Kind, side: list[str]) -> None:
    kubectl("apply", "-f", "-", *side, stdin=widgets.new("one", 1))
    said = kubectl("apply", "-f", "-", "--dry-run=server", *side, stdin=widgets.new("one", 2))
    verb = "serverside-applied" if side else "configured"
    assert said == f"widget.{widgets.group}/one {verb} (server dry run)\n"
    assert kubectl.json("get", widgets.plural, "one")["spec"]["size"] == 1


# On the server's side


def apply_as(kubectl: Kubectl, manager: str, body: Any, *flags: str) -> str:
    return kubectl("apply", "--server-side", f"--field-manager={manager}", "-f", "-", *flags, stdin=body)


def test_server_side_apply_creates_and_changes(kubectl: Kubectl, widgets: Kind) -> None:
    name = f"widget.{widgets.group}/one"
    assert apply_as(kubectl, "me", widgets.new("one", 1)) == f"{name} serverside-applied\n"
    assert apply_as(kubectl, "me", widgets.new("one", 2)) == f"{name} serverside-applied\n"
    found = kubectl.json("get", widgets.plural, "one", *managed_fields(kubectl))
    assert found["spec"] == {"size": 2, "color": "red", "replicas": 1}
    (entry,) = found["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("me", "Apply")
    assert entry["fieldsV1"] == {"f:spec": {"f:size": {}}}


def managed_fields(kubectl: Kubectl) -> list[str]:
    return ["--show-managed-fields"] if kubectl.minor >= 21 else []


def test_a_conflict_names_the_other_and_the_field(kubectl: Kubectl, widgets: Kind) -> None:
    apply_as(kubectl, "me", widgets.new("one", 1))
    said = kubectl.refused("apply", "--server-side", "--field-manager=you", "-f", "-", stdin=widgets.new("one", 2))
    assert 'Apply failed with 1 conflict: conflict with "me": .spec.size' in said
    assert "--force-conflicts" in said
    apply_as(kubectl, "you", widgets.new("one", 2), "--force-conflicts")
    assert kubectl.json("get", widgets.plural, "one")["spec"]["size"] == 2


def test_two_managers_share_a_list_by_key(kubectl: Kubectl, widgets: Kind) -> None:
    apply_as(kubectl, "me", widgets.new("one", 1, parts=[{"name": "a", "count": 1}]))
    apply_as(kubectl, "you", widgets.new("one", 1, parts=[{"name": "b", "count": 2}]))
    assert [p["name"] for p in kubectl.json("get", widgets.plural, "one")["spec"]["parts"]] == ["a", "b"]
    apply_as(kubectl, "me", widgets.new("one", 1))
    assert kubectl.json("get", widgets.plural, "one")["spec"]["parts"] == [{"name": "b", "count": 2}]


def test_server_side_apply_takes_over_from_client_side_apply(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=config_map("one", a="1", b="1"))
    said = kubectl("apply", "--server-side", "-f", "-", stdin=config_map("one", a="2"))
    assert said == "configmap/one serverside-applied\n"
    # Since 1.26 kubectl makes the older manager's fields its own, and so takes away what it no longer declares.
    left = {"a": "2"} if kubectl.minor >= 26 else {"a": "2", "b": "1"}
    assert kubectl.json("get", "configmap", "one")["data"] == left


def test_client_side_apply_takes_over_from_server_side_apply(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=config_map("one", a="1"))
    kubectl("apply", "-f", "-", stdin=config_map("one", a="2"))
    assert kubectl.json("get", "configmap", "one")["data"] == {"a": "2"}


def test_server_side_apply_of_a_deployment_and_a_scale_by_another(kubectl: Kubectl) -> None:
    apply_as(kubectl, "me", deployment(replicas=2))
    kubectl("scale", "deployment", "web", "--replicas=5")
    said = kubectl.refused("apply", "--server-side", "--field-manager=me", "-f", "-", stdin=deployment(replicas=2))
    assert ".spec.replicas" in said
    without = deployment()
    del without["spec"]["replicas"]
    apply_as(kubectl, "me", without)
    assert kubectl.json("get", "deployment", "web")["spec"]["replicas"] == 5


# Validation


def test_an_unknown_field_is_refused(kubectl: Kubectl, widgets: Kind) -> None:
    said = kubectl.refused("apply", "-f", "-", stdin=widgets.new("one", 1, colour="red"))
    assert 'unknown field "' in said
    assert "colour" in said
    said = kubectl.refused("apply", "-f", "-", stdin={**config_map("one"), "dada": {}})
    assert "dada" in said


def test_validation_can_be_less_strict(kubectl: Kubectl, widgets: Kind) -> None:
    wrong = widgets.new("one", 1, colour="red")
    if kubectl.minor >= 25:
        assert 'strict decoding error: unknown field "spec.colour"' in kubectl.refused(
            "apply", "-f", "-", "--validate=strict", stdin=wrong
        )
        done = kubectl.run("apply", "-f", "-", "--validate=warn", stdin=wrong)
        assert (done.returncode, done.stderr) == (0, 'Warning: unknown field "spec.colour"\n')
        kubectl("delete", widgets.plural, "one")
        done = kubectl.run("apply", "-f", "-", "--validate=ignore", stdin=wrong)
        assert (done.returncode, done.stderr) == (0, "")
    else:  # older clients do not say how strict the server should be, and it warns
        done = kubectl.run("apply", "-f", "-", "--validate=false", stdin=wrong)
        assert (done.returncode, done.stderr) == (0, 'Warning: unknown field "spec.colour"\n')
    assert "colour" not in kubectl.json("get", widgets.plural, "one")["spec"]


def test_a_wrong_type_is_refused(kubectl: Kubectl) -> None:
    wrong = config_map("one")
    wrong["data"] = {"a": 1}
    said = kubectl.refused("apply", "-f", "-", "--validate=false", stdin=wrong)
    assert "cannot unmarshal number into Go struct field ConfigMap.data of type string" in said


# Diff


def test_diff_says_by_its_exit_status_whether_there_is_one(kubectl: Kubectl, widgets: Kind) -> None:
    absent = kubectl.run("diff", "-f", "-", stdin=widgets.new("one", 1))
    assert absent.returncode == 1
    assert "+kind: Widget" in absent.stdout
    kubectl("apply", "-f", "-", stdin=widgets.new("one", 1))
    same = kubectl.run("diff", "-f", "-", stdin=widgets.new("one", 1))
    assert (same.returncode, same.stdout) == (0, "")
    changed = kubectl.run("diff", "-f", "-", stdin=widgets.new("one", 7))
    assert changed.returncode == 1
    assert "-  size: 1" in changed.stdout
    assert "+  size: 7" in changed.stdout
    wrong = kubectl.run("diff", "-f", "-", stdin=widgets.new("one", 77))
    assert wrong.returncode > 1
    assert "should be less than or equal to 10" in wrong.stderr


def test_diff_works_on_the_server_side(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=deployment(replicas=1))
    changed = kubectl.run("diff", "--server-side", "-f", "-", stdin=deployment(replicas=4))
    assert changed.returncode == 1
    assert "+  replicas: 4" in changed.stdout
    assert kubectl.json("get", "deployment", "web")["spec"]["replicas"] == 1
