"""How Syncs stand is posted as statuses of commits, to a real receiver."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from tests.loop.waiting import said
from tests.sources.conftest import WAIT_SECONDS, Bench
from tests.sources.repo import config_map
from tests.sources.test_guarded import halts

from homeostat.client import Key
from homeostat.model.errors import ApiError
from homeostat.sources.writeback import Report, message, reports_of

Object = dict[str, Any]
GOOD, BAD = "a" * 40, "b" * 40


class Receiver:
    """What came, and what is answered."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Object, Any]] = []
        self.answers: list[int] = []
        self.url = ""
        self.silent = asyncio.Event()
        self.silent.set()

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        await self.silent.wait()
        status = self.answers.pop(0) if self.answers else 201
        self.got.append((request.path, {**request.headers, "body": body}, await request.json()))
        return web.Response(status=status)

    async def until(self, count: int) -> list[Object]:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.got) < count:
                await asyncio.sleep(0.01)
        return [one for _, _, one in self.got]

    async def hears(self, **wanted: str) -> Object:
        """Waits until the last word has these fields."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.got or not wanted.items() <= self.got[-1][2].items():
                await asyncio.sleep(0.01)
        return dict(self.got[-1][2])


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    found.silent.set()
    await runner.cleanup()


@pytest.fixture(autouse=True)
def short_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homeostat.sources.writeback.CALM_SECONDS", 0.05)


def told(sync: Object) -> list[str]:
    """What the Sync says was told of its commits, the newest first."""
    return [one["state"] for one in ((sync.get("status") or {}).get("writtenBack") or {}).get("said", ())]


async def with_secret(bench: Bench, **values: str) -> None:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in values.items()}
    await bench.client.kind("v1", "Secret", namespace="default").create({"metadata": {"name": "forge"}, "data": data})


async def test_a_commit_is_told_when_it_is_applied_and_once(bench: Bench, receiver: Receiver) -> None:
    await with_secret(bench, token="t0ken", hmac="key")
    commit = bench.repo.commit({"shop/a.yaml": config_map("a"), "other/b.yaml": config_map("b")})
    to = {"url": f"{receiver.url}/repos/acme/shop", "form": "GitHub", "secret": "forge", "link": "https://h/{namespace}/{name}"}
    await bench.declare_source(writeBack=to)
    await bench.declare(path="shop")
    status = await receiver.hears(state="success")
    assert status == {
        "state": "success",
        "description": "applied: 1 objects are as declared",
        "context": "homeostat/default/shop",
        "target_url": "https://h/default/shop",
    }
    path, headers, _ = receiver.got[-1]
    assert path == f"/repos/acme/shop/statuses/{commit}"
    assert headers["Authorization"] == "Bearer t0ken"
    assert headers["Homeostat-Signature"] == "sha256=" + hmac.new(b"key", headers["body"], hashlib.sha256).hexdigest()
    await bench.until(lambda obj: told(obj) == ["success"])
    count = len(receiver.got)
    await bench.stop()
    await bench.start()
    await bench.whole_pass()
    await bench.declare("other", path="other")
    await receiver.hears(state="success", context="homeostat/default/other")
    assert {one["context"] for _, _, one in receiver.got[count:]} == {"homeostat/default/other"}  # a restart repeats nothing


async def test_without_write_back_nothing_is_told(bench: Bench, receiver: Receiver) -> None:
    bench.repo.commit({"a.yaml": config_map("a")})
    sync = await bench.begin()
    assert "writtenBack" not in sync["status"]
    assert receiver.got == []


async def test_a_refused_commit_is_told_with_its_place(bench: Bench, receiver: Receiver) -> None:
    bench.repo.commit({"a.yaml": config_map("a")})
    await bench.declare_source(writeBack={"url": receiver.url})
    await bench.declare()
    await receiver.hears(state="success")
    commit = await bench.push({"a.yaml": config_map("a") + "extra: 1\n"})
    heard = await receiver.hears(state="failure", commit=commit, sync="default/shop", source="default/repo")
    assert heard["description"].startswith("refused: a.yaml:7: ")


async def test_drift_that_is_held_is_told_with_names_and_without_values(bench: Bench, receiver: Receiver) -> None:
    names = [f"c{i}" for i in range(12)]
    commit = bench.repo.commit({f"{name}.yaml": config_map(name) for name in names})
    await bench.declare_source(writeBack={"url": receiver.url})
    await bench.declare()
    await receiver.hears(state="success", commit=commit)
    await bench.whole_pass()
    await asyncio.gather(
        *(bench.maps.patch(name, {"data": {"value": "stones"}}, field_manager="kubectl-edit") for name in names)
    )
    await halts(bench)
    heard = await receiver.hears(state="failure", commit=commit)
    assert heard["description"].startswith("drift: guards hold ConfigMap/")
    assert all(b"stones" not in headers["body"] for _, headers, _ in receiver.got)


async def test_a_receiver_that_fails_is_told_again_and_holds_nothing_up(bench: Bench, receiver: Receiver) -> None:
    receiver.answers = [503, 500]
    receiver.silent.clear()
    first = bench.repo.commit({"a.yaml": config_map("a")})
    await bench.declare_source(writeBack={"url": receiver.url})
    await bench.declare()
    await bench.at(first)  # nobody answers, and it is applied
    receiver.silent.set()
    sync = await bench.until(lambda obj: "it answered 50" in (obj["status"].get("writtenBack") or {}).get("error", ""))
    assert said(sync)["status"] == "True"
    await receiver.until(3)
    sync = await bench.until(lambda obj: told(obj) == ["success"])
    assert "error" not in sync["status"]["writtenBack"]
    assert {one["commit"] for _, _, one in receiver.got} == {first}


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ({"url": "http://forge.example.com/api", "secret": "forge"}, "https"),
        ({"url": "https://api.github.com/repos/a/b", "form": "GitHub"}, "token"),
        ({"url": "https://user:word@forge.example.com/"}, "without a password"),
        ({"url": "ftp://forge.example.com/"}, "https"),
    ],
)
async def test_what_would_give_a_secret_away_is_not_taken(bench: Bench, to: Object, words: str) -> None:
    with pytest.raises(ApiError, match=words):
        await bench.declare_source(writeBack=to)


def sync_with(ready: str, reason: str, **status: Any) -> Object:
    condition = {"type": "Ready", "status": ready, "reason": reason}
    return {"spec": {}, "status": {"conditions": [condition], **status}}


def test_a_source_that_cannot_be_read_says_nothing_about_a_commit() -> None:
    assert reports_of(sync_with("Unknown", "SourceUnknown", commit=GOOD, goal=GOOD), []) == []
    assert reports_of(sync_with("False", "NotYet", commit=GOOD, goal=GOOD), []) == []


def test_what_is_under_way_is_pending_and_drift_that_is_held_a_failure() -> None:
    (one,) = reports_of(sync_with("False", "ObjectsHeld", commit=GOOD, goal=BAD), ["Lamp/a"])
    assert one == Report(BAD, "pending", "not yet applied: guards hold Lamp/a", ("Lamp/a",))
    (one,) = reports_of(sync_with("False", "ObjectsHeld", commit=GOOD, goal=GOOD), ["Lamp/a"] * 5)
    assert one[:3] == (GOOD, "failure", "drift: guards hold Lamp/a, Lamp/a, Lamp/a and 2 more")
    (one,) = reports_of(sync_with("False", "ObjectsNotReady", commit=GOOD, goal=GOOD), ["Lamp/a"])
    assert one.state == "pending"
    assert reports_of(sync_with("False", "ObjectsNotReady", commit=GOOD, goal=GOOD), []) == []  # not looked at yet


def test_a_commit_that_was_taken_back_has_failed() -> None:
    sync = sync_with("True", "Held", commit=GOOD, goal=GOOD, objects={"desired": 3})
    sync["spec"]["hold"] = {"commit": GOOD, "notPast": BAD, "reason": "the canary failed"}
    kept, back = reports_of(sync, [])
    assert (kept.commit, kept.state) == (GOOD, "success")
    assert back == Report(BAD, "failure", f"taken back to {GOOD[:12]}: the canary failed")


def test_gitlab_has_words_of_its_own_and_descriptions_have_an_end() -> None:
    status = {"commit": BAD, "message": "x" * 500, "file": "a.yaml", "line": 3}
    (one,) = reports_of(sync_with("False", "Refused", refused=status), [])
    assert len(one.description) == 140
    told = message("GitLab", one, Key("default", "shop"), "default/repo", "", "now")
    assert told == {"state": "failed", "description": one.description, "name": "homeostat/default/shop"}
