"""Runs Ansible: a check that says what it would do, and the same without the check."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson

from homeostat.loop.provider import Provider, Refused
from homeostat.providers.ansible.reading import Line, failures, read_plan
from homeostat.providers.ansible.spec import AnsibleSpec
from homeostat.providers.dryrun.place import private
from homeostat.providers.dryrun.plan import COLUMNS, SHOWN, Plan, PlanState
from homeostat.providers.dryrun.provider import DryRun, Job, ToolFailed, lines_of
from homeostat.providers.dryrun.running import REASON_MOST
from homeostat.providers.dryrun.source import within

PROGRAM = "ansible-playbook"
VARIABLES, RESULTS = "variables.json", "results.json"
FAILURES_SHOWN = 10
_CALLBACKS = Path(__file__).parent / "callback"
_THIS_HOST = Path(__file__).parent / "here.ini"


class AnsiblePlay(
    DryRun[AnsibleSpec],
    Provider[AnsibleSpec, PlanState],
    group="tools.homeostat.dev",
    host=True,
    adopts=True,
    shown=SHOWN,
    columns=COLUMNS,
):
    """An Ansible playbook, whose hosts are kept as it says. It leaves them as they are when it is deleted."""

    tool = "Ansible"

    def leaves(self, spec: AnsibleSpec) -> bool:
        return True

    async def plan(self, job: Job) -> Plan:
        lines = await self._play(job, "check", ["--check", "--diff"], acts=False)
        return await asyncio.to_thread(read_plan, lines, str(job.place.work), job.key, job.clean)

    async def carry_out(self, job: Job, plan: Plan) -> None:
        await self._play(job, "play", [], acts=True)

    async def _play(self, job: Job, what: str, options: list[str], *, acts: bool) -> list[Line]:
        results = private(job.place.root / RESULTS, b"")
        variables = private(job.place.root / VARIABLES, orjson.dumps(job.variables))
        try:
            argv = [PROGRAM, *options, *_options(job.spec, job.directory), "--extra-vars", f"@{variables}", _playbook(job)]
            said = await self.run(job, what, argv, _own(job, results), acts=acts)
            lines: list[Any] = await asyncio.to_thread(lambda: lines_of(results.read_bytes()))
        finally:
            results.unlink(missing_ok=True)
            variables.unlink(missing_ok=True)
        root = str(job.place.work)
        wrong = failures(lines, root)
        ended = any(line["how"] == "end" for line in lines)
        if said.status == 0 and ended and not wrong:
            if not any("host" in line for line in lines):
                raise ToolFailed(f"{what}: no task was tried on any host: hosts, limit and tags of the declaration select nothing")
            return [line for line in lines if "host" in line]
        more = [f"and {len(wrong) - FAILURES_SHOWN} more"] if len(wrong) > FAILURES_SHOWN else []
        text = "\n".join([*wrong[:FAILURES_SHOWN], *more]) or (said.errors.strip() or f"exit status {said.status}").replace(f"{root}/", "")
        raise ToolFailed(f"{what}: {job.blot(text)[:REASON_MOST]}")


def _playbook(job: Job) -> str:
    name = within(job.spec.playbook, "playbook")
    if name.startswith("-") or not (job.directory / name).is_file():
        raise Refused(f"playbook: there is no {job.spec.playbook} in the source")
    return name


def _options(spec: AnsibleSpec, directory: Path) -> list[str]:
    if spec.inventory and spec.hosts:
        raise Refused("inventory and hosts: give one of the two")
    if spec.inventory:
        path = within(spec.inventory, "inventory")
        if not (directory / path).exists():
            raise Refused(f"inventory: there is no {spec.inventory} in the source")
        found = ["--inventory", str(directory / path)]
    elif spec.hosts:
        found = ["--inventory", ",".join(spec.hosts) + ","]
    else:
        found = ["--inventory", str(_THIS_HOST)]
    for option, words in (("--limit", spec.limit), ("--tags", spec.tags)):
        found += [option, ",".join(words)] if words else []
    return found


def _own(job: Job, results: Path) -> dict[str, str]:
    return {
        "ANSIBLE_CALLBACK_PLUGINS": str(_CALLBACKS),
        "ANSIBLE_STDOUT_CALLBACK": "homeostat",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "ANSIBLE_LOCAL_TEMP": str(job.place.home / "tmp"),
        "ANSIBLE_REMOTE_TEMP": str(job.place.home / "remote") if not job.spec.hosts and not job.spec.inventory else "~/.ansible/tmp",
        "HOMEOSTAT_RESULTS": str(results),
    }
