"""`object`: one resource, whole, as it is and as it becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from homeostat.client import Key
from homeostat.model.errors import ApiError
from homeostat.web.board import Board
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer


async def one_object(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`apiVersion`, `kind`, `namespace`, `name`: the object each time it changes, null where there is none."""
    resource, pace = viewer.client.kind(params["apiVersion"], params["kind"]), Pace()
    name, namespace = params["name"], params.get("namespace", "")

    def heard(key: Key) -> None:
        pace.changed()

    try:
        yield {"object": await resource.get(name, namespace=namespace)}  # at once; to follow it takes a look at all of its kind
    except ApiError as error:
        if error.code not in (403, 404):
            raise
    which = f"metadata.name={name}"
    await resource.list(namespace=namespace, fields=which)  # who may not look hears so at once
    async with resource.informer(namespace=namespace, fields=which) as informer:
        await informer.wait_synced()
        informer.subscribe(heard)
        pace.changed()
        while True:
            await pace.turn()
            yield {"object": informer.get(name, namespace)}
