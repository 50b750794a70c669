"""Whatever is asked, the answer is a proper one, and what is stored stays sound.

HOMEOSTAT_FUZZ_REQUESTS says how many requests (3,000 by default), HOMEOSTAT_FUZZ_SEED repeats a run: a failure prints both
the seed and the request.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.fuzz.generate import Generator, Operations, Sent
from tests.fuzz.seeds import DEFINITION, Object

from homeostat.api.audit import AuditLog
from homeostat.api.auth import pki
from homeostat.api.auth.authenticate import Peer
from homeostat.api.auth.serviceaccounts import SigningKey
from homeostat.api.auth.user import AUTHENTICATED, MASTERS, User
from homeostat.api.plane import ControlPlane
from homeostat.api.request import Request, Response
from homeostat.store import SqliteStore

REQUESTS = int(os.environ.get("HOMEOSTAT_FUZZ_REQUESTS", "3000"))
SLOWEST = 2.0
"""Seconds one request may take, on a busy machine."""
LOOK_AGAIN = 1000
"""Requests after which the server's documents are read anew: definitions come and go."""

ADMIN = Peer(User("admin", "", (MASTERS, AUTHENTICATED)), float("inf"))


class Reader:
    """A peer that reads a stream as far as it comes by itself, and leaves."""

    def __init__(self) -> None:
        self.closed = False
        self.stopping = False
        self.congested = False
        self.notify: Callable[[], None] | None = None
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drained(self) -> None:
        pass


async def read(response: Response) -> bytes:
    """The whole body; of a watch, what it has to say at once."""
    if response.stream is None:
        return response.body
    reader = Reader()
    task = asyncio.create_task(response.stream(reader))
    await asyncio.wait([task], timeout=0.005)
    reader.closed = True
    if reader.notify:
        reader.notify()
    await asyncio.wait_for(task, 5)
    return reader.data


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    pki.ensure_signing_key(tmp_path / "pki")
    store = await SqliteStore.open(tmp_path / "data", durable=False)
    plane = ControlPlane(store, signing_key=SigningKey(tmp_path / "pki"), audit=AuditLog(tmp_path / "audit.log"))
    await plane.start()
    yield plane
    await plane.stop()
    await store.close()


async def ask(plane: ControlPlane, method: str, target: str, body: Any = None, media: str = "application/json") -> Any:
    """An ordinary request that must succeed."""
    headers = [(b"content-type", media.encode()), (b"accept", b"application/json")]
    encoded = b"" if body is None else orjson.dumps(body)
    response = await plane.handle(Request(method, target, headers, encoded, ADMIN))
    raw = await read(response)
    assert response.status < 300, (method, target, raw[:2000])
    return orjson.loads(raw) if raw else None


async def operations(plane: ControlPlane) -> Operations:
    """All that the server declares in its OpenAPI documents."""
    index = await ask(plane, "GET", "/openapi/v3")
    return Operations([await ask(plane, "GET", item["serverRelativeURL"]) for item in index["paths"].values()])


async def prepare(plane: ControlPlane) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fuzz"}}
    if "fuzz" not in plane.admission.namespaces:
        await ask(plane, "POST", "/api/v1/namespaces", namespace)
    if plane.registry.get("widgets.fuzz.example.com") is None:
        crd = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.fuzz.example.com"},
            "spec": DEFINITION,
        }
        headers = [(b"content-type", b"application/json")]
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await plane.handle(Request("POST", path, headers, orjson.dumps(crd), ADMIN))


def judge(sent: Sent, response: Response, body: bytes) -> None:
    """What must hold for any answer."""
    if response.status >= 500:
        # A revision that has not happened yet is the one case that upstream answers so.
        assert response.status == 504, "a mistake of the client's was answered as one of ours"
        assert b"ResourceVersionTooLarge" in body
    for name, value in response.headers:
        assert b"\n" not in name + value
        assert b"\r" not in name + value
    if response.status >= 400:
        status = yaml.safe_load(body) if b"yaml" in response.headers[0][1] else orjson.loads(body)
        assert status["kind"] == "Status"
        assert status["apiVersion"] == "v1"
        assert status["status"] == "Failure"
        assert status["code"] == response.status
        assert status["message"]
        assert status["reason"]
        assert len(body) < 200_000


async def test_no_request_breaks_the_server_or_what_it_holds(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    seed = int(os.environ.get("HOMEOSTAT_FUZZ_SEED") or random.randrange(2**32))
    generator = Generator(seed)
    statuses: Counter[int] = Counter()
    for number in range(REQUESTS):
        if number % LOOK_AGAIN == 0:
            await prepare(plane)
            generator.operations = await operations(plane)
        sent, kind = generator.next()
        started = time.perf_counter()
        try:
            response = await asyncio.wait_for(
                plane.handle(Request(sent.method, sent.target, sent.headers, sent.body, ADMIN)), 10
            )
            body = await read(response)
            judge(sent, response, body)
            assert time.perf_counter() - started < SLOWEST, "it took too long"
            assert not caplog.records, caplog.text
        except BaseException as error:
            raise AssertionError(f"seed {seed}, {sent}\n{type(error).__name__}: {error}") from error
        statuses[response.status] += 1
        if response.status in (200, 201) and response.stream is None and body[:1] == b"{":
            found = orjson.loads(body)
            if found.get("kind") == kind and isinstance(found.get("metadata"), dict):
                generator.learn(kind, found)
    print(f"seed {seed}: {dict(sorted(statuses.items()))}")
    assert statuses[201] > REQUESTS / 50, "the requests are too absurd to find anything"
    try:
        await check_everything(plane)
    except BaseException as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error


async def check_everything(plane: ControlPlane) -> None:
    """What is stored can be got, listed and watched, and is what its key says."""
    checked = 0
    for resource in list(plane.registry):
        if "list" not in resource.verbs:
            continue
        for version in resource.versions.values():
            if not version.served:
                continue
            root = f"/apis/{resource.group}/{version.name}" if resource.group else f"/api/{version.name}"
            listed = await ask(plane, "GET", f"{root}/{resource.plural}")
            lines = (
                await read(await plane.handle(Request("GET", f"{root}/{resource.plural}?watch=1", [], b"", ADMIN)))
            ).splitlines()
            assert len(lines) == len(listed["items"])
            for item, line in zip(listed["items"], lines, strict=True):
                event = orjson.loads(line)
                assert event["type"] == "ADDED"
                namespace, name = item["metadata"].get("namespace", ""), item["metadata"]["name"]
                within = f"/namespaces/{namespace}" if namespace else ""
                got = await ask(plane, "GET", f"{root}{within}/{resource.plural}/{name}")
                assert got == event["object"]
                assert {**item, "apiVersion": got["apiVersion"], "kind": got["kind"]} == got
                check_stored(resource.counts_generation, got)
                entry = await plane.store.get(resource.key(namespace, name))
                assert entry is not None
                assert "resourceVersion" not in orjson.loads(entry.value)["metadata"]
                checked += 1
    assert checked > 20


def check_stored(counts_generation: bool, obj: Object) -> None:
    metadata = obj["metadata"]
    assert metadata["uid"]
    assert metadata["creationTimestamp"]
    assert metadata["resourceVersion"].isdigit()
    if counts_generation:
        assert metadata["generation"] >= 1
    for entry in metadata.get("managedFields", ()):
        assert entry["operation"] in ("Apply", "Update")
        assert entry["fieldsType"] == "FieldsV1"
        assert isinstance(entry["fieldsV1"], dict)
        assert entry["apiVersion"]
        check_fields(entry["fieldsV1"])


def check_fields(fields: Object) -> None:
    """Every path of a set of fields is written as the format demands."""
    for key, inner in fields.items():
        assert key == "." or key[:2] in ("f:", "k:", "v:", "i:"), key
        if key[:2] in ("k:", "v:"):
            orjson.loads(key[2:])
        assert isinstance(inner, dict)
        check_fields(inner)
