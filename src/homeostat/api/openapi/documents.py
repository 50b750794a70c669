"""The documents themselves: one for v2, one for each group and version for v3, and the index of those."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha512
from typing import Any

import orjson

from homeostat.api.accept import JSON_TYPES, choices
from homeostat.api.discovery import Answer, version_rank
from homeostat.api.openapi.definitions import DELETE_OPTIONS, STATUS, Definitions
from homeostat.api.openapi.paths import paths_v2, paths_v3, routes_of
from homeostat.api.resource import Resource
from homeostat.model.protocol import JSON

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_V2_PROTOBUF_ASKED = (V2_PROTOBUF, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
"""Most clients ask by the second name, but some cannot parse it in a response: `@` is not legal there."""

_INFO = {"title": "Homeostat", "version": "v1"}


def negotiate_v2(accept: str) -> str:
    """The content type for `/openapi/v2` that an Accept header asks for first; empty where there is none (406)."""
    for media in _media(accept):
        if media in _V2_PROTOBUF_ASKED:
            return V2_PROTOBUF
        if media in JSON_TYPES:
            return JSON
    return ""


def negotiate_v3(accept: str) -> str:
    """The content type for `/openapi/v3/…`; empty where we have none that is accepted (406). There is only JSON."""
    return JSON if any(media in JSON_TYPES for media in _media(accept)) else ""


def _media(accept: str) -> list[str]:
    return [media for media, _ in choices(accept or "*/*")]


class OpenApi:
    """The documents of a fixed set of resources; make a new one when the set changes.

    Each is built when first asked for and kept. That takes some tens of milliseconds for v2 and for the v3 index.
    """

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._served: dict[tuple[str, str], list[Resource]] = {}
        for resource in resources:
            for version in resource.versions.values():
                if version.served:
                    self._served.setdefault((resource.group, version.name), []).append(resource)
        self._kept: dict[str, Answer] = {}

    def v2_json(self) -> Answer:
        """`/openapi/v2` as JSON."""
        return self._keep("v2", JSON, lambda: orjson.dumps(self._v2()))

    def v2_proto(self) -> Answer:
        """`/openapi/v2` as gnostic's protobuf; kubectl up to 1.26 reads nothing else."""
        from homeostat.api.openapi.protobuf import document_to_protobuf

        return self._keep("v2 protobuf", V2_PROTOBUF, lambda: document_to_protobuf(self._v2()))

    def v3_index(self) -> Answer:
        """`/openapi/v3`: where the document of each group version is, with its hash."""
        return self._keep("v3", JSON, lambda: orjson.dumps({"paths": self._v3_paths()}))

    def v3_document(self, group: str, version: str) -> Answer | None:
        """`/openapi/v3/api/v1` or `/openapi/v3/apis/{group}/{version}`; None where nothing is served there.

        A request with a `hash` that is not the document's (`etag` without its quotes) is redirected (301) to `v3_url`.
        """
        if (group, version) not in self._served:
            return None
        return self._keep(_v3_key(group, version), JSON, lambda: orjson.dumps(self._v3(group, version)))

    def v3_url(self, group: str, version: str) -> str:
        """Where the document is, hash included. KeyError where nothing is served."""
        document = self.v3_document(group, version)
        if document is None:
            raise KeyError(f"{group}/{version}")
        return f"/openapi/v3/{_v3_key(group, version)}?hash={document.etag[1:-1]}"

    def _keep(self, key: str, content_type: str, build: Callable[[], bytes]) -> Answer:
        if key not in self._kept:
            body = build()
            self._kept[key] = Answer(body, content_type, f'"{sha512(body).hexdigest().upper()}"')
        return self._kept[key]

    def _v3_paths(self) -> dict[str, Any]:
        order = sorted(self._served, key=lambda served: (served[0], version_rank(served[1])))
        return {_v3_key(*served): {"serverRelativeURL": self.v3_url(*served)} for served in order}

    def _v3(self, group: str, version: str) -> dict[str, Any]:
        definitions = Definitions(v3=True)
        paths: dict[str, Any] = {}
        for resource in self._served[group, version]:
            definitions.add_kind(resource, version)
            paths |= paths_v3(routes_of(resource, version), definitions)
        _mark_general_types(definitions)
        return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": definitions.schemas}}

    def _v2(self) -> dict[str, Any]:
        definitions = Definitions(v3=False)
        paths: dict[str, Any] = {}
        for (_, version), kinds in self._served.items():
            for resource in kinds:
                definitions.add_kind(resource, version)
                paths |= paths_v2(routes_of(resource, version), definitions)
        _mark_general_types(definitions)
        return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions.schemas}


def _mark_general_types(definitions: Definitions) -> None:
    definitions.mark(STATUS, ("", "v1", "Status"))
    definitions.mark(DELETE_OPTIONS, ("", "v1", "DeleteOptions"))


def _v3_key(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"
