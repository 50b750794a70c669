"""From the word that a person types to a kind of the server: plural, singular, short name or kind, in any case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from homeostat.client.kinds import Kind, served_kinds
from homeostat.client.transport import Unreachable
from homeostat.model.errors import ApiError

if TYPE_CHECKING:
    from homeostat.client import Client

__all__ = ["Kind", "find_kind", "kind_named", "neighbours", "resolve", "served_kinds", "similar_name"]

NEIGHBOURS = 1000
"""Among how many of a kind a name is looked for that may be meant."""
_NAMES = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


def find_kind(kinds: Sequence[Kind], word: str) -> Kind | None:
    """The kind that is called so; of several, the one that the server lists first."""
    wanted = word.lower()
    exact = [kind for kind in kinds if wanted == kind.name]
    return next(iter(exact or [kind for kind in kinds if wanted in kind.words]), None)


def resolve(kinds: Sequence[Kind], word: str) -> Kind:
    """As `find_kind`; where there is none, says so, and what may have been meant."""
    found = find_kind(kinds, word)
    if found is not None:
        return found
    import difflib

    near = difflib.get_close_matches(word.lower(), [w for kind in kinds for w in kind.words], n=1)
    hint = f" Did you mean '{near[0]}'?" if near else " `kubectl api-resources` lists what there is."
    raise click.ClickException(f"the server has no kind '{word}'.{hint}")


async def neighbours(client: Client, kind: Kind) -> list[str]:
    """Names of objects of a kind, in the client's namespace: the first of them, where they are many."""
    path = (await kind.on(client).served()).path(client.namespace if kind.namespaced else "")
    found = (await client.request("GET", path, {"limit": str(NEIGHBOURS)}, accept=_NAMES)).json()["items"]
    return [obj["metadata"]["name"] for obj in found]


async def similar_name(client: Client, missing: ApiError) -> str:
    """` Did you mean 'motd'?`, where something that was not found has a neighbour with nearly its name; else nothing."""
    import difflib

    try:
        kind = find_kind(await served_kinds(client), f"{missing.kind}.{missing.group}".rstrip("."))
        if kind is None or not missing.name:
            return ""
        others = [name for name in await neighbours(client, kind) if name != missing.name]  # it may have been missing only then
        near = difflib.get_close_matches(missing.name, others, n=1)
    except (ApiError, Unreachable):
        return ""
    return f". Did you mean '{near[0]}'?" if near else ""


async def kind_named(client: Client, word: str) -> Kind:
    """The kind that a person means."""
    return resolve(await served_kinds(client), word)
