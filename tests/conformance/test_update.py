"""PUT: conflicts, what an update may not touch, when generation and resourceVersion move, scale."""

from __future__ import annotations

from copy import deepcopy

import pytest

from .conftest import JSON_PATCH, STRATEGIC_PATCH, Api, Kind, eventually, mistake, needs, needs_builtin_rules
from .objects import Object, at, config_map, deployment, lease, make, managers, pod, refusal, service, version

MOVED = "the object has been modified; please apply your changes to the latest version and try again"
OTHER_UID = "11111111-1111-1111-1111-111111111111"


def changed(obj: Object, **metadata: object) -> Object:
    new = deepcopy(obj)
    new["metadata"].update(metadata)
    return new


# Conflicts


def test_a_stale_version_is_a_conflict(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a", spec={"replicas": 1})
    path = widget.path(namespace, "a")
    api.put(path, {**old, "spec": {"replicas": 2}}).expect(200)
    answer = api.put(path, {**old, "spec": {"replicas": 3}})
    assert refusal(answer) == (409, "Conflict")
    assert answer.body["message"] == f'Operation cannot be fulfilled on {widget.qualified} "a": {MOVED}'
    assert answer.body["details"] == {"name": "a", "group": widget.group, "kind": "widgets"}


def test_a_version_that_does_not_exist_yet_is_a_conflict(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a")
    assert refusal(api.put(widget.path(namespace, "a"), changed(old, resourceVersion="999999999"))) == (409, "Conflict")


@pytest.mark.parametrize("given", ["abc", "-1"])
def test_a_version_must_be_a_number(api: Api, widget: Kind, namespace: str, given: str) -> None:
    old = make(api, widget, namespace, "a")
    mistake(api.put(widget.path(namespace, "a"), changed(old, resourceVersion=given)), 422)


@pytest.mark.parametrize("given", ["", "0"])
def test_custom_kinds_must_say_which_version_they_update(
    api: Api, widget: Kind, namespace: str, given: str
) -> None:
    old = make(api, widget, namespace, "a")
    for path in (widget.path(namespace, "a"), widget.path(namespace, "a", "status")):
        answer = api.put(path, changed(old, resourceVersion=given))
        assert refusal(answer) == (422, "Invalid")
        assert answer.causes == [("FieldValueInvalid", "metadata.resourceVersion")]
        assert answer.body["details"]["kind"] == "widgets"
        assert answer.body["message"].endswith("must be specified for an update")


def test_most_built_in_kinds_need_not(api: Api, namespace: str) -> None:
    path = at(namespace, "configmaps")
    api.post(path, config_map("a", data={"k": "v"})).expect(201)
    assert api.put(f"{path}/a", config_map("a", data={"k": "w"})).expect(200)["data"] == {"k": "w"}
    assert api.put(f"{path}/a", config_map("a", metadata={"resourceVersion": "0"})).status == 200


def test_leases_must(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    path = at(namespace, "leases", group="coordination.k8s.io")
    api.post(path, lease()).expect(201)
    answer = api.put(f"{path}/lock", lease(holderIdentity="me"))
    assert answer.causes == [("FieldValueInvalid", "metadata.resourceVersion")]
    assert answer.body["details"]["kind"] == "leases"


def test_an_update_meant_for_another_object_of_the_name_is_a_conflict(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a")
    api.post(at(namespace, "configmaps"), config_map("a")).expect(201)
    for path, body in (
        (widget.path(namespace, "a"), changed(old, uid=OTHER_UID)),
        (at(namespace, "configmaps", "a"), config_map("a", metadata={"uid": OTHER_UID})),
    ):
        answer = api.put(path, body)
        assert refusal(answer) == (409, "Conflict")
        assert f"Precondition failed: UID in precondition: {OTHER_UID}, UID in object meta: " in answer.body["message"]


# What is not there


def test_an_update_creates_nothing_by_default(api: Api, widget: Kind, namespace: str) -> None:
    answer = api.put(widget.path(namespace, "none"), widget.new("none"))
    assert refusal(answer) == (404, "NotFound")
    assert answer.body["message"] == f'{widget.qualified} "none" not found'
    api.put(widget.path(namespace, "none"), widget.new("none", metadata={"resourceVersion": "5"})).expect(404)
    api.put(widget.path(namespace, "none", "status"), widget.new("none")).expect(404)
    api.put(at(namespace, "configmaps", "none"), config_map("none")).expect(404)
    api.put(at(namespace, "deployments", "web", group="apps"), deployment()).expect(404)


def test_some_kinds_are_created_by_an_update(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    rbac = "rbac.authorization.k8s.io"
    ref = {"apiGroup": rbac, "kind": "Role", "name": "x"}
    for path, body in (
        (at(namespace, "leases", "lock", group="coordination.k8s.io"), lease()),
        (at(namespace, "endpoints", "a"), {"kind": "Endpoints", "metadata": {"name": "a"}}),
        (at(namespace, "limitranges", "a"), {"kind": "LimitRange", "metadata": {"name": "a"}}),
        (at(namespace, "roles", "a", group=rbac), {"kind": "Role", "metadata": {"name": "a"}}),
        (
            at(namespace, "rolebindings", "a", group=rbac),
            {"kind": "RoleBinding", "metadata": {"name": "a"}, "roleRef": ref},
        ),
    ):
        gone = {**body, "metadata": {**body["metadata"], "uid": OTHER_UID}}
        answer = api.put(path, gone)
        assert refusal(answer) == (409, "Conflict")
        assert answer.body["message"].endswith(f"UID in precondition: {OTHER_UID}, UID in object meta: ")
        assert api.put(path, body).expect(201)["metadata"]["uid"]


def test_an_object_without_subresources_has_no_status_path(api: Api, gadget: Kind, namespace: str) -> None:
    make(api, gadget, namespace, "a")
    for path in (gadget.path(namespace, "a", "status"), gadget.path(namespace, "a", "scale")):
        answer = api.get(path)
        assert refusal(answer) == (404, "NotFound")
        assert answer.body["message"] == f'{gadget.qualified} "a" not found'


# What an update may not touch


def test_name_and_namespace_stay(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a")
    path = widget.path(namespace, "a")
    answer = api.put(path, changed(old, name="b"))
    assert refusal(answer) == (400, "BadRequest")
    assert answer.body["message"] == "the name of the object (b) does not match the name on the URL (a)"
    assert refusal(api.put(path, changed(old, namespace="other"))) == (400, "BadRequest")


def test_an_update_must_say_the_name(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a")
    del old["metadata"]["name"]
    api.post(at(namespace, "configmaps"), config_map("a")).expect(201)
    for path, body in (
        (widget.path(namespace, "a"), old),
        (at(namespace, "configmaps", "a"), {"data": {}}),
    ):
        answer = api.put(path, body)
        assert refusal(answer) == (400, "BadRequest")
        why = "was undeterminable: name must be provided"
        assert answer.body["message"] == f"the name of the object (a based on URL) {why}"


def test_what_the_server_gave_is_put_back(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a", spec={"replicas": 1})
    body = changed(old, generation=77, creationTimestamp="2001-01-01T00:00:00Z", selfLink="/x", labels={"l": "1"})
    for field in ("uid", "managedFields"):
        body["metadata"].pop(field)
    new = api.put(widget.path(namespace, "a"), body).expect(200)
    for field in ("uid", "creationTimestamp", "generation"):
        assert new["metadata"][field] == old["metadata"][field]
    assert new["metadata"]["managedFields"][0] == old["metadata"]["managedFields"][0]


def test_deletion_is_not_asked_for_by_an_update(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a")
    answer = api.put(widget.path(namespace, "a"), changed(old, deletionTimestamp="2001-01-01T00:00:00Z"))
    assert refusal(answer) == (422, "Invalid")
    assert set(answer.causes) == {("FieldValueInvalid", "metadata.deletionTimestamp")}
    assert answer.body["message"].endswith("field is immutable")


def test_kind_and_version_must_be_right(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a")
    path = widget.path(namespace, "a")
    assert refusal(api.put(path, {**old, "kind": "Other"})) == (422, "Invalid")
    assert refusal(api.put(path, {**old, "apiVersion": "v1"})) == (400, "BadRequest")


def test_an_immutable_config_map_stays_as_it_is(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    path = at(namespace, "configmaps")
    api.post(path, config_map("a", immutable=True, data={"k": "v"})).expect(201)
    answer = api.put(f"{path}/a", config_map("a", immutable=True, data={"k": "w"}))
    assert answer.causes == [("FieldValueForbidden", "data")]
    assert api.put(f"{path}/a", config_map("a", data={"k": "v"})).causes == [("FieldValueForbidden", "immutable")]
    api.put(f"{path}/a", config_map("a", immutable=True, data={"k": "v"}, metadata={"labels": {"x": "y"}})).expect(200)


def test_a_deployment_keeps_its_selector(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    path = at(namespace, "deployments", group="apps")
    api.post(path, deployment()).expect(201)
    answer = api.put(f"{path}/web", deployment(selector={"matchLabels": {"x": "y"}}))
    assert set(answer.causes) == {
        ("FieldValueInvalid", "spec.template.metadata.labels"),
        ("FieldValueInvalid", "spec.selector"),
    }


def test_a_pod_keeps_its_containers_but_not_their_images(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    path = at(namespace, "pods")
    # Real controllers first make the account that the pod runs as.
    made = eventually(lambda: (a := api.post(path, pod())).status == 201 and a.body, "the pod to be admitted")
    made["spec"]["containers"][0]["image"] = "example/app:2"
    made = api.put(f"{path}/one", made).expect(200)
    assert made["spec"]["containers"][0]["image"] == "example/app:2"
    made["spec"]["containers"][0]["name"] = "other"
    answer = api.put(f"{path}/one", made)
    assert answer.causes == [("FieldValueForbidden", "spec")]
    assert "pod updates may not change fields other than `spec.containers[*].image`" in answer.body["message"]


def test_a_service_keeps_its_address(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    path = at(namespace, "services")
    made = api.post(path, service()).expect(201)
    address = made["spec"]["clusterIP"]
    made["spec"]["clusterIP"] = made["spec"]["clusterIPs"][0] = "10.0.200.200"
    assert refusal(api.put(f"{path}/front", made)) == (422, "Invalid")
    assert api.get(f"{path}/front").body["spec"]["clusterIP"] == address


def test_a_service_that_changes_its_type_gives_back_what_it_no_longer_needs(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    path = at(namespace, "services", "front")
    made = api.post(at(namespace, "services"), {**service(), "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}).expect(201)
    api.patch(f"{path}/status", {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}).expect(200)
    address = made["spec"]["clusterIP"]
    inner = api.patch(path, {"spec": {"type": "ClusterIP"}}).expect(200)
    assert inner["spec"]["clusterIP"] == address
    assert not {"externalTrafficPolicy", "allocateLoadBalancerNodePorts"} & inner["spec"].keys()
    assert "nodePort" not in inner["spec"]["ports"][0]
    assert inner["status"] == {"loadBalancer": {}}
    outer = api.patch(path, {"spec": {"type": "NodePort"}}).expect(200)
    assert outer["spec"]["ports"][0]["nodePort"]
    asked = {**outer, "spec": {**outer["spec"], "type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30999}]}}
    assert ("FieldValueForbidden", "spec.ports[0].nodePort") in api.put(path, asked).causes
    named = api.patch(path, {"spec": {"type": "ExternalName", "externalName": "example.com"}}).expect(200)
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "externalTrafficPolicy"} & named["spec"].keys()
    assert "nodePort" not in named["spec"]["ports"][0]
    again = api.patch(path, {"spec": {"type": "ClusterIP", "externalName": None}}).expect(200)
    assert again["spec"]["clusterIP"]


# Spec and status


def test_the_main_path_leaves_status_alone(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a")
    path = widget.path(namespace, "a")
    assert "status" not in api.put(path, {**old, "status": {"phase": "x"}}).expect(200)
    old = api.put(f"{path}/status", {**api.get(path).body, "status": {"phase": "Ready"}}).expect(200)
    del old["status"]
    assert api.put(path, {**old, "spec": {"replicas": 2}}).expect(200)["status"] == {"phase": "Ready"}


def test_the_status_path_leaves_everything_else_alone(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a", spec={"replicas": 1})
    body = changed(old, labels={"x": "y"}, annotations={"x": "y"}, finalizers=["example.com/a"])
    body |= {"spec": {"replicas": 9}, "status": {"phase": "Ready"}}
    new = api.put(widget.path(namespace, "a", "status"), body, fieldManager="reporter").expect(200)
    assert new["spec"] == {"replicas": 1}
    assert new["status"] == {"phase": "Ready"}
    assert new["metadata"]["generation"] == 1
    assert not {"labels", "annotations", "finalizers"} & new["metadata"].keys()
    assert api.get(widget.path(namespace, "a", "status")).body == new


def test_a_write_of_status_is_managed_apart(api: Api, widget: Kind, namespace: str) -> None:
    needs(api, 22)
    old = make(api, widget, namespace, "a", spec={"replicas": 1})
    path = widget.path(namespace, "a", "status")
    new = api.put(path, {**old, "status": {"phase": "Ready"}}, fieldManager="maker").expect(200)
    assert managers(new) == [
        ("maker", "Update", "", {"f:spec": {".": {}, "f:replicas": {}}}),
        ("maker", "Update", "status", {"f:status": {".": {}, "f:phase": {}}}),
    ]


def test_status_can_be_taken_away(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a")
    path = widget.path(namespace, "a", "status")
    new = api.put(path, {**old, "status": {"phase": "x"}}).expect(200)
    del new["status"]
    assert "status" not in api.put(path, new).expect(200)


def test_a_deployments_status_is_its_own(api: Api, namespace: str) -> None:
    path = at(namespace, "deployments", group="apps")
    body = api.post(path, deployment()).expect(201)
    assert "replicas" not in api.put(f"{path}/web", {**deployment(), "status": {"replicas": 9}}).expect(200)["status"]
    body = api.get(f"{path}/web").body
    body["spec"]["replicas"] = 8
    del body["metadata"]["resourceVersion"]
    new = api.put(f"{path}/web/status", {**body, "status": {"replicas": 2}}).expect(200)
    assert new["spec"]["replicas"] == 2
    assert new["status"] == {"replicas": 2}
    assert new["metadata"]["generation"] == body["metadata"]["generation"]


def test_built_in_kinds_take_metadata_through_the_status_path_too(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    backend = {"service": {"name": "a", "port": {"number": 80}}}
    status: Object = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    path = at(namespace, "ingresses", group="networking.k8s.io")
    old = api.post(path, {"metadata": {"name": "a"}, "spec": {"defaultBackend": backend}}, fieldManager="maker").expect(201)
    metadata = {"annotations": {"a": "b"}, "labels": {"a": "b"}, "finalizers": ["example.com/a"]}
    patch = {"metadata": metadata, "spec": {"ingressClassName": "c"}, "status": status}
    new = api.patch(f"{path}/a/status", patch, fieldManager="reporter").expect(200)
    assert {key: new["metadata"][key] for key in metadata} == metadata
    assert (new["spec"], new["status"]) == (old["spec"], status)
    assert new["metadata"]["generation"] == 1
    [mine] = [fields for manager, _, sub, fields in managers(new) if (manager, sub) == ("reporter", "status")]
    assert set(mine) == {"f:metadata", "f:status"}
    assert set(mine["f:metadata"]) == {"f:annotations", "f:finalizers", "f:labels"}
    gone = {**new, "metadata": {"name": "a"}}
    assert not metadata.keys() & api.put(f"{path}/a/status", gone).expect(200)["metadata"].keys()


def test_some_metadata_is_not_for_those_who_report(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    path = at(namespace, "deployments", "web", group="apps")
    api.post(at(namespace, "deployments", group="apps"), deployment()).expect(201)
    patch = {"metadata": {"annotations": {"a": "b"}, "labels": {"a": "b"}}, "status": {"replicas": 1}}
    new = api.patch(f"{path}/status", patch, fieldManager="reporter").expect(200)
    assert new["metadata"]["annotations"] == {"a": "b"}
    assert "labels" not in new["metadata"]
    assert new["metadata"]["generation"] == 1
    [mine] = [fields for manager, _, _, fields in managers(new) if manager == "reporter"]
    assert set(mine["f:metadata"]) == {"f:annotations"}
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", **patch}
    applied["metadata"] = {"name": "web", "annotations": {"c": "d"}, "labels": {"a": "b"}}
    new = api.apply(f"{path}/status", applied, "applier").expect(200)
    assert new["metadata"]["annotations"] == {"a": "b", "c": "d"}
    assert "labels" not in new["metadata"]


# Generation and resourceVersion


def test_generation_counts_changes_of_intent_only(api: Api, widget: Kind, namespace: str) -> None:
    obj = make(api, widget, namespace, "a", spec={"replicas": 1})
    path = widget.path(namespace, "a")
    obj = api.put(path, changed(obj, labels={"x": "y"})).expect(200)
    assert obj["metadata"]["generation"] == 1
    obj = api.put(f"{path}/status", {**obj, "status": {"phase": "x"}}).expect(200)
    assert obj["metadata"]["generation"] == 1
    obj = api.put(path, {**obj, "spec": {"replicas": 2}}).expect(200)
    assert obj["metadata"]["generation"] == 2


def test_generation_counts_status_where_it_is_no_subresource(api: Api, gadget: Kind, namespace: str) -> None:
    obj = make(api, gadget, namespace, "a")
    obj = api.put(gadget.path(namespace, "a"), {**obj, "status": {"phase": "x"}}).expect(200)
    assert obj["metadata"]["generation"] == 2
    obj = api.put(gadget.path(namespace, "a"), changed(obj, labels={"x": "y"})).expect(200)
    assert obj["metadata"]["generation"] == 2


def test_generation_of_a_deployment_counts_its_spec_and_annotations(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    path = at(namespace, "replicasets", group="apps")
    body = {**deployment(), "kind": "ReplicaSet"}
    generations = [api.post(path, body).expect(201)["metadata"]["generation"]]
    for patch in ({"metadata": {"labels": {"x": "y"}}}, {"metadata": {"annotations": {"x": "y"}}}, {"spec": {"replicas": 0}}):
        generations.append(api.patch(f"{path}/web", patch).expect(200)["metadata"]["generation"])
    assert generations == [1, 1, 1, 2]
    path = at(namespace, "deployments", group="apps")
    before = api.post(path, deployment("other")).expect(201)["metadata"]["generation"]
    after = api.patch(f"{path}/other", {"metadata": {"annotations": {"x": "y"}}}).expect(200)["metadata"]["generation"]
    assert after > before


def test_an_update_that_changes_nothing_keeps_the_version(api: Api, widget: Kind, namespace: str) -> None:
    obj = make(api, widget, namespace, "a", spec={"replicas": 1, "text": "x", "map": {"a": "1", "b": "2"}})
    path = widget.path(namespace, "a")
    assert api.put(path, obj).expect(200) == obj
    assert version(api.put(f"{path}/status", obj).expect(200)) == version(obj)
    backwards = {k: obj[k] for k in reversed(obj)} | {"spec": {"map": {"b": "2", "a": "1"}, "text": "x", "replicas": 1}}
    assert version(api.put(path, backwards).expect(200)) == version(obj)
    made = api.post(at(namespace, "configmaps"), config_map("a", data={"k": "v"})).expect(201)
    again = api.put(at(namespace, "configmaps", "a"), config_map("a", data={"k": "v"})).expect(200)
    assert version(again) == version(made)


def test_an_update_takes_over_what_it_changed(api: Api, widget: Kind, namespace: str) -> None:
    obj = make(api, widget, namespace, "a", spec={"replicas": 1, "text": "x"})
    new = api.put(widget.path(namespace, "a"), {**obj, "spec": {"replicas": 2, "text": "x"}}, fieldManager="two").expect(200)
    assert managers(new) == [
        ("maker", "Update", "", {"f:spec": {".": {}, "f:text": {}}}),
        ("two", "Update", "", {"f:spec": {"f:replicas": {}}}),
    ]


def test_a_dry_run_of_an_update_stores_nothing(api: Api, widget: Kind, namespace: str) -> None:
    obj = make(api, widget, namespace, "a", spec={"replicas": 1})
    shown = api.put(widget.path(namespace, "a"), {**obj, "spec": {"replicas": 2}}, dryRun="All").expect(200)
    assert shown["spec"] == {"replicas": 2}
    assert shown["metadata"]["generation"] == 2
    assert api.get(widget.path(namespace, "a")).body == obj


# Scale


def test_scale_shows_counts_and_selector(api: Api, widget: Kind, namespace: str) -> None:
    obj = make(api, widget, namespace, "a", spec={"replicas": 3})
    body = {**obj, "status": {"replicas": 2, "selector": "app=a"}}
    obj = api.put(widget.path(namespace, "a", "status"), body).expect(200)
    scale = api.get(widget.path(namespace, "a", "scale")).expect(200)
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 2, "selector": "app=a"}
    keys = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    assert scale["metadata"] == {key: obj["metadata"][key] for key in keys}


def test_scale_changes_the_count_and_nothing_else(api: Api, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a", spec={"replicas": 3, "text": "x"})
    path = widget.path(namespace, "a", "scale")
    scale = api.get(path).body
    stale = deepcopy(scale)
    scale["spec"]["replicas"] = 5
    scale["status"]["replicas"] = 77
    assert api.put(path, scale, fieldManager="scaler").expect(200)["spec"] == {"replicas": 5}
    obj = api.get(widget.path(namespace, "a")).body
    assert obj["spec"] == {"replicas": 5, "text": "x"}
    assert "status" not in obj
    assert obj["metadata"]["generation"] == 2
    answer = api.put(path, stale)
    assert refusal(answer) == (409, "Conflict")
    assert answer.body["message"].endswith(MOVED)


def test_whoever_scales_manages_the_count(api: Api, widget: Kind, namespace: str) -> None:
    needs(api, 22)
    make(api, widget, namespace, "a", spec={"replicas": 3, "text": "x"})
    api.patch(widget.path(namespace, "a", "scale"), {"spec": {"replicas": 4}}, fieldManager="scaler").expect(200)
    found = {manager: (sub, fields) for manager, _, sub, fields in managers(api.get(widget.path(namespace, "a")).body)}
    assert found == {
        "maker": ("", {"f:spec": {".": {}, "f:text": {}}}),
        "scaler": ("scale", {"f:spec": {"f:replicas": {}}}),
    }


def test_scale_takes_patches(api: Api, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a", spec={"replicas": 3})
    path = widget.path(namespace, "a", "scale")
    assert api.patch(path, {"spec": {"replicas": 6}}).expect(200)["spec"] == {"replicas": 6}
    step = {"op": "replace", "path": "/spec/replicas", "value": 7}
    assert api.patch(path, [step], JSON_PATCH).expect(200)["spec"] == {"replicas": 7}
    assert refusal(api.patch(path, {"spec": {"replicas": 8}}, STRATEGIC_PATCH)) == (415, "UnsupportedMediaType")
    assert refusal(api.patch(path, {"metadata": {"resourceVersion": "1"}})) == (409, "Conflict")


def test_a_scale_of_zero_shows_no_count(api: Api, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a", spec={"replicas": 3})
    path = widget.path(namespace, "a", "scale")
    assert api.patch(path, {"spec": {"replicas": 0}}).expect(200)["spec"] == {}
    assert api.get(widget.path(namespace, "a")).body["spec"] == {"replicas": 0}


def test_less_than_nothing_is_refused(api: Api, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a", spec={"replicas": 3})
    answer = api.patch(widget.path(namespace, "a", "scale"), {"spec": {"replicas": -1}})
    assert refusal(answer) == (422, "Invalid")
    assert answer.causes == [("FieldValueInvalid", ".spec.replicas")]
    assert answer.body["details"]["kind"] == "Widget"


def test_a_scale_must_be_the_right_one(api: Api, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a", spec={"replicas": 3})
    path = widget.path(namespace, "a", "scale")
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 1}}
    assert refusal(api.put(path, {**scale, "metadata": {"name": "b"}})) == (400, "BadRequest")
    assert refusal(api.put(path, scale)) == (400, "BadRequest")
    assert refusal(api.put(path, {**scale, "metadata": {"name": "a", "uid": OTHER_UID}})) == (409, "Conflict")
    api.get(widget.path(namespace, "none", "scale")).expect(404)
    api.put(widget.path(namespace, "none", "scale"), {**scale, "metadata": {"name": "none"}}).expect(404)


def test_a_deployment_can_be_scaled(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    api.post(at(namespace, "deployments", group="apps"), deployment()).expect(201)
    path = at(namespace, "deployments", "web", "scale", group="apps")
    scale = api.get(path).expect(200)
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "app=web"}
    assert api.patch(path, {"spec": {"replicas": 6}}, STRATEGIC_PATCH).expect(200)["spec"] == {"replicas": 6}
    answer = api.patch(path, {"spec": {"replicas": -3}})
    assert answer.causes == [("FieldValueInvalid", "spec.replicas")]
    assert answer.body["details"]["kind"] == "Scale"
    assert refusal(api.put(path, changed(scale, resourceVersion="1"))) == (409, "Conflict")


def test_a_scale_is_read_as_strictly_as_an_object(api: Api, widget: Kind, namespace: str, modern: None) -> None:
    make(api, widget, namespace, "a", spec={"replicas": 3})
    path = widget.path(namespace, "a", "scale")
    scale = api.get(path).expect(200)
    assert refusal(api.put(path, {**scale, "metadata": {"name": "a", "namespace": "other"}})) == (400, "BadRequest")
    assert refusal(api.put(path, {**scale, "apiVersion": "v1"})) == (400, "BadRequest")
    strange = {**scale, "spec": {"replicas": 4, "foo": 1}}
    assert refusal(api.put(path, strange, fieldValidation="Strict")) == (400, "BadRequest")
    answer = api.put(path, strange)
    assert answer.expect(200)["spec"] == {"replicas": 4}
    assert answer.warnings == ['unknown field "spec.foo"']
    answer = api.patch(path, {"spec": {"replicas": "x"}})
    assert refusal(answer) == (422, "Invalid")
    assert answer.causes == [("FieldValueInvalid", "patch")]
