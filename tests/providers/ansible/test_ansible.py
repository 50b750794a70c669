"""Ansible plays under the real engine, with the real Ansible."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.providers.bench import Bench, running
from tests.providers.tools import PATIENCE, put_on_path

from homeostat.guards import Mode, default_policy
from homeostat.providers.ansible import AnsiblePlay

pytestmark = pytest.mark.timeout(300)

HEAD = "- hosts: all\n  gather_facts: false\n  tasks:\n"
PYTHON = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    put_on_path(monkeypatch, "ansible-playbook")
    async with running(tmp_path, lambda: AnsiblePlay(tmp_path / "plays")) as bench:
        bench.patience = PATIENCE
        yield bench


@pytest.fixture
def things(tmp_path: Path) -> Path:
    folder = tmp_path / "things"
    folder.mkdir()
    return folder


def play(*tasks: str, **more: Any) -> dict[str, Any]:
    return {"source": {"files": {"site.yml": HEAD + "".join(f"  - {task}\n" for task in tasks)}}, "variables": PYTHON, "interval": "1h", **more}


def copy(path: Path, content: str, **more: Any) -> str:
    return json.dumps({"name": path.name, "copy": {"dest": str(path), "content": content}, **more})


def drift(obj: dict[str, Any]) -> dict[str, Any]:
    return dict((obj.get("status") or {}).get("drift") or {})


async def look(bench: Bench) -> None:
    assert isinstance(bench.provider, AnsiblePlay)
    bench.provider._known.clear()
    await bench.whole_pass()


async def test_a_play_makes_it_so_then_finds_nothing_and_tells_drift_from_intent(bench: Bench, things: Path) -> None:
    tasks = [copy(things / "a", "one\n"), copy(things / "b", "two\n"), json.dumps({"name": "try", "command": "/bin/true"})]
    await bench.declare("web", play(*tasks))
    obj = await bench.ready("web")
    assert ((things / "a").read_text(), (things / "b").read_text()) == ("one\n", "two\n")
    assert (obj["status"]["size"], obj["status"]["unchecked"], obj["status"]["pending"]) == (2, 1, {})

    kind = AnsiblePlay.info.name
    bench.gate.built_in[kind] = default_policy(kind, Mode.OBSERVE)
    (things / "a").write_text("other\n")
    await look(bench)
    obj = await bench.until("web", lambda o: bool(drift(o)))
    assert (drift(obj)["cause"], obj["status"]["change"]) == ("drift", 1)
    assert obj["status"]["pending"] == {"localhost: a": "change by copy (site.yml:4)"}
    assert drift(obj)["changes"] == ["~ resources[localhost: a].content:  (drift)", "    @@ -1 +1 @@", "    -other", "    +one"]
    await bench.declare("web", play(copy(things / "a", "three\n"), *tasks[1:]))
    obj = await bench.until("web", lambda o: drift(o).get("cause") == "intent")
    assert (things / "a").read_text() == "other\n"


async def test_a_play_that_takes_away_more_than_the_cap_waits_for_an_approval(bench: Bench, things: Path) -> None:
    for name in ("a", "b"):
        (things / name).touch()
    gone = [json.dumps({"name": n, "file": {"path": str(things / n), "state": "absent"}}) for n in ("a", "b")]
    await bench.declare("web", play(*gone))
    assert "deletion: 2 of its 2 would be destroyed, more than 1" in await bench.reason("web", "Held")
    assert (things / "a").exists()
    bench.gate.approvals.add(next(iter(bench.engine.ledger.holds.values())).plan)
    bench.engine.decide_all()
    await bench.ready("web")
    assert not list(things.iterdir())


async def test_what_fails_in_the_check_or_is_no_playbook_is_unknown_with_file_and_line(bench: Bench, things: Path) -> None:
    await bench.declare("web", play(copy(things / "a", "x"), json.dumps({"name": "bad", "fail": {"msg": "no good"}})))
    assert "localhost: bad (site.yml:5): no good" in await bench.reason("web", "Unreadable")
    await bench.declare("web", play("copy: {"))
    assert "site.yml:" in await bench.reason("web", "Unreadable")
    await bench.declare("web", play(copy(things / "a", "x"), limit=["nobody"]))
    assert "limit" in await bench.reason("web", "Unreadable")
    assert not list(things.iterdir())


async def test_what_fails_while_playing_says_the_task_and_is_tried_again(bench: Bench, things: Path) -> None:
    blocked = things / "locked"
    task = json.dumps({"name": "needs it", "command": f"test -e {blocked}", "when": "not ansible_check_mode"})
    await bench.declare("web", play(copy(things / "a", "x"), task))
    assert "localhost: needs it (site.yml:5)" in await bench.reason("web", "ActionFailed")
    blocked.touch()
    await look(bench)
    await bench.ready("web")


async def test_secrets_are_in_no_status_and_in_no_log(bench: Bench, tmp_path: Path, things: Path) -> None:
    await bench.secret("keys", password="hunter22")
    tasks = [copy(things / "a", "{{ password }}"), copy(things / "b", "{{ password }}", no_log=True)]
    kind = AnsiblePlay.info.name
    bench.gate.built_in[kind] = default_policy(kind, Mode.OBSERVE)
    await bench.declare("web", play(*tasks, variablesFrom=[{"name": "keys", "secret": "keys"}]))
    told = json.dumps(await bench.until("web", lambda o: bool(drift(o))))
    assert "(secret)" in told
    bench.gate.built_in.clear()
    bench.engine.decide_all()
    await bench.ready("web")
    assert (things / "b").read_text() == "hunter22"
    assert "hunter22" not in told
    for path in (tmp_path / "plays/default/web").rglob("*"):
        assert not path.is_file() or b"hunter22" not in path.read_bytes(), path
