"""Objects as rows: the `Table` that `kubectl get` prints, and objects cut down to their metadata.

A `Printer` is made once per served version; a row costs a few dictionary look-ups, so lists and watches can be printed
object by object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from homeostat.api.resource import Column, Object
from homeostat.api.schema.jsonpath import compile_path
from homeostat.model.clock import parse_time
from homeostat.model.errors import FieldError, bad_request

META_V1 = "meta.k8s.io/v1"
META_V1BETA1 = "meta.k8s.io/v1beta1"
INCLUDE = ("None", "Metadata", "Object")

Cell = Callable[[Object, float], Any]
"""A cell's value from an object and the present time (seconds since the epoch)."""

UNKNOWN = "<unknown>"
INVALID = "<invalid>"
NONE = "<none>"


class Since:
    """A cell that is told as an age: what a built-in column gives for a timestamp.

    Any cell may be a function of the present time; the table calls it when the row is printed.
    """

    __slots__ = ("timestamp",)

    def __init__(self, timestamp: str | None) -> None:
        self.timestamp = timestamp

    def __call__(self, now: float) -> str:
        return age(self.timestamp, now)


def age(timestamp: str | None, now: float) -> str:
    """How long ago, in `kubectl`'s rough way (`5m3s`, `2d4h`).

    No time is `<unknown>`; the future and what is no time are `<invalid>`.
    """
    if not timestamp:
        return UNKNOWN
    seconds = seconds_of(timestamp)
    return INVALID if seconds is None else human_duration(now - seconds)


def seconds_of(timestamp: str) -> float | None:
    """An RFC 3339 time in seconds since the epoch; None where it is none."""
    try:
        return parse_time(timestamp)
    except ValueError:
        return None


def human_duration(seconds: float) -> str:
    """A span in at most two units, coarser the longer it is."""
    whole = int(seconds)
    if whole < -1:
        return INVALID
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes, hours = whole // 60, whole // 3600
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 2920:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


NAME = Column("Name", lambda obj: obj["metadata"].get("name", ""), format="name", description="The name of the object.")
AGE = Column(
    "Age",
    lambda obj: Since(obj["metadata"].get("creationTimestamp")),
    description="How long ago the object was created.",
)
CREATED_AT = Column(
    "Created At",
    lambda obj: obj["metadata"].get("creationTimestamp"),
    type="date",
    description="When the object was created.",
)
_CUSTOM_AGE = Column(
    "Age", ".metadata.creationTimestamp", type="date", description="How long ago the object was created."
)


class Printer:
    """Prints the objects of one served version.

    `columns` are all of a built-in kind's, or a custom kind's additional ones: with `custom`, the name goes before them
    and the age stands alone where there are none. Without columns a built-in kind shows its name and creation time.
    """

    __slots__ = ("_cells", "definitions")

    def __init__(self, columns: Sequence[Column], *, custom: bool = False) -> None:
        shown = [NAME, *(columns or [_CUSTOM_AGE])] if custom else list(columns or [NAME, CREATED_AT])
        self.definitions: list[dict[str, Any]] = [
            {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
            for c in shown
        ]
        self._cells: list[Cell] = [_cell(c) for c in shown]

    def row(self, obj: Object, now: float, include: str = "Metadata", api_version: str = META_V1) -> dict[str, Any]:
        """One row; `include` says how much of the object comes with it (None, Metadata, Object)."""
        row: dict[str, Any] = {"cells": [cell(obj, now) for cell in self._cells]}
        if conditions := _row_conditions(obj):
            row["conditions"] = conditions
        row["object"] = (
            partial_metadata(obj, api_version) if include == "Metadata" else obj if include == "Object" else None
        )
        return row

    def table(
        self,
        objects: Iterable[Object],
        now: float,
        *,
        metadata: dict[str, Any] | None = None,
        include: str = "Metadata",
        api_version: str = META_V1,
        headers: bool = True,
    ) -> dict[str, Any]:
        """A `Table`. `metadata` is the list's, or holds the single object's resourceVersion.

        Watches leave the `headers` out after their first event.
        """
        return {
            "kind": "Table",
            "apiVersion": api_version,
            "metadata": metadata or {},
            "columnDefinitions": self.definitions if headers else None,
            "rows": [self.row(obj, now, include, api_version) for obj in objects],
        }


def include_object(value: str) -> str:
    """The `includeObject` option; the default is Metadata. Raises a 400 for anything else."""
    if not value:
        return "Metadata"
    if value not in INCLUDE:
        error = FieldError.invalid("includeObject", value, "must be 'Metadata', 'Object', 'None', or empty")
        raise bad_request(f"Unable to convert to Table as requested: {error}")
    return value


def _row_conditions(obj: Object) -> list[dict[str, Any]] | None:
    """Upstream marks rows of finished pods and jobs as completed, so that viewers can hide them."""
    if obj.get("kind") == "Pod":
        phase = (obj.get("status") or {}).get("phase")
        return _COMPLETED.get(phase) if phase else None
    return None


_COMPLETED = {
    "Succeeded": [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ],
    "Failed": [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}],
}


def _cell(column: Column) -> Cell:
    path = column.path
    if callable(path):
        function = path

        def built_in(obj: Object, now: float) -> Any:
            value = function(obj)
            return value(now) if callable(value) else value

        return built_in
    read = _reader(path)
    show = _SHOWN.get(column.type)
    if column.type == "date":

        def date(obj: Object, now: float) -> Any:
            value = read(obj)
            return age(value, now) if isinstance(value, str) else None

        return date
    if show is None:
        return lambda obj, now: None
    return lambda obj, now: None if (value := read(obj)) is None else show(value)


def _reader(path: str) -> Callable[[Object], Any]:
    """The first value at a JSONPath, or None."""
    find = compile_path(path)

    def first(obj: Object) -> Any:
        values = find(obj)
        return values[0] if values else None

    return first


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is True or value is False:
        return "true" if value else "false"
    return orjson.dumps(value).decode()


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


_SHOWN: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": lambda value: value if isinstance(value, bool) else None,
}


def partial_metadata(obj: Object, api_version: str = META_V1) -> dict[str, Any]:
    """The object cut down to its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": obj.get("metadata") or {}}
