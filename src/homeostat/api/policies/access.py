"""A policy reads its parameters with the server's rights, and can tell of them: so whoever writes one must be allowed to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homeostat.api.auth.rbac import Attributes
from homeostat.api.auth.user import User
from homeostat.api.policies.matching import GROUP
from homeostat.api.resource import Object, at
from homeostat.api.wording import quoted
from homeostat.model.errors import FieldError, invalid

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane


def check_param_access(plane: ControlPlane, user: User, kind: str, obj: Object, old: Object | None) -> None:
    """422 where a policy or a binding leads to parameters that its writer may not read."""
    field = "paramRef" if kind.endswith("Binding") else "paramKind"
    wanted = at(obj, "spec", field)
    unchanged = old is not None and at(old, "spec", field) == wanted and at(old, "spec", "policyName") == at(obj, "spec", "policyName")
    if not wanted or unchanged or user.is_master:
        return
    if field == "paramKind":
        asked = _attributes(plane, user, "get", wanted, "*", "*")
        shown = f"kind={wanted.get('kind', '')}, apiVersion={wanted.get('apiVersion', '')}"
        why = f'user {quoted(user.name)} must have "get" permission on all objects of the referenced paramKind ({shown})'
    else:
        policy = plane.policies.known(at(obj, "spec", "policyName") or "")
        verb = "get" if wanted.get("name") else "list"
        referenced = policy.param_kind if policy is not None else None
        asked = _attributes(plane, user, verb, referenced, wanted.get("namespace") or "*", wanted.get("name") or "*")
        why = f"user {quoted(user.name)} does not have {quoted(verb)} permission on the object referenced by paramRef"
    if not plane.rbac.authorize(asked).allowed:
        raise invalid(GROUP, kind, obj["metadata"].get("name", ""), [FieldError.forbidden(f"spec.{field}", why)])


def _attributes(
    plane: ControlPlane, user: User, verb: str, kind: dict[str, str] | None, namespace: str, name: str
) -> Attributes:
    """As much as is known of what is to be read; the rest may be anything."""
    resource = plane.registry.by_kind(kind.get("apiVersion") or "", kind.get("kind") or "") if kind else None
    if resource is None:
        return Attributes(user, verb, "*", "*", "*", namespace=namespace, name=name)
    where = namespace if resource.namespaced else ""
    return Attributes(user, verb, resource.group, "*", resource.plural, namespace=where, name=name)
