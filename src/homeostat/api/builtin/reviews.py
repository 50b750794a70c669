"""Kinds that are answered and never stored: reviews of who somebody is and what they may do, and bindings."""

from __future__ import annotations

from homeostat.api.auth.reviews import AUTHORIZATION
from homeostat.api.auth.user import AUTHENTICATION
from homeostat.api.builtin.declare import CREATE_ONLY, kind
from homeostat.api.resource import Resource

_AUTHENTICATION = f"{AUTHENTICATION}/v1"
_AUTHORIZATION = f"{AUTHORIZATION}/v1"


def resources() -> list[Resource]:
    """Everything whose only verb is create; the answers are given elsewhere."""
    return [
        kind("v1", "Binding", "bindings", verbs=CREATE_ONLY),
        kind(_AUTHENTICATION, "TokenReview", "tokenreviews", namespaced=False, verbs=CREATE_ONLY),
        kind(_AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", namespaced=False, verbs=CREATE_ONLY),
        kind(_AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", verbs=CREATE_ONLY),
        kind(
            _AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False, verbs=CREATE_ONLY
        ),
        kind(_AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False, verbs=CREATE_ONLY),
        kind(_AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", namespaced=False, verbs=CREATE_ONLY),
    ]
