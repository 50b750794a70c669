"""`homeostat rollback sync`, `release` and `promote`, over HTTPS and with a real repository."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.sources.conftest import Bench
from tests.sources.repo import config_map

from homeostat.cli import main

_WHO = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
}


@pytest.fixture(autouse=True)
def at_this_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "data" / "admin.kubeconfig"))
    for name, value in _WHO.items():
        monkeypatch.setenv(name, value)


async def run(*words: str) -> Result:
    """The command, in a thread: it has an event loop of its own."""
    assert os.environ["KUBECONFIG"]
    return await asyncio.to_thread(CliRunner().invoke, main, list(words))


async def test_a_sync_goes_back_to_an_earlier_commit_holds_there_and_is_released(bench: Bench) -> None:
    first = bench.repo.commit({"a.yaml": config_map("a")}, "first")
    await bench.begin()
    second = await bench.push({"a.yaml": config_map("a", "2")}, "second")
    await bench.at(second)
    wrong = await run("rollback", "sync", "shop", "--to", "123", "--yes")
    assert wrong.exit_code == 1
    assert "no commit that it applied begins so" in wrong.output
    back = await run("rollback", "sync", "shop", "--to", first[:8], "--yes")
    assert back.exit_code == 0, back.output
    held = await bench.at(first)
    assert held["spec"]["hold"]["notPast"] == second
    bench.poke()
    await bench.whole_pass()
    assert await bench.values() == {"a": "1"}
    assert "any more" in (await run("release", "shop")).output
    await bench.at(second)
    assert "is not held." in (await run("release", "shop")).output
    assert (await run("rollback", "sync", "shop", "--yes")).exit_code == 0  # to what was before
    await bench.at(first)


async def test_what_dev_runs_is_promoted_to_prod_by_a_commit(bench: Bench) -> None:
    repo = bench.repo
    repo.git("config", "receive.denyCurrentBranch", "updateInstead")
    first = repo.commit(
        {
            "dev/a.yaml": config_map("a-${ENVIRONMENT}", "2"),
            "prod/a.yaml": config_map("a-${ENVIRONMENT}"),
            "prod/old.yaml": config_map("old"),
        }
    )
    await bench.declare_source()
    for environment in ("dev", "prod"):
        await bench.declare(f"shop-{environment}", path=environment, environment=environment)
        await bench.at(first, f"shop-{environment}")
    shown = await run("promote", "dev", "prod", "--dry-run")
    assert shown.exit_code == 1
    assert '+  value: "2"' in shown.output
    assert "2 files of prod would change" in shown.output
    assert repo.git("rev-parse", "HEAD") == first
    done = await run("promote", "dev", "prod", "--yes", "--except", "old.yaml")
    assert done.exit_code == 0, done.output
    assert repo.git("log", "-1", "--format=%s") == "Promote shop from dev to prod"
    assert repo.git("ls-tree", "-r", "--name-only", "HEAD").split() == ["dev/a.yaml", "prod/a.yaml", "prod/old.yaml"]
    bench.poke()
    await bench.at(repo.git("rev-parse", "HEAD"), "shop-prod")
    assert await bench.values() == {"a-dev": "2", "a-prod": "2", "old": "1"}
    again = await run("promote", "dev", "prod", "--dry-run", "--except", "old.yaml")
    assert (again.exit_code, again.output) == (0, "prod declares what dev runs.\n")
    missing = await run("promote", "dev", "stage")
    assert missing.exit_code == 1
    assert "has `environment: stage`" in missing.output
