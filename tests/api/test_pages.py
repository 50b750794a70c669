"""What the pages of a list cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server


async def test_what_is_left_is_counted_once_however_many_pages_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, Listen("127.0.0.1", 0), durable=False)
    await server.start()
    try:
        client = local_client(server.plane, "user")
        maps = client.kind("v1", "ConfigMap", namespace="default")
        for number in range(9):
            await maps.create({"metadata": {"name": f"map-{number}"}})
        asked = []
        range_of = server.plane.store.range

        async def watched(prefix: str, **options: Any) -> Any:
            asked.append((prefix, options.get("count")))
            return await range_of(prefix, **options)

        monkeypatch.setattr(server.plane.store, "range", watched)
        assert len(await maps.list(page=2)) == 9
        assert [counted for prefix, counted in asked if prefix == "configmaps/default/"] == [True, False, False, False, False]
    finally:
        await server.stop()
