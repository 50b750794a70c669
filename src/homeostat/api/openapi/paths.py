"""The operations in a document: one route for each verb of each served resource, in v2 or v3 dress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from homeostat.api.builtin.types import definition_name
from homeostat.api.discovery import STREAMS, Kind, subresources_of
from homeostat.api.openapi import texts
from homeostat.api.openapi.definitions import DELETE_OPTIONS, PATCH, STATUS, Definitions, type_name
from homeostat.api.resource import Resource
from homeostat.model.protocol import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, YAML

Json = dict[str, Any]

_OBJECT_TYPES = (JSON, YAML)

_LIST = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_QUERY = {
    "get": (),
    "list": _LIST,
    "post": _WRITE,
    "put": _WRITE,
    "patch": (*_WRITE, "force"),
    "delete": _DELETE,
    "deletecollection": (*_LIST, *_DELETE),
}

# verb → HTTP method, x-kubernetes-action, first word of the operation's id
_COLLECTION_VERBS = {
    "list": ("get", "list", "list"),
    "create": ("post", "post", "create"),
    "deletecollection": ("delete", "deletecollection", "deleteCollection"),
}
_OBJECT_VERBS = {
    "get": ("get", "get", "read"),
    "update": ("put", "put", "replace"),
    "delete": ("delete", "delete", "delete"),
    "patch": ("patch", "patch", "patch"),
}
_WORDS = {
    "deleteCollection": "delete a collection of",
    "patch": "partially update",
    "list": "list or watch objects of kind",
}


class Route(msgspec.Struct, frozen=True):
    """One operation, before it is put into the words of a document version."""

    path: str
    method: str
    action: str
    operation_id: str
    description: str
    tag: str
    kind: Kind
    body: str  # name of the type of the request's body; empty for none
    body_types: tuple[str, ...]
    result: str  # name of the type of the response
    codes: tuple[tuple[str, str], ...]


def routes_of(resource: Resource, version: str) -> Iterator[Route]:
    """All operations on a resource in one of its versions."""
    root = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    scope = f"{root}/namespaces/{{namespace}}" if resource.namespaced else root
    collection = f"{scope}/{resource.plural}"
    own = type_name(resource, version)
    kind = (resource.group, version, resource.kind)
    for verb, words in _COLLECTION_VERBS.items():
        if verb in resource.verbs:
            result = {"list": type_name(resource, version, resource.list_kind), "create": own}.get(verb, STATUS)
            yield _route(resource, version, collection, words, kind, own, result)
    if resource.namespaced and "list" in resource.verbs:
        result = type_name(resource, version, resource.list_kind)
        words = _COLLECTION_VERBS["list"]
        yield _route(resource, version, f"{root}/{resource.plural}", words, kind, own, result, "ForAllNamespaces")
    for verb, words in _OBJECT_VERBS.items():
        if verb in resource.verbs:
            result = STATUS if verb == "delete" else own
            yield _route(resource, version, f"{collection}/{{name}}", words, kind, own, result)
    for name, sub_kind, verbs in subresources_of(resource, version):
        if name in STREAMS:
            continue
        sub_type = own if sub_kind == kind else definition_name("/".join(filter(None, sub_kind[:2])), sub_kind[2])
        for verb in verbs:
            words = _OBJECT_VERBS.get(verb) or _COLLECTION_VERBS[verb]
            path = f"{collection}/{{name}}/{name}"
            yield _route(resource, version, path, words, sub_kind, sub_type, sub_type, name.capitalize())


def _route(
    resource: Resource,
    version: str,
    path: str,
    words: tuple[str, str, str],
    kind: Kind,
    body: str,
    result: str,
    suffix: str = "",
) -> Route:
    method, action, first = words
    group = "".join(part.capitalize() for part in (resource.group.removesuffix(".k8s.io") or "core").split("."))
    scope = "Namespaced" if "{namespace}" in path else ""
    bodies = {
        "post": (body, _OBJECT_TYPES),
        "put": (body, _OBJECT_TYPES),
        "patch": (PATCH, (JSON_PATCH, MERGE_PATCH, *(() if resource.custom else (STRATEGIC_PATCH,)), APPLY_PATCH)),
        "delete": (DELETE_OPTIONS, _OBJECT_TYPES),
    }
    body, body_types = bodies.get(method, ("", ()))
    codes = [("200", "OK"), ("401", "Unauthorized")]
    if method in ("post", "put", "patch"):
        codes.insert(1, ("201", "Created"))
    if method in ("post", "delete"):
        codes.insert(-1, ("202", "Accepted"))
    return Route(
        path=path,
        method=method,
        action=action,
        operation_id=f"{first}{group}{version.capitalize()}{scope}{resource.kind}{suffix}",
        description=_describe(first, resource.kind, suffix),
        tag=f"{group[0].lower()}{group[1:]}_{version}",
        kind=kind,
        body=body,
        body_types=body_types,
        result=result,
        codes=tuple(codes),
    )


def _describe(first: str, kind: str, suffix: str) -> str:
    part = f"{suffix.lower()} of " if suffix and suffix != "ForAllNamespaces" else ""
    return f"{_WORDS.get(first, first)} {part}{kind}"


def paths_v3(routes: Iterator[Route], definitions: Definitions) -> dict[str, Json]:
    """The `paths` of a v3 document."""
    paths: dict[str, Json] = {}
    for route in routes:
        operation = _operation(route)
        operation["parameters"] = [_parameter_v3(name, "query") for name in ("pretty", *_QUERY[route.action])]
        if route.body:
            schema = definitions.ref(route.body)
            content = {media: {"schema": schema} for media in route.body_types}
            operation["requestBody"] = {"content": content, **({"required": True} if route.method != "delete" else {})}
        content = {media: {"schema": definitions.ref(route.result)} for media in _OBJECT_TYPES}
        operation["responses"] = {
            code: {"description": text, **({"content": content} if code != "401" else {})} for code, text in route.codes
        }
        item = paths.setdefault(route.path, {"parameters": [_parameter_v3(n, "path") for n in _path_parameters(route)]})
        item[route.method] = operation
    return paths


def paths_v2(routes: Iterator[Route], definitions: Definitions) -> dict[str, Json]:
    """The `paths` of a v2 document."""
    paths: dict[str, Json] = {}
    for route in routes:
        operation = _operation(route)
        operation["consumes"] = list(route.body_types) or ["*/*"]
        operation["produces"] = list(_OBJECT_TYPES)
        parameters = [_parameter_v2(name, "query") for name in ("pretty", *_QUERY[route.action])]
        if route.body:
            body = {"name": "body", "in": "body", "schema": definitions.ref(route.body)}
            parameters.insert(0, {**body, "required": True} if route.method != "delete" else body)
        operation["parameters"] = parameters
        schema = definitions.ref(route.result)
        operation["responses"] = {
            code: {"description": text, **({"schema": schema} if code != "401" else {})} for code, text in route.codes
        }
        item = paths.setdefault(route.path, {"parameters": [_parameter_v2(n, "path") for n in _path_parameters(route)]})
        item[route.method] = operation
    return paths


def _operation(route: Route) -> Json:
    group, version, kind = route.kind
    return {
        "tags": [route.tag],
        "description": route.description,
        "operationId": route.operation_id,
        "x-kubernetes-action": route.action,
        "x-kubernetes-group-version-kind": {"group": group, "kind": kind, "version": version},
    }


def _path_parameters(route: Route) -> list[str]:
    return [name for name in ("name", "namespace") if f"{{{name}}}" in route.path]


def _parameter_v3(name: str, where: str) -> Json:
    parameter = _parameter_v2(name, where)
    schema = {"type": parameter.pop("type")}
    return {**parameter, "schema": schema}


def _parameter_v2(name: str, where: str) -> Json:
    kind, text = texts.PARAMETERS[name]
    required = {"required": True} if where == "path" else {}
    return {"name": name, "in": where, "description": text, "type": kind, **required}
