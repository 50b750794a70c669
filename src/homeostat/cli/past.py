"""The past as commands ask for it. Only a Homeostat server has one: a cluster would ignore the question and show the present."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from homeostat.model.errors import ApiError

if TYPE_CHECKING:
    from homeostat.cli.kinds import Kind
    from homeostat.client import Client

Object = dict[str, Any]


async def known_here(client: Client, path: str, params: dict[str, str] | None = None) -> Object:
    """A document of a Homeostat server; an error for people where it is another server."""
    try:
        found: Object = (await client.request("GET", path, params or {})).json()
        return found
    except ApiError as error:
        if error.code == 404:
            raise click.ClickException("this server keeps no past: only one that `homeostat up` started does") from None
        raise


async def keeps_past(client: Client) -> bool:
    """Whether the server knows what was: a plain cluster does not."""
    try:
        await client.request("GET", "/homeostat/revision")
    except ApiError as error:
        if error.code in (403, 404):
            return False
        raise
    return True


async def revision_of(client: Client, text: str) -> int:
    """The revision that a person means: a number, or a time such as 2026-01-31T12:00:00Z; empty: now."""
    try:
        told = await known_here(client, "/homeostat/revision", {"at": text} if text else {})
    except ApiError as error:
        if error.code == 504:
            now = (await known_here(client, "/homeostat/revision"))["revision"]
            raise click.ClickException(f"revision {text} has not come yet: the server is at {now}") from None
        raise
    return int(told["revision"])


async def get_at(client: Client, kind: Kind, namespace: str, name: str, revision: int) -> Object | None:
    """An object as it was; None where it was not there."""
    served = await kind.on(client).served()
    try:
        reply = await client.request("GET", served.path(namespace, name), {"at": str(revision)})
    except ApiError as error:
        if error.code == 404:
            return None
        raise
    found: Object = reply.json()
    return found


async def list_at(client: Client, kind: Kind, namespace: str, revision: int, labels: str = "") -> list[Object]:
    """A collection as it was; of every namespace where none is said."""
    served = await kind.on(client).served()
    params = {"at": str(revision)} | ({"labelSelector": labels} if labels else {})
    items = (await client.request("GET", served.path(namespace), params)).json()["items"]
    return [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in items]


async def revisions(
    client: Client, kind: Kind, namespace: str, name: str, limit: int, *, declared: bool = False
) -> list[Object]:
    """What happened to an object, newest first; nothing where nothing is known. `declared`: without reports of its status."""
    await revision_of(client, "")
    served = await kind.on(client).served()
    reply = await client.request("GET", served.path(namespace, name), {"history": str(limit), **({"declared": "true"} if declared else {})})
    found: list[Object] = reply.json()["items"]
    return found
