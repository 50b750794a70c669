"""A push is taken note of at once, from those who prove that they may tell."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.sources.conftest import Bench
from tests.sources.repo import Repo, config_map

from homeostat.client import Client
from homeostat.sources.sync import Sync
from homeostat.sources.webhook import BODY_LIMIT, proves

TOKEN = b"s3cret"


def signed(body: bytes, token: bytes = TOKEN) -> str:
    return hmac.new(token, body, hashlib.sha256).hexdigest()


def test_who_knows_the_token_proves_it_in_the_way_of_its_kind() -> None:
    body = b'{"ref": "refs/heads/main"}'
    assert proves({"X-Hub-Signature-256": f"sha256={signed(body)}"}, body, TOKEN)
    assert proves({"Homeostat-Signature": f"sha256={signed(body)}"}, body, TOKEN)
    assert proves({"X-Gitea-Signature": signed(body)}, body, TOKEN)
    assert proves({"X-Gitlab-Token": "s3cret"}, body, TOKEN)


def test_who_does_not_know_it_proves_nothing() -> None:
    body = b"{}"
    for headers in (
        {},
        {"X-Hub-Signature-256": f"sha256={signed(body, b'other')}"},
        {"X-Hub-Signature-256": signed(body)},
        {"X-Hub-Signature-256": f"sha256={signed(b'[]')}"},
        {"X-Hub-Signature-256": "sha256=", "X-Gitlab-Token": "s3cret"},
        {"X-Gitlab-Token": "S3cret"},
        {"X-Gitlab-Token": ""},
    ):
        assert not proves(headers, body, TOKEN)
    assert not proves({"X-Hub-Signature-256": f"sha256={signed(body, b'')}", "X-Gitlab-Token": ""}, body, b"")


@pytest.fixture
async def listening(client: Client, repo: Repo, tmp_path: Path) -> AsyncIterator[Bench]:
    class Listening(Bench):
        def make(self) -> Sync:
            return Sync(self.directory, webhooks=("127.0.0.1", 0))

    bench = Listening(client, repo, tmp_path / "copies")
    await bench.start()
    yield bench
    await bench.stop()


async def test_a_push_makes_it_immediate(listening: Bench) -> None:
    bench = listening
    assert bench.sync.running is not None
    url = f"http://127.0.0.1:{bench.sync.running.webhook_port}/hooks/git/default"
    encoded = {"token": base64.b64encode(TOKEN).decode()}
    await bench.client.kind("v1", "Secret", namespace="default").create({"metadata": {"name": "hook"}, "data": encoded})
    bench.repo.commit({"a.yaml": config_map("a")})
    await bench.declare_source(webhook={"secret": "hook"})
    await bench.declare_source("quiet")
    await bench.declare()
    await bench.says("Applied")
    commit = bench.repo.commit({"a.yaml": config_map("a", "2")})
    body = b'{"ref": "refs/heads/main"}'
    async with aiohttp.ClientSession() as session:

        async def post(name: str, body: bytes | io.BytesIO, headers: dict[str, str]) -> int:
            async with session.post(f"{url}/{name}", data=body, headers=headers) as answer:
                return answer.status

        right = {"X-Hub-Signature-256": f"sha256={signed(body)}"}
        assert await post("repo", body, {"X-Hub-Signature-256": "sha256=00"}) == 403
        assert await post("none", body, right) == 403
        assert await post("quiet", body, right) == 403
        assert await post("repo", io.BytesIO(b"x" * (BODY_LIMIT + 1)), right) == 413
        async with session.get(f"{url}/repo") as answer:
            assert answer.status == 405
        assert await post("repo", body, {**right, "X-GitHub-Event": "ping"}) == 200
        await bench.whole_pass()
        assert await bench.values() == {"a": "1"}
        assert await post("repo", body, right) == 202
        await bench.at(commit)
