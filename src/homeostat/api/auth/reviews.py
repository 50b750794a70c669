"""Answers to questions about access: who am I, what may I do, what may they do, whose token is this.

Each is a function from the posted object to the answer; nothing is stored. What is malformed is refused as upstream
refuses it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from homeostat.api.auth.escalation import EVERYTHING
from homeostat.api.auth.rbac import Attributes, Rbac
from homeostat.api.auth.user import AUTHENTICATION, User, Verified
from homeostat.model.errors import FieldError, bad_request, invalid

Object = dict[str, Any]
Verify = Callable[[str, Sequence[str]], Awaitable[Verified | None]]

AUTHORIZATION = "authorization.k8s.io"


def self_subject_access_review(review: Object, user: User, rbac: Rbac) -> Object:
    """May I?"""
    spec = _mapping(review, "spec")
    _refuse([*_access_problems(spec), *_metadata_problems(review)])
    return _decided(review, "SelfSubjectAccessReview", spec, user, rbac)


def subject_access_review(review: Object, rbac: Rbac) -> Object:
    """May they? Whoever asks needs `create subjectaccessreviews`, which the router checks."""
    spec = _mapping(review, "spec")
    _refuse([*_access_problems(spec), *_subject_problems(spec), *_metadata_problems(review)])
    return _decided(review, "SubjectAccessReview", spec, _subject(spec), rbac)


def local_subject_access_review(review: Object, namespace: str, rbac: Rbac) -> Object:
    """May they, in this namespace? `namespace` is the one of the URL."""
    spec = _mapping(review, "spec")
    resource = spec.get("resourceAttributes")
    given = _text(_mapping(review, "metadata"), "namespace")
    errors = [*_access_problems(spec), *_subject_problems(spec), *_metadata_problems(review, "namespace")]
    if isinstance(resource, dict) and _text(resource, "namespace") != given:
        path = "spec.resourceAttributes.namespace"
        errors.append(FieldError.invalid(path, resource.get("namespace", ""), "must match metadata.namespace"))
    if spec.get("nonResourceAttributes") is not None:
        detail = "disallowed on this kind of request"
        errors.append(FieldError.invalid("spec.nonResourceAttributes", spec["nonResourceAttributes"], detail))
    _refuse(errors)
    if not namespace:
        raise bad_request("namespace is required on this type: ")
    if given != namespace:
        raise bad_request(f"spec.resourceAttributes.namespace must match namespace: {namespace}")
    return _decided(review, "LocalSubjectAccessReview", spec, _subject(spec), rbac)


def self_subject_rules_review(review: Object, user: User, rbac: Rbac) -> Object:
    """What may I do in a namespace?"""
    namespace = _text(_mapping(review, "spec"), "namespace")
    if not namespace:
        raise bad_request("no namespace on request")
    grants = rbac.grants(user, namespace)
    rules: list[Mapping[str, Any]] = [*(EVERYTHING if user.is_master else ()), *(rule.raw for rule, _ in grants.rules)]
    status: Object = {
        "resourceRules": [
            _kept(rule, "verbs", "apiGroups", "resources", "resourceNames") for rule in rules if rule.get("resources")
        ],
        "nonResourceRules": [_kept(rule, "verbs", "nonResourceURLs") for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
    if grants.problems:
        status["evaluationError"] = ", ".join(grants.problems)
    return _answer(review, AUTHORIZATION, "SelfSubjectRulesReview", {}, status)


def self_subject_review(review: Object, user: User) -> Object:
    """Who am I?"""
    version = review.get("apiVersion") or f"{AUTHENTICATION}/v1"
    return {
        "kind": "SelfSubjectReview",
        "apiVersion": version,
        "metadata": {"creationTimestamp": None},
        "status": {"userInfo": user.info()},
    }


async def token_review(review: Object, verify: Verify) -> Object:
    """Whose token is this? `verify` is `Authenticator.verify`."""
    spec = _mapping(review, "spec")
    token = _text(spec, "token")
    audiences = _texts(spec, "audiences")
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    verified = await verify(token, audiences)
    status: Object = {"user": {}, "error": "invalid bearer token"}
    if verified is not None:
        status = {"authenticated": True, "user": verified.user.info(), "audiences": list(verified.audiences)}
    return _answer(review, AUTHENTICATION, "TokenReview", spec, status)


# The posted object, looked at with care: nothing about its types is promised


def _mapping(whole: Mapping[str, Any], field: str) -> Object:
    value = whole.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{field} must be an object")
    return value


def _text(whole: Mapping[str, Any], field: str) -> str:
    value = whole.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise bad_request(f"{field} must be a string")
    return value


def _texts(whole: Mapping[str, Any], field: str) -> list[str]:
    value = whole.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise bad_request(f"{field} must be a list of strings")
    return value


def _access_problems(spec: Object) -> list[FieldError]:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        return [FieldError.invalid("spec.nonResourceAttributes", other, detail)]
    if resource is None and other is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [FieldError.invalid("spec.resourceAttributes", None, detail)]
    asked = _mapping(spec, "resourceAttributes")
    return [problem for field in ("fieldSelector", "labelSelector") for problem in _selector_problems(asked, field)]


def _selector_problems(asked: Object, field: str) -> list[FieldError]:
    if asked.get(field) is None:
        return []
    selector, path = _mapping(asked, field), f"spec.resourceAttributes.{field}"
    if selector.get("rawSelector") and selector.get("requirements"):
        detail = "may not specified at the same time as requirements"
        return [FieldError.invalid(f"{path}.rawSelector", selector["rawSelector"], detail)]
    if not selector.get("rawSelector") and not selector.get("requirements"):
        detail = f"when {path} is specified, requirements or rawSelector is required"
        return [FieldError.required(f"{path}.requirements", detail)]
    return []


def _subject_problems(spec: Object) -> list[FieldError]:
    if _text(spec, "user") or _texts(spec, "groups"):
        return []
    return [FieldError.invalid("spec.user", "", "at least one of user or group must be specified")]


def _metadata_problems(review: Object, *allowed: str) -> list[FieldError]:
    metadata = _mapping(review, "metadata")
    if any(value for key, value in metadata.items() if key != "managedFields" and key not in allowed):
        detail = "must be empty except for namespace" if allowed else "must be empty"
        return [FieldError.invalid("metadata", metadata, detail)]
    return []


def _refuse(errors: list[FieldError]) -> None:
    if errors:
        raise invalid(AUTHORIZATION, "", "", errors)  # upstream leaves the kind out here


def _subject(spec: Object) -> User:
    return User(_text(spec, "user"), _text(spec, "uid"), tuple(_texts(spec, "groups")))


def _decided(review: Object, kind: str, spec: Object, user: User, rbac: Rbac) -> Object:
    if spec.get("resourceAttributes") is not None:
        asked = _mapping(spec, "resourceAttributes")
        attributes = Attributes(
            user,
            _text(asked, "verb"),
            _text(asked, "group"),
            _text(asked, "version"),
            _text(asked, "resource"),
            _text(asked, "subresource"),
            _text(asked, "namespace"),
            _text(asked, "name"),
        )
    else:
        asked = _mapping(spec, "nonResourceAttributes")
        path = _text(asked, "path")
        if not path:  # an empty path would be read as a request for a resource
            return _answer(review, AUTHORIZATION, kind, spec, {"allowed": user.is_master})
        attributes = Attributes(user, _text(asked, "verb"), path=path)
    decision = rbac.authorize(attributes)
    status: Object = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return _answer(review, AUTHORIZATION, kind, spec, status)


def _answer(review: Object, group: str, kind: str, spec: Object, status: Object) -> Object:
    return {
        "kind": kind,
        "apiVersion": _text(review, "apiVersion") or f"{group}/v1",
        "metadata": {"creationTimestamp": None, **_mapping(review, "metadata")},
        "spec": spec,
        "status": status,
    }


def _kept(rule: Mapping[str, Any], *fields: str) -> Object:
    return {field: rule[field] for field in fields if rule.get(field)}
