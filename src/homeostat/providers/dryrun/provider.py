"""Modules under the loop: a dry run is looked at, compared, judged by the guards as what it would do, and carried out as exactly that."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
import orjson

from homeostat.client import Client
from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Parts, Ref
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Moved, Provider, Refused, current
from homeostat.model.clock import Clock
from homeostat.model.kinds import encode
from homeostat.providers.dryrun.place import Place
from homeostat.providers.dryrun.plan import Plan, PlanState, difference, digest_of, state_of, wanted_of
from homeostat.providers.dryrun.running import GRACE_SECONDS, Said, ToolFailed, environment, run
from homeostat.providers.dryrun.source import Tree, lay_out, read_source, within
from homeostat.providers.dryrun.spec import TIMEOUT_MOST, ModuleSpec
from homeostat.providers.references import Values, blotter, read_values

FRESH_SECONDS = 60.0
"""A plan that is older is made again before it is carried out, and has to come out the same."""
RUNS_PER_LOOK = 3
"""A look or an action may need so many runs of the tool, each with a time limit of its own."""
MARGIN_SECONDS = 2 * GRACE_SECONDS + 30.0
RUNS_AT_ONCE = 4
"""Runs of one tool that go on at the same time: each may take a core and much memory."""

SpecT = TypeVar("SpecT", bound=ModuleSpec)


@dataclass(frozen=True, slots=True)
class Job:
    """One module, made out: its code, its variables and its place on this host."""

    spec: Any
    ref: Ref
    place: Place
    tree: Tree
    variables: Mapping[str, Any] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    blot: Callable[[str], str] = field(repr=False)
    key: bytes = field(repr=False)
    inputs: str = ""
    """A digest of all that is declared of it."""
    deleting: bool = False

    @property
    def directory(self) -> Path:
        """Where the tool runs."""
        return self.place.work / within(self.spec.directory, "directory")

    def clean(self, value: Any) -> Any:
        """A document with the values of Secrets blotted out of its texts."""
        if isinstance(value, str):
            return self.blot(value)
        if isinstance(value, Mapping):
            return {self.blot(str(name)): self.clean(below) for name, below in value.items()}
        return [self.clean(below) for below in value] if isinstance(value, list) else value


class Known(msgspec.Struct, frozen=True):
    """The last dry run of a module."""

    plan: Plan
    state: PlanState
    inputs: str
    deleting: bool
    at: float
    mark: Any
    """What the tool's own books looked like: where they are on this host and have moved, the plan is no longer so."""


class DryRun(Provider[SpecT, PlanState]):
    """What all tools with a dry run share. `root` is where work directories are; `allowed` the roots of sources, None for any."""

    deadline: ClassVar[float] = RUNS_PER_LOOK * (TIMEOUT_MOST + MARGIN_SECONDS)
    tool: ClassVar[str]
    """What it is called in messages."""

    def __init__(self, root: str | Path, allowed: Sequence[str] | None = None, *, clock: Clock | None = None) -> None:
        self._root = Path(root)
        self._allowed = allowed
        self._client: Client | None = None
        self._known: dict[str, Known] = {}  # by uid
        self._room = asyncio.Semaphore(RUNS_AT_ONCE)
        self.clock = clock or Clock()

    # What a tool adds

    @abstractmethod
    async def plan(self, job: Job) -> Plan:
        """The tool's dry run. Raise where it fails: what is there is unknown then."""

    @abstractmethod
    async def carry_out(self, job: Job, plan: Plan) -> None:
        """Does exactly what the last dry run said. `Moved` where the tool finds that it no longer holds."""

    def mark(self, job: Job) -> Any:
        """What the tool's own books on this host look like now, cheaply."""
        return None

    # The loop

    async def open(self, client: Client) -> None:
        self._client = client

    def forget(self, ref: Ref) -> None:
        self._known.pop(ref.uid, None)

    async def observe(self, spec: SpecT) -> PlanState | Absent:
        job = await self._job(spec)
        known = self._known.get(job.ref.uid)
        if known is None or not self._holds(known, job):
            known = await self._look(job)
        if job.deleting and not known.plan.size and not known.plan.steps:
            return ABSENT
        return known.state

    async def wanted(self, spec: SpecT) -> PlanState:
        known = self._known[current().ref.uid]
        return wanted_of(known.state)

    async def apply(self, spec: SpecT, diff: Diff) -> None:
        await self._act(spec)

    async def delete(self, spec: SpecT) -> None:
        await self._act(spec)

    def attribute(self, spec: SpecT, diff: Diff) -> Diff:
        ref = current().ref
        known = self._known[ref.uid]
        return difference(known.plan, diff, self._place(ref).settled() == known.inputs)

    def harmless(self, spec: SpecT, diff: Diff) -> bool:
        """What only makes what is not there yet, or changes the tool's books, harms nothing that exists."""
        parts = self._known[current().ref.uid].plan.parts
        return not parts.changes and not parts.deletions

    def parts(self, spec: SpecT, state: PlanState) -> Parts | None:
        plan = self._known[current().ref.uid].plan
        return plan.parts._replace(lost=plan.lost(state.had or 0))

    async def unhealthy(self, spec: SpecT, state: PlanState) -> str:
        return self._known[current().ref.uid].plan.unhealthy

    # Looking

    def _place(self, ref: Ref) -> Place:
        return Place(self._root / (ref.namespace or "_") / ref.name)

    async def _job(self, spec: SpecT) -> Job:
        seconds = spec.timeout.total_seconds()
        if not 0 < seconds <= TIMEOUT_MOST:
            raise Refused(f"timeout: a run may take between 0 and {TIMEOUT_MOST:g} s, not {seconds:g}")
        task = current()
        place = self._place(task.ref)
        variables = await read_values(self._client, task.ref.namespace, spec.variables_from)
        settings = await read_values(self._client, task.ref.namespace, spec.environment_from)
        given = {**_merged(variables, "variablesFrom"), **spec.variables}
        blot = blotter(Values(secrets=(*variables.secrets, *settings.secrets)))
        env = _merged(settings, "environmentFrom")

        def make_out() -> Job:
            tree = read_source(spec.source, self._allowed)
            place.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = place.key()
            job = Job(spec, task.ref, place, tree, given, env, blot, key, deleting=task.deleting)
            code = [(name, digest_of(key, data.hex()).hex(), name in tree.programs) for name, data in sorted(tree.files.items())]
            declared = {k: v for k, v in encode(spec).items() if k not in ("source", "interval", "timeout")}
            return replace(job, inputs=digest_of(key, code, given, env, declared).hex())

        return await asyncio.to_thread(make_out)

    def _holds(self, known: Known, job: Job) -> bool:
        """Whether the last dry run still says what there is to say."""
        return (
            (known.inputs, known.deleting) == (job.inputs, job.deleting)
            and 0 <= self.clock.now() - known.at < job.spec.interval.total_seconds()
            and known.mark == self.mark(job)
        )

    async def _look(self, job: Job) -> Known:
        self._known.pop(job.ref.uid, None)
        with job.place.held(job.blot):
            await asyncio.to_thread(lay_out, job.tree, job.place.work)
            if not job.directory.is_dir():
                raise Refused(f"directory: there is no {job.spec.directory} in the source")
            return await self._dry_run(job)

    async def _dry_run(self, job: Job) -> Known:
        plan = await self.plan(job)
        if not plan.steps and not job.deleting:
            job.place.settle(job.inputs)
        state = state_of(plan, plan.digest(job.key, job.inputs), current().shown.get("had", 0))
        known = Known(plan, state, job.inputs, job.deleting, self.clock.now(), self.mark(job))
        self._known[job.ref.uid] = known
        return known

    # Acting

    async def _act(self, spec: SpecT) -> None:
        task = current()
        known = self._known.get(task.ref.uid)
        if known is None or encode(known.state) != task.observed:
            raise Moved("the plan that was decided on is no longer at hand")
        job = await self._job(spec)
        if (job.inputs, job.deleting) != (known.inputs, known.deleting):
            raise Moved("the code or its variables are other than when the plan was made")
        try:
            with job.place.held(job.blot):
                if not 0 <= self.clock.now() - known.at < FRESH_SECONDS or known.mark != self.mark(job):
                    again = await self._dry_run(job)
                    if again.state.plan != known.state.plan:
                        raise Moved("what would be done is no longer what was decided on")
                await self.carry_out(job, known.plan)
        finally:
            self._known.pop(task.ref.uid, None)  # whatever came of it, the next look is a fresh one
        job.place.settle(job.inputs)

    async def run(
        self, job: Job, what: str, argv: Sequence[str], own: Mapping[str, str], *, acts: bool = False, log: bool = True
    ) -> Said:
        """One run of the tool in the module's directory."""
        async with self._room:
            return await run(
                job.place,
                what,
                argv,
                environment(job.environment, own, job.place.home),
                job.directory,
                seconds=job.spec.timeout.total_seconds(),
                blot=job.blot,
                clock=self.clock,
                acts=acts,
                log=log,
            )


def _merged(values: Values, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for source, held in values.by_source.items():
        for key, value in held.items():
            if key in found:
                raise Refused(f"{name}: {key} comes from more than one of {', '.join(values.by_source)}")
            try:
                found[key] = value.decode()
            except UnicodeDecodeError:
                raise Refused(f"{name}: {source}.{key} is no text") from None
    return found


def lines_of(output: bytes) -> list[dict[str, Any]]:
    """The JSON objects of an output that has one on each line; what is none is left out."""
    found = []
    for line in output.splitlines():
        if line.startswith(b"{"):
            try:
                found.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                continue
    return found


__all__ = ["DryRun", "Job", "Known", "ToolFailed", "lines_of"]
