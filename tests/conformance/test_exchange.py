"""What goes along with an answer: compression, the id of the request, and requests for the head of an answer alone."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from .conftest import Api, Kind, make_namespace
from .objects import make

LARGE = 128 * 1024


class Raw:
    """Answers as they came over the wire: body in bytes, nothing decoded."""

    def __init__(self, api: Api) -> None:
        credentials = api.credentials
        parts = urlsplit(credentials.server)
        assert parts.hostname
        self._headers = {"Accept": "application/json", **credentials.headers}
        if credentials.tls:
            self.connection = http.client.HTTPSConnection(parts.hostname, parts.port, context=credentials.tls, timeout=20)
        else:
            self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)

    def __call__(
        self, path: str, method: str = "GET", body: Any = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        sent = {**self._headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        self.connection.request(method, path, body, sent)
        response = self.connection.getresponse()
        return response.status, response.headers, response.read()


@pytest.fixture
def raw(api: Api) -> Iterator[Raw]:
    asked = Raw(api)
    yield asked
    asked.connection.close()


@pytest.fixture(scope="module")
def shelf(api: Api) -> Iterator[str]:
    """A collection whose list is larger than what is sent uncompressed, with one small and one large object."""
    name = make_namespace(api)
    path = f"/api/v1/namespaces/{name}/configmaps"
    api.post(path, {"metadata": {"name": "small"}, "data": {"a": "b"}}).expect(201)
    api.post(path, {"metadata": {"name": "large"}, "data": {"text": "the same again; " * (LARGE // 16 + 1)}}).expect(201)
    yield path
    api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def long_shelf(api: Api, shelf: str) -> Iterator[str]:
    """So many objects that their list is sent in pieces."""
    name = make_namespace(api)
    path = f"/api/v1/namespaces/{name}/configmaps"
    for i in range(1100):
        api.post(path, {"metadata": {"name": f"item-{i:04}"}}).expect(201)
    yield path
    api.delete(f"/api/v1/namespaces/{name}")


# Compression


@pytest.mark.parametrize("name", ["", "/large"])
def test_large_answers_are_compressed_for_those_who_read_it(raw: Raw, shelf: str, name: str) -> None:
    _, plain_headers, plain = raw(shelf + name)
    assert plain_headers["Content-Encoding"] is None
    status, headers, body = raw(shelf + name, Accept_Encoding="deflate, gzip")
    assert status == 200
    assert headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in (headers.get_all("Vary") or [])
    assert headers["Content-Type"] == "application/json"
    assert len(body) < len(plain) // 4
    assert json.loads(gzip.decompress(body)) == json.loads(plain)


def test_a_long_list_is_compressed_too(raw: Raw, long_shelf: str) -> None:
    plain = json.loads(raw(long_shelf)[2])
    _, headers, body = raw(long_shelf, Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(body)) == plain
    assert len(plain["items"]) >= 1100


def test_small_answers_are_sent_as_they_are(raw: Raw, shelf: str) -> None:
    _, headers, body = raw(f"{shelf}/small", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] is None
    assert json.loads(body)["data"] == {"a": "b"}


@pytest.mark.parametrize("encoding", ["", "deflate", "identity", "gzip;q=1", "x-gzip"])
def test_who_does_not_name_gzip_gets_it_plain(raw: Raw, shelf: str, encoding: str) -> None:
    _, headers, body = raw(f"{shelf}/large", Accept_Encoding=encoding)
    assert headers["Content-Encoding"] is None
    assert json.loads(body)["metadata"]["name"] == "large"


def test_yaml_is_compressed_like_json(raw: Raw, shelf: str) -> None:
    _, headers, body = raw(shelf, Accept="application/yaml", Accept_Encoding="gzip")
    assert (headers["Content-Encoding"], headers["Content-Type"]) == ("gzip", "application/yaml")
    assert gzip.decompress(body).startswith(b"apiVersion: v1\n")


def test_what_describes_the_api_is_compressed(raw: Raw) -> None:
    _, headers, body = raw("/openapi/v2", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(body))["swagger"] == "2.0"


def test_watches_are_not_compressed(raw: Raw, shelf: str) -> None:
    _, headers, body = raw(f"{shelf}?watch=true&timeoutSeconds=1", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] is None
    assert {json.loads(line)["type"] for line in body.splitlines()} == {"ADDED"}


@pytest.mark.parametrize(
    ("method", "media"),
    [
        ("POST", "application/json"),
        ("PATCH", "application/merge-patch+json"),
        ("PATCH", "application/apply-patch+yaml"),
    ],
)
def test_compressed_bodies_are_refused(raw: Raw, shelf: str, method: str, media: str) -> None:
    path = shelf if method == "POST" else f"{shelf}/small?fieldManager=test"
    packed = gzip.compress(b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"small"}}')
    status, _, body = raw(path, method, packed, Content_Type=media, Content_Encoding="gzip")
    assert (status, json.loads(body)["reason"]) == (400, "BadRequest")


# The id of a request


@pytest.mark.parametrize("path", ["/api/v1/namespaces", "/api/v1/namespaces/nothing", "/version", "/healthz", "/nowhere"])
def test_every_answer_names_its_request(api: Api, path: str) -> None:
    first, second = api.get(path).headers["Audit-Id"], api.get(path).headers["Audit-Id"]
    assert len(first) == len(second) == 36
    assert first != second


def test_a_request_may_bring_its_own_id(api: Api) -> None:
    assert api.get("/api/v1/namespaces", headers={"Audit-ID": "mine-1"}).headers["Audit-Id"] == "mine-1"


# The head alone


@pytest.mark.parametrize("path", ["/api/v1/namespaces", "/api/v1/namespaces/default", "/version", "/api/v1"])
def test_built_in_kinds_have_no_head(raw: Raw, path: str) -> None:
    status, _, body = raw(path, "HEAD")
    assert (status, body) == (405, b"")


def test_custom_kinds_have_one(api: Api, raw: Raw, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "one")
    for path in (widget.path(namespace), widget.path(namespace, "one")):
        status, headers, body = raw(path, "HEAD")
        assert (status, headers["Content-Type"], body) == (200, "application/json", b"")
    assert raw(widget.path(namespace, "nothing"), "HEAD")[0] == 404


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi/v2", "/apis"])
def test_other_paths_have_one(raw: Raw, path: str) -> None:
    status, _, body = raw(path, "HEAD")
    assert (status, body) == (200, b"")


def test_a_trailing_slash_changes_nothing(api: Api, widget: Kind, namespace: str) -> None:
    made = make(api, widget, namespace, "one")
    for path in ("/api/", "/api/v1/", "/apis/", "/apis/apps/v1/", "/version/", "/api/v1/namespaces/", f"{widget.path(namespace)}/"):
        assert api.get(path).body == api.get(path.rstrip("/")).body
    assert api.get(f"{widget.path(namespace, 'one')}/").expect(200) == made
