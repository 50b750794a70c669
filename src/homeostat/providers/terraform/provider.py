"""Runs Terraform: init where the code is new, plan, show, and apply of the plan that was saved."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from homeostat.loop.provider import Moved, Provider, Refused
from homeostat.providers.dryrun.place import private
from homeostat.providers.dryrun.plan import COLUMNS, SHOWN, Plan, PlanState
from homeostat.providers.dryrun.provider import DryRun, Job, ToolFailed, lines_of
from homeostat.providers.dryrun.running import REASON_MOST, Said
from homeostat.providers.terraform.reading import LOCKED, STALE, errors_of, lock_of, read_plan, words
from homeostat.providers.terraform.spec import TerraformSpec

PLAN, VARIABLES, READY = "plan.bin", "variables.json", "initialised"
STATE = "terraform.tfstate"
LOCK_SECONDS = 10
"""How long Terraform waits for somebody else to let go of the state."""
_PASSED_ON = ("TF_CLI_CONFIG_FILE", "TF_PLUGIN_CACHE_DIR")
_NOT_READY = ("terraform init", "tofu init", "Module not installed", "Required plugins", "dependency lock file", "Backend")
"""Words by which Terraform says that the code wants what was not fetched yet."""


class TerraformModule(
    DryRun[TerraformSpec],
    Provider[TerraformSpec, PlanState],
    group="tools.homeostat.dev",
    host=True,
    adopts=True,
    contested=True,
    shown=SHOWN,
    columns=COLUMNS,
):
    """A Terraform or OpenTofu module, whose things are kept as it declares them."""

    tool = "Terraform"

    def leaves(self, spec: TerraformSpec) -> bool:
        return spec.deletion == "Keep"

    def mark(self, job: Job) -> Any:
        """A state on this host tells by itself that somebody wrote to it."""
        try:
            stat = os.stat(job.directory / STATE)
        except FileNotFoundError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    async def plan(self, job: Job) -> Plan:
        if any(Path(name).name.startswith(STATE) for name in job.tree.files):
            raise Refused(f"source: it holds a {STATE}, and a state has one home: move it to {job.directory}, or use a backend")
        program = _program(job.spec)
        saved, variables = job.place.root / PLAN, private(job.place.root / VARIABLES, orjson.dumps(job.variables))
        saved.unlink(missing_ok=True)
        options = ["-input=false", "-json", f"-lock-timeout={LOCK_SECONDS}s", f"-var-file={variables}", f"-out={saved}"]
        argv = [program, "plan", *options, *(["-destroy"] if job.deleting else [])]
        ready = job.place.root / READY
        began_ready = ready.exists() and ready.read_text() == program and (job.directory / ".terraform").exists()
        if not began_ready:
            await self._init(job, program)
        try:
            said = await self.run(job, "plan", argv, self._own())
            if said.status != 0 and began_ready and _wants_init(said):
                await self._init(job, program)
                said = await self.run(job, "plan", argv, self._own())
        finally:
            variables.unlink(missing_ok=True)
        if said.status != 0:
            raise self._failed(job, "plan", program, said)
        saved.chmod(0o600)
        shown = await self.run(job, "show", [program, "show", "-json", str(saved)], self._own(), log=False)
        if shown.status != 0:
            raise self._failed(job, "show", program, shown)
        return await asyncio.to_thread(lambda: read_plan(orjson.loads(shown.output), job.key, job.clean))

    async def carry_out(self, job: Job, plan: Plan) -> None:
        program, saved = _program(job.spec), job.place.root / PLAN
        if not saved.exists():
            raise Moved("the saved plan is gone")
        options = ["-input=false", "-json", f"-lock-timeout={LOCK_SECONDS}s"]
        try:
            said = await self.run(job, "apply", [program, "apply", *options, str(saved)], self._own(), acts=True)
        finally:
            saved.unlink(missing_ok=True)
        if said.status != 0:
            summaries = {one.get("summary") for one in errors_of(lines_of(said.output))}
            if STALE in summaries:
                raise Moved("the state has moved since the plan was made")
            if summaries == {LOCKED}:
                raise Refused(str(self._failed(job, "apply", program, said)))
            raise self._failed(job, "apply", program, said)

    async def _init(self, job: Job, program: str) -> None:
        (job.place.root / READY).unlink(missing_ok=True)
        said = await self.run(job, "init", [program, "init", "-input=false", "-no-color"], self._own())
        if said.status != 0:
            raise self._failed(job, "init", program, said)
        (job.directory / ".terraform").mkdir(mode=0o700, exist_ok=True)  # a module without plug-ins leaves none
        private(job.place.root / READY, program.encode())

    def _own(self) -> dict[str, str]:
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return {**passed, "TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}

    def _failed(self, job: Job, what: str, program: str, said: Said) -> ToolFailed:
        errors = errors_of(lines_of(said.output))
        locked = next((one for one in errors if one.get("summary") == LOCKED), None)
        if locked is not None:
            return ToolFailed(job.blot(_locked(job, program, lock_of(locked), words(locked))))
        text = "\n".join(map(words, errors)) or said.errors.strip() or said.output.decode(errors="replace").strip()
        return ToolFailed(f"{what}: {job.blot(text)[:REASON_MOST] or f'exit status {said.status}'}")


def _wants_init(said: Said) -> bool:
    told = "".join(words(one) for one in errors_of(lines_of(said.output)))
    return any(word in told for word in _NOT_READY)


def _locked(job: Job, program: str, lock: Mapping[str, str], text: str) -> str:
    if "ID" not in lock:
        return f"the state is locked: {text}"
    whose = f"by {lock['Who']} since {lock.get('Created')} ({lock.get('Operation')})" if "Who" in lock else f"({lock['ID']})"
    return (
        f"the state is locked {whose}. If that run is dead, as after a crash: "
        f"{program} -chdir={job.directory} force-unlock {lock['ID']}"
    )


def _program(spec: TerraformSpec) -> str:
    for name in [spec.tool] if spec.tool else ["terraform", "tofu"]:
        if shutil.which(name) is not None:
            return name
    names = spec.tool or "terraform (or tofu)"
    raise ToolFailed(f"{names} is not installed on the host of the loop, or not on its PATH")
