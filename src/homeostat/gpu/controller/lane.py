"""Workloads on their way through the loop: the same looks, gate and guards as for all else, at a fraction of the cost.

There may be a hundred thousand of them, of which most wait or have ended, and hundreds begin and end in a second. So the loop and the governor
share one copy of them, what only waits is looked at when something is decided of it, and a look asks the governor's memory instead of reading
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from homeostat.client import Client, Informer, Key, Packed
from homeostat.gpu.controller.standing import WorkloadState, keeps_state, lagging, state_of, terse
from homeostat.gpu.kinds import Phase as Stage
from homeostat.gpu.kinds import WorkloadSpec
from homeostat.loop.controller import Controller, Seen
from homeostat.loop.declarations import Object
from homeostat.loop.diff import NOTHING
from homeostat.loop.fleet import Op, Ref
from homeostat.loop.observation import Observation
from homeostat.loop.provider import Moved
from homeostat.loop.record import Record
from homeostat.loop.status import status_of
from homeostat.model.clock import Clock
from homeostat.model.kinds import InvalidSpec, decode, encode
from homeostat.model.protocol import FINALIZER

if TYPE_CHECKING:
    from homeostat.gpu.controller.governing import Governor
    from homeostat.gpu.controller.workload import Workload


class Shared:
    """The governor's copy of all workloads, as the loop's declarations. The governor starts and stops it."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._marks: dict[Key, Hashable] = {}
        self.unseen: set[Key] = set()
        """Those of which nothing could be told when they were last looked at: they are looked at again, whatever they do."""

    @property
    def _informer(self) -> Informer[Packed]:
        return self._governor.known.workloads

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def wait_synced(self) -> None:
        await self._informer.wait_synced()

    def get(self, key: Key) -> Object | None:
        return self._governor.known.at(key)

    def mark(self, key: Key) -> Hashable:
        found = self._informer.at(key)
        return None if found is None else (found.uid, found.generation, found.deleting)

    def revision(self, key: Key) -> str:
        found = self._informer.at(key)
        return "" if found is None else found.revision

    def all(self) -> list[Key]:
        """Those of which something is wanted, or may be: not those that have just come, only wait or have ended."""
        if not self._governor.can_tell:
            return [one.key for one in self._informer.all() if one.deleting or b'"status":' in one.body]
        return [one.key for one in self._informer.all() if not self._governor.is_still(one) or one.key in self.unseen]

    def subscribe(self, handler: Callable[[Key], None]) -> Callable[[], None]:
        def heard(key: Key) -> None:
            mark, before = self.mark(key), self._marks.get(key)
            if mark is None:
                self._marks.pop(key, None)
            elif mark == before:
                return
            else:
                self._marks[key] = mark
                if before is None and not mark[-1]:  # type: ignore[index]  # it has come, and nothing is decided of it yet
                    return
            handler(key)

        return self._informer.subscribe(heard)


class Lane(Controller):
    """Looks at and acts on workloads."""

    provider: Workload

    def __init__(self, provider: Workload, client: Client, clock: Clock) -> None:
        super().__init__(provider, client, clock)
        self._governor = provider.governor
        self.declarations = self._shared = Shared(self._governor)
        self._specs: dict[str, tuple[int, WorkloadSpec]] = {}  # by uid, with the generation
        self._held_at_once = True  # the server puts our finalizer on when something is placed; others are found out not to

    def forget(self, ref: Ref) -> None:
        self._specs.pop(ref.uid, None)
        self._shared.unseen.discard(Key(ref.namespace, ref.name))
        super().forget(ref)

    def still(self, key: Key) -> bool:
        found = self._governor.known.workloads.get(key.name, key.namespace)
        return found is not None and self._governor.is_still(found)

    # Looking

    async def look(self, obj: Object) -> Seen:
        """As all others are looked at, of what the governor has in its memory."""
        seen = await self._look(obj)
        (self._shared.unseen.discard if seen.observation.known else self._shared.unseen.add)(Key(seen.ref.namespace, seen.ref.name))
        return seen

    async def _look(self, obj: Object) -> Seen:
        if not self._governor.can_tell or ("deletionTimestamp" in obj["metadata"] and not self._at_work(obj)):
            return await super().look(obj)
        try:
            spec = self._spec(obj)
        except InvalidSpec:
            return await super().look(obj)
        ref, record, now = self.ref_of(obj), Record.read(obj.get("status") or {}), self._clock.now()
        state = self._governor.known.state(ref)
        wanted = self.provider.ask(ref, state)
        if wanted != state:
            return await self._seen(ref, obj, record, spec, encode(wanted), state, now)
        said = encode(state)
        unhealthy = lagging(self._governor.known.status(ref), self._governor.lost)
        return Seen(ref, obj, record, Observation(said, now, 0.0, self.info.kind), spec, said, NOTHING, "", unhealthy, counts=_counts(state))

    def _at_work(self, obj: Object) -> bool:
        """One that is deleted is taken off its GPUs as any other is, by the governor's word and behind the guards; then agents end it. So is
        one that is suspended with its state, which goes with it."""
        ref = self.ref_of(obj)
        return _counts(self._governor.known.state(ref)) or keeps_state(self._governor.known.status(ref), self._governor.lost)

    def _spec(self, obj: Object) -> WorkloadSpec:
        uid, generation = obj["metadata"]["uid"], obj["metadata"].get("generation", 0)
        known = self._specs.get(uid)
        if known is not None and known[0] == generation:
            return known[1]
        spec = decode(WorkloadSpec, obj.get("spec") or {})
        self._specs[uid] = (generation, spec)
        return spec

    def short_status(self, seen: Seen) -> dict[str, Any] | None:
        """Of what has ended nothing needs to be remembered, and little said."""
        state = seen.observation.state
        if not isinstance(state, Mapping) or state.get("phase") not in (Stage.SUCCEEDED, Stage.FAILED):
            return None
        said = status_of(seen.obj, Record(), now=self._clock.timestamp())
        return {**said, "conditions": terse(seen.obj.get("status") or {}, said["conditions"])}

    def untold(self, obj: Object) -> bool:
        return self._governor.keeps_silent(obj)

    # Acting

    async def _carry_out(self, seen: Seen) -> Seen:
        if seen.diff.op is not Op.UPDATE:
            return await super()._carry_out(seen)
        obj = seen.obj if self._held_at_once else await self._held(seen)
        if not self.may_act():
            raise Moved("another loop may keep it by now")
        with self.trace.phase("act", seen.ref, op=str(seen.diff.op)), self.deadlines.within(self.provider.takes(seen.spec)):
            meant = self.provider.asked(seen.ref)
            written = await self._governor.carry_out(seen.ref, meant)
            if self.provider.holds(written) and FINALIZER not in (written["metadata"].get("finalizers") or ()):
                self._held_at_once = False
                await self.hold_on(written)
        with self.trace.phase("verify", seen.ref):
            if state_of(written.get("status") or {}) == meant and (after := await self._now(seen)) is not None:
                return after
            return await self.read_back(obj, seen)

    async def _now(self, acted: Seen) -> Seen | None:
        """How it stands after it was written. Agents may have gone on from there already; None where what is known of it is from before."""
        obj = self._governor.known.object(acted.ref)
        if obj is None or obj["metadata"]["resourceVersion"] == acted.obj["metadata"]["resourceVersion"]:
            return None
        after = await self.look(obj)
        return after if after.observation.known else None

    async def _patch(self, obj: Object, patch: Object, subresource: str = "") -> Object:
        with self._governor.writing(self.ref_of(obj)) as wrote:
            return wrote(await super()._patch(obj, patch, subresource))


def _counts(state: WorkloadState) -> bool:
    return state.phase is Stage.RUNNING
