"""How GPUs are counted, and what all kinds share."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from homeostat.model.kinds import Spec
from homeostat.model.kinds.definition import status_schema

WHOLE = 1000
"""Thousandths in a GPU."""

Share = Annotated[int | str, Meta(extra_json_schema={"pattern": "^([0-9]+m|[0-9]+(\\.[0-9]+)?)$", "minimum": 0})]
"""An amount of GPUs: `2`, `"0.25"`, `250m`."""
Name = Annotated[str, Meta(min_length=1, max_length=253)]
Model = Annotated[str, Meta(min_length=1, max_length=64)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0)]


def kept(status: type[Spec]) -> dict[str, Any]:
    """The schema of a status in which, beside what people are told, the loop keeps what it remembers."""
    return {**status_schema(status), "x-kubernetes-preserve-unknown-fields": True}


def milli(share: Share) -> int:
    """An amount of GPUs in thousandths. ValueError where it is none."""
    if isinstance(share, str) and share.endswith("m"):
        return int(share[:-1])
    return round(float(share) * WHOLE)


def share_text(thousandths: int) -> str:
    """The same for people: `2`, `0.25`."""
    return f"{thousandths / WHOLE:g}"
