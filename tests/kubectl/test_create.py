"""`kubectl create`, in all its forms."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from conformance.conftest import eventually
from kubectl.conftest import Kind, config_map, deployment
from kubectl.program import Kubectl


def test_creates_what_a_file_declares(kubectl: Kubectl, widgets: Kind, tmp_path: Path) -> None:
    manifest = tmp_path / "widget.json"
    manifest.write_text(json.dumps(widgets.new("one", 3)))
    assert kubectl("create", "-f", str(manifest)).split() == [f"widget.{widgets.group}/one", "created"]
    assert kubectl.json("get", widgets.plural, "one")["spec"] == {"size": 3, "color": "red", "replicas": 1}


def test_creates_every_document_of_a_stream(kubectl: Kubectl, widgets: Kind) -> None:
    said = kubectl("create", "-f", "-", stdin=[widgets.new("one"), config_map("two", a="b"), deployment("three")])
    assert said.splitlines() == [
        f"widget.{widgets.group}/one created",
        "configmap/two created",
        "deployment.apps/three created",
    ]


def test_creates_every_item_of_a_list(kubectl: Kubectl) -> None:
    items = [config_map("one"), config_map("two")]
    said = kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": items})
    assert said.split() == ["configmap/one", "created", "configmap/two", "created"]


def test_a_second_creation_is_refused(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("one"))
    said = kubectl.refused("create", "-f", "-", stdin=widgets.new("one"))
    assert (
        f'Error from server (AlreadyExists): error when creating "STDIN": widgets.{widgets.group} "one" already exists'
        in said
    )


def test_a_value_that_breaks_the_schema_is_refused_with_its_path(kubectl: Kubectl, widgets: Kind) -> None:
    said = kubectl.refused("create", "-f", "-", "--validate=false", stdin=widgets.new("big", 11))
    assert 'The Widget "big" is invalid: spec.size: Invalid value: 11: ' in said
    assert "should be less than or equal to 10" in said


def test_a_kind_that_nobody_serves_is_named(kubectl: Kubectl) -> None:
    said = kubectl.refused(
        "create", "-f", "-", stdin={"apiVersion": "no.example/v1", "kind": "Nothing", "metadata": {"name": "x"}}
    )
    assert 'no matches for kind "Nothing" in version "no.example/v1"' in said


def test_create_makes_up_a_name(kubectl: Kubectl, widgets: Kind) -> None:
    body = widgets.new("")
    body["metadata"] = {"generateName": "made-"}
    name = kubectl("create", "-f", "-", "-o", "name", stdin=body).strip()
    assert name.startswith(f"widget.{widgets.group}/made-")
    assert len(name) == len(f"widget.{widgets.group}/made-") + 5


def test_a_config_map_from_literals_and_files(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "text.conf").write_text("a = 1\n")
    (tmp_path / "binary.bin").write_bytes(b"\xff\x00\xfe")
    kubectl(
        "create", "configmap", "settings", "--from-literal=who=world", f"--from-file={tmp_path}/text.conf",
        f"--from-file=raw={tmp_path}/binary.bin",
    )  # fmt: skip
    made = kubectl.json("get", "configmap", "settings")
    assert made["data"] == {"who": "world", "text.conf": "a = 1\n"}
    assert base64.b64decode(made["binaryData"]["raw"]) == b"\xff\x00\xfe"


def test_a_generic_secret_is_opaque(kubectl: Kubectl) -> None:
    kubectl("create", "secret", "generic", "login", "--from-literal=password=hunter2")
    made = kubectl.json("get", "secret", "login")
    assert made["type"] == "Opaque"
    assert base64.b64decode(made["data"]["password"]) == b"hunter2"


def test_a_registry_secret_holds_its_login(kubectl: Kubectl) -> None:
    kubectl(
        "create", "secret", "docker-registry", "registry", "--docker-server=r.example", "--docker-username=me",
        "--docker-password=pw",
    )  # fmt: skip
    made = kubectl.json("get", "secret", "registry")
    assert made["type"] == "kubernetes.io/dockerconfigjson"
    login = json.loads(base64.b64decode(made["data"][".dockerconfigjson"]))
    assert login["auths"]["r.example"]["username"] == "me"


def test_a_namespace_is_active_once_created(kubectl: Kubectl) -> None:
    name = f"{kubectl.namespace}-second"
    try:
        assert kubectl("create", "namespace", name).strip() == f"namespace/{name} created"
        assert kubectl("get", "namespace", name, "-o", "jsonpath={.status.phase}") == "Active"
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


def test_accounts_roles_and_bindings(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "robot")
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps,deployments.apps")
    kubectl("create", "rolebinding", "robot-reads", "--role=reader", f"--serviceaccount={kubectl.namespace}:robot")
    assert kubectl.json("get", "role", "reader")["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]},
    ]
    bound = kubectl.json("get", "rolebinding", "robot-reads")
    assert bound["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "robot", "namespace": kubectl.namespace}]
    robot = f"--as=system:serviceaccount:{kubectl.namespace}:robot"
    kubectl("get", "configmaps", robot)
    said = kubectl.refused("get", "secrets", robot)
    assert 'secrets is forbidden: User "system:serviceaccount:' in said


def test_cluster_roles_and_their_bindings(kubectl: Kubectl) -> None:
    name = kubectl.namespace
    try:
        kubectl("create", "clusterrole", name, "--verb=get", "--non-resource-url=/metrics")
        kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", "--user=prometheus")
        assert kubectl.json("get", "clusterrole", name)["rules"] == [
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
        ]
        assert kubectl("auth", "can-i", "get", "/metrics", "--as=prometheus").strip() == "yes"
    finally:
        kubectl("delete", "clusterrole,clusterrolebinding", name, "--ignore-not-found")


def test_workloads_are_kept_as_data(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx:1.27", "--replicas=3")
    made = kubectl.json("get", "deployment", "web")
    assert made["spec"]["replicas"] == 3
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1.27"
    assert made["spec"]["strategy"]["type"] == "RollingUpdate"
    kubectl("create", "job", "once", "--image=busybox", "--", "date")
    job = kubectl.json("get", "job", "once")
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["date"]
    assert job["spec"]["backoffLimit"] == 6
    kubectl("create", "service", "clusterip", "web", "--tcp=80:8080")
    assert kubectl.json("get", "service", "web")["spec"]["ports"][0]["targetPort"] == 8080
    kubectl("create", "ingress", "web", "--rule=host.example/path*=web:80")
    assert kubectl.json("get", "ingress", "web")["spec"]["rules"][0]["host"] == "host.example"


def test_a_quota_counts_and_holds(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "few", "--hard=count/configmaps.example=7,services=0")
    eventually(lambda: kubectl("get", "quota", "few", "-o", "jsonpath={.status.used.services}") == "0", "the count")
    said = kubectl.refused("create", "service", "clusterip", "web", "--tcp=80")
    assert 'services "web" is forbidden: exceeded quota: few, ' in said
    assert "requested: services=1, used: services=0, limited: services=0" in said


def test_a_token_of_a_service_account_logs_in(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "serviceaccount", "robot")
    if kubectl.minor >= 24:
        token = kubectl("create", "token", "robot", "--duration=10m").strip()
    else:
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = f"/api/v1/namespaces/{kubectl.namespace}/serviceaccounts/robot/token"
        token = json.loads(kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(asked)))["status"]["token"]
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["sub"] == f"system:serviceaccount:{kubectl.namespace}:robot"
    stranger = kubectl.with_config(_config_without_certificate(kubectl, tmp_path))
    assert f'User "{claims["sub"]}" cannot list resource "pods"' in stranger.refused("get", "pods", f"--token={token}")
    assert "You must be logged in" in stranger.refused("get", "pods", "--token=no.good.token")


def _config_without_certificate(kubectl: Kubectl, tmp_path: Path) -> Path:
    config = json.loads(kubectl("config", "view", "--raw", "-o", "json"))
    for user in config["users"]:
        user["user"] = {}
    path = tmp_path / "stranger.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def test_a_dry_run_on_the_server_checks_and_stores_nothing(kubectl: Kubectl, widgets: Kind) -> None:
    said = kubectl("create", "-f", "-", "--dry-run=server", stdin=widgets.new("one"))
    assert said.strip() == f"widget.{widgets.group}/one created (server dry run)"
    shown = kubectl.json("create", "-f", "-", "--dry-run=server", stdin=widgets.new("one"))
    assert shown["spec"]["color"] == "red"
    assert shown["metadata"]["uid"]
    assert "is invalid" in kubectl.refused(
        "create", "-f", "-", "--dry-run=server", "--validate=false", stdin=widgets.new("one", 11)
    )
    assert "NotFound" in kubectl.refused("get", widgets.plural, "one")


def test_a_dry_run_on_the_client_asks_for_nothing(kubectl: Kubectl) -> None:
    shown = kubectl("create", "configmap", "one", "--from-literal=a=b", "--dry-run=client", "-o", "yaml")
    assert "creationTimestamp: null" in shown or "creationTimestamp" not in shown
    assert "NotFound" in kubectl.refused("get", "configmap", "one")


def test_a_large_object_goes_in_and_comes_out(kubectl: Kubectl) -> None:
    text = "x" * 900_000
    kubectl("create", "-f", "-", stdin=config_map("large", text=text))
    assert kubectl.json("get", "configmap", "large")["data"]["text"] == text
    said = kubectl.refused("create", "-f", "-", stdin=config_map("larger", text="x" * 1_100_000))
    assert "1048576 bytes" in said


def test_raw_creation_posts_what_it_is_given(kubectl: Kubectl) -> None:
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    made = json.loads(kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(config_map("raw", a="b"))))
    assert made["data"] == {"a": "b"}
