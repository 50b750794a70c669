"""Kinds that act on the host: who may write them in every other way still needs the verb `operate`."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.conftest import JSON_PATCH, Answer, Api, Credentials, eventually

from homeostat.model.kinds import crd_for
from homeostat.model.protocol import HOST
from homeostat.providers.exec import Exec
from homeostat.providers.file import File
from homeostat.providers.http import HttpResource
from homeostat.providers.kubernetes import KubernetesObject
from homeostat.providers.process import Process

Object = dict[str, Any]
Account = Callable[..., Api]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = Process.info.group
EDIT = ("create", "update", "patch", "delete", "deletecollection", "get", "list", "watch")


@pytest.fixture(scope="module", autouse=True)
def kinds(api: Api) -> None:
    for kind in (Process, KubernetesObject):
        crd = crd_for(kind.info)
        api.apply(f"{DEFINITIONS}/{crd['metadata']['name']}", crd)


@pytest.fixture
def account(api: Api, credentials: Credentials, namespace: str) -> Iterator[Account]:
    """A ServiceAccount with a real token and these verbs on processes, their scale and status."""
    clients: list[Api] = []

    def make(name: str, *verbs: str, names: tuple[str, ...] = ()) -> Api:
        core = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        api.post(core, {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": name}}).expect(201)
        rules: list[Object] = [
            {
                "apiGroups": [GROUP, KubernetesObject.info.group],
                "resources": ["processes", "processes/scale", "processes/status", "kubernetesobjects"],
                "verbs": [verb for verb in verbs if verb != "operate"],
            }
        ]
        if "operate" in verbs:
            only = {"resourceNames": list(names)} if names else {}
            rules.append({"apiGroups": [GROUP], "resources": ["processes"], "verbs": ["operate"], **only})
        role = {"kind": "Role", "metadata": {"name": name}, "rules": rules}
        api.post(f"{RBAC}/namespaces/{namespace}/roles", role).expect(201)
        bound = {
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        api.post(f"{RBAC}/namespaces/{namespace}/rolebindings", bound).expect(201)
        asked = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}}
        token = api.post(f"{core}/{name}/token", asked).expect(201)["status"]["token"]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        clients.append(Api(Credentials(credentials.server, context, {"Authorization": f"Bearer {token}"})))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def editor(account: Account) -> Api:
    """May do everything but operate."""
    return account("editor", *EDIT)


@pytest.fixture
def path(namespace: str) -> str:
    return f"/apis/{GROUP}/v1/namespaces/{namespace}/processes"


@pytest.fixture
def web(api: Api, path: str) -> str:
    """The path of a Process that is there."""
    api.post(path, process("web")).expect(201)
    return f"{path}/web"


def process(name: str, **metadata: Any) -> Object:
    spec = {"command": ["/bin/sleep", "60"], "replicas": 1}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Process", "metadata": {"name": name, **metadata}, "spec": spec}


def refused(answer: Answer) -> None:
    assert answer.status == 403, (answer.status, answer.body)
    assert 'cannot operate resource "processes"' in answer.body["message"]


def test_what_must_be_allowed_on_the_command_line_is_marked_and_nothing_else() -> None:
    marked = {kind for kind in (File, Process, Exec, HttpResource, KubernetesObject) if kind.info.host}
    assert marked == {File, Process, Exec, HttpResource}
    assert crd_for(File.info)["metadata"]["annotations"] == {HOST: "true"}
    assert "annotations" not in crd_for(KubernetesObject.info)["metadata"]


def test_the_refusal_says_which_verb_is_missing_and_where(editor: Api, path: str, namespace: str) -> None:
    answer = editor.post(path, process("web"))
    assert answer.status == 403
    assert answer.body["reason"] == "Forbidden"
    assert answer.body["message"] == (
        f'processes.{GROUP} "web" is forbidden: User "system:serviceaccount:{namespace}:editor" cannot operate resource '
        f'"processes" in API group "{GROUP}" in the namespace "{namespace}": it acts on the host, so a role must allow '
        f'"operate" beside "create" on resource "processes" in API group "{GROUP}"'
    )


@pytest.mark.parametrize("query", [{}, {"dryRun": "All"}], ids=["for real", "dry run"])
def test_to_create_one_needs_the_verb(editor: Api, api: Api, path: str, query: dict[str, Any]) -> None:
    refused(editor.post(path, process("web"), **query))
    refused(editor.apply(f"{path}/web", process("web"), **query))
    refused(editor.post(path, {**process(""), "metadata": {"generateName": "web-"}}, **query))
    assert api.get(path).expect(200)["items"] == []


@pytest.mark.parametrize("query", [{}, {"dryRun": "All"}], ids=["for real", "dry run"])
def test_to_change_what_it_runs_needs_the_verb(editor: Api, api: Api, web: str, query: dict[str, Any]) -> None:
    before = api.get(web).expect(200)
    other = {**before, "spec": {**before["spec"], "command": ["/bin/sh"]}}
    refused(editor.put(web, other, **query))
    refused(editor.patch(web, {"spec": {"command": ["/bin/sh"]}}, **query))
    step = {"op": "replace", "path": "/spec/command/0", "value": "/bin/sh"}
    refused(editor.patch(web, [step], JSON_PATCH, **query))
    applied = {**process("web"), "spec": {"command": ["/bin/sh"]}}
    refused(editor.apply(web, applied, force="true", **query))
    refused(editor.patch(f"{web}/scale", {"spec": {"replicas": 9}}, **query))
    scale = api.get(f"{web}/scale").expect(200)
    refused(editor.put(f"{web}/scale", {**scale, "spec": {"replicas": 9}}, **query))
    assert api.get(web).expect(200) == before


@pytest.mark.parametrize("query", [{}, {"dryRun": "All"}], ids=["for real", "dry run"])
def test_to_delete_one_needs_the_verb(editor: Api, api: Api, web: str, path: str, query: dict[str, Any]) -> None:
    refused(editor.delete(web, **query))
    refused(editor.delete(path, **query))
    assert "deletionTimestamp" not in api.get(web).expect(200)["metadata"]


def test_nor_does_an_annotation_or_another_owner_get_around_it(editor: Api, web: str, namespace: str) -> None:
    refused(editor.patch(web, {"metadata": {"annotations": {"homeostat.dev/adopt": "true"}}}))
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-4000-8000-000000000000"}
    refused(editor.patch(web, {"metadata": {"ownerReferences": [gone]}}))  # it would be collected at once


def test_labels_finalizers_and_the_status_do_not_need_it(editor: Api, api: Api, web: str) -> None:
    said = {"labels": {"team": "a"}, "annotations": {"note": "b"}, "finalizers": ["example.com/wait"]}
    assert editor.patch(web, {"metadata": said}).expect(200)["metadata"]["labels"] == {"team": "a"}
    editor.patch(f"{web}/status", {"status": {"replicas": 1}}).expect(200)
    assert editor.put(web, api.get(web).expect(200)).status == 200  # says nothing new
    assert editor.patch(f"{web}/scale", {"spec": {"replicas": 1}}).status == 200
    editor.patch(web, {"metadata": {"finalizers": None}}).expect(200)


def test_with_the_verb_all_of_it_goes(account: Account, path: str) -> None:
    operator = account("operator", *EDIT, "operate")
    operator.post(path, process("web")).expect(201)
    operator.apply(f"{path}/api", process("api")).expect(201)
    operator.patch(f"{path}/web", {"spec": {"command": ["/bin/true"]}}).expect(200)
    operator.patch(f"{path}/web/scale", {"spec": {"replicas": 2}}).expect(200)
    operator.delete(f"{path}/web").expect(200)
    operator.delete(path).expect(200)


def test_the_verb_alone_opens_nothing(account: Account, path: str, web: str) -> None:
    only = account("only", "get", "operate")
    assert 'cannot create resource "processes"' in only.post(path, process("api")).body["message"]
    assert 'cannot delete resource "processes"' in only.delete(web).body["message"]


def test_it_can_be_given_for_one_name(account: Account, path: str) -> None:
    narrow = account("narrow", *EDIT, "operate", names=("web",))
    narrow.post(path, process("web")).expect(201)
    refused(narrow.post(path, process("api")))


def test_kubectl_auth_can_i_knows_it(account: Account, editor: Api, namespace: str) -> None:
    operator = account("operator", "get", "operate")
    asked = {"namespace": namespace, "verb": "operate", "group": GROUP, "resource": "processes"}
    review = {"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
    where = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    allowed = [who.post(where, review).expect(201)["status"]["allowed"] for who in (operator, editor)]
    assert allowed == [True, False]


def test_no_role_that_gathers_others_has_it_by_itself(api: Api) -> None:
    for name in ("admin", "edit", "view"):
        rules = api.get(f"{RBAC}/clusterroles/{name}").expect(200)["rules"]
        assert not any({"operate", "*"} & set(rule["verbs"]) for rule in rules)


def test_other_kinds_ask_for_nothing_more(editor: Api, namespace: str) -> None:
    info = KubernetesObject.info
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    obj = {"apiVersion": info.api_version, "kind": info.kind, "metadata": {"name": "a"}, "spec": {"object": manifest}}
    editor.post(f"/apis/{info.api_version}/namespaces/{namespace}/kubernetesobjects", obj).expect(201)


def test_a_kind_that_gets_the_mark_later_asks_from_then_on(api: Api, editor: Api, path: str) -> None:
    definition = f"{DEFINITIONS}/{Process.info.name}"
    api.patch(definition, {"metadata": {"annotations": {HOST: None}}}).expect(200)
    editor.post(path, process("before")).expect(201)
    api.patch(definition, {"metadata": {"annotations": {HOST: "true"}}}).expect(200)
    refused(editor.post(path, process("after")))


def test_a_namespace_that_goes_takes_them_along(api: Api) -> None:
    made = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "doomed"}}
    api.post("/api/v1/namespaces", made).expect(201)
    api.post(f"/apis/{GROUP}/v1/namespaces/doomed/processes", process("web")).expect(201)
    api.delete("/api/v1/namespaces/doomed")
    eventually(lambda: api.get("/api/v1/namespaces/doomed").status == 404, "the namespace is gone")


def test_what_its_owner_leaves_behind_is_collected(api: Api, path: str, namespace: str) -> None:
    owners = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = api.post(owners, {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "owner"}}).expect(201)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    api.post(path, process("web", ownerReferences=[reference])).expect(201)
    api.delete(f"{owners}/owner").expect(200)
    eventually(lambda: api.get(f"{path}/web").status == 404, "the process is gone")
