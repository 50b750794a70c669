"""A handful of kinds, and a bare HTTP server for their documents, so that the real kubectl can read them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from homeostat.api.builtin.types import schema_of
from homeostat.api.discovery import Answer, Discovery
from homeostat.api.openapi import V2_PROTOBUF, OpenApi, negotiate_v2
from homeostat.api.resource import Resource, Scale, Version
from homeostat.model.schema import Schema

WIDGET = {
    "description": "A widget that turns.",
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "description": "How it should turn.",
            "required": ["speed", "colour"],
            "properties": {
                "speed": {"x-kubernetes-int-or-string": True, "description": "Turns a second."},
                "colour": {"type": "string", "nullable": True},
                "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                "free": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"a": {"type": "string"}},
                },
                "limit": {"type": "integer", "minimum": 1, "maximum": 9, "oneOf": [{"minimum": 2}]},
                "template": {"type": "object", "x-kubernetes-embedded-resource": True},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}


def builtin(api_version: str, kind: str, plural: str, *, namespaced: bool = True, **more: object) -> Resource:
    group, _, version = api_version.rpartition("/")
    form = Version(version, schema=schema_of(api_version, kind), status=bool(more.pop("status", False)))
    form.scale = more.pop("scale", None)  # type: ignore[assignment]
    return Resource(group, plural, kind, kind.lower(), namespaced, {version: form}, version, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def resources() -> list[Resource]:
    replicas = Scale(".spec.replicas", ".status.replicas")
    widget = Resource(
        group="example.com",
        plural="widgets",
        kind="Widget",
        singular="widget",
        namespaced=True,
        versions={
            "v1": Version("v1", schema=Schema(WIDGET), status=True, scale=replicas),
            "v1beta1": Version("v1beta1"),
            "v2alpha1": Version("v2alpha1", served=False),
        },
        storage="v1",
        short_names=("wd",),
        categories=("all",),
        custom=True,
    )
    crds = "customresourcedefinitions"
    return [
        widget,
        builtin("v1", "Namespace", "namespaces", namespaced=False, status=True, subresources=("finalize",)),
        builtin("v1", "ConfigMap", "configmaps", short_names=("cm",)),
        builtin("v1", "Pod", "pods", status=True, short_names=("po",), subresources=("eviction", "binding", "log")),
        builtin("v1", "ServiceAccount", "serviceaccounts", short_names=("sa",), subresources=("token",)),
        builtin("v1", "Event", "events"),
        builtin("events.k8s.io/v1", "Event", "events"),
        builtin("apps/v1", "Deployment", "deployments", status=True, scale=replicas, short_names=("deploy",)),
        builtin("authentication.k8s.io/v1", "TokenReview", "tokenreviews", namespaced=False, verbs=("create",)),
        builtin("apiextensions.k8s.io/v1", "CustomResourceDefinition", crds, namespaced=False, status=True),
    ]


@pytest.fixture(scope="session")
def address(resources: list[Resource]) -> Iterator[str]:
    """Where a plain HTTP server gives out the documents."""
    discovery, openapi = Discovery(resources), OpenApi(resources)

    def find(path: str, accept: str) -> Answer | None:
        parts = path.strip("/").split("/")
        if path == "/openapi/v2":
            return openapi.v2_proto() if negotiate_v2(accept) == V2_PROTOBUF else openapi.v2_json()
        if path == "/openapi/v3":
            return openapi.v3_index()
        if parts[:2] == ["openapi", "v3"]:
            return openapi.v3_document("/".join(parts[3:-1]), parts[-1])
        return discovery.answer(path, accept)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = find(urlsplit(self.path).path, self.headers.get("Accept", ""))
            self.send_response(200 if answer else 404)
            body = answer.body if answer else b"{}"
            self.send_header("Content-Type", answer.content_type if answer else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def kubectl(address: str, tmp_path: Path) -> Callable[..., str]:
    """Runs the kubectl on the PATH (or `$KUBECTL`) against the documents; what it says, whether it succeeds or not."""
    program = os.environ.get("KUBECTL") or shutil.which("kubectl")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("kubectl is not installed")
        pytest.skip("kubectl is not installed")

    def run(*arguments: str) -> str:
        call = [program, "--server", address, "--cache-dir", str(tmp_path / "cache"), *arguments]
        environment = {"HOME": str(tmp_path), "KUBECONFIG": os.devnull, "PATH": os.environ["PATH"]}
        done = subprocess.run(call, capture_output=True, text=True, env=environment, timeout=30, check=False)
        return done.stdout + done.stderr

    return run
