"""Takes change sets back that failed, where a policy says so: every declaration of the fleet goes back to what it was before.

It is done once for a change set. What is under way stands in the status of the policies before the first object is written, so that
after a crash it is finished and not begun anew; each write is tied to the state that it was decided on. Before that first write it is
all or nothing: where one object was declared anew since, or the past is not known, nothing is written and the change set stays halted.
What somebody declares while the return is under way is left to them.

The declarations go back as a change set of their own, judged by the guards like any other; the fields go back to whose they were, so
that the next push finds no conflict.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from homeostat.client import Client, Unreachable
from homeostat.client.errors import PASSING
from homeostat.guards.gate import PolicyGate
from homeostat.guards.policy import GROUP, KIND, VERSION, ReturnState, ReturnStatus
from homeostat.guards.returns import (
    WRITES,
    Item,
    Step,
    begun,
    is_composed,
    is_unnamed,
    kept_returns,
    listed,
    name_of_return,
    refusal,
    step_of,
    taken,
    title,
)
from homeostat.loop.children import CHILDREN
from homeostat.loop.declarations import Object
from homeostat.loop.fleet import Fleet, Verdict
from homeostat.loop.returned import TRIES, put_back, returned, same_words
from homeostat.model.clock import parse_time
from homeostat.model.errors import ApiError
from homeostat.model.kinds import encode
from homeostat.model.protocol import DELETION_CHANGE_SET

if TYPE_CHECKING:
    from homeostat.guards.keeper import Keeper
    from homeostat.loop.engine import Engine

log = logging.getLogger("homeostat.guards")

MANAGER = "homeostat-return"
KEPT = 20
"""Returns of a fleet that are remembered."""
AT_ONCE = 16
"""Objects that are written at a time."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between tries while the server does not answer."""
PROBLEM_LENGTH = 1000
_NO_PAST = "this server keeps no past, so nobody knows what was declared before"

Key = tuple[str, str]
"""A fleet and a change set."""


class _Job(msgspec.Struct):
    """A return that is to be made. `parents` are the kinds whose children make up what failed."""

    fleet: str
    change_set: str
    reason: str
    policies: tuple[str, ...]
    since: datetime
    parents: frozenset[str] = frozenset()
    problems: list[str] = msgspec.field(default_factory=list)
    done: int = 0

    @property
    def key(self) -> Key:
        return self.fleet, self.change_set

    def status(self, state: ReturnState, problem: str = "") -> ReturnStatus:
        return ReturnStatus(
            change_set=self.change_set,
            fleet=self.fleet,
            state=state,
            since=self.since,
            reason=self.reason,
            returned_by=name_of_return(self.change_set) if state is not ReturnState.REFUSED else "",
            objects=self.done,
            problem=problem[:PROBLEM_LENGTH],
        )


class _Refused(Exception):
    """It cannot be taken back, and why."""


class _NotOurs(Exception):
    """Whoever makes these objects brings them back, or another loop does."""


class Returning:
    """Hears of every verdict from its keeper, and works in the background."""

    def __init__(self, client: Client, gate: PolicyGate, keeper: Keeper) -> None:
        self.engine: Engine | None = None
        self._client = client
        self._policies = client.kind(f"{GROUP}/{VERSION}", KIND)
        self._gate = gate
        self._keeper = keeper
        self._known: dict[Key, ReturnStatus] = {}
        self._guards: dict[str, tuple[str, ...]] = {}  # the policies of each fleet
        self._read: set[str] = set()  # policies whose status was taken in
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._left: set[Key] = set()  # not ours to take back

    async def stop(self) -> None:
        """Ends it. What is under way is finished by who starts next."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What the loop says

    def judged(self, fleet: Fleet, verdict: Verdict, policies: tuple[str, ...]) -> None:
        """Begins what a verdict asks for, and goes on with what a crash cut off."""
        self._guards[fleet.name] = policies
        if self.engine is None or not fleet.passes_done:  # what belongs to it may not have been seen yet
            return
        for key, one in self._known.items():
            if key[0] == fleet.name and one.state is ReturnState.RETURNING:
                self._begin(fleet, one.change_set, one.reason, policies, one.since)
        for asked in verdict.returns:
            if (fleet.name, asked.change_set) not in self._known:
                now = datetime.fromtimestamp(int(self.engine.clock.now()), UTC)
                self._begin(fleet, asked.change_set, asked.reason, policies, now)

    def _begin(self, fleet: Fleet, change_set: str, reason: str, policies: tuple[str, ...], since: datetime) -> None:
        key = fleet.name, change_set
        if key in self._tasks or key in self._left:
            return
        assert self.engine is not None
        kinds = {drift.ref.kind for drift in fleet.drifts.values() if drift.change_set == change_set}
        controllers = [self.engine.controllers[kind] for kind in sorted(kinds)]
        parents = frozenset(one.name.removeprefix(CHILDREN) for one in controllers if one.name.startswith(CHILDREN))
        job = _Job(fleet.name, change_set, reason, policies, since, parents)
        task = self._tasks[key] = asyncio.get_running_loop().create_task(self._run(job), name=f"return of {change_set}")
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    # What people see

    def shown(self, policy: str) -> list[dict[str, Any]]:
        """What the status of a policy keeps: the latest last."""
        found = [one for (fleet, _), one in self._known.items() if policy in self._guards.get(fleet, (policy,))]
        found.sort(key=lambda one: one.since)
        return [encode(one) for one in found[-KEPT:]]

    def restore(self, policy: str) -> None:
        """Takes in what a policy that is new to us remembers from before a restart. Call it before the first verdict."""
        obj = self._keeper.policy(policy) if policy not in self._read else None
        if obj is None:
            return
        self._read.add(policy)
        for wave in (obj.get("status") or {}).get("waves") or ():
            if wave["changeSet"]:
                cut = self._gate.interrupted.setdefault(wave.get("fleet", ""), {})
                cut.setdefault(wave["changeSet"], parse_time(wave["started"]))
        for halt in (obj.get("status") or {}).get("halts") or ():
            stood = self._gate.halted.setdefault(halt.get("fleet", ""), {})
            stood.setdefault((halt["guard"], halt.get("changeSet", "")), parse_time(halt["since"]))
        for one in kept_returns(obj):
            if (one.fleet, one.change_set) not in self._known:
                self._note(one)

    def _note(self, one: ReturnStatus) -> None:
        self._known[one.fleet, one.change_set] = one
        told = self._gate.returned.setdefault(one.fleet, {})
        told[one.change_set] = taken(one)
        if len(told) > KEPT:
            oldest = min(told, key=lambda name: told[name].at)
            del told[oldest], self._known[one.fleet, oldest]

    async def _remember(self, job: _Job, one: ReturnStatus) -> None:
        """Writes down how far it is, where a restart finds it. `_NotOurs` where there is no policy any more to say that it is wanted."""
        self._note(one)
        written = 0
        for name in job.policies:
            try:
                body = {"status": {"returns": self.shown(name)}}
                await self._policies.patch(name, body, subresource="status", field_manager=MANAGER)
                written += 1
            except ApiError as error:
                if error.reason != "NotFound":
                    raise
        if not written:
            raise _NotOurs

    # One return

    async def _run(self, job: _Job) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._go(job)
                return
            except _NotOurs:
                self._left.add(job.key)
                return
            except Unreachable as error:
                log.warning("change set %s is not taken back yet: %s", job.change_set, error)
            except ApiError as error:
                if error.code not in PASSING:
                    log.error("the return of change set %s cannot be written down: %s", job.change_set, error.message)
                    self._left.add(job.key)
                    return
                log.warning("change set %s is not taken back yet: %s", job.change_set, error.message)
            except Exception:
                log.exception("change set %s cannot be taken back", job.change_set)
                self._left.add(job.key)
                return
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    async def _go(self, job: _Job) -> None:
        job.problems, job.done = [], 0
        try:
            steps = await self._plan(job)
        except _Refused as why:
            known = self._known.get(job.key)  # what a crash cut off was begun, and cannot be finished
            await self._end(job, ReturnState.REFUSED if known is None else ReturnState.INCOMPLETE, str(why))
            return
        await self._remember(job, job.status(ReturnState.RETURNING))
        self._decide()
        for kind in WRITES:
            await self._each(job, [item for item, step in steps if step is kind], kind)
        job.done += sum(step is Step.DONE for _, step in steps)
        left = [title(item) for item, step in steps if step in (Step.KEPT, Step.GOING)]
        if left:
            job.problems.append(f"{listed(left)} was declared anew, or deleted, since")
        state = ReturnState.INCOMPLETE if job.problems else ReturnState.RETURNED
        await self._end(job, state, "; ".join(sorted(job.problems)))

    async def _end(self, job: _Job, state: ReturnState, problem: str) -> None:
        one = job.status(state, problem)
        await self._remember(job, one)
        said = f"change set {job.change_set} failed ({job.reason}); it {taken(one).words}"
        if state is not ReturnState.REFUSED:
            said += f". Declarations that are as they were before: {job.done}"
        log.warning("%s: %s", job.fleet, said)
        if self._keeper.telling is not None:
            self._keeper.telling.say(job.policies, "NotReturned" if state is ReturnState.REFUSED else str(state), said)
        self._decide()

    def _decide(self) -> None:
        """Halts say how it stands."""
        if self.engine is not None:
            self.engine.decide_all()

    async def _plan(self, job: _Job) -> list[tuple[Item, Step]]:
        """What has to be done to each object. `_Refused` where nothing may be."""
        name = name_of_return(job.change_set)
        items = await self._items(job)
        ours = await self._ours(job, items)
        steps = [(item, step_of(item, name)) for item in ours]
        known = self._known.get(job.key)
        if (known is not None and known.state is ReturnState.RETURNING) or begun(ours, name):
            return steps
        if not steps and job.parents:
            raise _NotOurs
        if why := refusal(steps):
            raise _Refused(why)
        if is_unnamed(job.change_set) and (made := [title(item) for item, step in steps if step is Step.DELETE]):
            raise _Refused(f"nobody named it, and {listed(made)} would be deleted: what belongs together is only guessed by its writer and time")
        for kind in WRITES:
            await self._each(job, [item for item, step in steps if step is kind], kind, dry_run=True)
        if job.problems:
            raise _Refused("; ".join(sorted(job.problems)))
        job.done = 0
        return steps

    async def _items(self, job: _Job) -> Sequence[Item]:
        try:
            reply = await self._client.request("GET", f"/homeostat/changesets/{quote(job.change_set)}")
        except ApiError as error:
            if error.code in PASSING:
                raise
            if error.code != 404:
                raise _Refused(error.message) from None
            if job.parents:  # whoever makes them may have a past of its own, as a Sync has
                raise _NotOurs from None
            raise _Refused(_NO_PAST) from None
        found: Sequence[Item] = reply.json()["items"]
        return found

    async def _ours(self, job: _Job, items: Sequence[Item]) -> list[Item]:
        """What people declared of a change set in the fleet. Of what is composed, the parents: their declaration is the one that counts."""
        found: list[Item] = []
        for item in items:
            some = item["now"] or item["before"] or item["after"]
            if some is None:
                continue  # the change set made it and took it away
            kind = await self._kind_of(item)
            fleet = self._gate.fleet_of(kind, item["namespace"], some["metadata"].get("labels") or {}) if kind else ""
            if kind in job.parents or (fleet == job.fleet and not is_composed(some)):
                found.append(item)
        return found

    async def _kind_of(self, item: Item) -> str:
        try:
            served = await self._client.kind(item["apiVersion"], item["kind"]).served()
        except ApiError as error:
            if error.code in PASSING:
                raise
            return ""  # it is gone, and its objects with it
        group = item["apiVersion"].rpartition("/")[0]
        return f"{served.plural}.{group}" if group else served.plural

    # Writing

    async def _each(self, job: _Job, items: Iterable[Item], step: Step, *, dry_run: bool = False) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(item: Item) -> None:
            async with turns:
                if not dry_run and not self._may_act():
                    raise _NotOurs
                try:
                    await self._write(job, item, step, dry_run)
                    job.done += 1
                except ApiError as error:
                    if error.code in PASSING:
                        raise
                    job.problems.append(f"{title(item)}: {error.message}")

        results = await asyncio.gather(*map(one, items), return_exceptions=True)
        for failure in results:
            if isinstance(failure, BaseException):
                raise failure

    def _may_act(self) -> bool:
        return self.engine is not None and all(one.may_act() for one in self.engine.controllers.values())

    async def _write(self, job: _Job, item: Item, step: Step, dry_run: bool) -> None:
        handle = self._client.kind(item["apiVersion"], item["kind"])
        namespace, by = item["namespace"], name_of_return(job.change_set)
        if step is Step.CREATE:
            body = returned(item["before"], None, by)
            made = await handle.create(body, namespace=namespace, field_manager=MANAGER, dry_run=dry_run)
        elif step is Step.REPLACE:
            made = await put_back(
                handle, item["before"], item["now"], by, manager=MANAGER, namespace=namespace, dry_run=dry_run
            )
        else:
            if not dry_run:
                await self._take_away(handle, item["now"], by, namespace)
            return
        if not dry_run:
            await self._hand_over(handle, item["before"], made, namespace)

    async def _take_away(self, handle: Any, live: Object, by: str, namespace: str) -> None:
        """Deletes what the change set had made, unless somebody declared it anew (409)."""
        name = live["metadata"]["name"]
        for _ in range(TRIES):
            same = {"uid": live["metadata"]["uid"]}
            tied = {**same, "resourceVersion": live["metadata"]["resourceVersion"]}
            note = {"metadata": {**tied, "annotations": {DELETION_CHANGE_SET: by}}}
            try:
                live = await handle.patch(name, note, namespace=namespace, field_manager=MANAGER)
                version = live["metadata"]["resourceVersion"]
                await handle.delete(name, namespace=namespace, resource_version=version, **same)
                return
            except ApiError as error:
                if error.reason == "NotFound":
                    return
                if error.reason != "Conflict":
                    raise
            now = await handle.get(name, namespace=namespace)
            if now["metadata"]["uid"] != same["uid"] or not same_words(now, live):
                raise ApiError(409, "Conflict", "somebody declared something else meanwhile")
            live = now
        raise ApiError(409, "Conflict", "it keeps changing")

    async def _hand_over(self, handle: Any, before: Object, live: Object, namespace: str) -> None:
        """Gives the fields back to whose they were. Where that does not work they are ours, and a later apply has to force them."""
        then = [one for one in before["metadata"].get("managedFields") or () if one.get("subresource") != "status"]
        wrote = live
        for _ in range(TRIES if then else 0):
            metadata = live["metadata"]
            reports = [one for one in metadata.get("managedFields") or () if one.get("subresource") == "status"]
            same = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            body = {"metadata": {**same, "managedFields": [*then, *reports]}}
            try:
                await handle.patch(metadata["name"], body, namespace=namespace, field_manager=MANAGER)
                return
            except ApiError as error:
                if error.reason != "Conflict":
                    log.warning("%s keeps the fields of %s: %s", MANAGER, metadata["name"], error.message)
                    return
            live = await handle.get(metadata["name"], namespace=namespace)
            if not same_words(live, wrote):
                return
