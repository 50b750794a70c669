"""What a write needs beside its verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homeostat.api.auth.escalation import check_binding, check_role
from homeostat.api.auth.host import check_host
from homeostat.api.auth.rbac import GROUP as RBAC_GROUP
from homeostat.api.auth.rbac import ROLE_KINDS
from homeostat.api.call import Call
from homeostat.api.policies import GROUP as POLICY_GROUP
from homeostat.api.policies import check_param_access
from homeostat.api.resource import Object

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane


def permit(plane: ControlPlane, call: Call, obj: Object | None, old: Object | None) -> None:
    """Refuses what acts on the host, grants more than its writer holds, or shows what its writer may not read.

    `obj` is None for a deletion, `old` for a creation.
    """
    resource, user = call.resource, call.user
    if resource.host:
        check_host(plane.rbac, user, call.verb, resource.group, resource.plural, obj, old)
    if obj is None:
        return
    if resource.group == POLICY_GROUP:
        check_param_access(plane, user, resource.kind, obj, old)
    elif resource.group == RBAC_GROUP and resource.kind in ROLE_KINDS:
        check_role(plane.rbac, user, resource.kind, obj, old, namespace=call.namespace, name=call.name)
    elif resource.group == RBAC_GROUP:
        check_binding(plane.rbac, user, resource.kind, obj, old, namespace=call.namespace)
