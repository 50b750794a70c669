"""Making a kind known to an API server, ours or any other."""

from __future__ import annotations

import asyncio
from typing import Any

from homeostat.client import Client
from homeostat.model.errors import ApiError

SERVED_SECONDS = 10.0
"""How long a server may take until it serves a kind that it was told of."""
PAUSE_SECONDS = 0.05

Object = dict[str, Any]


async def define(client: Client, crd: Object, manager: str) -> None:
    """Applies a CustomResourceDefinition, and waits until its kind is served. TimeoutError where it is not in time."""
    definitions = client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    await definitions.apply(crd, field_manager=manager, force=True)
    version = crd["spec"]["versions"][0]["name"]
    served = client.kind(f"{crd['spec']['group']}/{version}", crd["spec"]["names"]["kind"])
    async with asyncio.timeout(SERVED_SECONDS):
        while True:
            try:
                await served.served()
                return
            except ApiError as error:
                if error.code != 404:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)
