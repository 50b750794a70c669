"""Who may do what, tried by people who should not: nothing is open by itself, and no detour leads past a rule.

As upstream by default, an owner reference needs no right to delete the owner (its OwnerReferencesPermissionEnforcement
is off there as well): whoever may update an object may make its life depend on another one's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import ssl
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.conformance.conftest import Answer, Api, Credentials, define, eventually, undefine

from homeostat.api.auth import pki

RBAC = "/apis/rbac.authorization.k8s.io/v1"
TOKENS = "/apis/homeostat.dev/v1/usertokens"
Object = dict[str, Any]
Become = Callable[..., Api]


def bare_tls() -> ssl.SSLContext:
    """Shows no certificate, and trusts anybody: the server is not what is tested here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.fixture
def anonymous(credentials: Credentials) -> Iterator[Api]:
    client = Api(Credentials(credentials.server, bare_tls()))
    yield client
    client.close()


@pytest.fixture
def become(api: Api, credentials: Credentials) -> Iterator[Become]:
    """A client for a user, by a token; with `rules` (in `namespace`, or everywhere) they get a role of their own."""
    clients: list[Api] = []

    def make(user: str, *rules: Object, namespace: str = "", groups: tuple[str, ...] = ()) -> Api:
        spec = {"user": user, "groups": list(groups)}
        made = api.post(TOKENS, {"apiVersion": "homeostat.dev/v1", "kind": "UserToken", "spec": spec}).expect(201)
        if rules:
            grant(api, user, list(rules), namespace)
        headers = {"Authorization": f"Bearer {made['status']['token']}"}
        clients.append(Api(Credentials(credentials.server, bare_tls(), headers)))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def grant(api: Api, user: str, rules: list[Object], namespace: str = "") -> None:
    prefix = "" if namespace else "Cluster"
    where = f"{RBAC}/namespaces/{namespace}/" if namespace else f"{RBAC}/cluster"
    role = {"kind": f"{prefix}Role", "apiVersion": "rbac.authorization.k8s.io/v1", "rules": rules}
    name = api.post(f"{where}roles", {**role, "metadata": {"generateName": "test-"}}).expect(201)["metadata"]["name"]
    api.post(f"{where}rolebindings", binding(user, name, prefix=prefix)).expect(201)


def binding(user: str, role: str, *, prefix: str = "Cluster", role_kind: str = "") -> Object:
    return {
        "kind": f"{prefix}RoleBinding",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"generateName": "test-"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind or f"{prefix}Role", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }


def rule(verbs: str, resources: str, group: str = "", names: str = "") -> Object:
    made: Object = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**made, "resourceNames": names.split()} if names else made


def forbidden(answer: Answer) -> Answer:
    assert answer.status == 403, (answer.status, answer.body)
    assert answer.body["reason"] == "Forbidden"
    return answer


def config_map(name: str, **rest: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **rest}


# Nobody


def test_only_health_is_open_to_strangers(anonymous: Api) -> None:
    for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose"):
        assert anonymous.get(path).status == 200
    for path in (
        "/", "/version", "/api", "/apis", "/api/v1", "/openapi/v2", "/openapi/v3", "/metrics", "/api/v1/secrets",
        "/api/v1/namespaces/default", "/apis/homeostat.dev/v1/usertokens", "/nowhere", "/api/v1/nothings",
        "/openid/v1/jwks", "/healthz/../api/v1/secrets", "/healthz/log",
    ):  # fmt: skip
        assert anonymous.get(path).status in (400, 401, 404), path
        assert "items" not in str(anonymous.get(path).body)
    for path in ("/api/v1/secrets", "/api/v1/nothings", "/apis/a.b/v1/c", "/version", "/nowhere"):
        assert anonymous.get(path).status == 401, path  # not even whether it is there
    assert anonymous.post("/healthz", {}).status == 401


def handshake(credentials: Credentials, context: ssl.SSLContext) -> ssl.SSLSocket:
    parts = urlsplit(credentials.server)
    plain = socket.create_connection((parts.hostname, parts.port), timeout=5)
    try:
        return context.wrap_socket(plain)
    except BaseException:
        plain.close()
        raise


def test_a_certificate_of_another_authority_is_refused(credentials: Credentials, tmp_path: Path) -> None:
    pki.ensure_server(tmp_path)
    made = pki.ensure_client(tmp_path, "admin", ["system:masters"])
    (tmp_path / "both.pem").write_bytes(made.certificate + b"\n" + made.key)
    context = bare_tls()
    context.load_cert_chain(tmp_path / "both.pem")
    try:
        with handshake(credentials, context) as peer:
            peer.sendall(b"GET /api HTTP/1.1\r\nHost: x\r\n\r\n")
            answered = peer.recv(1000)
    except (ssl.SSLError, ConnectionError):
        answered = b""
    assert answered == b""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_tls_is_refused(credentials: Credentials) -> None:
    context = bare_tls()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(credentials, context)
    modern = bare_tls()
    with handshake(credentials, modern) as peer:
        assert peer.version() in ("TLSv1.2", "TLSv1.3")


def test_plain_http_is_not_spoken(credentials: Credentials) -> None:
    parts = urlsplit(credentials.server)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"200" not in peer.recv(1000)


# Tokens


def test_a_token_ends_with_its_object(api: Api, become: Become) -> None:
    who = become("leaver")
    assert who.get("/version").status == 200
    name = next(t["metadata"]["name"] for t in api.get(TOKENS).body["items"] if t["spec"]["user"] == "leaver")
    api.delete(f"{TOKENS}/{name}").expect(200)
    assert who.get("/version").status == 401


def test_a_token_ends_with_its_time(api: Api, credentials: Credentials) -> None:
    spec = {"user": "brief", "expirationSeconds": 1}
    made = api.post(TOKENS, {"spec": spec}).expect(201)
    who = Api(Credentials(credentials.server, bare_tls(), {"Authorization": f"Bearer {made['status']['token']}"}))
    assert who.get("/version").status == 200
    eventually(lambda: who.get("/version").status == 401, "the token to end")
    who.close()


def test_a_service_account_token_ends_with_its_account(api: Api, credentials: Credentials, namespace: str) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.post(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}}).expect(201)
    made = api.post(f"{accounts}/bot/token", {"spec": {}}).expect(201)["status"]["token"]
    who = Api(Credentials(credentials.server, bare_tls(), {"Authorization": f"Bearer {made}"}))
    assert who.get("/version").status == 200
    header, claims, signature = made.split(".")
    for forged in (
        f"{header}.{claims}.{'A' * len(signature)}", f"{header}.{claims}.", f"eyJhbGciOiJub25lIn0.{claims}.",
        f"eyJhbGciOiJIUzI1NiJ9.{claims}.{signature}", f"{header}.e30.{signature}",
    ):  # fmt: skip
        thief = Api(Credentials(credentials.server, bare_tls(), {"Authorization": f"Bearer {forged}"}))
        assert thief.get("/version").status == 401
        thief.close()
    api.delete(f"{accounts}/bot").expect(200)
    assert who.get("/version").status == 401
    who.close()


def test_nobody_brings_the_digest_of_a_token_of_their_own(api: Api, credentials: Credentials) -> None:
    import hashlib

    mine = "hst_" + "ab" * 32
    status = {"digest": hashlib.sha256(mine.encode()).hexdigest(), "expirationTimestamp": "2999-01-01T00:00:00Z"}
    made = api.post(TOKENS, {"metadata": {"name": "own"}, "spec": {"user": "own"}, "status": status}).expect(201)
    assert made["status"]["digest"] != status["digest"]
    who = Api(Credentials(credentials.server, bare_tls(), {"Authorization": f"Bearer {mine}"}))
    assert who.get("/version").status == 401
    who.close()
    for method in ("PUT", "PATCH"):
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        for path in (f"{TOKENS}/own", f"{TOKENS}/own/status"):
            answer = api.request(method, path, {**made, "status": status}, headers={"Content-Type": media})
            assert answer.status in (404, 405), (method, path, answer.body)
    applied = api.apply(f"{TOKENS}/own", {**made, "status": status})
    assert applied.status == 405
    shown = json.dumps([api.get(f"{TOKENS}/own").body, api.get(TOKENS).body])
    assert made["status"]["token"] not in shown
    api.delete(f"{TOKENS}/own").expect(200)


def test_making_a_token_for_another_takes_the_right_to_be_them(api: Api, become: Become) -> None:
    clerk = become("clerk", rule("create", "usertokens", "homeostat.dev"))
    forbidden(clerk.post(TOKENS, {"spec": {"user": "boss"}}))
    forbidden(clerk.post(TOKENS, {"spec": {"user": "clerk", "groups": ["system:masters"]}}))
    grant(api, "clerk", [rule("impersonate", "users", names="intern")])
    clerk.post(TOKENS, {"spec": {"user": "intern"}}).expect(201)
    forbidden(clerk.post(TOKENS, {"spec": {"user": "intern", "groups": ["staff"]}}))
    grant(api, "clerk", [rule("impersonate", "groups users")])
    forbidden(clerk.post(TOKENS, {"spec": {"user": "intern", "groups": ["system:masters"]}}))


# Somebody without rights


def test_a_fresh_user_may_do_nothing_to_anything(api: Api, become: Become) -> None:
    stranger = become("stranger")
    documents = api.get("/openapi/v3").expect(200)["paths"]
    allowed = re.compile(r"/selfsubject\w+$")
    tried = 0
    for document in documents.values():
        for path, item in api.get(document["serverRelativeURL"].partition("?")[0]).expect(200).get("paths", {}).items():
            if "{name}" not in path and not path.rpartition("/")[2].isalpha():
                continue
            target = path.replace("{namespace}", "default").replace("{name}", "x").replace("{path}", "y")
            for method in ("get", "post", "put", "patch", "delete"):
                kind = item.get(method, {}).get("x-kubernetes-group-version-kind")
                if not kind or allowed.search(target):
                    continue
                answer = stranger.request(method.upper(), target, None if method == "get" else {})
                assert answer.status == 403, (method, target, answer.status, answer.body)
                tried += 1
    assert tried > 300
    forbidden(stranger.get("/api/v1/secrets", watch="true"))
    forbidden(stranger.get("/metrics"))
    assert stranger.get("/api").status == 200
    assert stranger.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
        "spec": {"resourceAttributes": {"verb": "get", "resource": "secrets"}}
    }).expect(201)["status"]["allowed"] is False  # fmt: skip


def test_a_refusal_does_not_tell_whether_an_object_exists(api: Api, namespace: str, become: Become) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.post(path, config_map("there")).expect(201)
    stranger = become("curious")
    there, absent = stranger.get(f"{path}/there").body, stranger.get(f"{path}/nope").body
    assert json.dumps(there).replace("there", "nope") == json.dumps(absent)
    assert stranger.get("/api/v1/namespaces/nowhere/configmaps").status == 403


def test_rights_in_one_namespace_do_not_reach_another(api: Api, namespace: str, become: Become) -> None:
    local = become("local", rule("*", "*", "*"), rule("*", "*"), namespace=namespace)
    mine, theirs = f"/api/v1/namespaces/{namespace}/configmaps", "/api/v1/namespaces/kube-system/configmaps"
    local.post(mine, config_map("a")).expect(201)
    for path in (theirs, "/api/v1/configmaps", "/api/v1/secrets", "/api/v1/namespaces", "/api/v1/namespaces/kube-system"):
        forbidden(local.get(path))
    forbidden(local.post(theirs, config_map("a")))
    forbidden(local.delete("/api/v1/configmaps"))
    for trick in (
        f"/api/v1/namespaces/{namespace}/../kube-system/configmaps", f"/api/v1/namespaces/{namespace}%2f..%2fkube-system/configmaps",
        f"/api/v1/namespaces/{namespace}/configmaps/..%2f..%2fkube-system%2fconfigmaps%2fa", f"/api/v1//namespaces/{namespace}/configmaps",
        f"/api/v1/namespaces/{namespace}/configmaps/../../kube-system/secrets", "/api/v1/watch/namespaces/kube-system/configmaps",
    ):  # fmt: skip
        assert local.get(trick).status in (400, 403, 404), trick
    for sent in (
        {**config_map("b"), "metadata": {"name": "b", "namespace": "kube-system"}},
        {**config_map("b"), "metadata": {"name": "../../kube-system/b"}},
    ):
        assert local.post(mine, sent).status in (400, 422)
    moved = local.patch(f"{mine}/a", {"metadata": {"namespace": "kube-system"}})
    assert moved.status in (400, 422)
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": -1, "start": "../kube-system/"})
    import base64

    listed = local.get(mine, limit=1, **{"continue": base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")})
    assert listed.status == 400 or {i["metadata"]["namespace"] for i in listed.body["items"]} <= {namespace}


def test_a_right_to_one_name_is_a_right_to_no_other(api: Api, namespace: str, become: Become) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("mine", "yours"):
        api.post(path, config_map(name)).expect(201)
    who = become("named", rule("get list watch update delete", "configmaps", names="mine"), namespace=namespace)
    who.get(f"{path}/mine").expect(200)
    assert [i["metadata"]["name"] for i in who.get(path, fieldSelector="metadata.name=mine").expect(200)["items"]] == ["mine"]
    forbidden(who.get(f"{path}/yours"))
    forbidden(who.get(path))
    forbidden(who.get(path, fieldSelector="metadata.name!=yours"))
    assert who.get(path, fieldSelector="metadata.name=mine,metadata.name=yours").expect(200)["items"] == []
    forbidden(who.delete(path, fieldSelector="metadata.name=mine"))
    assert who.put(f"{path}/mine", config_map("yours")).status in (400, 422)


# Escalation


def test_nobody_grants_what_they_do_not_hold(api: Api, namespace: str, become: Become) -> None:
    writer = become(
        "writer",
        rule("create get update patch", "roles rolebindings clusterroles clusterrolebindings", "rbac.authorization.k8s.io"),
        rule("get", "pods"),
    )
    roles, where = f"{RBAC}/namespaces/{namespace}/roles", f"{RBAC}/namespaces/{namespace}/rolebindings"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}}
    forbidden(writer.post(roles, {**role, "rules": [rule("get", "secrets")]}))
    forbidden(writer.post(roles, {**role, "rules": [rule("*", "pods")]}))
    writer.post(roles, {**role, "rules": [rule("get", "pods")]}).expect(201)
    more = {"rules": [rule("get", "secrets")]}
    forbidden(writer.put(f"{roles}/r", {**role, **more}))
    forbidden(writer.patch(f"{roles}/r", more))
    forbidden(writer.patch(f"{roles}/r", more, "application/strategic-merge-patch+json"))
    forbidden(writer.patch(f"{roles}/r", [{"op": "add", "path": "/rules/-", "value": more["rules"][0]}], "application/json-patch+json"))
    forbidden(writer.apply(f"{roles}/r", {**role, **more}, force="true"))
    forbidden(writer.apply(f"{roles}/new", {**role, "metadata": {"name": "new"}, **more}))
    forbidden(writer.put(f"{roles}/r", {**role, **more}, dryRun="All"))
    forbidden(writer.post(f"{RBAC}/clusterrolebindings", binding("writer", "cluster-admin")))
    forbidden(writer.post(where, binding("writer", "admin", prefix="", role_kind="ClusterRole")))
    writer.post(where, binding("friend", "r", prefix="")).expect(201)


def test_a_binding_cannot_be_turned_to_another_role(api: Api, namespace: str, become: Become) -> None:
    where = f"{RBAC}/namespaces/{namespace}/rolebindings"
    made = api.post(where, binding("other", "view", prefix="", role_kind="ClusterRole")).expect(201)
    writer = become("turner", rule("get update patch", "rolebindings", "rbac.authorization.k8s.io"), namespace=namespace)
    path = f"{where}/{made['metadata']['name']}"
    for body in ({"roleRef": {**made["roleRef"], "name": "admin"}}, {"subjects": [{"kind": "User", "name": "else"}]}):
        assert writer.patch(path, body).status in (403, 422)
    assert api.get(path).expect(200)["roleRef"]["name"] == "view"


def test_an_aggregation_label_gathers_nothing_its_writer_does_not_hold(api: Api, become: Become) -> None:
    api.post(f"{RBAC}/clusterrolebindings", binding("gatherer", "view")).expect(201)
    writer = become("gatherer", rule("create update patch", "clusterroles", "rbac.authorization.k8s.io"))
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    where = f"{RBAC}/clusterroles"
    forbidden(writer.post(where, {**role, "metadata": {"name": "more", "labels": label}, "rules": [rule("*", "secrets")]}))
    all_of_them = {"aggregationRule": {"clusterRoleSelectors": [{}]}}
    forbidden(writer.post(where, {**role, "metadata": {"name": "all"}, **all_of_them}))
    forbidden(writer.patch(f"{where}/view", all_of_them))
    # Labelling a role that exists, and holds more than the writer does, would be the same thing.
    forbidden(writer.patch(f"{where}/cluster-admin", {"metadata": {"labels": label}}))
    forbidden(writer.patch(f"{where}/system:aggregate-to-admin", {"metadata": {"labels": label}}))
    forbidden(writer.get("/api/v1/secrets"))


def test_bind_and_escalate_are_rights_of_their_own(api: Api, namespace: str, become: Become) -> None:
    where = f"{RBAC}/namespaces/{namespace}"
    binder = become(
        "binder",
        rule("create", "rolebindings", "rbac.authorization.k8s.io"),
        rule("bind", "clusterroles", "rbac.authorization.k8s.io", "view"),
        namespace=namespace,
    )
    binder.post(f"{where}/rolebindings", binding("x", "view", prefix="", role_kind="ClusterRole")).expect(201)
    forbidden(binder.post(f"{where}/rolebindings", binding("x", "edit", prefix="", role_kind="ClusterRole")))
    raiser = become("raiser", rule("create escalate", "roles", "rbac.authorization.k8s.io"), namespace=namespace)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "all"}}
    raiser.post(f"{where}/roles", {**role, "rules": [rule("*", "*")]}).expect(201)


def test_acting_as_another_needs_the_right_to(api: Api, become: Become) -> None:
    who = become("actor")
    for headers in (
        {"Impersonate-User": "admin"},
        {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"},
        {"Impersonate-User": "system:serviceaccount:kube-system:x"},
        {"Impersonate-User": "actor", "Impersonate-Uid": "1"},
        {"Impersonate-User": "actor", "Impersonate-Extra-Scopes": "all"},
    ):
        forbidden(who.get("/api/v1/namespaces", headers=headers))
    grant(api, "actor", [rule("impersonate", "users", names="puppet")])
    answer = forbidden(who.get("/api/v1/namespaces", headers={"Impersonate-User": "puppet"}))
    assert 'User "puppet" cannot list' in answer.body["message"]
    forbidden(who.get("/api/v1/namespaces", headers={"Impersonate-User": "puppet", "Impersonate-Group": "system:masters"}))


def test_a_token_of_a_service_account_needs_the_right_to_ask_for_it(api: Api, namespace: str, become: Become) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.post(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}}).expect(201)
    who = become("asker", rule("*", "serviceaccounts"), namespace=namespace)
    forbidden(who.post(f"{accounts}/bot/token", {"spec": {}}))
    grant(api, "asker", [rule("create", "serviceaccounts/token")], namespace)
    who.post(f"{accounts}/bot/token", {"spec": {}}).expect(201)


def test_status_and_scale_are_rights_of_their_own(api: Api, namespace: str, become: Become) -> None:
    schema = {"properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                             "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}  # fmt: skip
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    kind = define(api, schema, kind="Part", subresources={"status": {}, "scale": scale})
    made = api.post(kind.path(namespace), kind.new("x", spec={"replicas": 1})).expect(201)
    who = become("part", rule("get update patch", "parts", kind.group), namespace=namespace)
    where = kind.path(namespace, "x")
    forbidden(who.put(f"{where}/status", {**made, "status": {"a": 1}}))
    forbidden(who.patch(f"{where}/status", {"status": {"a": 1}}))
    forbidden(who.patch(f"{where}/scale", {"spec": {"replicas": 5}}))
    assert "status" not in who.patch(where, {"status": {"a": 1}}).expect(200)
    scaler = become("scaler", rule("get update patch", "parts/scale", kind.group), namespace=namespace)
    scaler.patch(f"{where}/scale", {"spec": {"replicas": 5}}).expect(200)
    forbidden(scaler.patch(where, {"spec": {"replicas": 7}}))
    forbidden(scaler.get(where))
    undefine(kind)


def test_applying_what_is_not_there_needs_the_right_to_create(api: Api, namespace: str, become: Become) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    who = become("applier", rule("patch update", "configmaps"), namespace=namespace)
    forbidden(who.apply(f"{path}/new", config_map("new")))
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    holder = become("holder", rule("update", "leases", "coordination.k8s.io"), namespace=namespace)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    assert holder.put(f"{leases}/l", lease).status in (403, 404)
    assert api.get(path).expect(200)["items"] == []


# What is deleted


def test_an_owner_that_one_cannot_see_takes_nobody_else_along(api: Api, namespace: str, become: Become) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.post(path, config_map("victim")).expect(201)
    who = become("owner", rule("create update patch get", "configmaps"), namespace=namespace)
    forbidden(who.delete(f"{path}/victim"))
    mine = who.post(path, config_map("mine")).expect(201)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": mine["metadata"]["uid"]}
    # Allowed, as upstream allows it by default: who may update an object may say whose it is.
    who.patch(f"{path}/victim", {"metadata": {"ownerReferences": [owner]}}).expect(200)
    # But nobody outside the namespace can be reached so, nor by a reference that is not of this form.
    for wrong in ({**owner, "uid": ""}, {**owner, "name": ""}, {**owner, "apiVersion": "a/b/c"}, {**owner, "kind": ""}):
        assert who.patch(f"{path}/mine", {"metadata": {"ownerReferences": [wrong]}}).status == 422
    who.patch(f"{path}/victim", {"metadata": {"ownerReferences": None}}).expect(200)
    assert api.get(f"{path}/victim").status == 200


def test_deletion_cannot_be_written(api: Api, namespace: str, become: Become) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.post(path, config_map("kept")).expect(201)
    who = become("updater", rule("get update patch", "configmaps"), namespace=namespace)
    body = {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}}
    who.patch(f"{path}/kept", body)
    who.put(f"{path}/kept", {**config_map("kept"), "metadata": {"name": "kept", **body["metadata"]}})
    assert "deletionTimestamp" not in api.get(f"{path}/kept").expect(200)["metadata"]


def test_a_finalizer_of_another_holds_what_one_deletes(api: Api, namespace: str, become: Become) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.post(path, {**config_map("held"), "metadata": {"name": "held", "finalizers": ["a.example.com/hold"]}}).expect(201)
    who = become("deleter", rule("delete get", "configmaps"), namespace=namespace)
    who.delete(f"{path}/held").expect(200)
    assert api.get(f"{path}/held").status == 200
    forbidden(who.patch(f"{path}/held", {"metadata": {"finalizers": None}}))
    api.patch(f"{path}/held", {"metadata": {"finalizers": None}}).expect(200)


# What is written down


def test_no_secret_is_written_down(api: Api, data: Path, namespace: str, become: Become) -> None:
    import base64

    planted = [f"s3cr3t-{i}-{os.urandom(6).hex()}" for i in range(12)]
    encoded = [base64.b64encode(p.encode()).decode() for p in planted]
    path = f"/api/v1/namespaces/{namespace}/secrets"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": planted[0]}}
    api.post(path, secret).expect(201)
    api.patch(f"{path}/s", {"data": {"b": encoded[1]}}).expect(200)
    api.patch(f"{path}/s", [{"op": "test", "path": "/data/a", "value": planted[2]}], "application/json-patch+json")
    api.put(f"{path}/s", {**secret, "stringData": {"a": planted[3]}, "type": planted[4]})
    api.post(path, {**secret, "data": {"a": planted[5]}})
    api.post(path, {**secret, "data": planted[6]})
    api.post(path, {**secret, "stringData": {"a": [planted[7]]}}, fieldValidation="Strict")
    api.post(path, json.dumps({**secret, "x": planted[8]})[:-2], fieldValidation="Strict")
    api.apply(f"{path}/s", {**secret, "stringData": {"a": planted[9]}})
    api.get("/api/v1/secrets", headers={"Authorization": f"Bearer {planted[10]}"})
    api.get("/version", headers={"X-Secret": planted[11]}, token=planted[11])
    schema = {"properties": {"password": {"type": "string", "maxLength": 3, "enum": ["abc"]}}}
    kind = define(api, schema, kind="Vault")
    typed = f"s3cr3t-typed-{os.urandom(6).hex()}"
    api.post(kind.path(namespace), kind.new("x", password=typed))
    undefine(kind)
    spec = {"user": "noted"}
    token = api.post(TOKENS, {"spec": spec}).expect(201)["status"]["token"]
    log = data / "audit.log"
    eventually(lambda: '"name":"noted"' in log.read_text() or "usertokens" in log.read_text().splitlines()[-1], "the log")
    time.sleep(0.5)  # what is still on its way to the file
    written = "".join(f.read_text() for f in data.glob("audit.log*")) + (data.parent / "server.log").read_text()
    for value in (*planted, *encoded, typed, token):
        assert value not in written, next(line for line in written.splitlines() if value in line)
    events = json.dumps(api.get("/api/v1/events").expect(200))
    assert not any(value in events for value in (*planted, *encoded, token))


def test_the_audit_log_knows_a_request_by_the_id_that_its_answer_says(api: Api, data: Path, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    given = api.post(path, {"metadata": {"name": "a"}}).headers["Audit-Id"]
    own = f"from-a-proxy-{os.urandom(4).hex()}-" + "x" * 1000
    assert api.post(path, {"metadata": {"name": "a"}}, headers={"Audit-ID": own}).headers["Audit-Id"] == own

    def noted() -> dict[str, int]:
        lines = [json.loads(line) for line in (data / "audit.log").read_text().splitlines()]
        return {line["id"][:30]: line["code"] for line in lines}

    eventually(lambda: own[:30] in noted(), "the log")
    assert (noted()[given[:30]], noted()[own[:30]]) == (201, 409)


def test_an_error_about_a_secret_does_not_repeat_it(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    planted = f"s3cr3t-{os.urandom(6).hex()}"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    for body in (
        {**secret, "data": {"a": planted}},
        {**secret, "type": "kubernetes.io/tls", "stringData": {"tls.crt": planted}},
        {**secret, "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": planted}},
        {**secret, "type": "kubernetes.io/basic-auth", "stringData": {"other": planted}},
        {**secret, "stringData": {"a": [planted]}},
        {**secret, "stringData": {"a b": planted}},
    ):
        answer = api.post(path, body)
        assert planted not in json.dumps(answer.body)
    api.post(path, {**secret, "stringData": {"a": planted}, "immutable": True}).expect(201)
    answer = api.patch(f"{path}/s", {"stringData": {"a": f"{planted}-2"}})
    assert answer.status == 422
    assert planted not in json.dumps(answer.body)
    answer = api.patch(f"{path}/s", [{"op": "test", "path": "/data/a", "value": planted}], "application/json-patch+json")
    assert planted not in json.dumps(answer.body)


def test_the_data_directory_is_its_owners_alone(data: Path) -> None:
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    for found in data.rglob("*"):
        mode = stat.S_IMODE(found.stat().st_mode)
        if found.suffix == ".crt" and found.parent.name == "pki":
            continue  # certificates are shown to every client anyway
        assert mode & 0o077 == 0 or found.suffix in (".db-wal", ".db-shm"), (found, oct(mode))


# Too much


def test_events_that_pour_in_hold_nobody_up(api: Api, namespace: str, neighbour: Any) -> None:
    path = f"/api/v1/namespaces/{namespace}/events"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {"kind": "Pod", "name": "x", "namespace": namespace},
        "reason": "Flood",
        "message": "m" * 1000,
        "type": "Normal",
    }
    for i in range(500):
        api.post(path, {**event, "metadata": {"name": f"e{i}"}}).expect(201)
    long = {**event, "metadata": {"name": "long"}, "message": "m" * 2_000_000}
    assert api.post(path, long).status in (201, 413, 422)
    api.delete(path).expect(200)
