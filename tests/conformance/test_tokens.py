"""Tokens: of service accounts, whose they are, how long they live, and what opens with them."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Answer, Api, Credentials, Object, eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def with_token(api: Api, token: str) -> Api:
    """The same server for somebody who has nothing but a token."""
    tls = None
    if api.credentials.tls is not None:
        tls = ssl.create_default_context()
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return Api(Credentials(api.credentials.server, tls, {"Authorization": f"Bearer {token}"}))


class Account:
    """A service account in a namespace of its own."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.path = f"/api/v1/namespaces/{namespace}/serviceaccounts/robot"
        self.name = f"system:serviceaccount:{namespace}:robot"
        self.create()

    def create(self) -> None:
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        self.api.post(self.path.rpartition("/")[0], body).expect(201)

    def ask(self, **spec: Any) -> Answer:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return self.api.post(f"{self.path}/token", body)

    def token(self, **spec: Any) -> str:
        return str(self.ask(**spec).expect(201)["status"]["token"])

    def may(self, *rules: Object) -> None:
        """Grants cluster-wide rights; named after the namespace, so that they can be told apart."""
        name = f"robot-{self.namespace}"
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": list(rules),
        }
        self.api.post(f"{RBAC}/clusterroles", role).expect(201)
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": self.namespace}],
        }
        self.api.post(f"{RBAC}/clusterrolebindings", binding).expect(201)

    def clean(self) -> None:
        for plural in ("clusterrolebindings", "clusterroles"):
            self.api.delete(f"{RBAC}/{plural}/robot-{self.namespace}")


@pytest.fixture
def account(api: Api, namespace: str) -> Iterator[Account]:
    if not api.serves("authentication.k8s.io/v1", "tokenreviews"):
        pytest.skip("this server knows no tokens")
    made = Account(api, namespace)
    yield made
    made.clean()


def review(api: Api, token: str, *audiences: str) -> Object:
    spec: Object = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    found: Object = api.post("/apis/authentication.k8s.io/v1/tokenreviews", body).expect(201)["status"]
    return found


def test_a_token_is_a_signed_statement_about_the_account(api: Api, account: Account) -> None:
    answer = account.ask(expirationSeconds=600).expect(201)
    assert answer["kind"] == "TokenRequest"
    assert answer["spec"]["expirationSeconds"] == 600
    assert answer["status"]["expirationTimestamp"]
    parts = answer["status"]["token"].split(".")
    assert len(parts) == 3
    header, claims = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in parts[:2])
    assert header["alg"] in ("RS256", "ES256")
    assert claims["sub"] == account.name
    assert claims["exp"] - claims["iat"] == 600
    assert claims["aud"] == answer["spec"]["audiences"]
    about = claims["kubernetes.io"]
    assert about["namespace"] == account.namespace
    uid = api.get(account.path).expect(200)["metadata"]["uid"]
    assert about["serviceaccount"] == {"name": "robot", "uid": uid}


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        (60, "Invalid value: 60: may not specify a duration less than 10 minutes"),
        (2**33, "Invalid value: 8589934592: may not specify a duration larger than 2^32 seconds"),
    ],
)
def test_a_token_lives_neither_too_short_nor_too_long(account: Account, seconds: int, message: str) -> None:
    [cause] = account.ask(expirationSeconds=seconds).expect(422)["details"]["causes"]
    assert (cause["field"], cause["message"]) == ("spec.expirationSeconds", message)


def test_tokens_are_for_accounts_that_exist_and_bound_to_what_exists(api: Api, account: Account) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    missing = api.post(f"{account.path}s/token", body).expect(404)
    assert missing["message"] == 'serviceaccounts "robots" not found'
    refusal = account.ask(boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "nope"}).expect(404)
    assert refusal["message"] == 'pods "nope" not found'
    refusal = account.ask(boundObjectRef={"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}).expect(400)
    assert refusal["message"] == "cannot bind token to object of type /v1, Kind=ConfigMap"


def test_a_token_opens_what_the_account_may_do(api: Api, account: Account) -> None:
    robot = with_token(api, account.token())
    path = f"/api/v1/namespaces/{account.namespace}/configmaps"
    assert robot.get("/version").status == 200
    assert robot.get(path).expect(403)["message"] == (
        f'configmaps is forbidden: User "{account.name}" cannot list resource "configmaps" in API group "" in the '
        f'namespace "{account.namespace}"'
    )
    account.may({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]})
    eventually(lambda: robot.get(path).status == 200)


def test_a_token_ends_with_its_account_and_is_not_another_one_of_that_name(api: Api, account: Account) -> None:
    token = account.token()
    robot = with_token(api, token)
    assert robot.get("/version").status == 200
    api.delete(account.path).expect(200)
    eventually(lambda: robot.get("/version").status == 401)
    account.create()
    assert robot.get("/version").expect(401)["message"] == "Unauthorized"
    assert "authenticated" not in review(api, token)


def test_a_token_ends_with_what_it_is_bound_to(api: Api, account: Account) -> None:
    secrets = f"/api/v1/namespaces/{account.namespace}/secrets"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lease"}}
    api.post(secrets, secret).expect(201)
    robot = with_token(api, account.token(boundObjectRef={"kind": "Secret", "apiVersion": "v1", "name": "lease"}))
    assert robot.get("/version").status == 200
    api.delete(f"{secrets}/lease").expect(200)
    eventually(lambda: robot.get("/version").status == 401)


def test_a_review_tells_whose_token_it_is(api: Api, account: Account) -> None:
    token = account.token()
    found = review(api, token)
    assert found["authenticated"] is True
    assert found["user"]["username"] == account.name
    assert found["user"]["uid"] == api.get(account.path).body["metadata"]["uid"]
    assert set(found["user"]["groups"]) == {
        "system:serviceaccounts",
        f"system:serviceaccounts:{account.namespace}",
        "system:authenticated",
    }
    unknown = review(api, "zzz")
    assert "authenticated" not in unknown
    assert unknown["error"].startswith("invalid bearer token") or unknown["error"].startswith("[invalid bearer token")
    assert "authenticated" not in review(api, token, "another audience")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}}
    refusal = api.post("/apis/authentication.k8s.io/v1/tokenreviews", body).expect(400)
    assert refusal["message"] == "token is required for TokenReview in authentication"


def test_a_token_for_another_audience_opens_nothing_here(api: Api, account: Account) -> None:
    token = account.token(audiences=["elsewhere"])
    assert with_token(api, token).get("/version").status == 401
    found = review(api, token, "elsewhere", "nowhere")
    assert (found["authenticated"], found["audiences"]) == (True, ["elsewhere"])


@pytest.mark.parametrize("token", ["zzz", "a.b.c", "Basic"])
def test_what_is_no_token_is_refused(api: Api, account: Account, token: str) -> None:
    answer = with_token(api, token).get("/api/v1/namespaces")
    assert answer.expect(401)["message"] == "Unauthorized"
    assert (answer.body["reason"], answer.body["code"]) == ("Unauthorized", 401)


def test_a_changed_token_is_refused(api: Api, account: Account) -> None:
    head, claims, signature = account.token().split(".")
    body = json.loads(base64.urlsafe_b64decode(claims + "=="))
    body["sub"] = "system:serviceaccount:kube-system:admin"
    forged = base64.urlsafe_b64encode(json.dumps(body).encode()).rstrip(b"=").decode()
    assert with_token(api, f"{head}.{forged}.{signature}").get("/version").status == 401
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    assert with_token(api, f"{none}.{claims}.").get("/version").status == 401


# Acting as somebody else


def test_acting_as_somebody_needs_the_right_for_each_part(api: Api, account: Account) -> None:
    robot = with_token(api, account.token())

    def acting(**headers: str) -> Answer:
        sent = {f"Impersonate-{name.replace('_', '-')}": value for name, value in headers.items()}
        return robot.get("/api/v1/namespaces", headers=sent)

    who = f'is forbidden: User "{account.name}" cannot impersonate resource'
    assert acting(User="alice").expect(403)["message"] == (
        f'users "alice" {who} "users" in API group "" at the cluster scope'
    )
    account.may({"apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"], "verbs": ["impersonate"]})
    as_alice = 'namespaces is forbidden: User "alice" cannot list resource "namespaces" in API group ""'
    eventually(lambda: acting(User="alice").body["message"].startswith(as_alice))
    assert acting(User="bob").expect(403)["message"].startswith(f'users "bob" {who} "users"')
    assert acting(User="alice", Group="team").expect(403)["message"] == (
        f'groups "team" {who} "groups" in API group "" at the cluster scope'
    )
    assert acting(User="alice", Extra_scope="all").expect(403)["message"] == (
        f'userextras.authentication.k8s.io "all" {who} "userextras/scope" in API group "authentication.k8s.io" at the '
        "cluster scope"
    )
    assert acting(User="system:serviceaccount:default:x").expect(403)["message"] == (
        f'serviceaccounts "x" {who} "serviceaccounts" in API group "" in the namespace "default"'
    )


@pytest.fixture
def in_secret(api: Api, account: Account) -> str:
    """Where a Secret is that asks for a token of the account."""
    path = f"/api/v1/namespaces/{account.namespace}/secrets"
    api.post(path, token_secret("robot")).expect(201)
    return f"{path}/t"


def token_secret(account: str, **annotations: str) -> Object:
    metadata = {"name": "t", "annotations": {"kubernetes.io/service-account.name": account, **annotations}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/service-account-token"}


def needs_token_controller(api: Api) -> None:
    if not api.serves("v1", "limitranges"):
        pytest.skip("this server fills in no Secrets")


def test_a_secret_that_asks_for_a_token_is_given_one(api: Api, account: Account, in_secret: str) -> None:
    needs_token_controller(api)
    secret = eventually(lambda: (found := api.get(in_secret).expect(200)).get("data", {}).get("token") and found)
    values = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    assert sorted(values) == ["ca.crt", "namespace", "token"]
    assert values["namespace"] == account.namespace
    assert "BEGIN CERTIFICATE" in values["ca.crt"]
    uid = api.get(account.path).expect(200)["metadata"]["uid"]
    assert secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == uid
    status = review(api, values["token"])
    assert (status["authenticated"], status["user"]["username"]) == (True, account.name)
    assert with_token(api, values["token"]).get("/version").status == 200
    claims = json.loads(base64.urlsafe_b64decode(values["token"].split(".")[1] + "=="))
    assert (claims["iss"], claims["kubernetes.io/serviceaccount/secret.name"]) == ("kubernetes/serviceaccount", "t")
    assert "exp" not in claims
    api.patch(in_secret, {"data": {"token": None}}).expect(200)
    eventually(lambda: api.get(in_secret).expect(200)["data"].get("token"), "the token to be given again")
    api.delete(in_secret).expect(200)
    eventually(lambda: not review(api, values["token"]).get("authenticated"), "the token to end with its Secret")


def test_a_secret_with_a_token_goes_with_its_account(api: Api, account: Account, in_secret: str) -> None:
    needs_token_controller(api)
    eventually(lambda: api.get(in_secret).expect(200).get("data"))
    api.delete(account.path).expect(200)
    eventually(lambda: api.get(in_secret).status == 404, "the Secret to go")


@pytest.mark.parametrize(("name", "uid"), [("nobody", ""), ("robot", "another")])
def test_a_secret_for_an_account_that_there_is_not_goes_at_once(
    api: Api, account: Account, name: str, uid: str
) -> None:
    needs_token_controller(api)
    said = {"kubernetes.io/service-account.uid": uid} if uid else {}
    path = f"/api/v1/namespaces/{account.namespace}/secrets"
    api.post(path, token_secret(name, **said)).expect(201)
    eventually(lambda: api.get(f"{path}/t").status == 404, "the Secret to go")


def test_an_account_forgets_the_secret_that_is_gone(api: Api, account: Account, in_secret: str) -> None:
    needs_token_controller(api)
    eventually(lambda: api.get(in_secret).expect(200).get("data"))
    api.patch(account.path, {"secrets": [{"name": "t"}, {"name": "other"}]}).expect(200)
    api.delete(in_secret).expect(200)
    eventually(lambda: api.get(account.path).expect(200)["secrets"] == [{"name": "other"}])
