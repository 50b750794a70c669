"""Objects that a write changed in part: what is as it was need not be pruned and defaulted once more."""

from __future__ import annotations

from typing import Any

from homeostat.api.schema.defaulting import settled
from homeostat.api.schema.embedded import has_embedded
from homeostat.api.schema.prune import pruned
from homeostat.model.schema import Schema


def still_fits(schema: Schema, obj: dict[str, Any], before: dict[str, Any]) -> bool:
    """Is there nothing to prune and nothing to fill in, seeing that there was nothing `before`? False where that takes a closer look."""
    if has_embedded(schema) or not before.keys() <= obj.keys():
        return False
    for name, value in obj.items():
        if value == before.get(name) and name in before:
            continue
        child = schema.properties.get(name)
        if child is None or value is None or name == "metadata" or not (pruned(child)(value) and settled(child)(value)):
            return False
    return True
