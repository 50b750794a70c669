"""Behaviour of any Kubernetes API server, told over plain HTTP.

By default the suite starts our own server. With HOMEOSTAT_CONFORMANCE_KUBECONFIG=/path it talks to the server which that
kubeconfig names instead: every expectation here was checked on kube-apiserver, so it is a description and not an opinion.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import yaml

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATIENCE = 20.0
"""Seconds after which something that should come true is given up."""

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')

Object = dict[str, Any]


@dataclass
class Answer:
    """What the server said. `body` is decoded JSON where it is JSON, otherwise text."""

    status: int
    headers: http.client.HTTPMessage
    body: Any

    @property
    def warnings(self) -> list[str]:
        """The texts of the Warning headers."""
        lines = self.headers.get_all("Warning") or []
        return [re.sub(r"\\(.)", r"\1", text) for line in lines for text in _WARNING.findall(line)]

    @property
    def causes(self) -> list[tuple[str, str]]:
        """(reason, field) of each cause of a failure."""
        return [(c.get("reason", ""), c.get("field", "")) for c in (self.body.get("details") or {}).get("causes", [])]

    def expect(self, status: int) -> Any:
        """The body, once the status is the expected one."""
        assert self.status == status, f"{self.status}: {self.body}"
        return self.body


@dataclass
class Credentials:
    """One user of one server, as a kubeconfig names them."""

    server: str
    tls: ssl.SSLContext | None
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Credentials:
        """From the current context of a kubeconfig."""
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        headers = {"Authorization": f"Bearer {user['token']}"} if user.get("token") else {}
        if not cluster["server"].startswith("https"):
            return cls(cluster["server"], None, headers)
        authority = _material(cluster, "certificate-authority", path)
        tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
        tls.check_hostname = False
        certificate, key = _material(user, "client-certificate", path), _material(user, "client-key", path)
        if certificate and key:
            with tempfile.NamedTemporaryFile() as both:
                both.write(certificate + b"\n" + key)
                both.flush()
                tls.load_cert_chain(both.name)
        return cls(cluster["server"], tls, headers)


def _named(entries: list[Object], name: str) -> Object:
    return next(entry for entry in entries if entry["name"] == name)


def _material(holder: Object, name: str, kubeconfig: Path) -> bytes | None:
    if f"{name}-data" in holder:
        return base64.b64decode(holder[f"{name}-data"])
    return (kubeconfig.parent / holder[name]).read_bytes() if name in holder else None


class Api:
    """A plain HTTP client of one server, on one connection. Paths start with a slash; keywords become the query."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self._connection: http.client.HTTPConnection | None = None

    def _connect(self, timeout: float = PATIENCE) -> http.client.HTTPConnection:
        parts = urlsplit(self.credentials.server)
        assert parts.hostname
        if self.credentials.tls:
            return http.client.HTTPSConnection(
                parts.hostname, parts.port, context=self.credentials.tls, timeout=timeout
            )
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)

    def request(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, **query: Any
    ) -> Answer:
        """Asks once. A body that is not text or bytes is sent as JSON; `headers` overrides what is sent by default."""
        sent = {"Accept": "application/json", **self.credentials.headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
            if not isinstance(body, str | bytes):
                body = json.dumps(body)
        sent |= headers or {}
        if isinstance(body, str):
            body = body.encode()
        url = with_query(path, query)
        for last in (False, True):
            connection = self._connection or self._connect()
            fresh, self._connection = self._connection is None, connection
            try:
                connection.request(method, url, body, sent)
                response = connection.getresponse()
                raw = response.read()
                break
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
                self.close()
                if fresh or last:
                    raise
        is_json = "json" in (response.headers.get("Content-Type") or "")
        return Answer(response.status, response.headers, json.loads(raw) if is_json and raw else raw.decode())

    def get(self, path: str, *, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        return self.request("GET", path, headers=headers, **query)

    def post(self, path: str, body: Any, *, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        return self.request("POST", path, body, headers=headers, **query)

    def put(self, path: str, body: Any, *, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        return self.request("PUT", path, body, headers=headers, **query)

    def patch(
        self, path: str, body: Any, media: str = MERGE_PATCH, *, headers: dict[str, str] | None = None, **query: Any
    ) -> Answer:
        """A patch of the given media type; merge patch by default."""
        return self.request("PATCH", path, body, headers={"Content-Type": media, **(headers or {})}, **query)

    def apply(self, path: str, body: Any, manager: str = "applier", **query: Any) -> Answer:
        """Server-side apply as the given field manager."""
        return self.patch(path, body, APPLY_PATCH, **{"fieldManager": manager, **query})

    def delete(self, path: str, body: Any = None, *, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        return self.request("DELETE", path, body, headers=headers, **query)

    def watch(
        self, path: str, *, timeout: float = 5.0, headers: dict[str, str] | None = None, **query: Any
    ) -> Iterator[Object]:
        """The events of a watch, one by one; ends where the server ends it. `timeout` is the longest silence, in seconds."""
        connection = self._connect(timeout)
        sent = {"Accept": "application/json", **self.credentials.headers, **(headers or {})}
        try:
            connection.request("GET", with_query(path, {"watch": "true", **query}), headers=sent)
            response = connection.getresponse()
            if response.status != 200:
                raise AssertionError(f"watch answered {response.status}: {response.read().decode()}")
            for line in response:
                yield json.loads(line)
        finally:
            connection.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    @cached_property
    def minor(self) -> int:
        """The server speaks Kubernetes 1.`minor`. Behaviour that came later is not expected of an older server."""
        digits = "".join(c for c in self.get("/version").expect(200)["minor"] if c.isdigit())
        return int(digits)

    def serves(self, api_version: str, plural: str) -> bool:
        """Whether this server has a kind at all: an oracle may be an extension server with few built-in kinds."""
        prefix = "/api/" if "/" not in api_version else "/apis/"
        answer = self.get(prefix + api_version)
        return answer.status == 200 and any(r["name"] == plural for r in answer.body["resources"])


def mistake(answer: Answer, status: int) -> Any:
    """The body of a refusal. Where upstream takes a client's mistake for its own and answers 500, we answer `status`."""
    if os.environ.get("HOMEOSTAT_CONFORMANCE_KUBECONFIG") and answer.status == 500:
        return answer.body
    return answer.expect(status)


def needs(api: Api, minor: int) -> None:
    """Leaves out a test of behaviour that came with Kubernetes 1.`minor` on a server that is older."""
    if api.minor < minor:
        pytest.skip(f"the server is 1.{api.minor}, this came with 1.{minor}")


def needs_builtin_rules(api: Api) -> None:
    """Leaves out a test of built-in kinds on an extension server, which stores them without upstream's own rules."""
    if not api.serves("v1", "limitranges"):
        pytest.skip("this server has no real built-in kinds")


def with_query(path: str, query: dict[str, Any]) -> str:
    """The path with its query; None is left out, lists are repeated."""
    pairs = {k: v for k, v in query.items() if v is not None}
    return f"{path}?{urlencode(pairs, doseq=True)}" if pairs else path


def eventually(check: Any, what: str = "the expected state") -> Any:
    """Asks again and again until the answer is true, and gives it."""
    end = time.monotonic() + PATIENCE
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"waited too long for {what}"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of the server under test: the one that the environment names, or our own."""
    given = os.environ.get("HOMEOSTAT_CONFORMANCE_KUBECONFIG")
    if given:
        yield Path(given)
        return
    data = tmp_path_factory.mktemp("homeostat")
    command = [sys.executable, "-m", "homeostat", "up", "--data", str(data), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout
        said = []
        for line in server.stdout:
            said.append(line)
            if "is ready at" in line:
                break
        else:
            raise AssertionError("the server did not start:\n" + "".join(said))
        try:
            yield data / "admin.kubeconfig"
        finally:
            server.terminate()
            server.wait(10)


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[Api]:
    """The server under test, as its administrator."""
    client = Api(Credentials.read(kubeconfig))
    yield client
    client.close()


@pytest.fixture(scope="session")
def modern(api: Api) -> None:
    """For what came to Kubernetes after 1.29, or is worded otherwise since: not expected of an older server."""
    if api.minor < 30:
        pytest.skip(f"this server speaks Kubernetes 1.{api.minor}")


def make_namespace(api: Api, prefix: str = "conf-") -> str:
    """A new namespace."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": prefix}}
    return str(api.post("/api/v1/namespaces", body).expect(201)["metadata"]["name"])


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A fresh namespace; it and what is in it are deleted after the test."""
    name = make_namespace(api)
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


@dataclass
class Kind:
    """A custom kind that is served. `path` and `in_namespace` are where its objects live."""

    api: Api
    crd: Object
    version: str = "v1"

    @property
    def group(self) -> str:
        return str(self.crd["spec"]["group"])

    @property
    def plural(self) -> str:
        return str(self.crd["spec"]["names"]["plural"])

    @property
    def kind(self) -> str:
        return str(self.crd["spec"]["names"]["kind"])

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        where = f"/apis/{self.api_version}"
        if namespace:
            where += f"/namespaces/{namespace}"
        return "/".join(part for part in (where, self.plural, name, subresource) if part)

    def new(self, name: str = "", **rest: Any) -> Object:
        """An object of this kind. Keywords `metadata`, `spec`, … go where they say; the name is merged into metadata."""
        metadata = {**({"name": name} if name else {}), **rest.pop("metadata", {})}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata, **rest}


def define(
    api: Api,
    schema: Object,
    *,
    kind: str = "Widget",
    group: str = "",
    namespaced: bool = True,
    versions: list[Object] | None = None,
    **version: Any,
) -> Kind:
    """Creates a CustomResourceDefinition under a group of its own and waits until its objects are served.

    `schema` is that of the whole object; further keywords (`subresources`, `additionalPrinterColumns`, …) belong to the only
    version, v1. Hand in `versions` for more than one; the first of them is then the one the returned kind uses.
    """
    group = group or f"c{uuid.uuid4().hex[:8]}.conformance.example"
    plural = kind.lower() + "s"
    if versions is None:
        schema = {"type": "object", **schema}
        versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}]
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": versions,
        },
    }
    made = api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).expect(201)
    defined = Kind(api, made, versions[0]["name"])
    # Being listed is not yet being served: an apiserver installs the handlers a moment after it says Established.
    eventually(lambda: api.get(defined.path()).status == 200, f"{defined.qualified} to be served")
    return defined


def undefine(kind: Kind) -> None:
    """Deletes the definition and so all objects of the kind."""
    kind.api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.qualified}")


@pytest.fixture(scope="module")
def definer(api: Api) -> Iterator[Any]:
    """`define` for the tests of one module; what it defined is deleted after the last of them."""
    defined: list[Kind] = []

    def one(schema: Object, **options: Any) -> Kind:
        defined.append(define(api, schema, **options))
        return defined[-1]

    yield one
    for kind in defined:
        undefine(kind)


@pytest.fixture(scope="session")
def widget(api: Api) -> Iterator[Kind]:
    """A custom kind with the status and scale subresources."""
    from .objects import WIDGET_SCHEMA, WIDGET_SUBRESOURCES

    kind = define(api, WIDGET_SCHEMA, subresources=WIDGET_SUBRESOURCES)
    yield kind
    undefine(kind)


@pytest.fixture(scope="session")
def gadget(api: Api) -> Iterator[Kind]:
    """The same without subresources: status is a field like any other."""
    from .objects import WIDGET_SCHEMA

    kind = define(api, WIDGET_SCHEMA, kind="Gadget")
    yield kind
    undefine(kind)
