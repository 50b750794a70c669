"""`kubectl get`, `describe` and `events`: how objects are shown."""

from __future__ import annotations

import json

import yaml

from kubectl.conftest import Kind, config_map, deployment
from kubectl.program import Kubectl


def test_a_custom_kind_shows_its_columns(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("one", 3, color="blue"))
    heading, row = kubectl.lines("get", widgets.plural)
    assert heading == ["NAME", "SIZE", "PHASE", "AGE"]
    assert row[:2] == ["one", "3"]
    heading, row = kubectl.lines("get", widgets.plural, "-o", "wide")
    assert heading == ["NAME", "SIZE", "PHASE", "COLOR", "AGE"]
    assert row[:3] == ["one", "3", "blue"]


def test_built_in_kinds_show_theirs(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=[deployment(), config_map("one", a="1", b="2")])
    kubectl("create", "secret", "generic", "login", "--from-literal=a=b")
    kubectl("create", "service", "clusterip", "web", "--tcp=80")
    heading, row = kubectl.lines("get", "deployment", "web")
    assert heading == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
    assert row[0] == "web"
    assert row[1].endswith("/2")
    assert kubectl.lines("get", "deployment", "web", "-o", "wide")[1][-3:] == ["main", "nginx:1", "app=web"]
    assert kubectl.lines("get", "configmap", "one")[1][:2] == ["one", "2"]
    assert kubectl.lines("get", "secret", "login")[1][:3] == ["login", "Opaque", "1"]
    heading, row = kubectl.lines("get", "service", "web")
    assert heading == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    assert row[1] == "ClusterIP"
    assert row[4] == "80/TCP"
    heading, row = kubectl.lines("get", "namespace", kubectl.namespace)
    assert heading == ["NAME", "STATUS", "AGE"]
    assert row[:2] == [kubectl.namespace, "Active"]


def test_a_pod_that_no_node_took_is_pending(kubectl: Kubectl) -> None:
    kubectl("run", "lonely", "--image=busybox", "--restart=Never")
    heading, row = kubectl.lines("get", "pods")
    assert heading == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["lonely", "0/1", "Pending", "0"]
    assert "<none>" in kubectl.lines("get", "pods", "-o", "wide")[1]


def test_machine_readable_forms_agree(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("one", 3, {"labels": {"a": "b"}}))
    as_json = kubectl.json("get", widgets.plural, "one")
    assert yaml.safe_load(kubectl("get", widgets.plural, "one", "-o", "yaml"))["spec"] == as_json["spec"]
    assert kubectl("get", widgets.plural, "one", "-o", "name") == f"widget.{widgets.group}/one\n"
    assert kubectl("get", widgets.plural, "one", "-o", "jsonpath={.spec.size}") == "3"
    assert kubectl("get", widgets.plural, "-o", "jsonpath={.items[*].metadata.name}") == "one"
    assert kubectl("get", widgets.plural, "one", "-o", "go-template={{.spec.color}}") == "red"
    columns = "-o=custom-columns=N:.metadata.name,S:.spec.size,L:.metadata.labels.a,X:.spec.nothing"
    assert kubectl.lines("get", widgets.plural, columns) == [["N", "S", "L", "X"], ["one", "3", "b", "<none>"]]


def test_several_objects_come_as_a_list(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=[config_map("one"), deployment("web")])
    both = kubectl.json("get", "configmap/one", "deployment/web")
    assert (both["kind"], both["apiVersion"]) == ("List", "v1")
    assert [item["kind"] for item in both["items"]] == ["ConfigMap", "Deployment"]
    shown = kubectl("get", "deployments,configmaps")
    assert "deployment.apps/web" in shown
    assert "configmap/one" in shown


def test_labels_select_and_show(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=[
        widgets.new("a", 1, {"labels": {"tier": "front", "env": "prod"}}),
        widgets.new("b", 1, {"labels": {"tier": "back", "env": "prod"}}),
        widgets.new("c", 1),
    ])  # fmt: skip
    kind = widgets.plural

    def named(selector: str) -> str:
        return kubectl("get", kind, "-l", selector, "-o", "jsonpath={.items[*].metadata.name}")

    assert named("tier=front") == "a"
    assert named("tier!=front") == "b c"
    assert named("tier in (front,back),env=prod") == "a b"
    assert named("tier notin (front)") == "b c"
    assert named("tier") == "a b"
    assert named("!tier") == "c"
    shown = {row[0]: row[-1] for row in kubectl.lines("get", kind, "--show-labels")}
    assert shown["a"] == "env=prod,tier=front"
    assert shown["c"] == "<none>"
    assert kubectl.lines("get", kind, "-L", "tier", "a")[1][-1] == "front"


def test_field_selectors(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=[widgets.new("a"), widgets.new("b"), config_map("a")])
    assert kubectl("get", widgets.plural, "--field-selector=metadata.name=b", "-o", "name").endswith("/b\n")
    assert kubectl("get", widgets.plural, "--field-selector=metadata.name!=b", "-o", "name").endswith("/a\n")
    assert "field label not supported: spec.size" in kubectl.refused(
        "get", widgets.plural, "--field-selector=spec.size=1"
    )
    kubectl("run", "lonely", "--image=busybox")
    assert (
        kubectl("get", "pods", "--field-selector=status.phase=Pending,spec.nodeName=", "-o", "name") == "pod/lonely\n"
    )
    assert kubectl("get", "pods", "--field-selector=status.phase=Running", "-o", "name") == ""


def test_all_namespaces(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("one"))
    lines = kubectl.lines("get", widgets.plural, "-A")
    assert lines[0][0] == "NAMESPACE"
    assert [kubectl.namespace, "one"] in [line[:2] for line in lines]


def test_sorting_and_paging(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=[widgets.new(f"w{n}", (n * 7) % 10 + 1) for n in range(10)])
    whole = kubectl("get", widgets.plural, "-o", "name").split()
    assert len(whole) == 10
    assert kubectl("get", widgets.plural, "-o", "name", "--chunk-size=3").split() == whole
    assert len(kubectl.lines("get", widgets.plural, "--chunk-size=3", "--no-headers")) == 10
    sizes = [row[1] for row in kubectl.lines("get", widgets.plural, "--sort-by=.spec.size", "--no-headers")]
    assert sizes == [str(n) for n in range(1, 11)]


def test_a_watch_prints_rows_as_they_change(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("one", 1))
    with kubectl.start("get", widgets.plural, "-w", "--output-watch-events") as watch:
        assert watch.line().split() == ["EVENT", "NAME", "SIZE", "PHASE", "AGE"]
        assert watch.line().split()[:3] == ["ADDED", "one", "1"]
        kubectl("patch", widgets.plural, "one", "--type=merge", "-p", '{"spec":{"size":2}}')
        assert watch.line().split()[:3] == ["MODIFIED", "one", "2"]
        kubectl("create", "-f", "-", stdin=widgets.new("two", 5))
        assert watch.line().split()[:3] == ["ADDED", "two", "5"]
        kubectl("delete", widgets.plural, "one")
        assert watch.line().split()[:3] == ["DELETED", "one", "2"]


def test_a_watch_of_one_object_prints_whole_objects(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "one", "--from-literal=a=1")
    with kubectl.start("get", "configmap", "one", "-w", "-o", "jsonpath={.data.a}{'\\n'}") as watch:
        assert watch.line() == "1"
        kubectl("create", "configmap", "other")
        kubectl("patch", "configmap", "one", "-p", '{"data":{"a":"2"}}')
        assert watch.line() == "2"


def test_a_watch_from_now_on_shows_only_what_is_new(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "old")
    with kubectl.start("get", "configmaps", "--watch-only", "-o", "name") as watch:
        # Such a watch prints nothing when it begins: something new is made until it shows the first.
        number = 0
        while not watch.printed:
            kubectl("create", "configmap", f"new-{number}")
            number += 1
        assert watch.line().startswith("configmap/new-")


def test_a_watch_with_a_selector_sees_things_leave(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=config_map("one", {"labels": {"in": "yes"}}))
    with kubectl.start("get", "configmaps", "-l", "in=yes", "-w", "--output-watch-events", "--no-headers") as watch:
        assert watch.line().split()[:2] == ["ADDED", "one"]
        kubectl("label", "configmap", "one", "in-")
        assert watch.line().split()[:2] == ["DELETED", "one"]


def test_describe_a_custom_object(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("one", 3, {"labels": {"a": "b"}}, tags=["x"]))
    shown = kubectl("describe", widgets.plural, "one")
    for text in (
        "Name:         one",
        "Labels:       a=b",
        f"API Version:  {widgets.group}/v1",
        "Kind:         Widget",
        "Size:      3",
        "Events:",
    ):
        assert text in shown, shown


def test_describe_built_in_objects(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=[deployment(), config_map("one", a="the value")])
    kubectl("create", "secret", "generic", "login", "--from-literal=password=hunter2")
    kubectl("create", "quota", "few", "--hard=pods=3")
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
    kubectl("run", "lonely", "--image=busybox")
    kubectl("expose", "deployment", "web", "--port=80")
    assert "the value" in kubectl("describe", "configmap", "one")
    secret = kubectl("describe", "secret", "login")
    assert "password:  7 bytes" in secret
    assert "hunter2" not in secret
    namespace = kubectl("describe", "namespace", kubectl.namespace)
    assert "Status:       Active" in namespace
    assert "few" in namespace
    shown = kubectl("describe", "deployment", "web")
    assert "Replicas:               2 desired" in shown
    assert "StrategyType:           RollingUpdate" in shown
    assert "25% max unavailable, 25% max surge" in shown
    assert "busybox" in kubectl("describe", "pod", "lonely")
    assert "80/TCP" in kubectl("describe", "service", "web")
    assert "pods" in kubectl("describe", "role", "reader")
    assert "pods" in kubectl("describe", "quota", "few")


def test_describe_a_definition(kubectl: Kubectl, widgets: Kind) -> None:
    shown = kubectl("describe", "crd", widgets.plural)
    assert "Established" in shown
    assert "A widget that turns." in shown


def test_events_are_shown_with_what_they_are_about(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("one"))
    made = kubectl.json("get", widgets.plural, "one")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "one.1"},
        "involvedObject": {
            "apiVersion": made["apiVersion"],
            "kind": "Widget",
            "name": "one",
            "namespace": kubectl.namespace,
            "uid": made["metadata"]["uid"],
        },
        "type": "Warning",
        "reason": "Squeaks",
        "message": "It needs oil.",
        "firstTimestamp": "2024-01-01T00:00:00Z",
        "lastTimestamp": "2024-01-01T00:00:00Z",
        "count": 3,
        "source": {"component": "ear"},
    }
    kubectl("create", "-f", "-", stdin=event)
    heading, row = kubectl.lines("get", "events")
    assert heading == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert row[1:] == ["Warning", "Squeaks", "widget/one", "It", "needs", "oil."]
    assert "It needs oil." in kubectl("get", "events", "--field-selector=involvedObject.name=one,type=Warning")
    assert kubectl("get", "events.v1.events.k8s.io", "-o", "jsonpath={.items[*].note}") == "It needs oil."
    assert "Squeaks" in kubectl("describe", widgets.plural, "one")
    if kubectl.minor >= 26:
        assert "It needs oil." in kubectl("events", "--types=Warning")
    if kubectl.minor >= 28:
        assert "It needs oil." in kubectl("events", "--for", f"{widgets.plural}/one")


def test_raw_lists_are_plain_json(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "one")
    listed = json.loads(kubectl("get", "--raw", f"/api/v1/namespaces/{kubectl.namespace}/configmaps?limit=1"))
    assert listed["kind"] == "ConfigMapList"
    assert "kind" not in listed["items"][0]


def test_status_can_be_asked_for_alone(kubectl: Kubectl, widgets: Kind) -> None:
    kubectl("create", "-f", "-", stdin=widgets.new("one", replicas=4))
    if kubectl.minor >= 24:
        assert kubectl.json("get", widgets.plural, "one", "--subresource=status")["kind"] == "Widget"
        assert kubectl.json("get", widgets.plural, "one", "--subresource=scale")["spec"] == {"replicas": 4}
    else:
        path = f"/apis/{widgets.group}/v1/namespaces/{kubectl.namespace}/widgets/one/scale"
        assert json.loads(kubectl("get", "--raw", path))["spec"] == {"replicas": 4}
