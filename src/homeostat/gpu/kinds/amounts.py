"""How GPUs are counted, and what all kinds share."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from homeostat.model.kinds import Spec
from homeostat.model.kinds.definition import status_schema

WHOLE = 1000
"""Thousandths in a GPU."""

GPUS_MOST = 999_999
SIZE_MOST = 10**12
"""Limits on what anybody may ask for, far beyond any fleet: what is reckoned with them, a gang of thousands or a sum over all tenants, is still a
number that a machine can hold."""

Share = Annotated[
    int | str,
    Meta(extra_json_schema={"pattern": "^([0-9]{1,9}m|[0-9]{1,6}(\\.[0-9]+)?)$", "minimum": 0, "maximum": GPUS_MOST}),
]
"""An amount of GPUs: `2`, `"0.25"`, `250m`; less than a million."""
Size = Annotated[int, Meta(ge=0, le=SIZE_MOST)]
"""An amount of something else: MiB, or thousandths of a core."""
Name = Annotated[str, Meta(min_length=1, max_length=253)]
Model = Annotated[str, Meta(min_length=1, max_length=64)]
SENTENCE_MOST = 500
"""Characters of a reason that comes from outside: a program may have any name, and say anything."""
Fraction = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0)]


def kept(status: type[Spec]) -> dict[str, Any]:
    """The schema of a status in which, beside what people are told, the loop keeps what it remembers."""
    return {**status_schema(status), "x-kubernetes-preserve-unknown-fields": True}


def in_short(text: str) -> str:
    """A reason that comes from outside, as much of it as is passed on: how it begins, and how it ends."""
    half = SENTENCE_MOST // 2
    return text if len(text) <= SENTENCE_MOST else f"{text[: half - 1]}…{text[-half:]}"


def is_part(model: str) -> bool:
    """Whether GPUs of a model are parts of others, by MIG: `H100-MIG-1g.10gb`. A process sees one part at a time."""
    return "-MIG-" in model


def milli(share: Share) -> int:
    """An amount of GPUs in thousandths, what is beyond all limits as the limit. ValueError where it is none."""
    found = int(share[:-1]) if isinstance(share, str) and share.endswith("m") else float(share) * WHOLE
    return round(min(found, GPUS_MOST * WHOLE))


def share_text(thousandths: int) -> str:
    """The same for people: `2`, `0.25`."""
    return f"{thousandths / WHOLE:g}"
