"""From an answer that says no to the `ApiError` it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from homeostat.model.errors import ApiError

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_TEXT_LIMIT = 1024

PASSING = frozenset({429, 500, 502, 503, 504})
"""Codes of troubles that may be over by the next try."""


def from_status(status: Mapping[str, Any], code: int = 0, retry_after: int = 0) -> ApiError:
    """The error that a `Status` object of meta/v1 describes; `code` and `retry_after` where it says neither."""
    details = status.get("details") or {}
    code = status.get("code") or code or 500
    error = ApiError(
        code,
        status.get("reason") or _REASONS.get(code, "Unknown"),
        status.get("message") or f"the server answered {code} and did not say why",
        group=details.get("group", ""),
        kind=details.get("kind", ""),
        name=details.get("name", ""),
        uid=details.get("uid", ""),
        causes=details.get("causes") or (),
        retry_after=details.get("retryAfterSeconds") or retry_after,
    )
    error.resume = (status.get("metadata") or {}).get("continue", "")
    return error


def from_answer(code: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error of an HTTP answer. What is no `Status` (a proxy's page, plain text) becomes the message."""
    after = headers.get("retry-after", "")
    retry_after = int(after) if after.isdigit() else 0
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return from_status(status, code, retry_after)
    text = body[:_TEXT_LIMIT].decode("utf-8", "replace").strip()
    return ApiError(code, _REASONS.get(code, "Unknown"), text or f"the server answered {code}", retry_after=retry_after)


def is_expired(error: ApiError) -> bool:
    """The asked resourceVersion is of another time, forgotten or still to come: only a fresh list helps."""
    if error.code == 410 or error.reason in ("Expired", "Gone"):
        return True
    too_large = any(cause.get("reason") == "ResourceVersionTooLarge" for cause in error.causes)
    return error.code == 504 and (too_large or "Too large resource version" in error.message)
