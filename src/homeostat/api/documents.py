"""What the server says about itself: health, version, discovery, OpenAPI, keys, metrics."""

from __future__ import annotations

import asyncio
import platform
from typing import TYPE_CHECKING

import orjson

from homeostat.api.discovery import Answer, Discovery, readable
from homeostat.api.openapi import V2_PROTOBUF, OpenApi, negotiate_v2, negotiate_v3
from homeostat.api.request import Request, Response, json_response, split_path
from homeostat.api.shape import ACCEPTED
from homeostat.model.errors import not_acceptable, path_method_not_allowed, path_not_found
from homeostat.model.protocol import JSON, KUBERNETES

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_TEXT = "text/plain; charset=utf-8"


class Documents:
    """Answers to everything that is not about objects. Discovery and OpenAPI are made anew when the kinds change."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._generation = -1
        self._discovery: Discovery | None = None
        self._openapi: OpenApi | None = None

    def public(self, request: Request) -> Response | None:
        """Health, which anybody may ask for."""
        path = request.path.rstrip("/")
        check, _, part = path[1:].partition("/")
        if f"/{check}" not in _HEALTH or request.method != "GET":
            return None
        if part not in ("", "ping", "store"):
            raise path_not_found()
        ready = self._plane.ready or check != "readyz"
        word = "ok" if ready else "not ready"
        if "verbose" in request.params and not part:
            word = f"[{'+' if ready else '-'}]ping {word}\n[+]store ok\n{check} check {'passed' if ready else 'failed'}\n"
        return Response(200 if ready else 503, word.encode(), _TEXT)

    async def answer(self, request: Request) -> Response:
        """A document by its path; 404 where there is none."""
        if request.method != "GET":
            raise path_method_not_allowed()
        segments = split_path(request.path)
        if request.head_only and (segments[:1] in (["version"], ["api"]) or (segments[:1] == ["apis"] and len(segments) > 1)):
            raise path_method_not_allowed()  # upstream's router knows these by GET alone
        match segments:
            case []:
                return json_response({"paths": self._paths()})
            case ["version"]:
                return json_response(version())
            case ["metrics"]:
                return Response(200, self._plane.metrics(), "text/plain; version=0.0.4; charset=utf-8")
            case ["openid", "v1", "jwks"]:
                keys = self._plane.authenticator.service_accounts.jwks()
                return Response(200, orjson.dumps(keys), "application/jwk-set+json")
            case [".well-known", "openid-configuration"]:
                return json_response(
                    self._plane.authenticator.service_accounts.openid_configuration(self._plane.address)
                )
            case ["openapi", *rest]:
                # Built on a thread where it must be: a hundred milliseconds of work should not hold up everybody.
                return await asyncio.to_thread(self._openapi_document, request, rest, self._current_openapi())
            case ["api" | "apis", *_]:
                accept = request.header(b"accept")
                if not readable(accept):
                    raise not_acceptable(ACCEPTED)
                found = self._current_discovery().answer(request.path, accept)
                return _answer(request, found)
        raise path_not_found()

    def _renew(self) -> None:
        if self._generation != self._plane.registry.generation:
            self._generation = self._plane.registry.generation
            self._discovery = None
            self._openapi = None

    def _current_discovery(self) -> Discovery:
        self._renew()
        if self._discovery is None:
            self._discovery = Discovery(self._plane.registry, self._plane.address.partition("//")[2])
        return self._discovery

    def _current_openapi(self) -> OpenApi:
        self._renew()
        if self._openapi is None:
            self._openapi = OpenApi(self._plane.registry)
        return self._openapi

    def _openapi_document(self, request: Request, rest: list[str], openapi: OpenApi) -> Response:
        accept = request.header(b"accept")
        if rest == ["v2"]:
            form = negotiate_v2(accept)
            if not form:
                raise not_acceptable(f"{JSON}, {V2_PROTOBUF}")
            return _answer(request, openapi.v2_proto() if form == V2_PROTOBUF else openapi.v2_json())
        if rest[:1] != ["v3"]:
            raise path_not_found()
        if not negotiate_v3(accept):
            raise not_acceptable(JSON)
        match rest[1:]:
            case []:
                return _answer(request, openapi.v3_index())
            case ["api", version]:
                return self._v3(request, openapi, "", version)
            case ["apis", group, version]:
                return self._v3(request, openapi, group, version)
        raise path_not_found()

    @staticmethod
    def _v3(request: Request, openapi: OpenApi, group: str, version: str) -> Response:
        document = openapi.v3_document(group, version)
        wanted = request.params.get("hash", "")
        if document is not None and wanted and wanted != document.etag[1:-1]:
            url = openapi.v3_url(group, version)
            return Response(301, headers=[(b"location", url.encode())])
        response = _answer(request, document)
        if wanted:
            response.headers.append((b"cache-control", b"public, immutable"))
        return response

    def _paths(self) -> list[str]:
        discovery = self._current_discovery()
        paths = ["/api", "/api/v1", "/apis"]
        for group in discovery.groups():
            if group:
                paths.append(f"/apis/{group}")
                paths += [f"/apis/{group}/{version}" for version in discovery.versions(group)]
        return [*paths, "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]


def _answer(request: Request, document: Answer | None) -> Response:
    if document is None:
        raise path_not_found()
    etag = document.etag.encode()
    headers = [(b"etag", etag), (b"vary", b"Accept")]
    if request.header(b"if-none-match") == document.etag:
        # The content type must be the document's here too: caches take the headers of a 304 for the newer ones.
        return Response(304, content_type=document.content_type, headers=headers)
    return Response(200, document.body, document.content_type, headers=headers)


def version() -> dict[str, str]:
    """`/version`, in the form `kubectl version` reads."""
    from homeostat import __version__

    major, minor = KUBERNETES
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{major}.{minor}.0+homeostat.{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
