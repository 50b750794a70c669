"""Errors as people and clients see them: Kubernetes `Status` objects with a reason, causes and field paths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import orjson

UNSET: Any = type("Unset", (), {"__repr__": lambda _: "UNSET", "__bool__": lambda _: False})()


class FieldError(msgspec.Struct, frozen=True):
    """One thing wrong with one field, worded as kube-apiserver words it.

    `reason` is the machine's word (`FieldValueInvalid`), `path` the field (`spec.containers[0].name`).
    """

    reason: str
    path: str
    detail: str

    @classmethod
    def required(cls, path: str, detail: str = "") -> FieldError:
        return cls("FieldValueRequired", path, _join("Required value", detail))

    @classmethod
    def invalid(cls, path: str, value: Any, detail: str) -> FieldError:
        return cls("FieldValueInvalid", path, _join(f"Invalid value: {show(value)}", detail))

    @classmethod
    def type_invalid(cls, path: str, value: Any, detail: str) -> FieldError:
        return cls("FieldValueTypeInvalid", path, _join(f"Invalid value: {show(value)}", detail))

    @classmethod
    def not_supported(cls, path: str, value: Any, supported: Iterable[str]) -> FieldError:
        listed = ", ".join(show(s) for s in supported)
        detail = f"supported values: {listed}" if listed else ""
        return cls("FieldValueNotSupported", path, _join(f"Unsupported value: {show(value)}", detail))

    @classmethod
    def duplicate(cls, path: str, value: Any) -> FieldError:
        return cls("FieldValueDuplicate", path, f"Duplicate value: {show(value)}")

    @classmethod
    def forbidden(cls, path: str, detail: str) -> FieldError:
        return cls("FieldValueForbidden", path, _join("Forbidden", detail))

    @classmethod
    def not_found(cls, path: str, value: Any) -> FieldError:
        return cls("FieldValueNotFound", path, f"Not found: {show(value)}")

    @classmethod
    def too_long(cls, path: str, limit: int) -> FieldError:
        return cls("FieldValueTooLong", path, f"Too long: may not be more than {_counted(limit, 'byte')}")

    @classmethod
    def too_many(cls, path: str, count: int, limit: int) -> FieldError:
        return cls("FieldValueTooMany", path, f"Too many: {count}: must have at most {_counted(limit, 'item')}")

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"


def show(value: Any) -> str:
    """A value as it appears inside an error message: JSON, and not too much of it."""
    if value is UNSET:
        return "null"
    text = orjson.dumps(value, default=str).decode()
    return text if len(text) <= 400 else text[:397] + "..."


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _join(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


MESSAGE_LIMIT = 64 * 1024
CAUSE_LIMIT = 8 * 1024
CAUSES_LIMIT = 1000
"""What of an error is shown at most, in characters and in number."""


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


class ApiError(Exception):
    """A refusal with everything a `Status` object carries. Raise it anywhere below the API; never a traceback."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        group: str = "",
        kind: str = "",
        name: str = "",
        uid: str = "",
        causes: Sequence[dict[str, str]] = (),
        retry_after: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.group = group
        self.kind = kind
        self.name = name
        self.uid = uid
        self.causes = list(causes)
        self.retry_after = retry_after
        self.resume = ""  # a continue token with which an expired list can go on

    def status(self) -> dict[str, Any]:
        """The `Status` object of meta/v1. What is endless in it is cut: a refusal should not outweigh the request."""
        details: dict[str, Any] = {}
        for field, value in (("name", self.name), ("group", self.group), ("kind", self.kind), ("uid", self.uid)):
            if value:
                details[field] = value
        if self.causes:
            details["causes"] = [
                {**cause, "message": _cut(cause.get("message", ""), CAUSE_LIMIT)} for cause in self.causes[:CAUSES_LIMIT]
            ]
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.resume} if self.resume else {},
            "status": "Failure",
            "message": _cut(self.message, MESSAGE_LIMIT),
            "reason": self.reason,
            "code": self.code,
        }
        if details:
            body["details"] = details
        return body


class Denied(ApiError):
    """An admission policy refuses. `summary` says which one, without what it says of the object."""

    summary = ""


def _qualified(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource


def not_found(group: str, resource: str, name: str) -> ApiError:
    """404: no such object."""
    message = f'{_qualified(group, resource)} "{name}" not found'
    return ApiError(404, "NotFound", message, group=group, kind=resource, name=name)


def path_not_found() -> ApiError:
    """404: no such path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(group: str, resource: str, name: str) -> ApiError:
    """409: the name is taken."""
    message = f'{_qualified(group, resource)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, group=group, kind=resource, name=name)


def conflict(group: str, resource: str, name: str, why: str, causes: Sequence[dict[str, str]] = ()) -> ApiError:
    """409: the object is not in the state, or not the object, that the request was made for."""
    message = f'Operation cannot be fulfilled on {_qualified(group, resource)} "{name}": {why}'
    return ApiError(409, "Conflict", message, group=group, kind=resource, name=name, causes=causes)


def apply_conflict(message: str, causes: Sequence[dict[str, str]]) -> ApiError:
    """409: others own what a server-side apply would change."""
    return ApiError(409, "Conflict", message, causes=causes)


def bad_request(message: str) -> ApiError:
    """400: the request makes no sense."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401: nobody is proven."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, resource: str, name: str, why: str) -> ApiError:
    """403: not for this caller, or not now."""
    what = _qualified(group, resource)
    subject = f'{what} "{name}" is forbidden' if name else f"{what} is forbidden"
    return ApiError(403, "Forbidden", f"{subject}: {why}", group=group, kind=resource, name=name)


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> ApiError:
    """422 with one cause per field; the message lists them as kube-apiserver does."""
    shown = errors[:50]
    texts = list(dict.fromkeys(map(str, shown)))
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    causes = [{"reason": e.reason, "message": e.detail, "field": e.path} for e in shown]
    message = f'{_qualified(group, kind)} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, group=group, kind=kind, name=name, causes=causes)


def method_not_allowed(group: str, resource: str, verb: str) -> ApiError:
    """405: the kind is there, but not this way to use it."""
    message = f"{verb} is not supported on resources of kind \"{_qualified(group, resource)}\""
    return ApiError(405, "MethodNotAllowed", message, group=group, kind=resource)


def path_method_not_allowed() -> ApiError:
    """405 in the words that upstream has for its own paths and kinds."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def expired(message: str) -> ApiError:
    """410: the asked past is forgotten."""
    return ApiError(410, "Expired", message)


def not_acceptable(accepted: str) -> ApiError:
    """406: none of the forms that the client accepts can be given."""
    return ApiError(406, "NotAcceptable", f"only the following media types are accepted: {accepted}")


def too_large(limit: int) -> ApiError:
    """413: more bytes than `limit`."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_media_type(accepted: str) -> ApiError:
    """415: the body is of a type that is not read here."""
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return ApiError(415, "UnsupportedMediaType", message)


def too_many_requests(message: str, retry_after: int = 1) -> ApiError:
    """429: come back after `retry_after` seconds."""
    return ApiError(429, "TooManyRequests", message, retry_after=retry_after)


def unavailable(message: str) -> ApiError:
    """503: come back in a second."""
    return ApiError(503, "ServiceUnavailable", message, retry_after=1)


def insufficient_storage(message: str) -> ApiError:
    """507: the disk is full, or takes no writes."""
    return ApiError(507, "InsufficientStorage", message)
