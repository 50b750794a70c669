"""Asks the server whether it would take each object of a commit, before the first is written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from homeostat.client import Client
from homeostat.loop.compose import Child
from homeostat.model.errors import ApiError
from homeostat.sources.files import RenderError
from homeostat.sources.manifests import Manifest

_TYPED = re.compile(
    r"failed to create typed patch object \([^)]*\): (?P<rest>\.?(?P<field>[^:]+): .*)", re.DOTALL
).match
"""How server-side apply names a field that is not in the schema, or not of its type."""
_UNKNOWN = re.compile(r"(?P<rest>.*(?:unknown|duplicate) field \"(?P<field>[^\"]+)\".*)", re.DOTALL).match
AT_ONCE = 16
SHOWN = 5
"""How many refusals are told."""

Object = dict[str, Any]
Locate = Callable[[Manifest, str], int]
"""The line of a field."""


class Asked(NamedTuple):
    """What the server said of objects that it would take."""

    later: set[Child]
    """Those that cannot be asked about yet, for their namespace comes with the commit."""
    there: set[Child]
    """Those that exist already."""


async def validate(
    client: Client,
    wanted: Mapping[Child, Object],
    places: Mapping[Child, Manifest],
    which: Collection[Child],
    manager: str,
    locate: Locate,
) -> Asked:
    """Applies the objects without writing.

    Raises RenderError with file, line and field where the server refuses any of them; ApiError and Unreachable where it cannot be
    asked, which says nothing of the commit.
    """
    homes = {child.name for child in wanted if (child.group, child.kind) == ("", "Namespace")}
    refused: list[RenderError] = []
    asked = Asked(set(), set())
    queue = list(which)

    async def ask(child: Child) -> None:
        manifest = wanted[child]
        try:
            found = await client.kind(manifest["apiVersion"], manifest["kind"]).apply(
                manifest,
                field_manager=manager,
                force=True,
                dry_run=True,
                field_validation="Strict",
                namespace=child.namespace,
            )
        except ApiError as error:
            if error.code == 404 and child.namespace in homes:
                asked.later.add(child)
            elif error.code >= 500 or (error.code in (401, 403, 408, 429) and "admission" not in error.message):
                raise
            else:
                refused.append(_refusal(places[child], child, error, locate))
        else:
            if found["metadata"].get("resourceVersion"):  # what is not there yet gets none
                asked.there.add(child)

    async def work() -> None:
        while queue:
            await ask(queue.pop())
            await asyncio.sleep(0)  # a server in the same process answers without letting anybody else have a turn

    await asyncio.gather(*(work() for _ in range(min(AT_ONCE, len(queue)))))
    if refused:
        refused.sort(key=lambda one: (one.file, one.line))
        first, rest = refused[0], refused[1:]
        more = "".join(f"\n{one}" for one in rest[: SHOWN - 1]) + (
            f"\nand {len(rest) - SHOWN + 1} more" if len(rest) >= SHOWN else ""
        )
        raise RenderError(first.problem + more, first.file, first.line, first.field)
    return asked


def _refusal(manifest: Manifest, child: Child, error: ApiError, locate: Locate) -> RenderError:
    field = next((cause["field"] for cause in error.causes if cause.get("field")), "")
    text = error.message
    if not field and (said := _TYPED(text) or _UNKNOWN(text)):
        field, text = said["field"], said["rest"]
    if manifest.sealed:
        text = f"the server does not take it ({error.reason}); its words are not shown, for the file is encrypted"
    line = locate(manifest, field) if field else manifest.line
    return manifest.refused(f"{child}: {text}", field, line)
