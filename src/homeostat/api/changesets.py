"""Change sets by a header of the request, for kinds that a loop keeps: any client that can send a header needs nothing else.

The name goes into an annotation where the write changes what is declared, as if the client had put it there. What a body says of the
annotation itself counts more than the header.
"""

from __future__ import annotations

import re

from homeostat.api.call import Call
from homeostat.api.resource import Object, at
from homeostat.model.errors import bad_request
from homeostat.model.protocol import CHANGE_SET, CHANGE_SET_HEADER, CHANGE_SET_NAME, DELETION_CHANGE_SET

CATEGORY = "homeostat"
"""The category of kinds that a loop keeps."""
HEADER = CHANGE_SET_HEADER.lower().encode()

_FIELD = f"f:{CHANGE_SET}"
_name = re.compile(CHANGE_SET_NAME).fullmatch


def change_set(call: Call) -> str:
    """The change set that a write to a kept kind names; empty where it names none. Refuses what can be no name."""
    if not call.resource.custom or CATEGORY not in call.resource.categories:
        return ""
    name = call.request.header(HEADER)
    if name and _name(name) is None:
        raise bad_request(
            f"the header {CHANGE_SET_HEADER} names no change set: up to 253 printable ASCII characters, no space at either end"
        )
    return name


def mark(call: Call, obj: Object, live: Object | None = None) -> None:
    """Puts the header's change set on an object that is created, or whose declaration changes."""
    if (name := change_set(call)) and _annotated(obj) == _annotated(live):
        _annotate(obj, CHANGE_SET, name)


def mark_deleted(call: Call, obj: Object) -> None:
    """Puts the header's change set on an object that goes once it is cleaned up."""
    if name := change_set(call):
        _annotate(obj, DELETION_CHANGE_SET, name)


def declared_with(config: Object, name: str) -> Object:
    """What a manager applies, with the change set as one of the fields that it declares."""
    marked = {**config, "metadata": dict(config["metadata"])}
    _annotate(marked, CHANGE_SET, name)
    return marked


def released(live: Object) -> Object:
    """The object without a change set, which is nobody's to keep: a header's is no conflict with who named one before."""
    metadata = dict(live["metadata"])
    metadata["annotations"] = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != CHANGE_SET}
    metadata["managedFields"] = [_disowned(entry) for entry in metadata.get("managedFields") or ()]
    return {**live, "metadata": metadata}


def _disowned(entry: Object) -> Object:
    notes = at(entry, "fieldsV1", "f:metadata", "f:annotations")
    if not notes or _FIELD not in notes:
        return entry
    owned = entry["fieldsV1"]
    kept = {**owned["f:metadata"], "f:annotations": {k: v for k, v in notes.items() if k != _FIELD}}
    return {**entry, "fieldsV1": {**owned, "f:metadata": kept}}


def own_change_set(live: Object, manager: str) -> str:
    """The change set on an object, where it was put there by an earlier apply of this manager; else empty."""
    owns = any(
        entry.get("manager") == manager
        and entry.get("operation") == "Apply"
        and at(entry, "fieldsV1", "f:metadata", "f:annotations", _FIELD) is not None
        for entry in live["metadata"].get("managedFields") or ()
    )
    return _annotated(live) if owns else ""


def says_change_set(config: Object) -> bool:
    """Whether a body names the change set by itself."""
    return bool(_annotated(config))


def _annotated(obj: Object | None) -> str:
    found = at(obj, "metadata", "annotations", CHANGE_SET)
    return found if isinstance(found, str) else ""


def _annotate(obj: Object, name: str, value: str) -> None:
    metadata = obj["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), name: value}
