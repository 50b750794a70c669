"""From a path to what it asks for: the kind, the object, the verb, and the function that does it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from homeostat.api import answers, hosted, past, patching, read, scale, write
from homeostat.api.auth import Attributes, User, usertokens
from homeostat.api.call import Call
from homeostat.api.delete import delete, delete_collection
from homeostat.api.discovery import STREAMS
from homeostat.api.registry import Place, Registry
from homeostat.api.request import Request, Response
from homeostat.api.resource import Resource
from homeostat.api.watch import watch
from homeostat.model.errors import ApiError, bad_request, method_not_allowed, path_method_not_allowed, path_not_found

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

Verb = Callable[["ControlPlane", Call], Awaitable[Response]]
_plain = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._:-]*").fullmatch
"""A segment of a path that means what it says: nothing is quoted in it, and it is no step up."""
_VERBS: dict[tuple[str, bool], str] = {
    ("GET", True): "get",
    ("GET", False): "list",
    ("POST", True): "create",
    ("POST", False): "create",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
}
_HANDLERS: dict[str, Verb] = {
    "get": read.get,
    "list": read.list_objects,
    "watch": watch,
    "create": write.create,
    "update": write.update,
    "patch": patching.patch,
    "delete": delete,
    "deletecollection": delete_collection,
}
_OF_THE_PAST: dict[str, Verb] = {"get": past.get, "list": past.list_objects}
_OF_A_NAMESPACE = ("status", "finalize")
"""What follows the name of a namespace and is no kind of objects in it."""
_PARTS = ("status", "ephemeralcontainers", "resize")
_SUBRESOURCES: dict[tuple[str, str], Verb] = {
    **{(part, verb): _HANDLERS[verb] for part in _PARTS for verb in ("get", "update", "patch")},
    ("finalize", "update"): write.update,
    ("scale", "get"): scale.get,
    ("scale", "update"): scale.update,
    ("scale", "patch"): scale.patch,
    ("token", "create"): answers.service_account_token,
    ("binding", "create"): hosted.bind,
    ("eviction", "create"): hosted.evict,
    ("log", "get"): hosted.log,
    **{(stream, verb): hosted.connect for stream in STREAMS - {"log"} for verb in ("get", "create")},
}


def recall(registry: Registry, request: Request, user: User) -> Call | None:
    """What `resolve` says of a path, where that is plain and its collection was asked for before; None where it has to be asked."""
    place = registry.place(request.path)
    if place is not None:
        return _recalled(request, user, place)
    path, _, name = request.path.rpartition("/")
    subresource = ""
    place = registry.place(path)
    if place is None:
        subresource = name
        path, _, name = path.rpartition("/")
        place = registry.place(path)
        if place is None or not _plain(subresource) or (path.endswith("/namespaces") and subresource not in _OF_A_NAMESPACE):
            return None
    if not _plain(name) or place.resource.namespaced != bool(place.namespace):
        return None
    return _recalled(request, user, place, name, subresource)


def _recalled(request: Request, user: User, place: Place, name: str = "", subresource: str = "") -> Call | None:
    try:
        return _call(request, user, place, name, subresource)
    except ApiError:
        return None  # who may not use a kind is not told whether there is one


def resolve(registry: Registry, request: Request, segments: list[str], user: User) -> Call | None:
    """The call that a path means; None where the path is about a group and not about objects."""
    group, version, rest = _grouped(segments)
    watching = False
    if rest and rest[0] == "watch":
        watching, rest = True, rest[1:]  # the old way to ask for a watch
    if not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_A_NAMESPACE:
        namespace, rest = rest[1], rest[2:]
    found = registry.find(group, version, rest[0])
    if found is None or len(rest) > 3:
        raise path_not_found()
    resource, codec = found
    if resource.namespaced != bool(namespace) and (namespace or len(rest) > 1):
        raise path_not_found()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    place = Place(resource, codec, namespace)
    if not watching and all(map(_plain, segments)):
        registry.remember("/" + "/".join(segments[: len(segments) - len(rest) + 1]), place)
    return _call(request, user, place, name, subresource, watching)


def _call(request: Request, user: User, place: Place, name: str, subresource: str, watching: bool = False) -> Call:
    resource, codec, namespace = place
    verb = _VERBS.get((request.method, bool(name)))
    if resource.custom and not name and request.method in ("PUT", "PATCH"):
        raise bad_request("name must be provided")
    if verb is None or (verb == "create" and bool(name) != bool(subresource)):
        raise _not_allowed(resource, request.method.lower())
    if watching and request.method != "GET":
        raise _not_allowed(resource, request.method.lower())
    if watching or (verb == "list" and request.query and request.flag("watch")):
        verb = "watch"
    return Call(request, user, verb, resource, codec, namespace, name, subresource)


def handler(call: Call) -> Verb:
    """The function that does what a call asks for; 404 or 405 where there is none."""
    found = _handler(call)
    if call.request.head_only and not call.resource.custom:
        raise path_method_not_allowed()
    return found


def _handler(call: Call) -> Verb:
    resource, sub = call.resource, call.subresource
    if sub:
        handler = _SUBRESOURCES.get((sub, call.verb))
        served = (
            call.codec.version.status
            if sub == "status"
            else call.codec.version.scale is not None
            if sub == "scale"
            else sub in resource.subresources
        )
        if not served:
            raise call.not_found() if resource.custom else path_not_found()
        if handler is None:
            raise _not_allowed(resource, call.verb)
        return handler
    if call.verb not in resource.verbs:
        raise _not_allowed(resource, call.verb)
    if resource.verbs == ("create",):
        return hosted.bind if resource.kind == "Binding" else answers.review
    if call.verb == "create" and resource.qualified == usertokens.QUALIFIED:
        return answers.user_token
    if call.verb in ("create", "deletecollection") and resource.namespaced and not call.namespace:
        raise path_not_found() if resource.custom else path_method_not_allowed()
    if call.verb in _OF_THE_PAST and call.request.query and past.asked(call.request):
        return _OF_THE_PAST[call.verb]
    return _HANDLERS[call.verb]


def _grouped(segments: list[str]) -> tuple[str, str, list[str]]:
    """Group, version, and the rest of a path under /api or /apis."""
    if segments[0] == "api":
        return "", segments[1], segments[2:]
    return segments[1], segments[2], segments[3:]


def unserved(user: User, request: Request, segments: list[str]) -> Attributes:
    """What a path would ask for if there were such a kind, or such a way to use it."""
    group, version, rest = _grouped(segments)
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", "", ""][:3]
    verb = _VERBS.get((request.method, bool(name)), request.method.lower())
    return Attributes(user, verb, group, version, plural, subresource, namespace, name)


def _not_allowed(resource: Resource, verb: str) -> ApiError:
    """The kind is there, but not this way to use it.

    Upstream has one wording for its own kinds, another for custom ones.
    """
    return method_not_allowed(resource.group, resource.plural, verb) if resource.custom else path_method_not_allowed()
