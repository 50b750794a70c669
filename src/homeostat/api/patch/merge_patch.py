"""JSON merge patch (RFC 7386): objects merge, `null` removes, everything else replaces."""

from __future__ import annotations

from operator import is_
from typing import Any

from homeostat.api.patch.refusals import Json, not_an_object
from homeostat.model.errors import bad_request


def apply_merge_patch(document: Json, patch: Any, *, nulls: bool = True) -> Json:
    """The document after a merge patch; what the patch does not name is shared with the input.

    `null` cannot be stored by this patch: where a new value holds nulls in objects, also inside lists, they are
    dropped, as kube-apiserver does. `nulls`: whether the patch may hold any. Raises 400 for a patch that is not an object.
    """
    if not isinstance(patch, dict):
        raise bad_request("Invalid JSON Patch") if patch is None else not_an_object(patch, "error decoding patch: ")
    return _merged(document, patch, nulls)


def _merged(document: Json, patch: Json, nulls: bool) -> Json:
    result = dict(document)
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
            continue
        current = result.get(field)
        if not isinstance(current, dict):
            result[field] = without_nulls(value) if nulls else value
        elif isinstance(value, dict):
            result[field] = _merged(current, value, nulls)
        else:
            result[field] = value
    return result


def without_nulls(value: Any) -> Any:
    """A value without the fields that are null, at any depth; nulls in lists stay. Itself where there are none."""
    if type(value) is dict:
        kept = value
        if None in value.values():
            kept = {field: inner for field, inner in value.items() if inner is not None}
        for field, inner in kept.items():
            if (type(inner) is dict or type(inner) is list) and (clean := without_nulls(inner)) is not inner:
                kept = kept.copy() if kept is value else kept
                kept[field] = clean
        return kept
    if type(value) is list:
        items = [without_nulls(inner) for inner in value]
        return value if all(map(is_, items, value)) else items
    return value
