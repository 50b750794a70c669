"""Kinds that act on the host ask for one right more than others.

Who declares a File or a Process has the loop write and run things on its host, with the rights of the loop. So what decides on
that (to create one, to change what it says to the loop, to delete one, also by giving it another owner) needs the verb `operate`
on it, beside the verb of the request. Labels, finalizers and the status do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from homeostat.api.auth.rbac import Attributes, Rbac, denied
from homeostat.api.auth.user import User
from homeostat.api.wording import quoted

VERB = "operate"
_SAID_TO_THE_LOOP = "homeostat.dev/"
"""How annotations begin that the loop goes by, such as the one that lets it take over what it did not make."""

Object = Mapping[str, Any]


def check_host(
    rbac: Rbac, user: User, verb: str, group: str, plural: str, obj: Object | None, old: Object | None
) -> None:
    """Raises 403 where a write of a kind that acts on the host needs `operate` and its writer does not have it.

    `verb` is that of the request, for the message. `obj` is None for a deletion, `old` for a creation.
    """
    if obj is not None and old is not None and _means(obj) == _means(old):
        return
    metadata = (obj or old or {})["metadata"]
    name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
    asked = Attributes(user, VERB, group, "*", plural, namespace=namespace, name=name)
    if not rbac.authorize(asked).allowed:
        what = f"resource {quoted(plural)} in API group {quoted(group)}"
        why = f"it acts on the host, so a role must allow {quoted(VERB)} beside {quoted(verb)} on {what}"
        raise denied(asked, why)


def _means(obj: Object) -> tuple[Any, ...]:
    """What an object has the loop do: its generation counts every change of the spec."""
    metadata = obj["metadata"]
    said = {k: v for k, v in (metadata.get("annotations") or {}).items() if k.startswith(_SAID_TO_THE_LOOP)}
    return metadata.get("generation"), said, metadata.get("ownerReferences") or []
