"""Objects that a write changed in part, or made as they should be: what is as it was, or right, need not be pruned and filled in."""

from __future__ import annotations

from typing import Any

from homeostat.api.schema.defaulting import FILL_LIMIT, default, settled, wanted_fields
from homeostat.api.schema.embedded import has_embedded
from homeostat.api.schema.prune import pruned, tidy
from homeostat.api.schema.validate import NOTHING, Fitting, fits, names_fit
from homeostat.model.errors import UNSET, too_large
from homeostat.model.schema import TYPE_AND_METADATA, Schema


def refit(schema: Schema, obj: dict[str, Any], before: Fitting = NOTHING, *, current: bool = False) -> Fitting | None:
    """Fills in the defaults of what a write changed, seeing that the object was fit `before`. None where that takes a closer look.

    Gives those of the changed fields that the schema has nothing against: they need no second look, as long as they stay. `current`: what
    was there before was judged by this very schema, so of a status, say, only those of its fields are looked at that are new.
    """
    if has_embedded(schema) or not (before.keys() if before else wanted_fields(schema)) <= obj.keys():
        return None
    fitting: dict[str, Any] = {}
    for name, value in obj.items():
        if name in before and value == before[name]:
            continue
        child = schema.properties.get(name)
        if name == "metadata":
            if not tidy(value) or (child is not None and not settled(child)(value)):
                return None
        elif name in TYPE_AND_METADATA and type(value) is str:
            continue
        elif child is None or value is None:
            return None
        elif (current and _fit_again(child, value, before.get(name))) or _made_fit(child, value):
            fitting[name] = value
        elif not (before and pruned(child)(value)):
            return None
    return fitting


def _made_fit(schema: Schema, value: Any) -> bool:
    """Whether a value fits, with its defaults filled in: so they are in any case. 413 where they are too much."""
    if fits(schema)(value):
        return True
    if not default(schema, value):
        raise too_large(FILL_LIMIT)
    return fits(schema)(value)


def _fit_again(schema: Schema, value: Any, before: Any) -> bool:
    """Whether an object that was fit before is so with the fields that it has now; the defaults of new ones are filled in."""
    together = names_fit(schema) if type(value) is dict and type(before) is dict else None
    if not together:
        return False
    for name, item in value.items():
        if item is before.get(name, UNSET):
            continue
        child = schema.properties.get(name)
        if child is None or item is None:
            return False
        if not _made_fit(child, item):
            return False
    return together(value)
