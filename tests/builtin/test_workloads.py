"""Pods, workloads, services and storage are filled in and judged as upstream does it."""

from __future__ import annotations

import pytest

from homeostat.api.builtin.containers import pull_policy
from homeostat.api.builtin.jobs import schedule_problems
from homeostat.api.builtin.podrules import qos_class
from homeostat.model.errors import ApiError

POD_SPEC = {"containers": [{"name": "a", "image": "nginx"}]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}
WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


def test_a_pod_is_filled_in(created):
    container = {
        "name": "a",
        "image": "nginx",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "1000m"}},
    }
    pod = created("Pod", spec={"containers": [container], "volumes": [{"name": "v"}]})
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["securityContext"] == {}
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert spec["containers"][0] == {
        "name": "a",
        "image": "nginx",
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }
    assert pod["status"] == {"phase": "Pending", "qosClass": "Burstable"}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.2", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
    ],
)
def test_moving_images_are_pulled_always(image, policy):
    assert pull_policy(image) == policy


@pytest.mark.parametrize(
    ("resources", "word"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        (
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}},
            "Guaranteed",
        ),
    ],
)
def test_quality_of_service_follows_from_resources(resources, word):
    assert qos_class({"containers": [{"resources": resources}]}) == word


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({}, ["spec.containers: Required value"]),
        (
            {"containers": [{"name": "a", "image": ""}, {"name": "a", "image": "x"}]},
            ["spec.containers[0].image: Required value", 'spec.containers[1].name: Duplicate value: "a"'],
        ),
        (
            {"containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 70000, "protocol": "X"}]}]},
            [
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, "
                "inclusive",
                'spec.containers[0].ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"',
            ],
        ),
        (
            {"containers": [{"name": "a", "image": "x", "volumeMounts": [{"name": "v", "mountPath": ""}]}]},
            [
                'spec.containers[0].volumeMounts[0].name: Not found: "v"',
                "spec.containers[0].volumeMounts[0].mountPath: Required value",
            ],
        ),
        (
            {"containers": [{"name": "a", "image": "x", "env": [{"name": "A", "valueFrom": {}}]}]},
            [
                'spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, '
                "`resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            ],
        ),
        (
            {**POD_SPEC, "volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]},
            ["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            {**POD_SPEC, "restartPolicy": "Odd"},
            ['spec.restartPolicy: Unsupported value: "Odd": supported values: "Always", "OnFailure", "Never"'],
        ),
        (
            {"containers": [{"name": "a", "image": "x", "livenessProbe": {}}]},
            ["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
        ),
    ],
)
def test_pods_are_judged(refusals, spec, errors):
    assert refusals("Pod", spec=spec) == errors


def test_amounts_that_are_none_cannot_be_decoded(created):
    with pytest.raises(ApiError) as refusal:
        created("Pod", spec={"containers": [{"name": "a", "image": "x", "resources": {"limits": {"cpu": "abc"}}}]})
    assert refusal.value.message.startswith('Pod in version "v1" cannot be handled as a Pod: quantities must match')


def test_little_of_a_pod_can_change(created, update_refusals):
    pod = created("Pod", spec={**POD_SPEC, "tolerations": [{"key": "own", "operator": "Exists"}]})
    image = lambda o: o["spec"]["containers"][0].update(image="nginx:2")  # noqa: E731
    assert update_refusals("Pod", "", pod, image) == []
    (error,) = update_refusals("Pod", "", pod, lambda o: o["spec"].update(dnsPolicy="Default"))
    assert error.startswith("spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,")
    assert update_refusals("Pod", "", pod, lambda o: o["spec"]["containers"].append({"name": "b", "image": "c"})) == [
        "spec.containers: Forbidden: pod updates may not add or remove containers"
    ]
    more = {"key": "k", "operator": "Exists"}
    assert update_refusals("Pod", "", pod, lambda o: o["spec"]["tolerations"].append(more)) == []
    assert update_refusals("Pod", "", pod, lambda o: o["spec"].update(tolerations=[])) == [
        "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    ]


def test_a_deployment_is_filled_in(created, refusals):
    deployment = created("Deployment", "apps", spec=WORKLOAD)
    spec = deployment["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    assert spec["revisionHistoryLimit"] == 10
    assert spec["progressDeadlineSeconds"] == 600
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert refusals("Deployment", "apps", spec=WORKLOAD) == []


MISMATCH = 'spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`'


@pytest.mark.parametrize(
    ("kind", "spec", "errors"),
    [
        ("Deployment", {"template": TEMPLATE}, ["spec.selector: Required value", MISMATCH]),
        ("DaemonSet", {"template": TEMPLATE}, [MISMATCH]),
        (
            "ReplicaSet",
            {"selector": {}, "template": TEMPLATE},
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
        ),
        (
            "StatefulSet",
            {**WORKLOAD, "podManagementPolicy": "Odd"},
            ["spec.podManagementPolicy: Invalid value: \"Odd\": must be 'OrderedReady' or 'Parallel'"],
        ),
        (
            "Deployment",
            {**WORKLOAD, "replicas": -1, "strategy": {"type": "Recreate", "rollingUpdate": {}}},
            [
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ],
        ),
        (
            "Deployment",
            {**WORKLOAD, "progressDeadlineSeconds": 5, "minReadySeconds": 10},
            ["spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"],
        ),
    ],
)
def test_workloads_are_judged(refusals, kind, spec, errors):
    assert refusals(kind, "apps", spec=spec) == errors


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "DaemonSet"])
def test_the_selector_of_a_workload_is_fixed(created, update_refusals, kind):
    old = created(kind, "apps", spec=WORKLOAD)
    (error,) = update_refusals(kind, "apps", old, lambda o: o["spec"].update(selector={"matchLabels": {"c": "d"}}))
    assert error == 'spec.selector: Invalid value: {"matchLabels":{"c":"d"}}: field is immutable'


def test_claims_of_a_stateful_set_can_be_mounted(created, refusals, update_refusals):
    mounted = {"containers": [{"name": "a", "image": "x", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    spec = {**WORKLOAD, "template": {**TEMPLATE, "spec": mounted}, "volumeClaimTemplates": [claim]}
    assert refusals("StatefulSet", "apps", spec=spec) == []
    old = created("StatefulSet", "apps", spec=spec)
    assert update_refusals("StatefulSet", "apps", old, lambda o: o["spec"].update(replicas=3)) == []
    (error,) = update_refusals("StatefulSet", "apps", old, lambda o: o["spec"].update(serviceName="other"))
    assert error.startswith(
        "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals',"
    )


def test_a_replication_controller_selects_what_it_makes(created, refusals):
    controller = created("ReplicationController", spec={"template": TEMPLATE})
    assert controller["spec"]["selector"] == controller["metadata"]["labels"] == {"a": "b"}
    assert refusals("ReplicationController", spec={}) == [
        "spec.selector: Required value",
        "spec.template: Required value",
    ]


def test_a_job_owns_its_pods(created, refusals, update_refusals):
    job = created("Job", "batch", spec={"template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}})
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert job["spec"]["template"]["metadata"]["labels"]["job-name"] == "x"
    assert (job["spec"]["completions"], job["spec"]["parallelism"], job["spec"]["backoffLimit"]) == (1, 1, 6)
    assert refusals("Job", "batch", spec={"template": {"spec": POD_SPEC}}) == [
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    ]
    (error,) = update_refusals("Job", "batch", job, lambda o: o["spec"].update(completions=5))
    assert error == "spec.completions: Invalid value: 5: field is immutable"


@pytest.mark.parametrize("schedule", ["* * * * *", "*/5 0-6 1,15 jan-mar mon", "@daily", "@every 1h30m", "0 0 ? * 0"])
def test_schedules_are_understood(schedule):
    assert schedule_problems(schedule) == []


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
        ("61 * * * *", "end of range (61) above maximum (59): 61"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("@never", "unrecognized descriptor: @never"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
    ],
)
def test_schedules_are_refused(schedule, problem):
    assert schedule_problems(schedule) == [problem]


def test_a_service_gets_a_stable_address(created, update_refusals):
    spec = {"ports": [{"port": 80}]}
    service = created("Service", spec=spec)
    assert service["spec"]["clusterIP"].startswith("10.")
    assert service["spec"]["clusterIPs"] == [service["spec"]["clusterIP"]]
    assert service["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert created("Service", spec=spec) == service
    assert created("Service", spec={**spec, "clusterIP": "None"})["spec"]["clusterIP"] == "None"
    assert "clusterIP" not in created("Service", spec={"type": "ExternalName", "externalName": "a.b"})["spec"]
    assert update_refusals("Service", "", service, lambda o: o["spec"].pop("clusterIP")) == []
    change = lambda o: o["spec"].update(clusterIP="10.0.0.7", clusterIPs=["10.0.0.7"])  # noqa: E731
    assert update_refusals("Service", "", service, change) == [
        'spec.clusterIPs[0]: Invalid value: ["10.0.0.7"]: may not change once set'
    ]


def test_node_ports_of_one_service_differ(created):
    ports = [{"name": f"p{n}", "port": n} for n in range(1, 60)]
    spec = created("Service", spec={"type": "NodePort", "ports": ports})["spec"]
    given = {port["nodePort"] for port in spec["ports"]}
    assert len(given) == 59
    assert all(30000 <= number <= 32767 for number in given)


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({}, ["spec.ports: Required value"]),
        ({"type": "ExternalName"}, ["spec.externalName: Required value"]),
        (
            {"ports": [{"port": 80}, {"port": 81}]},
            ["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"],
        ),
        (
            {"ports": [{"port": 0}], "sessionAffinity": "Odd"},
            [
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
                'spec.sessionAffinity: Unsupported value: "Odd": supported values: "ClientIP", "None"',
            ],
        ),
    ],
)
def test_services_are_judged(refusals, spec, errors):
    assert refusals("Service", spec=spec) == errors


def test_claims_and_volumes_are_judged(created, refusals, update_refusals):
    assert refusals("PersistentVolumeClaim", spec={}) == [
        "spec.accessModes: Required value: at least 1 access mode is required",
        "spec.resources[storage]: Required value",
    ]
    assert refusals("PersistentVolume", spec={}) == [
        "spec.accessModes: Required value",
        "spec.capacity: Required value",
        'spec.capacity: Unsupported value: {}: supported values: "storage"',
        "spec: Required value: must specify a volume type",
    ]
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
    claim = created("PersistentVolumeClaim", spec=spec)
    assert claim["spec"]["resources"]["requests"] == {"storage": "1Gi"}
    grow = lambda o: o["spec"]["resources"]["requests"].update(storage="2Gi")  # noqa: E731
    (error,) = update_refusals("PersistentVolumeClaim", "", claim, grow)
    assert error.startswith("spec: Forbidden: spec is immutable after creation except resources.requests")
    claim["status"]["phase"] = "Bound"
    assert update_refusals("PersistentVolumeClaim", "", claim, grow) == []


def test_ingresses_and_policies_are_judged(rules, created, refusals):
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    route = {"path": "x", "pathType": "Prefix", "backend": backend}
    assert refusals(
        "Ingress", "networking.k8s.io", spec={"rules": [{"host": "1.2.3.4", "http": {"paths": [route]}}]}
    ) == [
        'spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address',
        'spec.rules[0].http.paths[0].path: Invalid value: "x": must be an absolute path',
    ]
    assert refusals("NetworkPolicy", "networking.k8s.io", spec={"podSelector": {}, "egress": [{"to": [{}]}]}) == [
        "spec.egress[0].to[0]: Required value: must specify a peer"
    ]
    policy = created("NetworkPolicy", "networking.k8s.io", spec={"podSelector": {}, "egress": [{}]})
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_an_autoscaler_that_says_that_it_scales_in_some_way_says_in_which(created, refusals):
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3}
    down = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
    behavior = created("HorizontalPodAutoscaler", "autoscaling", spec={**spec, "behavior": {"scaleDown": down}})["spec"][
        "behavior"
    ]
    assert behavior["scaleDown"] == {**down, "selectPolicy": "Max"}
    assert [p["value"] for p in behavior["scaleUp"]["policies"]] == [4, 100]
    wrong = {"stabilizationWindowSeconds": 9999, "selectPolicy": "Least", "policies": [{"type": "Nodes", "value": 0}]}
    where = "spec.behavior.scaleUp"
    assert refusals("HorizontalPodAutoscaler", "autoscaling", spec={**spec, "behavior": {"scaleUp": wrong}}) == [
        f"{where}.stabilizationWindowSeconds: Invalid value: 9999: must be less than or equal to 3600",
        f'{where}.selectPolicy: Unsupported value: "Least": supported values: "Disabled", "Max", "Min"',
        f'{where}.policies[0].type: Unsupported value: "Nodes": supported values: "Percent", "Pods"',
        f"{where}.policies[0].value: Invalid value: 0: must be greater than zero",
        f"{where}.policies[0].periodSeconds: Invalid value: 0: must be greater than zero",
    ]


def test_a_metric_of_somebody_else_has_a_name_and_a_target(refusals):
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3}
    metrics = [{"type": "Pods", "pods": {"metric": {"name": ""}, "target": {"type": "Some", "value": "1"}}}]
    assert refusals("HorizontalPodAutoscaler", "autoscaling", spec={**spec, "metrics": metrics}) == [
        "spec.metrics[0].pods.metric.name: Required value: must specify a metric name",
        'spec.metrics[0].pods.target.type: Invalid value: "Some": must be either Utilization, Value, or AverageValue',
        "spec.metrics[0].pods.target.averageValue: Required value: must specify a positive target averageValue",
    ]


def test_a_volume_of_one_node_says_of_which(refusals):
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/x"}}
    assert refusals("PersistentVolume", spec=spec) == [
        "metadata.annotations: Required value: Local volume requires node affinity"
    ]
    nowhere = {"required": {"nodeSelectorTerms": []}}
    assert refusals("PersistentVolume", spec={**spec, "nodeAffinity": nowhere}) == [
        "spec.nodeAffinity.required.nodeSelectorTerms: Required value: must have at least one node selector term"
    ]
