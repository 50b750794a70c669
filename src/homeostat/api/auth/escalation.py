"""Nobody grants what they do not hold.

Writing a role needs all its permissions, or the verb `escalate` on it; writing a binding needs all permissions of the
role it refers to, or the verb `bind` on that role. Call these after the object is whole (patched, defaulted) and before
it is checked, as upstream does: who may not is not told what else is wrong. Upstream's words answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from homeostat.api.auth.rbac import GROUP, PLURALS, ROLE_KINDS, Attributes, Rbac
from homeostat.api.auth.rules import TooManyAtoms, describe, uncovered
from homeostat.api.auth.user import User
from homeostat.api.wording import quoted, quoted_list
from homeostat.model.errors import forbidden

EVERYTHING: tuple[dict[str, list[str]], ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)

Object = Mapping[str, Any]

_HOUSEKEEPING = ("ownerReferences", "finalizers", "managedFields", "selfLink", "resourceVersion")


def check_role(
    rbac: Rbac, user: User, kind: str, obj: Object, old: Object | None = None, *, namespace: str = "", name: str = ""
) -> None:
    """Raises 403 where a Role or ClusterRole gives more than its writer holds.

    `namespace` and `name` are those of the URL: a create by POST has no name there. An aggregation rule gathers
    whatever is labelled for it later, so it takes full power to set, or to write a role that has one.
    """
    plural = PLURALS[kind]
    escalate = Attributes(user, "escalate", GROUP, "*", plural, namespace=namespace, name=name)
    if user.is_master or rbac.authorize(escalate).allowed or _only_housekeeping(obj, old):
        return
    shown = (obj.get("metadata") or {}).get("name", "")
    problem = _escalation(rbac, user, namespace, obj.get("rules") or ())
    if problem:
        raise forbidden(GROUP, plural, shown, problem)
    aggregates = obj.get("aggregationRule") or (old or {}).get("aggregationRule")
    if aggregates and _escalation(rbac, user, namespace, EVERYTHING):
        raise forbidden(GROUP, plural, shown, "must have cluster-admin privileges to use the aggregationRule")


def check_binding(
    rbac: Rbac, user: User, kind: str, obj: Object, old: Object | None = None, *, namespace: str = ""
) -> None:
    """Raises 403 where a RoleBinding or ClusterRoleBinding hands out a role beyond its writer; 404 for no such role."""
    ref = obj.get("roleRef") or {}
    if user.is_master or ref.get("kind") not in ROLE_KINDS or _only_housekeeping(obj, old):
        return  # what refers to no role at all is refused as invalid
    group, name = ref.get("apiGroup") or GROUP, ref.get("name", "")
    bind = Attributes(user, "bind", group, "*", PLURALS[ref["kind"]], namespace=namespace, name=name)
    if rbac.authorize(bind).allowed:
        return
    problem = _escalation(rbac, user, namespace, rbac.role_rules(ref, namespace))
    if problem:
        raise forbidden(GROUP, PLURALS[kind], (obj.get("metadata") or {}).get("name", ""), problem)


def _escalation(rbac: Rbac, user: User, namespace: str, wanted: Any) -> str:
    """What the user lacks of these rules, as upstream says it; empty where nothing is lacking."""
    grants = rbac.grants(user, namespace)
    who = f"user {quoted(user.name)} (groups={quoted_list(user.groups)})"
    try:
        missing = uncovered([rule for rule, _ in grants.rules], wanted)
    except TooManyAtoms:
        return f"{who} is attempting to grant more RBAC permissions than can be checked; split the role"
    if not missing:
        return ""
    lines = "\n".join(describe(missing))
    problem = f"{who} is attempting to grant RBAC permissions not currently held:\n{lines}"
    if grants.problems:
        problem += f"; resolution errors: [{' '.join(grants.problems)}]"
    return problem


def _only_housekeeping(obj: Object, old: Object | None) -> bool:
    """Whether an update touches nothing but what garbage collection needs: that grants nothing."""
    if old is None:
        return False

    def rest(whole: Object) -> dict[str, Any]:
        meta = {key: value for key, value in whole["metadata"].items() if key not in _HOUSEKEEPING}
        return {**whole, "metadata": meta}

    return rest(obj) == rest(old)
