"""The past through the API: exact while the log has it, as declared while the archive has it, and 410 beyond."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.conformance.inprocess import ADMIN, Inside, ManualClock

from homeostat.api.audit import AuditLog
from homeostat.api.auth import pki
from homeostat.api.auth.authenticate import Peer
from homeostat.api.auth.serviceaccounts import SigningKey
from homeostat.api.auth.user import AUTHENTICATED, User
from homeostat.api.history import DAY, NOTHING, UNKEPT, History, Keep, Retention, declared
from homeostat.api.plane import ControlPlane
from homeostat.api.request import Request
from homeostat.model.clock import format_time
from homeostat.model.errors import ApiError
from homeostat.store import Delete, Put, SqliteStore, StoreError
from homeostat.store.archive import Archive

ROOM = "/api/v1/namespaces/default/configmaps"
HOUR = 3600.0


@asynccontextmanager
async def remembering(directory: Path, retention: Retention | None = None, now: float = 1_800_000_000.0) -> AsyncIterator[Inside]:
    """A control plane with an archive, on a clock of its own."""
    pki.ensure_signing_key(directory / "pki")
    clock = ManualClock(now)
    store = await SqliteStore.open(directory / "data", durable=False)
    history = History(store, clock, Archive(directory / "history.db"), retention)
    plane = ControlPlane(
        store, signing_key=SigningKey(directory / "pki"), audit=AuditLog(directory / "audit.log"), clock=clock, history=history
    )
    await plane.start()
    try:
        yield Inside(plane, clock)
    finally:
        await plane.stop()
        await store.close()


async def put(server: Inside, name: str, **data: str) -> int:
    """Declares a ConfigMap; gives its revision."""
    server.clock.seconds += 1
    body = {"metadata": {"name": name}, "data": data}
    status, said = await server.ask("POST", ROOM, body)
    if status == 409:
        status, said = await server.ask("PUT", f"{ROOM}/{name}", body)
    assert status in (200, 201), said
    return int(said["metadata"]["resourceVersion"])


async def an_hour_later(server: Inside) -> None:
    """The log forgets all that has been."""
    await server.plane.housekeeping.sweep()
    server.clock.seconds += HOUR + 1
    await server.plane.housekeeping.sweep()


async def data_at(server: Inside, name: str, at: Any) -> Any:
    status, said = await server.ask("GET", f"{ROOM}/{name}?at={at}")
    return said["data"] if status == 200 else status


@pytest.mark.parametrize("forgotten", [False, True])
async def test_an_object_can_be_read_as_it_was(tmp_path: Path, forgotten: bool) -> None:
    async with remembering(tmp_path) as server:
        before = server.plane.store.revision
        first = await put(server, "motd", text="one")
        second = await put(server, "motd", text="two")
        await server.ask("DELETE", f"{ROOM}/motd")
        gone = server.plane.store.revision
        third = await put(server, "motd", text="three")
        if forgotten:
            await an_hour_later(server)
            assert server.plane.store.compacted >= third
        assert await data_at(server, "motd", before) == 404
        assert await data_at(server, "motd", first) == {"text": "one"}
        assert await data_at(server, "motd", second) == {"text": "two"}
        assert await data_at(server, "motd", gone) == 404
        assert await data_at(server, "motd", third) == {"text": "three"}


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_time_means_the_state_at_the_end_of_its_second(tmp_path: Path, forgotten: bool) -> None:
    async with remembering(tmp_path) as server:
        await put(server, "motd", text="one")
        early = server.clock.seconds
        server.clock.seconds += 100
        await put(server, "motd", text="two")
        late = server.clock.seconds
        if forgotten:
            await an_hour_later(server)
        assert await data_at(server, "motd", format_time(early)) == {"text": "one"}
        assert await data_at(server, "motd", format_time(late - 1)) == {"text": "one"}
        assert await data_at(server, "motd", format_time(late)) == {"text": "two"}
        assert await data_at(server, "motd", format_time(early - 1000)) == 410
        assert await data_at(server, "motd", "yesterday") == 400
        assert await data_at(server, "motd", server.plane.store.revision + 9) == 504


async def test_times_are_known_after_a_restart(tmp_path: Path) -> None:
    async with remembering(tmp_path) as server:
        await put(server, "motd", text="one")
        early = server.clock.seconds
        await put(server, "motd", text="two")
    async with remembering(tmp_path, now=server.clock.seconds + 50) as server:
        assert await data_at(server, "motd", format_time(early)) == {"text": "one"}


async def test_a_collection_can_be_listed_as_it_was(tmp_path: Path) -> None:
    async with remembering(tmp_path) as server:
        await put(server, "a", n="1")
        await put(server, "b", n="1")
        then = server.plane.store.revision
        await put(server, "a", n="2")
        await server.ask("DELETE", f"{ROOM}/b")
        await put(server, "c", n="1")
        for _ in range(2):
            status, said = await server.ask("GET", f"{ROOM}?at={then}")
            assert status == 200
            assert {i["metadata"]["name"]: i["data"]["n"] for i in said["items"]} == {"a": "1", "b": "1"}
            assert said["metadata"]["resourceVersion"] == str(then)
            status, said = await server.ask("GET", f"{ROOM}?at={then}&fieldSelector=metadata.name%3Da")
            assert [i["metadata"]["name"] for i in said["items"]] == ["a"]
            await an_hour_later(server)
        exact = f"{ROOM}?resourceVersion={then}&resourceVersionMatch=Exact"
        assert (await server.ask("GET", exact))[0] == 410  # Kubernetes' own way reads the log alone


async def test_history_tells_each_write_and_later_each_declaration(tmp_path: Path) -> None:
    async with remembering(tmp_path) as server:
        await put(server, "motd", text="one")
        await put(server, "motd", text="two", more="x")
        await server.ask("DELETE", f"{ROOM}/motd")
        await put(server, "motd", text="three")
        told = []
        for _ in range(2):
            status, said = await server.ask("GET", f"{ROOM}/motd?history=10")
            assert (status, said["kind"]) == (200, "RevisionList")
            told.append([(i["revision"], i["change"], i.get("fields"), i["time"]) for i in said["items"]])
            await an_hour_later(server)
        assert [(change, fields) for _, change, fields, _ in told[0]] == [
            ("created", None),
            ("deleted", None),
            ("declared", ["data.text", "data.more"]),
            ("created", None),
        ]
        assert told[0] == told[1]


async def test_what_only_changes_the_status_is_not_archived(tmp_path: Path) -> None:
    async with remembering(tmp_path) as server:
        await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        first = server.plane.store.revision
        for word in ("one", "two", "three"):
            note = {"metadata": {"name": "shop"}, "status": {"phase": "Active", "conditions": [_condition(word)]}}
            assert (await server.ask("PUT", "/api/v1/namespaces/shop/status", note))[0] == 200
        await an_hour_later(server)
        archive = Archive(tmp_path / "history.db")
        assert archive.history("namespaces/shop", 1 << 40, 10) == []
        archive.close()
        status, said = await server.ask("GET", f"/api/v1/namespaces/shop?at={first}")
        assert (status, said["metadata"]["name"]) == (200, "shop")


def _condition(word: str) -> dict[str, str]:
    return {"type": "Seen", "status": "True", "reason": "R", "message": word, "lastTransitionTime": "2026-01-31T12:00:00Z"}


async def test_reading_the_past_needs_the_right_to_read_the_present(tmp_path: Path) -> None:
    async with remembering(tmp_path) as server:
        revision = await put(server, "motd", text="one")
        bob = Peer(User("bob", "", (AUTHENTICATED,)), float("inf"))
        for target in (f"{ROOM}/motd?at={revision}", f"{ROOM}/motd?history=5", f"{ROOM}?at={revision}"):
            assert (await server.plane.handle(Request("GET", target, [], b"", bob))).status == 403
        role = {
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["motd"]}],
        }
        base = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        assert (await server.ask("POST", f"{base}/roles", role))[0] == 201
        binding = {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        assert (await server.ask("POST", f"{base}/rolebindings", binding))[0] == 201
        codes = {}
        for target in (f"{ROOM}/motd?at={revision}", f"{ROOM}/other?at={revision}", f"{ROOM}?at={revision}"):
            codes[target] = (await server.plane.handle(Request("GET", target, [], b"", bob))).status
        assert list(codes.values()) == [200, 403, 403]
        for path in ("/homeostat/changesets/x", "/homeostat/checkpoint"):
            assert (await server.plane.handle(Request("GET", path, [], b"", bob))).status == 403


async def test_each_kind_is_kept_as_long_as_was_said(tmp_path: Path) -> None:
    kinds = {**UNKEPT, "secrets": NOTHING, "configmaps": Keep(2 * DAY, 3)}
    async with remembering(tmp_path, Retention(Keep(10 * DAY), kinds)) as server:
        secrets = "/api/v1/namespaces/default/secrets"
        await server.ask("POST", secrets, {"metadata": {"name": "key"}, "data": {"k": "b25l"}})
        secret = server.plane.store.revision
        await server.ask("PUT", f"{secrets}/key", {"metadata": {"name": "key"}, "data": {"k": "dHdv"}})
        revisions = [await put(server, "motd", text=str(n)) for n in range(6)]
        await an_hour_later(server)
        server.clock.seconds += 700
        await put(server, "other")
        await an_hour_later(server)
        found = [await data_at(server, "motd", revision) for revision in revisions]
        assert found == [410, 410, {"text": "2"}, {"text": "3"}, {"text": "4"}, {"text": "5"}]
        assert (await server.ask("GET", f"{secrets}/key?at={secret}"))[0] == 410
        assert (await server.ask("GET", f"{ROOM}?at={revisions[1]}"))[0] == 410
        server.clock.seconds += 3 * DAY
        await put(server, "other", n="1")
        await an_hour_later(server)
        found = [await data_at(server, "motd", revision) for revision in revisions]
        assert found == [410, 410, 410, 410, {"text": "4"}, {"text": "5"}], "the last way back is never dropped"


async def test_every_past_revision_is_told_as_it_was_or_refused(tmp_path: Path) -> None:
    """Random writes of a few keys, compacted at random moments: whatever is answered is what was declared then."""
    source = random.Random(7)
    clock = ManualClock()
    store = await SqliteStore.in_memory()
    history = History(store, clock, Archive(tmp_path / "history.db"), Retention(Keep(40.0, 4), {"unkept": NOTHING}))
    await history.start()
    keys = ["kept/a/x", "kept/a/y", "kept/b/z", "unkept/q"]
    was: dict[int, dict[str, Any]] = {}
    now: dict[str, Any] = {}
    answered = 0
    refused: list[tuple[int, bool]] = []
    for step in range(300):
        clock.seconds += source.random()
        key = source.choice(keys)
        obj = {"metadata": {"name": key, "generation": step}, "spec": source.randrange(4), "status": step}
        await store.txn([], [Delete(key) if source.random() < 0.2 else Put(key, orjson.dumps(obj))])
        entry = await store.get(key)
        now = {k: v for k, v in now.items() if k != key} | ({key: declared(entry.value)} if entry else {})
        was[store.revision] = now
        if source.random() < 0.1:
            history._dropped_at = 0.0
            await history.let_go(source.choice([r for r in was if r >= store.compacted]), 0)
        revision = source.choice(list(was))
        for key in keys:
            try:
                entry = await history.entry(key, revision)
            except ApiError as error:
                refused.append((error.code, revision < store.compacted))
                continue
            answered += revision < store.compacted
            assert (declared(entry.value) if entry else None) == was[revision].get(key), (step, key, revision)
        if revision < store.compacted:
            try:
                entries = await history.entries("kept/a/", revision)
            except ApiError as error:
                refused.append((error.code, True))
                continue
            expected = {k: v for k, v in was[revision].items() if k.startswith("kept/a/")}
            assert {e.key: declared(e.value) for e in entries} == expected
    assert answered > 50, "most of it must not be refused"
    assert set(refused) == {(410, True)}
    await history.stop()
    await store.close()


async def test_a_change_set_is_told_with_what_was_before_it(tmp_path: Path) -> None:
    async with remembering(tmp_path) as server:
        await put(server, "a", n="1")
        notes = {"annotations": {"homeostat.dev/change-set": "bad push"}}
        await server.ask("PUT", f"{ROOM}/a", {"metadata": {"name": "a", **notes}, "data": {"n": "2"}})
        await server.ask("POST", ROOM, {"metadata": {"name": "b", **notes}})
        for _ in range(2):
            status, said = await server.ask("GET", "/homeostat/changesets/bad%20push")
            assert status == 200
            told = {i["name"]: (i["before"] and i["before"]["data"], i["changedSince"]) for i in said["items"]}
            assert told == {"a": ({"n": "1"}, False), "b": (None, False)}
            await an_hour_later(server)
        await put(server, "a", n="3")
        _, said = await server.ask("GET", "/homeostat/changesets/bad%20push")
        assert {i["name"]: i["changedSince"] for i in said["items"]} == {"a": True, "b": False}


async def test_a_compaction_that_fails_halfway_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with remembering(tmp_path) as server:
        first = await put(server, "motd", text="one")
        await put(server, "motd", text="two")
        await server.plane.housekeeping.sweep()
        server.clock.seconds += HOUR + 1

        async def fails(revision: int) -> None:
            raise StoreError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(server.plane.store, "compact", fails)
            with pytest.raises(StoreError):
                await server.plane.housekeeping.sweep()
        assert await data_at(server, "motd", first) == {"text": "one"}
        await an_hour_later(server)
        assert server.plane.store.compacted > first
        assert await data_at(server, "motd", first) == {"text": "one"}


async def test_the_log_is_not_let_go_of_while_somebody_reads_it(tmp_path: Path) -> None:
    async with remembering(tmp_path) as server:
        first = await put(server, "motd", text="one")
        await put(server, "motd", text="two")
        with server.plane.history.held(first):
            await an_hour_later(server)
            assert server.plane.store.compacted <= first
            entry = await server.plane.store.get("configmaps/default/motd", first)
            assert entry is not None
        await put(server, "other")
        await an_hour_later(server)
        assert server.plane.store.compacted > first


async def test_who_reads_everything_is_written_down(tmp_path: Path) -> None:
    async with remembering(tmp_path) as server:
        response = await server.plane.handle(Request("GET", "/homeostat/checkpoint", [], b"", ADMIN))
        assert response.status == 200
    assert "/homeostat/checkpoint" in (tmp_path / "audit.log").read_text()


async def test_a_store_that_went_back_in_time_takes_its_history_along(tmp_path: Path) -> None:
    async with remembering(tmp_path) as server:
        first = await put(server, "motd", text="one")
        await put(server, "motd", text="two")
        await an_hour_later(server)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    async with remembering(tmp_path, now=server.clock.seconds) as server:
        for n in range(5):
            await put(server, "motd", text=f"never {n}")
        await an_hour_later(server)
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "copy", tmp_path / "data")
    async with remembering(tmp_path, now=server.clock.seconds) as server:
        third = await put(server, "motd", text="three")
        await put(server, "motd", text="four")
        await an_hour_later(server)
        assert [await data_at(server, "motd", r) for r in (first, first + 1, third)] == [
            {"text": "one"},
            {"text": "two"},
            {"text": "three"},
        ]


@pytest.mark.parametrize("forgotten", [False, True])
async def test_declarations_are_told_however_many_reports_came_since(tmp_path: Path, forgotten: bool) -> None:
    async with remembering(tmp_path) as server:
        place = "/api/v1/namespaces/shop"
        await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop", "labels": {"n": "1"}}})
        await server.ask("PUT", place, {"metadata": {"name": "shop", "labels": {"n": "2"}}})
        second = server.plane.store.revision
        for n in range(30):
            whole = {"name": "shop", "labels": {"n": "2"}}
            note = {"metadata": whole, "status": {"phase": "Active", "conditions": [_condition(str(n))]}}
            assert (await server.ask("PUT", f"{place}/status", note))[0] == 200
        if forgotten:
            await an_hour_later(server)
        _, said = await server.ask("GET", f"{place}?history=5&declared=true")
        told = [(i["change"], i["object"]["metadata"]["labels"].get("n")) for i in said["items"]]
        assert told == [("declared", "2"), ("created", "1")]
        assert said["items"][0]["revision"] == second
        assert len((await server.ask("GET", f"{place}?history=5"))[1]["items"]) == (2 if forgotten else 5)


async def test_a_long_list_of_the_past_comes_in_pages_while_the_log_has_it(tmp_path: Path) -> None:
    async with remembering(tmp_path) as server:
        for n in range(5):
            await put(server, f"m{n}")
        then = server.plane.store.revision
        await put(server, "later")
        _, first = await server.ask("GET", f"{ROOM}?at={then}&limit=3")
        _, rest = await server.ask("GET", f"{ROOM}?limit=3&continue={first['metadata']['continue']}")
        assert [i["metadata"]["name"] for i in (*first["items"], *rest["items"])] == [f"m{n}" for n in range(5)]
        assert (await server.ask("GET", f"{ROOM}?at={then}&resourceVersion=3"))[0] == 400
        assert (await server.ask("GET", f"{ROOM}?history=3"))[0] == 400
        for target in (f"{ROOM}/never?history=3", f"{ROOM}/never?history=3&declared=true"):
            assert (await server.ask("GET", target))[1]["items"] == []


LIFE = """
import asyncio, random, sys
from pathlib import Path
import orjson
from homeostat.api.history import History, Keep, Retention
from homeostat.model.clock import Clock
from homeostat.store import Delete, Put, SqliteStore
from homeostat.store.archive import Archive

async def live(directory, seed):
    source = random.Random(seed)
    store = await SqliteStore.open(directory / "data", durable=False)
    history = History(store, Clock(), Archive(directory / "history.db"), Retention(Keep(3600, 1_000_000), {}))
    await history.start()
    while True:
        key = source.choice(["kept/a", "kept/b", "kept/c"])
        obj = {"metadata": {"name": key}, "spec": source.randrange(5), "status": source.random()}
        value = None if source.random() < 0.2 else orjson.dumps(obj)
        before = store.revision
        revision = await store.txn([], [Delete(key) if value is None else Put(key, value)])
        if revision > before:  # what deletes nothing takes no revision
            print(revision, key, "-" if value is None else obj["spec"], flush=True)
        if source.random() < 0.2:
            await history.let_go(max(store.compacted, store.revision - source.randrange(30)), 0)

asyncio.run(live(Path(sys.argv[1]), int(sys.argv[2])))
"""


async def test_who_is_killed_at_any_moment_has_lost_nothing_of_the_past(tmp_path: Path) -> None:
    said: dict[int, tuple[str, str]] = {}
    for seed in range(int(os.environ.get("HOMEOSTAT_TORTURE", "4"))):
        with subprocess.Popen(
            [sys.executable, "-c", LIFE, str(tmp_path), str(seed)], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            for _ in range(random.Random(seed).randrange(50, 300)):
                revision, key, spec = child.stdout.readline().split()
                said[int(revision)] = key, spec
            child.kill()
            for line in child.stdout:
                if line.count(" ") == 2 and line.endswith("\n"):
                    revision, key, spec = line.split()
                    said[int(revision)] = key, spec
    store = await SqliteStore.open(tmp_path / "data", durable=False)
    history = History(store, ManualClock(), Archive(tmp_path / "history.db"), Retention(Keep(3600, 1_000_000), {}))
    await history.start()
    assert store.compacted > 50
    known = {"kept/a": "-", "kept/b": "-", "kept/c": "-"}
    for revision in range(2, min(store.revision, max(said)) + 1):
        if revision not in said:  # it was written, and nobody was left to say so: what it did is not known
            unsaid = {k: await history.entry(k, revision) for k in known}
            known = {k: "-" if e is None else str(orjson.loads(e.value)["spec"]) for k, e in unsaid.items()}
            continue
        key, spec = said[revision]
        known[key] = spec
        for key, spec in known.items():
            entry = await history.entry(key, revision)
            assert ("-" if entry is None else str(orjson.loads(entry.value)["spec"])) == spec, (key, revision)
    await history.stop()
    await store.close()
