"""Tokens for people: opaque, made through the API, kept as a digest, gone when their object is deleted.

A token is 256 random bits; its `UserToken` object holds the SHA-256 of it. Looking a token up by its digest needs no
comparison whose timing could tell anything, and no key that could be lost.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping
from typing import Any

from homeostat.api.auth.impersonate import may_act_as
from homeostat.api.auth.rbac import Rbac
from homeostat.api.auth.user import (
    ANONYMOUS,
    AUTHENTICATED,
    CREDENTIAL,
    MASTERS,
    SERVICE_ACCOUNT_PREFIX,
    SERVICE_ACCOUNTS,
    UNAUTHENTICATED,
    User,
)
from homeostat.model.clock import format_time, parse_time
from homeostat.model.errors import FieldError, bad_request, forbidden, invalid

GROUP = "homeostat.dev"
VERSION = "v1"
KIND = "UserToken"
PLURAL = "usertokens"
QUALIFIED = f"{PLURAL}.{GROUP}"
VERBS = ("create", "delete", "deletecollection", "get", "list", "watch")
"""No update and no patch: what a token stands for never changes after it was authorized."""

PREFIX = "hst_"
DEFAULT_SECONDS = 24 * 3600
MAX_SECONDS = 366 * 24 * 3600
GROUPS_LIMIT = 64
NAME_LIMIT = 253


class UserTokens:
    """The tokens that are valid now, by digest. Fed from the stored objects; a removed object is a revoked token."""

    def __init__(self) -> None:
        self._by_digest: dict[str, tuple[User, float]] = {}
        self._digests: dict[str, str] = {}  # by object name

    def upsert(self, obj: Mapping[str, Any]) -> None:
        """Takes a stored `UserToken`. One that says nothing usable is ignored, so it opens nothing."""
        name = obj["metadata"]["name"]
        self.remove(name)
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        digest, expires = status.get("digest"), _seconds(status.get("expirationTimestamp"))
        if not digest or expires is None or not spec.get("user"):
            return
        groups = tuple(dict.fromkeys([*(spec.get("groups") or ()), AUTHENTICATED]))
        extra = {CREDENTIAL: (f"USERTOKEN={name}",)}
        self._by_digest[digest] = (User(spec["user"], "", groups, extra), expires)
        self._digests[name] = digest

    def remove(self, name: str) -> None:
        """Revokes at once: the next request with this token is refused."""
        digest = self._digests.pop(name, None)
        if digest is not None:
            self._by_digest.pop(digest, None)

    def verify(self, token: str, now: float) -> tuple[User, float] | None:
        """Whose token this is and until when; None where it is nobody's, revoked or expired."""
        found = self._by_digest.get(digest(token))
        return found if found is not None and now < found[1] else None

    def expired(self, now: float) -> list[str]:
        """Names of the objects whose tokens are past their time and may be deleted."""
        return [name for name, digest in self._digests.items() if self._by_digest[digest][1] <= now]


def digest(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def mint(request: Mapping[str, Any], caller: User, rbac: Rbac, now: float) -> tuple[dict[str, Any], str]:
    """Checks a request for a token and gives the object to store and the token to show, once.

    Beyond `create usertokens`, which the router checks, the caller must be allowed to impersonate the user and every
    group: a token is lasting impersonation. `system:masters` is given by its members only. Whatever the request
    says about `status` is dropped.
    """
    meta, spec = request.get("metadata") or {}, request.get("spec")
    if not isinstance(meta, dict):
        raise bad_request("metadata must be an object")
    errors = _problems(spec)
    if errors or not isinstance(spec, dict):
        raise invalid(GROUP, KIND, meta.get("name") or "", errors)
    user = spec["user"]
    groups = [group for group in dict.fromkeys(spec.get("groups") or ()) if group != AUTHENTICATED]  # all have that one
    seconds = spec.get("expirationSeconds") or DEFAULT_SECONDS
    if MASTERS in groups and not caller.is_master:
        why = f'user "{caller.name}" cannot grant the group "{MASTERS}": only its members can'
        raise forbidden(GROUP, PLURAL, meta.get("name") or "", why)
    may_act_as(caller, rbac, user, groups)
    if not meta.get("name") and not meta.get("generateName"):
        meta = {**meta, "generateName": "token-"}
    token = PREFIX + secrets.token_hex(32)
    kept: dict[str, Any] = {"user": user, "expirationSeconds": seconds}
    if groups:
        kept["groups"] = groups
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": meta,
        "spec": kept,
        "status": {"expirationTimestamp": format_time(math.ceil(now + seconds)), "digest": digest(token)},
    }, token


def shown_once(stored: Mapping[str, Any], token: str) -> dict[str, Any]:
    """The answer to the creation: the stored object with the token in it."""
    return {**stored, "status": {**stored["status"], "token": token}}


def _problems(spec: Any) -> list[FieldError]:
    if not isinstance(spec, dict):
        return [FieldError.required("spec")]
    errors = []
    user, groups = spec.get("user"), spec.get("groups")
    if not user:
        errors.append(FieldError.required("spec.user"))
    else:
        errors += _name_problems("spec.user", user)
        if isinstance(user, str) and (user == ANONYMOUS or user.startswith(SERVICE_ACCOUNT_PREFIX)):
            detail = "anonymous users have no token, service accounts get theirs by TokenRequest"
            errors.append(FieldError.invalid("spec.user", user, detail))
    if groups is not None and not isinstance(groups, list):
        errors.append(FieldError.type_invalid("spec.groups", groups, "must be a list of strings"))
        groups = None
    if groups and len(groups) > GROUPS_LIMIT:
        errors.append(FieldError.too_many("spec.groups", len(groups), GROUPS_LIMIT))
        groups = None
    for index, group in enumerate(groups or ()):
        path = f"spec.groups[{index}]"
        errors += _name_problems(path, group)
        if group == UNAUTHENTICATED or (isinstance(group, str) and group.startswith(SERVICE_ACCOUNTS)):
            errors.append(FieldError.invalid(path, group, "is given by the way of authentication, not by a token"))
    seconds = spec.get("expirationSeconds")
    if seconds is not None and (type(seconds) is not int or not 1 <= seconds <= MAX_SECONDS):
        errors.append(FieldError.invalid("spec.expirationSeconds", seconds, f"must be between 1 and {MAX_SECONDS}"))
    return errors


def _name_problems(path: str, value: Any) -> list[FieldError]:
    if not isinstance(value, str) or not value:
        return [FieldError.invalid(path, value, "must be a non-empty string")]
    if not value.isprintable() or value != value.strip():
        return [FieldError.invalid(path, value, "must not hold control characters or surrounding spaces")]
    return [FieldError.too_long(path, NAME_LIMIT)] if len(value.encode()) > NAME_LIMIT else []


def _seconds(timestamp: Any) -> float | None:
    try:
        return parse_time(timestamp)
    except (AttributeError, ValueError):
        return None
