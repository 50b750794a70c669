"""Kinds that are answered and not stored: reviews of who may do what, and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from homeostat.api.auth import reviews, usertokens
from homeostat.api.builtin.types import schema_of
from homeostat.api.call import Call, WriteOptions
from homeostat.api.intake import decode_body, strictness
from homeostat.api.request import Response, json_response
from homeostat.api.resource import Object
from homeostat.api.schema import decode_errors
from homeostat.api.write import insert
from homeostat.model.errors import bad_request, path_not_found
from homeostat.model.schema import OBJECT_META, Schema

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane


def _body(call: Call, kind: str, api_version: str, schema: Schema, options: WriteOptions) -> Object:
    body, doubled = decode_body(call.request, call.resource.kind)
    if not isinstance(body, dict):
        raise bad_request(f"the body must be an object of kind {kind}")
    for field, wanted in (("kind", kind), ("apiVersion", api_version)):
        given = body.get(field) or wanted
        if given != wanted:
            raise bad_request(f"the {field} in the data ({given}) does not match the expected one ({wanted})")
    unknown, problems = decode_errors(schema, body)
    _, more = decode_errors(OBJECT_META, body.get("metadata") or {})
    problem = (problems or more or [strictness(call, options, doubled + unknown)])[0]
    if problem:
        version = api_version.rpartition("/")[2]
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}')
    return body


async def review(plane: ControlPlane, call: Call) -> Response:
    """Answers a review."""
    kind = call.resource.kind
    options = WriteOptions(call, "CreateOptions")
    body = _body(call, kind, call.codec.api_version, call.codec.version.schema, options)
    answer: Object
    if kind == "SelfSubjectAccessReview":
        answer = reviews.self_subject_access_review(body, call.user, plane.rbac)
    elif kind == "SubjectAccessReview":
        answer = reviews.subject_access_review(body, plane.rbac)
    elif kind == "LocalSubjectAccessReview":
        answer = reviews.local_subject_access_review(body, call.namespace, plane.rbac)
    elif kind == "SelfSubjectRulesReview":
        answer = reviews.self_subject_rules_review(body, call.user, plane.rbac)
    elif kind == "SelfSubjectReview":
        answer = reviews.self_subject_review(body, call.user)
    else:
        answer = await reviews.token_review(body, plane.authenticator.verify)
    return json_response(answer, 201)


async def service_account_token(plane: ControlPlane, call: Call) -> Response:
    """A TokenRequest for a service account."""
    if call.resource.qualified != "serviceaccounts":
        raise path_not_found()
    entry = await plane.store.get(call.key)
    if entry is None:
        raise call.not_found()
    version, kind = "authentication.k8s.io/v1", "TokenRequest"
    body = _body(call, kind, version, schema_of(version, kind), WriteOptions(call, "CreateOptions"))
    return json_response(await plane.authenticator.service_accounts.request(body, call.codec.load_entry(entry)), 201)


async def user_token(plane: ControlPlane, call: Call) -> Response:
    """Makes a token for a person: shown in this answer, and never again."""
    options = WriteOptions(call, "CreateOptions")
    body = _body(call, usertokens.KIND, call.codec.api_version, call.codec.version.schema, options)
    obj, token = usertokens.mint(body, call.user, plane.rbac, plane.clock.now())
    response = await insert(plane, call, obj, options)
    stored: dict[str, Any] = orjson.loads(response.body)
    return json_response(usertokens.shown_once(stored, token), response.status)
