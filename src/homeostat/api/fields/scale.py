"""Who owns a count, seen from the scale subresource: the entries of an object as those of its `Scale`, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from homeostat.api.fields.managed import Entry, Identity, identity, with_fields
from homeostat.api.fields.sets import Fields, difference, has, single

Path = tuple[str, ...]
Counted = Callable[[str], Path | None]
"""Where objects of an apiVersion have their count, as a path of names; None where they have none."""

_REPLICAS: Path = ("f:spec", "f:replicas")


def entries_of_scale(entries: Sequence[Entry], counted: Counted, scale_version: str) -> list[Entry]:
    """Those of an object's owners that own its count, as owners of the count of its `Scale`."""
    return [
        {**entry, "apiVersion": scale_version, "fieldsV1": single(_REPLICAS)}
        for entry in entries
        if (path := _keys(counted(entry["apiVersion"]))) and has(entry["fieldsV1"], path)
    ]


def entries_of_object(
    entries: Sequence[Entry], of_scale: Sequence[Entry], counted: Counted, api_version: str
) -> list[Entry]:
    """The owners of an object once those of its `Scale` have changed: who lost the count there loses it here."""
    counting = {_who(entry): entry for entry in of_scale if has(entry["fieldsV1"], _REPLICAS)}
    out: list[Entry] = []
    for entry in entries:
        path = _keys(counted(entry["apiVersion"]))
        if path and has(entry["fieldsV1"], path) and counting.pop(_who(entry), None) is None:
            left: Fields = difference(entry["fieldsV1"], single(path))
            if not left:
                continue
            entry = with_fields(entry, left)
        out.append(entry)
    count = single(_keys(counted(api_version)) or _REPLICAS)
    return out + [{**entry, "apiVersion": api_version, "fieldsV1": count} for entry in counting.values()]


def _keys(path: Path | None) -> Path:
    return tuple(f"f:{name}" for name in path or ())


def _who(entry: Entry) -> Identity:
    """The owner, whichever version it wrote."""
    return identity({**entry, "apiVersion": ""})
