"""Puppet manifests under the real engine, with the real Puppet."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.providers.bench import Bench, running
from tests.providers.tools import PATIENCE, put_on_path

from homeostat.guards import Mode, default_policy
from homeostat.providers.puppet import PuppetManifest

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    put_on_path(monkeypatch, "puppet")
    async with running(tmp_path, lambda: PuppetManifest(tmp_path / "manifests")) as bench:
        bench.patience = PATIENCE
        yield bench


@pytest.fixture
def things(tmp_path: Path) -> Path:
    folder = tmp_path / "things"
    folder.mkdir()
    return folder


def manifest(*lines: str, **more: Any) -> dict[str, Any]:
    return {"source": {"files": {"site.pp": "\n".join(lines) + "\n"}}, "interval": "1h", **more}


def file(path: Path, content: str) -> str:
    return f"file {{ '{path}': ensure => file, content => {content} }}"


def drift(obj: dict[str, Any]) -> dict[str, Any]:
    return dict((obj.get("status") or {}).get("drift") or {})


def observe_only(bench: Bench) -> None:
    kind = PuppetManifest.info.name
    bench.gate.built_in[kind] = default_policy(kind, Mode.OBSERVE)


async def test_a_manifest_makes_it_so_and_corrective_changes_are_apart_from_intent(bench: Bench, things: Path) -> None:
    a, b = things / "a", things / "b"
    content = "\"${facts['number']}\""
    await bench.declare("base", manifest(file(a, content), file(b, "'two'"), variables={"number": "one"}))
    obj = await bench.ready("base")
    assert (a.read_text(), b.read_text()) == ("one", "two")
    assert (obj["status"]["size"], obj["status"]["pending"]) == (2, {})

    # Somebody changes a, and the manifest another: one is a repair, the other is meant.
    observe_only(bench)
    a.write_text("other")
    await bench.declare("base", manifest(file(a, content), file(b, "'three'"), variables={"number": "one"}))
    obj = await bench.until("base", lambda o: len(drift(o).get("changes", ())) == 2)
    assert drift(obj)["cause"] == "both"
    assert obj["status"]["pending"] == {
        f"File[{a}]": "change content (site.pp:1)",
        f"File[{b}]": "change content (site.pp:2)",
    }
    assert obj["status"]["drifted"] == {f"File[{a}]": "changed by others: change content (site.pp:1)"}
    assert [line.endswith("(drift)") for line in drift(obj)["changes"]] == [True, False]
    assert a.read_text() == "other"


async def test_more_removals_than_the_cap_wait_for_an_approval(bench: Bench, things: Path) -> None:
    for name in ("a", "b"):
        (things / name).touch()
    await bench.declare("base", manifest(*(f"file {{ '{things / n}': ensure => absent }}" for n in ("a", "b"))))
    assert "deletion: 2 of its 2 would be destroyed, more than 1" in await bench.reason("base", "Held")
    assert (things / "b").exists()
    bench.gate.approvals.add(next(iter(bench.engine.ledger.holds.values())).plan)
    bench.engine.decide_all()
    await bench.ready("base")
    assert not list(things.iterdir())


async def test_what_does_not_compile_is_unknown_with_file_and_line(bench: Bench, things: Path) -> None:
    await bench.declare("base", manifest(file(things / "a", "'x'"), "file { '/x': ensure => }}"))
    message = await bench.reason("base", "Unreadable")
    assert "(site.pp:2)" in message
    assert str(things.parent) not in message
    await bench.declare("base", manifest("fail('not today')"))
    assert "not today" in await bench.reason("base", "Unreadable")
    assert not list(things.iterdir())


async def test_what_fails_while_applying_names_the_resource_file_and_line(bench: Bench, things: Path) -> None:
    await bench.declare("base", manifest(file(things / "a", "'x'"), file(things / "nowhere/b", "'y'")))
    assert f"File[{things}/nowhere/b] (site.pp:2)" in await bench.reason("base", "ActionFailed")
    assert (things / "a").read_text() == "x"


async def test_secrets_are_in_no_status_and_in_no_log(bench: Bench, tmp_path: Path, things: Path) -> None:
    await bench.secret("keys", password="hunter22")
    lines = [file(things / "a", "$facts['password']"), "notify { \"it is ${facts['password']}\": }"]
    observe_only(bench)
    await bench.declare("base", manifest(*lines, variablesFrom=[{"name": "keys", "secret": "keys"}]))
    obj = await bench.until("base", lambda o: bool(drift(o)))
    assert set(obj["status"]["pending"]) == {f"File[{things / 'a'}]", "Notify[it is (secret)]"}
    assert "hunter22" not in json.dumps(obj)
    for path in (tmp_path / "manifests/default/base/runs").rglob("*"):
        assert not path.is_file() or b"hunter22" not in path.read_bytes(), path
