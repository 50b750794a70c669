"""What tests of an engine wait for, and read."""

from __future__ import annotations

import asyncio
from typing import Any

from homeostat.loop.engine import Engine

Object = dict[str, Any]


async def whole_pass(engine: Engine) -> None:
    """A pass from its beginning to its end; one that is under way is waited for first."""
    while engine.passes.under_way:
        await asyncio.sleep(0.002)
    engine.passes.begin()
    while engine.passes.under_way:
        await asyncio.sleep(0.002)


def said(obj: Object, kind: str = "Ready") -> Object:
    """A condition of an object, where it is about the object as it is declared now; else nothing."""
    for found in (obj.get("status") or {}).get("conditions", ()):
        if found["type"] == kind and found["observedGeneration"] == obj["metadata"]["generation"]:
            return dict(found)
    return {}
