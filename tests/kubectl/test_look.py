"""What kubectl finds out about a server: discovery, documents, who one is and what one may."""

from __future__ import annotations

import json

from kubectl.conftest import Kind, deployment
from kubectl.program import Kubectl


def test_version_shows_both_sides(admin: Kubectl) -> None:
    shown = json.loads(admin("version", "-o", "json"))
    assert shown["serverVersion"]["major"] == "1"
    assert shown["serverVersion"]["gitVersion"].startswith("v1.")


def test_api_versions_lists_built_in_and_custom_groups(admin: Kubectl, widgets: Kind) -> None:
    listed = admin("api-versions").split()
    assert {"v1", "apps/v1", "batch/v1", "events.k8s.io/v1", "rbac.authorization.k8s.io/v1"} <= set(listed)
    assert f"{widgets.group}/v1" in listed


def test_api_resources_shows_names_scope_and_kind(admin: Kubectl, widgets: Kind) -> None:
    lines = {(words[0], words[-1]): words for words in admin.lines("api-resources", "--no-headers")}
    assert lines["namespaces", "Namespace"] == ["namespaces", "ns", "v1", "false", "Namespace"]
    assert lines["deployments", "Deployment"] == ["deployments", "deploy", "apps/v1", "true", "Deployment"]
    mine = admin.lines("api-resources", f"--api-group={widgets.group}", "--no-headers")
    assert mine == [["widgets", "wd", f"{widgets.group}/v1", "true", "Widget"]]


def test_api_resources_can_be_narrowed(admin: Kubectl, widgets: Kind) -> None:
    scalable = admin("api-resources", "--verbs=list,patch", "-o", "name").split()
    assert widgets.plural in scalable
    assert "selfsubjectaccessreviews.authorization.k8s.io" not in scalable
    assert (
        "selfsubjectaccessreviews.authorization.k8s.io"
        in admin("api-resources", "--verbs=create", "-o", "name").split()
    )
    whole = admin("api-resources", "--namespaced=false", "-o", "name").split()
    assert "namespaces" in whole
    assert "configmaps" not in whole


def test_api_resources_wide_shows_verbs(admin: Kubectl, widgets: Kind) -> None:
    shown = admin("api-resources", f"--api-group={widgets.group}", "-o", "wide", "--no-headers")
    for verb in ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"):
        assert verb in shown
    if admin.minor >= 27:
        assert "all,toys" in shown


def test_short_names_singulars_and_groups_all_mean_the_kind(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("one"))
    for spelled in (
        f"widget.{widgets.group}",
        f"widgets.v1.{widgets.group}",
        f"wd.{widgets.group}",
        f"Widget.{widgets.group}",
    ):
        assert kubectl("get", spelled, "-o", "name").strip() == f"widget.{widgets.group}/one"


def test_categories_gather_kinds(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=[widgets.new("one"), deployment("web")])
    assert f"widget.{widgets.group}/one" in kubectl("get", "toys", "-o", "name").split()
    assert {f"widget.{widgets.group}/one", "deployment.apps/web"} <= set(kubectl("get", "all", "-o", "name").split())


def test_cluster_info_names_the_server(admin: Kubectl) -> None:
    server = admin("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
    assert server.startswith("https://")
    assert server in admin("cluster-info")


def test_config_view_hides_the_key(admin: Kubectl) -> None:
    shown = admin("config", "view")
    assert "current-context" in shown
    assert "PRIVATE KEY" not in shown


def test_raw_paths_answer_as_they_are(admin: Kubectl) -> None:
    assert admin("get", "--raw", "/livez") == "ok"
    assert admin("get", "--raw", "/readyz") == "ok"
    assert json.loads(admin("get", "--raw", "/api"))["kind"] == "APIVersions"
    assert "apiserver_request_total" in admin("get", "--raw", "/metrics")
    assert "NotFound" in admin.refused("get", "--raw", "/apis/nothing.example/v1")


def test_an_unknown_kind_is_named(admin: Kubectl) -> None:
    assert 'the server doesn\'t have a resource type "nonsense"' in admin.refused("get", "nonsense")


def test_an_unknown_object_is_named(kubectl: Kubectl, widgets: Kind) -> None:
    assert kubectl.refused("get", "configmap", "x") == 'Error from server (NotFound): configmaps "x" not found\n'
    said = kubectl.refused("get", widgets.plural, "x")
    assert said == f'Error from server (NotFound): {widgets.plural} "x" not found\n'
    assert kubectl("get", "configmap", "x", "--ignore-not-found") == ""


def test_nothing_there_is_said_on_the_side(kubectl: Kubectl, widgets: Kind) -> None:
    done = kubectl.run("get", widgets.plural)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"No resources found in {kubectl.namespace} namespace.\n"


def test_explain_tells_of_a_custom_kind(admin: Kubectl, widgets: Kind) -> None:
    shown = admin("explain", "widgets", f"--api-version={widgets.group}/v1")
    assert "A widget that turns." in shown
    assert "How it should turn." in shown
    assert "APIVersion defines" in shown
    assert "From one to ten." in admin("explain", "widgets.spec.size", f"--api-version={widgets.group}/v1")
    assert 'field "nonsense" does not exist' in admin.refused(
        "explain", "widgets.nonsense", f"--api-version={widgets.group}/v1"
    )


def test_explain_goes_through_the_whole_tree(admin: Kubectl, widgets: Kind) -> None:
    shown = admin("explain", "widgets.spec", "--recursive", f"--api-version={widgets.group}/v1")
    assert [word for word in ("color", "parts", "count", "replicas", "tags") if word not in shown] == []
    shown = admin("explain", "deployments", "--recursive", "--api-version=apps/v1")
    assert [word for word in ("template", "containers", "livenessProbe", "maxSurge") if word not in shown] == []


def test_explain_tells_of_built_in_kinds(admin: Kubectl) -> None:
    assert "containerPort" in admin("explain", "pods.spec.containers.ports")
    assert "finalizers" in admin("explain", "configmaps.metadata")
    assert "openAPIV3Schema" in admin("explain", "crd.spec.versions.schema")


def test_the_administrator_may_everything(kubectl: Kubectl, widgets: Kind) -> None:
    assert kubectl("auth", "can-i", "*", "*").strip() == "yes"
    assert kubectl("auth", "can-i", "create", widgets.plural).strip() == "yes"
    listed = kubectl.lines("auth", "can-i", "--list")
    assert ["*.*", "[]", "[]", "[*]"] in listed


def test_a_stranger_may_nothing(kubectl: Kubectl) -> None:
    asked = kubectl.run("auth", "can-i", "create", "configmaps", "--as=stranger")
    assert (asked.returncode, asked.stdout.strip()) == (1, "no")
    assert kubectl.run("auth", "can-i", "get", "secrets", "--as=stranger", "-q").returncode == 1
    said = kubectl.refused("get", "configmaps", "--as=stranger")
    assert (
        'Error from server (Forbidden): configmaps is forbidden: User "stranger" cannot list resource "configmaps" in API group "" in the namespace'
        in said
    )


def test_rights_come_with_a_binding(kubectl: Kubectl) -> None:
    kubectl("create", "role", "maker", "--verb=create,get", "--resource=configmaps")
    kubectl("create", "rolebinding", "makers", "--role=maker", "--group=makers")
    me = ("--as=joe", "--as-group=makers")
    assert kubectl("auth", "can-i", "create", "configmaps", *me).strip() == "yes"
    assert kubectl.run("auth", "can-i", "delete", "configmaps", *me).returncode == 1
    assert ["configmaps", "[]", "[]", "[create", "get]"] in kubectl.lines("auth", "can-i", "--list", *me)
    kubectl("create", "configmap", "mine", *me)
    assert 'cannot delete resource "configmaps"' in kubectl.refused("delete", "configmap", "mine", *me)


def test_reconcile_makes_the_rights_that_are_declared(kubectl: Kubectl) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "maker", "namespace": kubectl.namespace},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
    }
    kubectl("auth", "reconcile", "-f", "-", stdin=role)
    role["rules"] = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]
    kubectl("auth", "reconcile", "-f", "-", stdin=role)
    rules = kubectl.json("get", "role", "maker")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list"}


def test_whoami_names_the_user(admin: Kubectl) -> None:
    if admin.minor >= 28:
        assert "system:masters" in admin("auth", "whoami")
        assert admin.json("auth", "whoami", "--as=joe")["status"]["userInfo"]["username"] == "joe"
    else:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        said = json.loads(admin("create", "--raw", path, "-f", "-", stdin=json.dumps(review)))
        assert "system:masters" in said["status"]["userInfo"]["groups"]


def test_what_needs_a_node_says_that_there_is_none(kubectl: Kubectl) -> None:
    kubectl("run", "lonely", "--image=busybox", "--restart=Never")
    assert "pod lonely does not have a host assigned" in kubectl.refused("exec", "lonely", "--", "date")
    assert "pod is not running" in kubectl.refused("port-forward", "lonely", "8080:80")
    assert kubectl("logs", "lonely") == ""
    assert 'pods "nobody" not found' in kubectl.refused("logs", "nobody")
    assert "Metrics API not available" in kubectl.refused("top", "pods")


def test_a_kind_that_comes_is_found_at_once(kubectl: Kubectl, new_kind: Kind) -> None:
    """kubectl keeps discovery on disk; an unknown kind makes it ask again."""
    try:
        kubectl("api-resources")
        assert "doesn't have a resource type" in kubectl.refused("get", new_kind.plural)
        kubectl("create", "-f", "-", stdin=new_kind.definition())
        kubectl("wait", "--for=condition=Established", f"crd/{new_kind.plural}")
        kubectl("create", "-f", "-", stdin=new_kind.new("one"))
        assert kubectl("get", new_kind.plural, "-o", "name").strip() == f"widget.{new_kind.group}/one"
    finally:
        kubectl("delete", "crd", new_kind.plural)
    assert "doesn't have a resource type" in kubectl.refused("get", new_kind.plural)
