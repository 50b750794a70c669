"""A write that another one overtakes is made again, from what was sent and not from what became of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from homeostat.api.auth.authenticate import Peer
from homeostat.api.auth.user import AUTHENTICATED, MASTERS, User
from homeostat.api.local import local_client
from homeostat.api.plane import ControlPlane
from homeostat.api.request import Request, Response
from homeostat.api.server import Listen, Server
from homeostat.client import Client
from homeostat.model.protocol import APPLY_PATCH, MERGE_PATCH

pytestmark = pytest.mark.asyncio

ADMIN = Peer(User("admin", "", (MASTERS, AUTHENTICATED)), float("inf"))
SHOPS = "/apis/test.dev/v1/namespaces/default/shops"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "shops.test.dev"},
    "spec": {
        "group": "test.dev",
        "scope": "Namespaced",
        "names": {"plural": "shops", "kind": "Shop"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "till": {
                                        "type": "object",
                                        "properties": {
                                            "name": {"type": "string"},
                                            "open": {"type": "boolean", "default": True},
                                        },
                                    },
                                    "other": {"type": "string"},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


@pytest_asyncio.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    server = Server(tmp_path, Listen.parse("127.0.0.1:0"))
    await server.start()
    client = local_client(server.plane, "admin")
    await client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").create(DEFINITION)
    yield server.plane
    await client.close()
    await server.stop()


def overtaken(plane: ControlPlane, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just before the next transaction another writer changes the shop."""
    txn = plane.store.txn

    async def late(compares: Any, writes: Any) -> Any:
        monkeypatch.setattr(plane.store, "txn", txn)
        shops = client.kind("test.dev/v1", "Shop", namespace="default")
        await shops.apply({"metadata": {"name": "a"}, "spec": {"other": "first"}}, field_manager="other")
        return await txn(compares, writes)

    monkeypatch.setattr(plane.store, "txn", late)


async def send(plane: ControlPlane, media: str, body: Any) -> tuple[Response, dict[str, Any]]:
    headers = [(b"content-type", media.encode()), (b"accept", b"application/json")]
    response = await plane.handle(
        Request("PATCH", f"{SHOPS}/a?fieldManager=mine", headers, orjson.dumps(body), ADMIN, "127.0.0.1")
    )
    return response, orjson.loads(response.body)


async def test_a_patch_warns_and_defaults_as_if_it_had_been_the_first(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = local_client(plane, "other")
    await client.kind("test.dev/v1", "Shop", namespace="default").create({"metadata": {"name": "a"}})
    overtaken(plane, client, monkeypatch)
    response, shop = await send(plane, MERGE_PATCH, {"spec": {"till": {"name": "x", "unknown": 1}}})
    assert response.status == 200
    assert shop["spec"] == {"other": "first", "till": {"name": "x", "open": True}}
    assert [value for name, value in response.headers if name == b"warning"] == [
        b'299 - "unknown field \\"spec.till.unknown\\""'
    ]


@pytest.mark.parametrize("there", [True, False], ids=["that changes", "that creates"])
async def test_an_apply_merges_what_was_declared_into_what_came_first(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    client = local_client(plane, "other")
    if there:
        await client.kind("test.dev/v1", "Shop", namespace="default").create({"metadata": {"name": "a"}})
    overtaken(plane, client, monkeypatch)
    config = {"apiVersion": "test.dev/v1", "kind": "Shop", "metadata": {"name": "a"}, "spec": {"till": {"name": "x"}}}
    response, shop = await send(plane, APPLY_PATCH, config)
    assert response.status == 200
    assert shop["spec"] == {"other": "first", "till": {"name": "x", "open": True}}
    mine = next(entry for entry in shop["metadata"]["managedFields"] if entry["manager"] == "mine")
    assert mine["fieldsV1"] == {"f:spec": {"f:till": {"f:name": {}}}}
