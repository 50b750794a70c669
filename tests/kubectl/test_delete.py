"""`kubectl delete` and `kubectl wait`: how things go, and what goes with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from conformance.conftest import eventually
from kubectl.conftest import Kind, config_map
from kubectl.program import Kubectl


def test_delete_by_name_file_label_and_all(kubectl: Kubectl, widgets: Kind, tmp_path: Path) -> None:
    kubectl("create", "-f", "-", stdin=[widgets.new(n, 1, {"labels": {"n": n}}) for n in "abcde"])
    said = kubectl("delete", widgets.plural, "a")
    assert said.startswith(f'widget.{widgets.group} "a" deleted')
    manifest = tmp_path / "b.yaml"
    manifest.write_text(yaml.safe_dump(widgets.new("b")))
    assert '"b" deleted' in kubectl("delete", "-f", str(manifest))
    assert '"c" deleted' in kubectl("delete", widgets.plural, "-l", "n=c")
    said = kubectl("delete", widgets.plural, "--all")
    assert '"d" deleted' in said
    assert '"e" deleted' in said
    assert kubectl("get", widgets.plural, "-o", "name") == ""


def test_deleting_what_is_not_there(kubectl: Kubectl) -> None:
    assert kubectl.refused("delete", "configmap", "x") == 'Error from server (NotFound): configmaps "x" not found\n'
    kubectl("delete", "configmap", "x", "--ignore-not-found")


def test_a_dry_run_deletes_nothing(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "one")
    assert "(server dry run)" in kubectl("delete", "configmap", "one", "--dry-run=server")
    kubectl("get", "configmap", "one")


def test_delete_by_force(kubectl: Kubectl) -> None:
    kubectl("run", "box", "--image=busybox")
    done = kubectl.run("delete", "pod", "box", "--force", "--grace-period=0")
    assert 'pod "box" force deleted' in done.stdout
    assert "mmediate deletion does not wait for confirmation" in done.stderr
    assert "NotFound" in kubectl.refused("get", "pod", "box")


def test_a_finalizer_holds_an_object_until_it_is_taken_off(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("held", 1, {"finalizers": ["example.com/hold"]}))
    with kubectl.start("delete", widgets.plural, "held") as deletion:
        assert '"held" deleted' in deletion.line()
        assert kubectl.json("get", widgets.plural, "held")["metadata"]["deletionTimestamp"]
        assert deletion.process.poll() is None
        kubectl("patch", widgets.plural, "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert deletion.ends() == 0
    assert "NotFound" in kubectl.refused("get", widgets.plural, "held")


def test_delete_need_not_wait(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("held", 1, {"finalizers": ["example.com/hold"]}))
    kubectl("delete", widgets.plural, "held", "--wait=false")
    said = kubectl.refused("wait", widgets.plural, "held", "--for=delete", "--timeout=1s")
    assert "timed out waiting for the condition" in said
    kubectl("patch", widgets.plural, "held", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]')


def owned(name: str, owner: dict[str, Any], **more: Any) -> dict[str, Any]:
    metadata = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return config_map(name, {"ownerReferences": [reference | more]})


def test_what_is_owned_goes_in_the_background(kubectl: Kubectl, widgets: Kind) -> None:
    owner = kubectl.json("create", "-f", "-", stdin=widgets.new("owner"))
    kubectl("create", "-f", "-", stdin=owned("child", owner))
    kubectl("delete", widgets.plural, "owner", "--cascade=background")
    eventually(lambda: kubectl.run("get", "configmap", "child").returncode, "the child to go")
    assert "NotFound" in kubectl.refused("get", "configmap", "child")


def test_what_is_owned_goes_first_in_the_foreground(kubectl: Kubectl, widgets: Kind) -> None:
    owner = kubectl.json("create", "-f", "-", stdin=widgets.new("owner"))
    kubectl("create", "-f", "-", stdin=owned("child", owner, blockOwnerDeletion=True))
    kubectl("delete", widgets.plural, "owner", "--cascade=foreground")
    assert "NotFound" in kubectl.refused("get", "configmap", "child")


def test_what_is_owned_can_be_orphaned(kubectl: Kubectl, widgets: Kind) -> None:
    owner = kubectl.json("create", "-f", "-", stdin=widgets.new("owner"))
    kubectl("create", "-f", "-", stdin=owned("child", owner))
    kubectl("delete", widgets.plural, "owner", "--cascade=orphan")
    assert "ownerReferences" not in kubectl.json("get", "configmap", "child")["metadata"]


def test_a_namespace_takes_its_content_along(kubectl: Kubectl, widgets: Kind) -> None:
    name = f"{kubectl.namespace}-gone"
    kubectl("create", "namespace", name)
    inside = kubectl.within(name)
    inside("create", "-f", "-", stdin=[widgets.new("held", 1, {"finalizers": ["example.com/hold"]}), config_map("one")])
    inside("delete", "namespace", name, "--wait=false")
    assert inside.lines("get", "namespace", name)[1][:2] == [name, "Terminating"]
    said = inside.refused("create", "configmap", "late")
    assert "because it is being terminated" in said
    eventually(lambda: inside.run("get", "configmap", "one").returncode, "the content to go")
    inside("patch", widgets.plural, "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    eventually(lambda: inside.run("get", "namespace", name).returncode, "the namespace to go")


def test_nothing_can_be_created_in_a_namespace_that_is_not_there(admin: Kubectl) -> None:
    said = admin.within("nowhere").refused("create", "configmap", "one")
    assert 'namespaces "nowhere" not found' in said


def test_the_default_namespace_stays(admin: Kubectl) -> None:
    assert 'namespaces "default" is forbidden: this namespace may not be deleted' in admin.refused(
        "delete", "namespace", "default"
    )


def test_a_definition_takes_its_objects_along(kubectl: Kubectl, new_kind: Kind) -> None:
    kubectl("create", "-f", "-", stdin=new_kind.definition())
    kubectl("wait", "--for=condition=Established", f"crd/{new_kind.plural}")
    kubectl("create", "-f", "-", stdin=new_kind.new("one"))
    kubectl("delete", "crd", new_kind.plural)
    kubectl("create", "-f", "-", stdin=new_kind.definition())
    kubectl("wait", "--for=condition=Established", f"crd/{new_kind.plural}")
    eventually(lambda: kubectl.run("get", new_kind.plural).returncode == 0, "the kind to be served again")
    assert kubectl("get", new_kind.plural, "-o", "name") == ""
    kubectl("delete", "crd", new_kind.plural)


def test_a_definition_that_changes_is_obeyed_at_once(kubectl: Kubectl, new_kind: Kind) -> None:
    definition = new_kind.definition()
    kubectl("apply", "-f", "-", stdin=definition)
    kubectl("wait", "--for=condition=Established", f"crd/{new_kind.plural}")
    try:
        assert "unknown field" in kubectl.refused("create", "-f", "-", stdin=new_kind.new("one", weight=3))
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"]["properties"]["weight"] = {"type": "integer"}
        assert "configured" in kubectl("apply", "-f", "-", stdin=definition)
        eventually(
            lambda: kubectl.run("create", "-f", "-", stdin=new_kind.new("one", weight=3)).returncode == 0,
            "the new schema",
        )
        assert kubectl.json("get", new_kind.plural, "one")["spec"]["weight"] == 3
    finally:
        kubectl("delete", "crd", new_kind.plural)


def test_a_definition_that_is_wrong_is_refused(kubectl: Kubectl, new_kind: Kind) -> None:
    wrong = new_kind.definition(schema={"openAPIV3Schema": {"properties": {"spec": {"type": "nonsense"}}}})
    said = kubectl.refused("create", "-f", "-", "--validate=false", stdin=wrong)
    assert "spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root" in said
    assert "nonsense" in said
    wrong = new_kind.definition()
    wrong["metadata"]["name"] = "something-else"
    said = kubectl.refused("create", "-f", "-", stdin=wrong)
    assert 'must be spec.names.plural+"."+spec.group' in said


def test_wait_for_a_condition(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("one"))
    with kubectl.start("wait", f"{widgets.plural}/one", "--for=condition=Ready", "--timeout=30s") as waiting:
        set_status(kubectl, widgets, "one", {"conditions": [{"type": "Ready", "status": "False"}]})
        assert waiting.process.poll() is None
        set_status(kubectl, widgets, "one", {"conditions": [{"type": "Ready", "status": "True"}]})
        assert waiting.line() == f"widget.{widgets.group}/one condition met"
        assert waiting.ends() == 0
    kubectl("wait", f"{widgets.plural}/one", "--for=condition=Ready=True")
    said = kubectl.refused("wait", f"{widgets.plural}/one", "--for=condition=Ready=False", "--timeout=1s")
    assert "timed out waiting for the condition" in said


def test_wait_for_a_value(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("one"))
    wait = ("wait", f"{widgets.plural}/one", "--for=jsonpath={.status.phase}=Ready", "--timeout=30s")
    if kubectl.minor < 23:
        assert "unrecognized condition" in kubectl.refused(*wait)
        return
    with kubectl.start(*wait) as waiting:
        set_status(kubectl, widgets, "one", {"phase": "Ready"})
        assert waiting.ends() == 0


def set_status(kubectl: Kubectl, kind: Kind, name: str, status: dict[str, Any]) -> None:
    path = f"/apis/{kind.group}/v1/namespaces/{kubectl.namespace}/widgets/{name}/status"
    live = json.loads(kubectl("get", "--raw", path))
    kubectl("replace", "--raw", path, "-f", "-", stdin=json.dumps({**live, "status": status}))


def test_wait_for_a_deletion(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "one")
    with kubectl.start("wait", "configmap/one", "--for=delete", "--timeout=30s", "-v=6") as waiting:
        while "watch=true" not in waiting.line():
            pass
        kubectl("delete", "configmap", "one")
        assert waiting.ends() == 0
