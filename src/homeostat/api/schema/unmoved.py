"""Objects that a write changed in part: what is as it was need not be pruned and filled in once more."""

from __future__ import annotations

from typing import Any

from homeostat.api.schema.defaulting import default, settled
from homeostat.api.schema.embedded import has_embedded
from homeostat.api.schema.prune import pruned, tidy
from homeostat.model.schema import Schema


def refit(schema: Schema, obj: dict[str, Any], before: dict[str, Any]) -> bool:
    """Fills in the defaults of what a write changed, seeing that the object was fit `before`. False where that takes a closer look."""
    if has_embedded(schema) or not before.keys() <= obj.keys():
        return False
    for name, value in obj.items():
        if value == before.get(name) and name in before:
            continue
        child = schema.properties.get(name)
        if name == "metadata":
            if not tidy(value) or (child is not None and not settled(child)(value)):
                return False
        elif child is None or value is None or not (pruned(child)(value) and default(child, value)):
            return False
    return True
