"""Terraform modules under the real engine, with the real Terraform and real files."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.providers.bench import Bench, ready, running
from tests.providers.terraform.conftest import data, file, in_state, look, module, plain
from tests.providers.tools import PATIENCE

from homeostat.guards import Mode, default_policy
from homeostat.providers.terraform import TerraformModule

pytestmark = pytest.mark.timeout(300)

KIND = TerraformModule.info.name


def drift(obj: dict[str, Any]) -> dict[str, Any]:
    return dict((obj.get("status") or {}).get("drift") or {})


def observe_only(bench: Bench) -> None:
    bench.gate.built_in[KIND] = default_policy(KIND, Mode.OBSERVE)


def files(things: Path, count: int, content: str = '"one"') -> list[str]:
    return [file(f"f{number}", things, content) for number in range(count)]


async def test_what_a_module_declares_is_made_and_then_left_alone(bench: Bench, things: Path) -> None:
    await bench.declare("web", module(*files(things, 2), 'output "where" {\n  value = "here"\n}\n'))
    obj = await bench.ready("web")
    assert (things / "f0").read_text() == "one"
    assert obj["status"]["outputs"] == {"where": "here"}
    assert (obj["status"]["size"], obj["status"]["pending"], obj["status"]["plan"]) == (2, {}, "")
    version = obj["metadata"]["resourceVersion"]
    await look(bench)
    assert (await bench.kind.get("web"))["metadata"]["resourceVersion"] == version
    assert sorted((things / "made").read_text().split()) == ["f0", "f1"]


async def test_a_changed_module_is_intent_and_a_changed_thing_is_drift(bench: Bench, things: Path) -> None:
    await bench.declare("web", module(file("a", things)))
    await bench.ready("web")
    observe_only(bench)
    await bench.declare("web", module(file("a", things, '"two"')))
    obj = await bench.until("web", lambda o: bool(drift(o)))
    name = "resources[shelf_file.a].content"
    assert (drift(obj)["cause"], drift(obj)["changes"]) == ("intent", [f'~ {name}: "one" → "two"'])
    assert "drifted" not in obj["status"]

    await bench.declare("web", module(file("a", things)))
    await bench.ready("web")
    (things / "a").write_text("other")
    await look(bench)
    obj = await bench.until("web", lambda o: bool(drift(o)))
    assert (drift(obj)["cause"], drift(obj)["changes"]) == ("drift", [f'~ {name}: "other" → "one"  (drift)'])
    assert obj["status"]["drifted"] == {"shelf_file.a": "changed by others: content"}
    assert (things / "a").read_text() == "other"


async def test_a_thing_that_others_changed_or_removed_is_put_right(bench: Bench, things: Path) -> None:
    await bench.declare("web", module(*files(things, 3)))
    await bench.ready("web")
    (things / "f0").write_text("other")
    (things / "f1").unlink()
    await look(bench)
    await bench.ready("web")
    assert [(things / f"f{n}").read_text() for n in range(3)] == ["one"] * 3


async def test_a_module_that_destroys_much_is_halted_until_exactly_that_plan_is_approved(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", plain(data(10)))
    await bench.ready("web")
    await bench.declare("web", plain(data(6)))
    message = await bench.reason("web", "Held")
    assert "mass-drift: 4 of its 10 would be destroyed, more than 3" in message
    obj = await bench.kind.get("web")
    assert (obj["status"]["add"], obj["status"]["change"], obj["status"]["destroy"]) == (0, 0, 4)
    fleet = next(iter(bench.engine.fleets.values()))
    (halt,) = fleet.halts.values()
    assert (halt.guard, "4 of its 10" in halt.reason) == ("mass-drift", True)

    # It is no longer the plan that was to be approved: one more goes.
    await bench.declare("web", plain(data(5)))
    await bench.until("web", lambda o: "5 of its 10" in ready(o).get("message", ""))
    bench.gate.approvals.add(halt.plan)
    bench.engine.decide_all()
    await look(bench)
    assert "5 of its 10" in await bench.reason("web", "Held")
    assert len(in_state(tmp_path)) == 10

    (now,) = fleet.halts.values()
    bench.gate.approvals.add(now.plan)
    bench.engine.decide_all()
    await bench.ready("web")
    assert len(in_state(tmp_path)) == 5
    assert now.plan not in bench.gate.approvals
    assert not fleet.halts


async def test_more_deletions_than_the_cap_ask_a_person_and_so_do_more_changes_in_what_is_large(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", plain(data(4)))
    await bench.ready("web")
    await bench.declare("web", plain(data(2)))
    assert "deletion: 2 of its 4 would be destroyed, more than 1" in await bench.reason("web", "Held")
    await bench.declare("web", plain(data(3)))
    await bench.ready("web")
    await bench.declare("web", plain(data(3, "two")))  # three changes of three: too few to be a mass
    await bench.ready("web")
    assert in_state(tmp_path) == {"d0": "two", "d1": "two", "d2": "two"}
    await bench.declare("web", plain(data(20, "two")))
    await bench.ready("web")
    changed = data(3, "three") + data(20, "two").partition('resource "terraform_data" "d3"')[1] + data(20, "two").partition('resource "terraform_data" "d3"')[2]
    await bench.declare("web", plain(changed))
    assert "cap: 3 of its 20 would be changed, more than 2 at once" in await bench.reason("web", "Held")


async def test_what_is_replaced_counts_as_destroyed(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", plain(data(2, triggers_replace="1")))
    await bench.ready("web")
    await bench.declare("web", plain(data(2, triggers_replace="2")))
    assert "2 of its 2 would be destroyed" in await bench.reason("web", "Held")
    obj = await bench.kind.get("web")
    assert (obj["status"]["add"], obj["status"]["destroy"]) == (2, 2)
    assert "triggers_replace cannot be changed in place" in obj["status"]["pending"]["terraform_data.d0"]


async def test_a_module_that_does_not_plan_is_unknown_and_says_file_and_line(bench: Bench, things: Path) -> None:
    await bench.declare("web", module(file("a", things)))
    await bench.ready("web")
    await bench.declare("web", module(file("a", things, "local.nowhere")))
    message = await bench.reason("web", "Unreadable")
    assert "main.tf:8" in message
    assert "nowhere" in message
    assert (things / "a").read_text() == "one"
    await bench.declare("web", module('resource "shelf_file" {'))
    assert "main.tf:6" in await bench.reason("web", "Unreadable")


async def test_secrets_are_in_no_status_and_in_no_log(bench: Bench, tmp_path: Path, things: Path) -> None:
    await bench.secret("keys", password="hunter22", plain="swordfish")
    code = (
        'variable "password" {\n  sensitive = true\n}\nvariable "plain" {}\nvariable "shown" {}\n'
        + file("a", things, '"${var.password} ${var.shown}"')
        + file("b", things, "var.plain")
        + 'output "o" {\n  value = var.plain\n}\noutput "p" {\n  value     = var.password\n  sensitive = true\n}\n'
    )
    spec = module(code) | {"variables": {"shown": "for all"}, "variablesFrom": [{"name": "keys", "secret": "keys"}]}
    observe_only(bench)
    await bench.declare("web", spec)
    told = json.dumps(await bench.until("web", lambda o: bool(drift(o))))
    bench.gate.built_in.clear()
    bench.engine.decide_all()
    obj = await bench.ready("web")
    assert (things / "a").read_text() == "hunter22 for all"
    assert (obj["status"]["outputs"]["o"], obj["status"]["outputs"]["p"]) == ("(secret)", "(sensitive)")
    (things / "a").write_text("x")
    observe_only(bench)
    await look(bench)
    told += json.dumps(await bench.until("web", lambda o: bool(drift(o))))
    assert "(sensitive)" in told
    logs = [path.read_text() for path in (tmp_path / "modules").rglob("runs/*/std*")]
    assert any("shelf_file.a" in log for log in logs)
    for secret in ("hunter22", "swordfish"):
        assert secret not in told
        assert not any(secret in log for log in logs)
    assert (tmp_path / "modules/default/web").stat().st_mode & 0o077 == 0


async def test_a_plan_is_refused_if_the_state_moved_since_it_was_made(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", plain(data(1)))
    await bench.ready("web")
    state = tmp_path / "modules/default/web/work/terraform.tfstate"
    provider = bench.provider
    assert isinstance(provider, TerraformModule)
    carried: list[str] = []
    carry_out = provider.carry_out

    async def moves_first(job: Any, plan: Any) -> None:
        carried.append(plan.steps[0].said)
        if len(carried) == 1:  # somebody else applies, between our plan and our apply
            found = json.loads(state.read_text())
            state.write_text(json.dumps(found | {"serial": found["serial"] + 1}))
        await carry_out(job, plan)

    provider.carry_out = moves_first  # type: ignore[method-assign]
    await bench.declare("web", plain(data(1, "two")))
    await bench.until("web", lambda o: len(carried) == 2 and ready(o).get("status") == "True")
    assert in_state(tmp_path) == {"d0": "two"}
    logs = (tmp_path / "modules").rglob("runs/*-apply/stdout")
    assert sum("Saved plan is stale" in path.read_text() for path in logs) == 1


async def test_a_deleted_declaration_leaves_its_things_and_finds_them_again(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", plain(data(3)))
    await bench.ready("web")
    before = (tmp_path / "modules/default/web/work/terraform.tfstate").read_text()
    await bench.kind.delete("web")
    await bench.gone("web")
    await bench.declare("web", plain(data(3)))
    await bench.ready("web")
    assert (tmp_path / "modules/default/web/work/terraform.tfstate").read_text() == before


async def test_to_destroy_with_the_declaration_is_a_plan_that_is_judged(bench: Bench, tmp_path: Path) -> None:
    await bench.declare("web", plain(data(2)) | {"deletion": "Destroy"})
    await bench.ready("web")
    await bench.kind.delete("web")
    assert "2 of its 2 would be destroyed" in await bench.reason("web", "Held")
    assert len(in_state(tmp_path)) == 2
    bench.gate.approvals.add(next(iter(bench.engine.ledger.holds.values())).plan)
    bench.engine.decide_all()
    await bench.gone("web")
    assert not in_state(tmp_path)


async def test_an_apply_that_fails_halfway_says_why_and_goes_on_from_there(bench: Bench, things: Path) -> None:
    (things / "b").write_text("somebody's")
    await bench.declare("web", module(file("a", things), file("b", things)))
    message = await bench.reason("web", "ActionFailed")
    assert "b is there already" in message
    (things / "b").unlink()
    await bench.ready("web")
    assert sorted((things / "made").read_text().split()) == ["a", "b"]


async def test_a_run_that_takes_too_long_is_stopped(bench: Bench) -> None:
    code = 'resource "terraform_data" "a" {\n  provisioner "local-exec" {\n    command = "sleep 60"\n  }\n}\n'
    await bench.declare("web", {"source": {"files": {"main.tf": code}}, "timeout": "2s"})
    assert "did not end within 2 s" in await bench.reason("web", "ActionFailed")


async def test_code_is_run_only_from_below_the_roots_that_the_host_allows(tmp_path: Path, terraform: None, things: Path) -> None:
    root, other = tmp_path / "code", tmp_path / "other"
    for folder in (root / "env", root / "common", other):
        folder.mkdir(parents=True)
    (root / "common/main.tf").write_text('output "x" {\n  value = 1\n}\n')
    (root / "env/main.tf").write_text('module "c" {\n  source = "../common"\n}\noutput "y" {\n  value = module.c.x\n}\n')
    (other / "main.tf").write_text("")
    async with running(tmp_path, lambda: TerraformModule(tmp_path / "modules", [str(root)])) as bench:
        bench.patience = PATIENCE
        await bench.declare("good", {"source": {"path": str(root)}, "directory": "env"})
        assert (await bench.ready("good"))["status"]["outputs"] == {"y": 1}
        await bench.declare("other", {"source": {"path": str(other)}})
        assert "may not be used on this host" in await bench.reason("other", "Unreadable")
        await bench.declare("inline", module(file("a", things)))
        assert "only what lies in" in await bench.reason("inline", "Unreadable")
        os.symlink(other / "main.tf", root / "env/link.tf")
        await bench.declare("good", {"source": {"path": str(root)}, "directory": "env", "variables": {"a": 1}})
        assert "leads out of" in await bench.reason("good", "Unreadable")
    assert not list(things.iterdir())


async def test_what_is_declared_wrongly_is_refused_with_the_field(bench: Bench) -> None:
    base = {"source": {"files": {"main.tf": ""}}}
    for name, spec, words in [
        ("up", {"source": {"files": {"../x.tf": ""}}}, "source.files: '../x.tf' has to be a path inside"),
        ("out", base | {"directory": "../.."}, "directory: '../..' has to be a path inside"),
        ("none", base | {"directory": "nowhere"}, "directory: there is no nowhere"),
        ("state", {"source": {"files": {"terraform.tfstate": "{}"}}}, "a state has one home"),
        ("secret", base | {"variablesFrom": [{"name": "x", "secret": "missing"}]}, "Secret default/missing is not there"),
    ]:
        await bench.declare(name, spec)
        assert words in await bench.reason(name, "Unreadable")
    await bench.secret("bad", TF_CLI_ARGS_apply="-x")
    await bench.declare("env", base | {"environmentFrom": [{"name": "e", "secret": "bad"}]})
    assert "TF_CLI_ARGS_apply is not for a declaration to set" in await bench.reason("env", "Unreadable")


async def test_old_logs_go(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homeostat.providers.dryrun.place.RUNS_KEPT", 3)
    code = {"source": {"files": {"main.tf": 'output "x" {\n  value = 1\n}\n'}}}
    await bench.declare("web", code)
    await bench.ready("web")
    for _ in range(3):
        await look(bench)
    assert len(list((tmp_path / "modules/default/web/runs").iterdir())) <= 3


async def test_without_the_program_it_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert shutil.which("terraform") is None
    await bench.declare("web", {"source": {"files": {"main.tf": ""}}})
    assert "terraform (or tofu) is not installed" in await bench.reason("web", "Unreadable")


async def test_a_state_that_is_lost_makes_nothing_a_second_time_until_a_person_says_so(bench: Bench, things: Path, tmp_path: Path) -> None:
    await bench.declare("web", module(*files(things, 3)))
    await bench.ready("web")
    made = (things / "made").read_text()
    state = tmp_path / "modules/default/web/work/terraform.tfstate"
    kept = state.read_bytes()
    state.unlink()
    for _ in range(2):  # and it is not forgotten once it was told
        await look(bench)
        message = await bench.reason("web", "Held")
        assert "3 that it had are no longer in its books, and would be made again" in message
    assert (things / "made").read_text() == made
    state.write_bytes(kept)
    await look(bench)
    await bench.ready("web")
    assert (things / "made").read_text() == made

    state.unlink()
    await look(bench)
    fleet = next(iter(bench.engine.fleets.values()))
    async with asyncio.timeout(PATIENCE):
        while not fleet.halts:
            await asyncio.sleep(0.05)
    (halt,) = fleet.halts.values()
    for number in range(3):
        (things / f"f{number}").unlink()  # it is true: all is gone
    bench.gate.approvals.add(halt.plan)
    bench.engine.decide_all()
    async with asyncio.timeout(PATIENCE):
        while len((things / "made").read_text().split()) < 6:
            await asyncio.sleep(0.05)
    await bench.ready("web")
