"""Pods: the parts of one that are written by themselves, and the priority that its class gives it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import STRATEGIC_PATCH, Api, Object, needs

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SMALL: Object = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
DEBUGGER: Object = {"name": "debugger", "image": "busybox", "targetContainerName": "main"}


@pytest.fixture(autouse=True)
def real_pods(api: Api) -> None:
    if not api.serves("v1", "pods/ephemeralcontainers"):
        pytest.skip("this server does not serve pods as upstream does")


class Pods:
    """The pods of a namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.path = api, f"/api/v1/namespaces/{namespace}/pods"

    def send(self, name: str = "p", **spec: Any) -> Any:
        spec.setdefault("containers", [{"name": "main", "image": "i:1", "resources": SMALL}])
        # No token: on a cluster it would want a service account that a new namespace may not have yet.
        body = {"automountServiceAccountToken": False, "serviceAccountName": "default", **spec}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self.api.post(self.path.replace("/pods", "/serviceaccounts"), account)
        return self.api.post(self.path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body})

    def create(self, name: str = "p", **spec: Any) -> Object:
        made: Object = self.send(name, **spec).expect(201)
        return made

    def part(self, part: str, spec: Object, name: str = "p") -> Any:
        return self.api.patch(f"{self.path}/{name}/{part}", {"spec": spec}, STRATEGIC_PATCH)

    def messages(self, answer: Any) -> list[tuple[str, str]]:
        causes = answer.expect(422)["details"]["causes"]
        return [(c.get("field", ""), c["message"].partition("\n")[0]) for c in causes]


@pytest.fixture
def pods(api: Api, namespace: str) -> Pods:
    return Pods(api, namespace)


def test_containers_to_look_into_a_pod_are_added_to_one_that_is_there(api: Api, pods: Pods) -> None:
    before = pods.create()
    added = pods.part("ephemeralcontainers", {"ephemeralContainers": [DEBUGGER], "dnsPolicy": "Default"}).expect(200)
    [container] = added["spec"]["ephemeralContainers"]
    assert container["terminationMessagePath"] == "/dev/termination-log"  # filled in as any container
    assert added["spec"]["dnsPolicy"] == before["spec"]["dnsPolicy"]  # this path changes nothing else
    owners = [e for e in added["metadata"]["managedFields"] if e.get("subresource") == "ephemeralcontainers"]
    assert [list(e["fieldsV1"]) for e in owners] == [["f:spec"]]
    assert list(owners[0]["fieldsV1"]["f:spec"]) == ["f:ephemeralContainers"]
    assert api.get(f"{pods.path}/p/ephemeralcontainers").expect(200) == added
    whole = {**added, "metadata": {**added["metadata"], "labels": {"a": "b"}}}
    kept = api.put(f"{pods.path}/p/ephemeralcontainers", whole).expect(200)
    assert "labels" not in kept["metadata"]


def test_containers_to_look_into_a_pod_stay_as_they_were_added(api: Api, pods: Pods) -> None:
    pods.create()
    added = pods.part("ephemeralcontainers", {"ephemeralContainers": [DEBUGGER]}).expect(200)
    where = "spec.ephemeralContainers"
    without = {**added, "spec": {k: v for k, v in added["spec"].items() if k != "ephemeralContainers"}}
    removed = api.put(f"{pods.path}/p/ephemeralcontainers", without)
    assert pods.messages(removed) == [
        (where, 'Forbidden: existing ephemeral containers "debugger" may not be removed')
    ]
    changed = pods.part("ephemeralcontainers", {"ephemeralContainers": [{"name": "debugger", "image": "other"}]})
    assert pods.messages(changed) == [
        (where, 'Forbidden: existing ephemeral containers "debugger" may not be changed')
    ]
    [(field, why)] = pods.messages(api.put(f"{pods.path}/p", without))
    assert (field, why.partition(" `")[0]) == ("spec", "Forbidden: pod updates may not change fields other than")


def test_containers_to_look_into_a_pod_are_not_part_of_its_work(pods: Pods) -> None:
    pods.create()
    wrong = [
        {"name": "main", "image": "i"},
        {"name": "b", "image": "i", "targetContainerName": "nobody"},
        {"name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": SMALL},
        {"name": "d", "image": "i", "livenessProbe": {"tcpSocket": {"port": 1}}},
    ]
    refusal = pods.part("ephemeralcontainers", {"ephemeralContainers": wrong})
    where, why = "spec.ephemeralContainers", "Forbidden: cannot be set for an Ephemeral Container"
    assert sorted(pods.messages(refusal)) == [
        (f"{where}[0].name", 'Duplicate value: "main"'),
        (f"{where}[1].targetContainerName", 'Not found: "nobody"'),
        (f"{where}[2].ports", why),
        (f"{where}[2].resources", why),
        (f"{where}[3].livenessProbe", why),
    ]
    [(field, why)] = pods.messages(pods.send("q", ephemeralContainers=[DEBUGGER]))
    assert (field, why) == ("spec.ephemeralContainers", "Forbidden: cannot be set on create")


def test_a_pod_that_waits_at_a_gate_has_no_node(pods: Pods) -> None:
    refusal = pods.send("q", nodeName="n", schedulingGates=[{"name": "example.com/g"}])
    assert pods.messages(refusal) == [
        ("spec.nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared")
    ]


def resized(**resources: Any) -> Object:
    return {"containers": [{"name": "main", "resources": resources}]}


def test_a_pod_is_resized_through_its_own_path(api: Api, pods: Pods) -> None:
    needs(api, 33)
    before = pods.create()
    wanted = resized(requests={"cpu": "150m"})
    wanted["containers"][0]["image"] = "other"
    after = pods.part("resize", wanted).expect(200)
    [container] = after["spec"]["containers"]
    assert container["resources"] == {**SMALL, "requests": {"cpu": "150m", "memory": "64Mi"}}
    assert container["image"] == "i:1"
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    main = api.patch(f"{pods.path}/p", {"spec": resized(requests={"cpu": "170m"})}, STRATEGIC_PATCH)
    [(field, why)] = pods.messages(main)
    assert (field, why.partition(" `")[0]) == ("spec", "Forbidden: pod updates may not change fields other than")
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": resized(requests={"cpu": "160m"})}
    applied = api.apply(f"{pods.path}/p/resize", config, "autoscaler", force="true").expect(200)
    [entry] = [e for e in applied["metadata"]["managedFields"] if e["manager"] == "autoscaler"]
    assert entry["fieldsV1"] == {
        "f:spec": {"f:containers": {'k:{"name":"main"}': {"f:resources": {"f:requests": {"f:cpu": {}}}}}}
    }


@pytest.mark.parametrize(
    ("spec", "field", "why"),
    [
        (
            resized(requests={"cpu": None}, limits={"cpu": None}),
            "spec.containers[0].resources.limits",
            "Forbidden: resource limits cannot be removed",
        ),
        (resized(requests={"ephemeral-storage": "1Gi"}), "spec", "Forbidden: only cpu and memory resources are mutable"),
        (
            resized(requests=SMALL["limits"]),
            "spec",
            'Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing',
        ),
        (
            resized(requests={"cpu": "1"}),
            "spec.containers[0].resources.requests",
            'Invalid value: "1": must be less than or equal to cpu limit of 200m',
        ),
        (
            {"containers": [{"name": "more", "image": "i"}]},
            "spec.containers",
            "Forbidden: containers may not be added or removed on resize",
        ),
    ],
)
def test_not_everything_is_a_resize(api: Api, pods: Pods, spec: Object, field: str, why: str) -> None:
    needs(api, 34)
    pods.create()
    assert (field, why) in pods.messages(pods.part("resize", spec))


def test_a_status_revives_nothing_and_keeps_how_well_needs_are_known(api: Api, pods: Pods) -> None:
    made = pods.create(restartPolicy="Never")
    path = f"{pods.path}/p/status"
    state = {"terminated": {"exitCode": 1}}
    ended = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    status = {"phase": "Failed", "containerStatuses": [ended], "podIP": "10.0.0.9"}
    after = api.put(path, {**made, "status": status}).expect(200)
    assert after["status"]["qosClass"] == "Burstable"
    assert after["status"]["podIPs"] == [{"ip": "10.0.0.9"}]
    revived = {**status, "containerStatuses": [{**ended, "state": {"running": {}}}]}
    refusal = api.put(path, {**after, "status": revived})
    assert pods.messages(refusal) == [
        ("status.containerStatuses[0].state", "Forbidden: may not be transitioned to non-terminated state")
    ]
    refusal = api.patch(path, {"status": {"qosClass": "Guaranteed"}})
    assert [field for field, _ in pods.messages(refusal)] == ["status.qosClass"]


def test_a_pod_can_be_replaced_by_what_it_was_made_of(api: Api, pods: Pods) -> None:
    containers = [{"name": "main", "image": "i:1"}]
    made = pods.create(containers=containers, serviceAccountName="default")
    spec = {"containers": [{**containers[0], "image": "i:2"}], "automountServiceAccountToken": False}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {**spec, "serviceAccountName": "default"}}
    after = api.put(f"{pods.path}/p", body).expect(200)
    assert {k: v for k, v in after["spec"].items() if k != "containers"} == {
        k: v for k, v in made["spec"].items() if k != "containers"
    }
    [entry] = made["metadata"]["managedFields"]
    assert not {"f:tolerations", "f:priority", "f:preemptionPolicy"} & entry["fieldsV1"]["f:spec"].keys()


@pytest.fixture
def low(api: Api, namespace: str) -> Iterator[str]:
    """A class of little priority."""
    name = f"low-{namespace}"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": -7}
    api.post(CLASSES, {**body, "preemptionPolicy": "Never"}).expect(201)
    yield name
    api.delete(f"{CLASSES}/{name}")


def test_a_pod_has_the_priority_of_its_class(pods: Pods, low: str) -> None:
    spec = pods.create(priorityClassName=low)["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (-7, "Never")
    plain = pods.create("q")["spec"]
    assert (plain["priority"], plain["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "priorityClassName" not in plain
    critical = pods.send("r", priorityClassName="system-node-critical")
    assert critical.expect(201)["spec"]["priority"] == 2000001000


def test_a_priority_is_the_one_of_a_class_that_there_is(pods: Pods, low: str) -> None:
    refusal = pods.send(priorityClassName="nope").expect(403)
    assert refusal["message"] == 'pods "p" is forbidden: no PriorityClass with name nope was found'
    refusal = pods.send(priorityClassName=low, priority=5).expect(403)
    assert refusal["message"] == (
        'pods "p" is forbidden: the integer value of priority (5) must not be provided in pod spec; '
        "priority admission controller computed -7 from the given PriorityClass name"
    )
    refusal = pods.send(priorityClassName=low, preemptionPolicy="PreemptLowerPriority").expect(403)
    assert refusal["message"].startswith(
        'pods "p" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec'
    )


def test_one_class_at_most_is_for_pods_that_name_none(api: Api, pods: Pods, low: str) -> None:
    path = f"{CLASSES}/{low}"
    api.patch(path, {"globalDefault": True}).expect(200)
    try:
        spec = pods.create()["spec"]
        assert (spec["priorityClassName"], spec["priority"]) == (low, -7)
        other = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1, "globalDefault": True}
        refusal = api.post(CLASSES, {**other, "metadata": {"name": f"other-{low}"}}).expect(403)
        assert refusal["message"] == (
            f'priorityclasses.scheduling.k8s.io "other-{low}" is forbidden: PriorityClass {low} is already marked as '
            "default. Only one default can exist"
        )
        api.patch(path, {"description": "still the one"}).expect(200)
    finally:
        api.patch(path, {"globalDefault": False}).expect(200)


def test_the_priorities_of_the_system_are_there_and_stay(api: Api) -> None:
    known = api.get(f"{CLASSES}/system-cluster-critical").expect(200)
    assert (known["value"], known["preemptionPolicy"]) == (2000000000, "PreemptLowerPriority")
    refusal = api.delete(f"{CLASSES}/system-cluster-critical").expect(403)
    assert refusal["message"] == (
        'priorityclasses.scheduling.k8s.io "system-cluster-critical" is forbidden: this is a system priority class and '
        "cannot be deleted"
    )


def test_a_pod_at_a_gate_may_be_given_fewer_nodes_to_go_to(api: Api, pods: Pods) -> None:
    needs(api, 27)
    pods.create(schedulingGates=[{"name": "example.com/g"}])
    required = "requiredDuringSchedulingIgnoredDuringExecution"

    def only(*wanted: Object) -> Any:
        spec = {"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": list(wanted)}]}}}}
        return api.patch(f"{pods.path}/p", {"spec": spec})

    a, b = ({"key": key, "operator": "Exists"} for key in ("a", "b"))
    only(a).expect(200)
    only(a, b).expect(200)
    [(field, why)] = pods.messages(only(b))
    assert field == f"spec.affinity.nodeAffinity.{required}.nodeSelectorTerms[0]"
    assert why.endswith("only additions are allowed (no mutations or deletions)")
    api.patch(f"{pods.path}/p", {"spec": {"schedulingGates": None}}).expect(200)
    [(field, why)] = pods.messages(only(a, b, {"key": "c", "operator": "Exists"}))
    assert (field, why.partition(" `")[0]) == ("spec", "Forbidden: pod updates may not change fields other than")


def test_a_pod_that_is_applied_again_is_not_written(api: Api, pods: Pods) -> None:
    pods.create("other")  # and with it the account
    spec = {"containers": [{"name": "main", "image": "i"}], "tolerations": [{"key": "own", "operator": "Exists"}]}
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    made = api.apply(f"{pods.path}/p", config).expect(201)
    assert len(made["spec"]["tolerations"]) == 3
    time.sleep(1.01)  # so that it would be another second
    assert api.apply(f"{pods.path}/p", config).expect(200) == made
