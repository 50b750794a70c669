"""Runs Puppet: `apply --noop`, and the same without."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import orjson

from homeostat.loop.provider import Provider, Refused
from homeostat.providers.dryrun.plan import COLUMNS, SHOWN, Plan, PlanState
from homeostat.providers.dryrun.provider import DryRun, Job, ToolFailed, lines_of
from homeostat.providers.dryrun.running import REASON_MOST
from homeostat.providers.dryrun.source import within
from homeostat.providers.puppet.reading import complaints, failures, read_plan, read_report
from homeostat.providers.puppet.spec import PuppetSpec

PROGRAM = "puppet"
REPORT, LOG = "report.yaml", "log.json"
FAILURES_SHOWN = 10
_FACTS = Path(__file__).parent / "facts"
_FACT = re.compile(r"[a-z0-9_]+").fullmatch
_WELL = (0, 2)
"""Exit statuses with `--detailed-exitcodes`: nothing changed, or something did, and nothing failed."""


class PuppetManifest(
    DryRun[PuppetSpec],
    Provider[PuppetSpec, PlanState],
    group="tools.homeostat.dev",
    host=True,
    adopts=True,
    shown=SHOWN,
    columns=COLUMNS,
):
    """A Puppet manifest, by which this host is kept. It leaves the host as it is when it is deleted."""

    tool = "Puppet"

    def leaves(self, spec: PuppetSpec) -> bool:
        return True

    async def plan(self, job: Job) -> Plan:
        report = await self._apply(job, "noop", ["--noop"], acts=False)
        return await asyncio.to_thread(read_plan, report, str(job.place.work), job.key, job.clean)

    async def carry_out(self, job: Job, plan: Plan) -> None:
        await self._apply(job, "apply", [], acts=True)

    async def _apply(self, job: Job, what: str, options: list[str], *, acts: bool) -> dict[str, Any]:
        report, log = job.place.root / REPORT, job.place.root / LOG
        for path in (report, log):
            path.unlink(missing_ok=True)
        try:
            said = await self.run(job, what, [PROGRAM, "apply", *options, *_options(job, report, log)], _own(job), acts=acts)
            found, lines = await asyncio.to_thread(_results, report, log)
        finally:
            for path in (report, log):
                path.unlink(missing_ok=True)
        root = str(job.place.work)
        wrong = failures(found, root) if found is not None else complaints(lines, root)
        if said.status in _WELL and found is not None and not wrong:
            return found
        text = "\n".join(wrong[:FAILURES_SHOWN]) or said.errors.strip() or f"exit status {said.status}"
        raise ToolFailed(f"{what}: {job.blot(text)[:REASON_MOST]}")


def _results(report: Path, log: Path) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    lines = lines_of(log.read_bytes()) if log.exists() else []
    return (read_report(report.read_bytes()) if report.exists() else None), lines


def _options(job: Job, report: Path, log: Path) -> list[str]:
    manifest = within(job.spec.manifest, "manifest")
    if not (job.directory / manifest).exists():
        raise Refused(f"manifest: there is no {job.spec.manifest} in the source")
    own = {"confdir": "conf", "codedir": "code", "vardir": "var", "rundir": "var/run", "logdir": "var/log"}
    found = [f"--{name}={job.place.root / path}" for name, path in own.items()]
    if (job.directory / "modules").is_dir():
        found.append(f"--modulepath={job.directory / 'modules'}")
    if (job.directory / "hiera.yaml").is_file():
        found.append(f"--hiera_config={job.directory / 'hiera.yaml'}")
    found += [f"--factpath={_FACTS}", f"--lastrunreport={report}", f"--logdest={log}", "--certname=localhost"]
    return [*found, "--detailed-exitcodes", "--color=false", str(job.directory / manifest)]


def _own(job: Job) -> dict[str, str]:
    facts = {}
    for name, value in job.variables.items():
        if not _FACT(name):
            raise Refused(f"variables: {name!r} cannot be the name of a fact: small letters, digits and _")
        facts[f"FACTER_{name}"] = value if isinstance(value, str) else orjson.dumps(value).decode()
    return facts
