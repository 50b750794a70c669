"""One kind under the loop: how a resource of it is looked at, and how it is acted on once the gate is open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from homeostat.client import Client, Key, Unreachable
from homeostat.loop.compare import Comparer, compare
from homeostat.loop.deadline import Deadlines
from homeostat.loop.declarations import ADOPT, Declarations, Followed, Object
from homeostat.loop.definitions import define
from homeostat.loop.diff import NOTHING, Change, Diff, whole_cause
from homeostat.loop.failure import CONTAINED, Mistake, awaited, secrets_in, shown, told
from homeostat.loop.fleet import Cause, Op, Parts, Ref
from homeostat.loop.listener import Listener
from homeostat.loop.observation import ABSENT, Absent, Observation, State, Unknown
from homeostat.loop.provider import Moved, Provider, Refused, Task, Working
from homeostat.loop.record import Intent, Record, creation_key, journal_of
from homeostat.loop.render import render, sensitive_paths
from homeostat.loop.status import change_of
from homeostat.loop.survey import Survey
from homeostat.loop.tracing import QUIET
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError, not_found
from homeostat.model.kinds import InvalidSpec, Spec, crd_for, decode, encode, schema_of
from homeostat.model.protocol import FINALIZER
from homeostat.model.schema import Schema

MANAGER = "homeostat"
STATUS_TRIES = 5
"""How often a status is written that others write to at the same time."""
SHOWN = 3
"""How many lines are shown of what reads back differently."""


class Seen(msgspec.Struct, gc=False):
    """A resource as it was declared and as it was found, and what differs."""

    ref: Ref
    obj: Object
    record: Record
    observation: Observation
    spec: Any  # decoded; None where it cannot be
    declared: Mapping[str, Any] | Absent
    diff: Diff
    made_from: str
    unhealthy: str = ""
    owned: bool = True
    identity: str = ""
    foreign: str = ""
    harmless: bool = False
    counts: bool = True
    change_set: str = ""
    parts: Parts | None = None
    target: str = ""
    domain: str = ""

    @property
    def deleting(self) -> bool:
        return isinstance(self.declared, Absent)


class Unseen(RuntimeError):
    """It was made, and is not there when it is looked at: it went at once, or the observer does not see it."""


class Controller:
    """Looks at and acts on the resources of one provider. `name` is that of their kind, among all that an engine runs."""

    listener: Listener | None = None
    """Who wants to know what the engine does, beside those that it was given."""

    def __init__(self, provider: Provider[Any, Any], client: Client, clock: Clock) -> None:
        self.provider = provider
        self.info = provider.info
        self.name = self.info.name
        self.resource = client.kind(self.info.api_version, self.info.kind)
        self.declarations: Declarations = Followed(client, self.info.api_version, self.info.kind)
        self._client = client
        self._clock = clock
        schema = schema_of(self.info.spec)
        visible = schema_of(provider.state_type)
        self._fields = frozenset(schema["properties"]) - frozenset(provider.means)
        self._hidden = frozenset() if provider.translates() else self._fields - visible["properties"].keys()
        self._believed: dict[Ref, Mapping[str, Any]] = {}  # while it is read back: what was applied of the fields that cannot be seen
        self._schema = Schema(visible if provider.translates() else schema)
        self._comparer: Comparer[Ref] = Comparer(self._schema)
        self.sensitive = sensitive_paths(self._schema)
        self._secrets = sensitive_paths(Schema(schema))
        self._survey = Survey(provider, self.declarations, self.name, self._working)
        self._adopters: dict[Ref, str] = {}  # declarations that may take over what exists, and which thing each was last seen to be about
        self._adopted: dict[str, set[Ref]] = {}
        self.deadlines = Deadlines()
        self.trace = QUIET
        self.may_act: Callable[[], bool] = lambda: True  # asked at the last moment; see `election`

    async def define(self) -> None:
        """Makes the kind known to the API server."""
        await define(self._client, crd_for(self.info), MANAGER)

    def ref_of(self, obj: Object) -> Ref:
        metadata = obj["metadata"]
        return Ref(self.name, metadata.get("namespace", ""), metadata["name"], metadata["uid"])

    def fleet_kind(self, ref: Ref) -> str:
        """The kind (plural.group) by which policies select a resource."""
        return ref.kind

    def part_of(self, ref: Ref) -> str:
        """The uid of what was deleted as a whole, and this with it; empty where it stands for itself."""
        return ""

    async def fetch(self, name: str, namespace: str) -> Object:
        """A declaration, fresh. `ApiError` 404 where it is gone."""
        return await self.resource.get(name, namespace=namespace)

    def get(self, key: Key) -> Object | None:
        return self.declarations.get(key)

    def made_nothing(self, seen: Seen) -> bool:
        """Whether nothing of a resource can be there that is ours, also where it cannot be looked at: an action is noted before it begins, and
        none ever was. (Who knows what is theirs by the thing itself cannot tell.)"""
        record = seen.record
        return record.last_applied is None and record.intent is None and not self.provider.adopts and not _may_adopt(seen.obj)

    def short_status(self, seen: Seen) -> dict[str, Any] | None:
        """All there is to say of a resource that is as declared and works, where that is less than others say; None: it is not."""
        return None

    def untold(self, obj: Object) -> bool:
        """Whether nothing is written of a resource for now, whatever there is to say of it."""
        return False

    def settled(self, key: Key, obj: Object, seen: Seen) -> None:
        """A resource is as declared, and its status says so: when nothing of it moves, a pass need not open it again."""
        self._survey.settled(key, obj["metadata"]["resourceVersion"], seen.declared, seen.observation.state)

    def forget(self, ref: Ref) -> None:
        self._survey.forget(Key(ref.namespace, ref.name))
        self._comparer.forget(ref)
        self._note_adoption(ref, {"metadata": {}}, "")
        self.provider.forget(ref)

    # Looking

    def still(self, key: Key) -> bool:
        """Whether it can be told without a look that nothing has moved since the last one. Here it cannot."""
        return False

    @property
    def batches(self) -> bool:
        """Whether many can be looked at by a few calls."""
        return self.provider.batches()

    async def unmoved(self, keys: Sequence[Key], *, first: bool) -> set[Key]:
        """Of many, those that are found by a few calls to be as they were when they were last seen to be as declared.

        `first`: in the first pass after a start.
        """
        return await self._survey.unmoved(keys)

    async def look(self, obj: Object) -> Seen:
        """Observes one resource fresh and compares. What cannot be read, compared or judged, or not in time, is unknown."""
        ref, record = self.ref_of(obj), Record.read(obj.get("status") or {})
        try:
            spec = decode(self.info.spec, obj.get("spec") or {})
        except InvalidSpec as error:
            return self._unseen(ref, obj, record, Unknown(f"the declaration cannot be read: {error}"))
        started = self._clock.now()
        try:
            with self.deadlines.within(self.provider.deadline), self._working(obj, ref):
                with self.trace.phase("observe", ref), CONTAINED:
                    state: Any = await awaited(self.provider.observe(spec), self.provider, "observe")
                    declared = ABSENT if obj["metadata"].get("deletionTimestamp") else await self._declared(spec)
                if isinstance(state, Unknown):
                    return self._unseen(ref, obj, record, state, spec)
                return await self._compared(ref, obj, record, spec, declared, state, started)
        except Exception as error:
            return self._unseen(ref, obj, record, Unknown(self.told(error, spec)), spec)

    def told(self, error: BaseException, spec: Any) -> str:
        """What a failure of the provider says, without the secrets of this spec; None: it could not be read."""
        found = set(secrets_in(encode(spec), self._secrets)) if self._secrets and spec is not None else ()
        return told(error, self.provider, found)

    def _unseen(self, ref: Ref, obj: Object, record: Record, why: Unknown, spec: Any = None) -> Seen:
        observation = Observation(why, self._clock.now(), source=self.info.kind)
        return Seen(ref, obj, record, observation, spec, {}, NOTHING, "")

    async def _seen(
        self, ref: Ref, obj: Object, record: Record, spec: Any, declared: State, state: Any, started: float
    ) -> Seen:
        """What there is to say of a state that was found in another way than by `look`."""
        with self._working(obj, ref):
            return await self._compared(ref, obj, record, spec, declared, state, started)

    async def _compared(
        self, ref: Ref, obj: Object, record: Record, spec: Any, declared: State, state: Any, started: float
    ) -> Seen:
        now, there = self._clock.now(), not isinstance(state, Absent)
        observed = self._encoded(state, "observe", "ABSENT, and raises where it cannot tell") if there else ABSENT
        target = domain = ""
        unhealthy = foreign = change_set = ""
        harmless, counts = False, True
        parts: Parts | None = None
        with self.trace.phase("compare", ref), CONTAINED:
            identity = self._identity(spec, state) if there else ""
            last = self.last_applied(record, identity)
            owned = last is not None or not there or self.provider.adopts or _may_adopt(obj)
            self._note_adoption(ref, obj, "" if isinstance(declared, Absent) else identity)
            if isinstance(declared, Absent) and (self.provider.leaves(spec) or self._kept_by_another(identity)):
                last = None  # nothing is taken back
            diff, mark = self._comparer.marked(ref, declared, last, self._completed(observed, self._believed.get(ref, last)))
            if there and record.intent is not None and ref not in self._believed:
                diff = self._doubted(diff, declared)
            if there and diff:
                diff = self.provider.attribute(spec, diff)
                foreign = self.provider.foreign(spec, diff)
                harmless = self.provider.harmless(spec, diff)
                change_set = self.provider.change_set(spec, diff)
                parts = self.provider.parts(spec, state)
            elif there:
                unhealthy = await self._unhealthy(spec, state)
            if diff:
                target, domain = self.provider.target(spec), self.provider.domain(spec)
            if there:
                counts = self.provider.counts(spec, state)
        return Seen(
            ref,
            obj,
            record,
            Observation(observed, now, now - started, self.info.kind),
            spec,
            declared,
            diff,
            mark.hex(),
            unhealthy,
            owned,
            identity,
            foreign,
            harmless,
            counts,
            change_set,
            parts,
            target,
            domain,
        )

    def _note_adoption(self, ref: Ref, obj: Object, identity: str) -> None:
        identity = identity if _may_adopt(obj) else ""
        before = self._adopters.pop(ref, "")
        if before:
            self._adopted[before].discard(ref)
            if not self._adopted[before]:
                del self._adopted[before]
        if identity:
            self._adopters[ref] = identity
            self._adopted.setdefault(identity, set()).add(ref)

    def _kept_by_another(self, identity: str) -> bool:
        """Whether another declaration that lives has taken this very thing over: then it is not taken away with this one."""
        for ref in self._adopted.get(identity, ()):
            found = self.get(Key(ref.namespace, ref.name))
            if found is not None and found["metadata"]["uid"] == ref.uid and "deletionTimestamp" not in found["metadata"] and _may_adopt(found):
                return True
        return False

    def _encoded(self, state: Any, method: str, otherwise: str) -> dict[str, Any]:
        if isinstance(state, Spec):
            return encode(state)
        name = type(self.provider).__name__
        raise Mistake(f"{name}.{method} returned {shown(state)}; it returns a {self.provider.state_type.__name__}, or {otherwise}")

    def _identity(self, spec: Any, state: Any) -> str:
        found: Any = self.provider.identity(spec, state)
        if isinstance(found, str):
            return found
        name = type(self.provider).__name__
        raise Mistake(f"{name}.identity returned {shown(found)}; it returns a str, which is empty where there is none")

    async def _unhealthy(self, spec: Any, state: Any) -> str:
        why: Any = await awaited(self.provider.unhealthy(spec, state), self.provider, "unhealthy") or ""
        if isinstance(why, str):
            return why
        name = type(self.provider).__name__
        raise Mistake(f"{name}.unhealthy returned {shown(why)}; it returns why as a str, which is empty where the thing works")

    def last_applied(self, record: Record, identity: str) -> dict[str, Any] | None:
        """What we applied to this very thing; None where it is not one that we made or took over."""
        if record.intent is not None and record.intent.op is Op.CREATE:
            return record.last_applied or {}  # we began to make it: what is there now is ours
        if record.identity and identity and record.identity != identity:
            return None
        if record.last_applied is None and record.intent is not None:
            return {}
        return record.last_applied

    async def _declared(self, spec: Any) -> dict[str, Any]:
        """What is declared, in the fields that are compared."""
        wanted: Any = await awaited(self.provider.wanted(spec), self.provider, "wanted")
        if wanted is not None:
            return self._encoded(wanted, "wanted", "None where the fields of the spec are what is seen")
        return {name: value for name, value in encode(spec).items() if name in self._fields}

    def _completed(self, observed: State, applied: Mapping[str, Any] | None) -> State:
        """What was observed, and what was applied of that which no observation shows."""
        if not self._hidden or not applied or isinstance(observed, Absent):
            return observed
        return {**observed, **{name: applied[name] for name in self._hidden & applied.keys()}}

    def _doubted(self, diff: Diff, declared: State) -> Diff:
        """The same with all fields that cannot be seen: an action was begun, and nobody knows what came of it."""
        if not self._hidden or isinstance(declared, Absent):
            return diff
        known = {change.path[0] for change in diff.changes}
        more = [Change((name,), ABSENT, declared.get(name), Cause.INTENT) for name in sorted(self._hidden - known)]
        changes = (*diff.changes, *more)
        return Diff(diff.op or Op.UPDATE, changes, whole_cause(change.cause for change in changes))

    def _working(self, obj: Object, ref: Ref, observed: State | None = None) -> Working:
        metadata, status = obj["metadata"], obj.get("status") or {}
        return Working(
            Task(
                ref,
                metadata.get("labels") or {},
                metadata.get("annotations") or {},
                self._key(ref, obj),
                status.get("identity", ""),
                deleting="deletionTimestamp" in metadata,
                last_applied=status.get("lastApplied"),
                observed=observed,
                shown={name: status[name] for name in self.provider.shown if name in status},
                kept=dict(status.get("kept") or {}),
            )
        )

    def _key(self, ref: Ref, obj: Object) -> str:
        """The key of a creation: the one in the journal where a try may have been made, so that a later edit is no second thing.

        A try that is long over and shows nothing has left nothing: then the key is new, for who got it may still think of what
        is gone.
        """
        if (obj.get("status") or {}).get("intent"):
            intent = Record.read(obj["status"]).intent
            assert intent is not None
            if intent.op is Op.CREATE and self._clock.now() < intent.at + 2 * self.provider.deadline:
                return intent.key
        return creation_key(ref, obj["metadata"]["resourceVersion"])

    # Acting

    async def act(self, made_from: str, name: str, namespace: str, uid: str) -> Seen:
        """Reads again, compares again, writes the intent down, acts, and reads back. Gives what it found at the end.

        Raises `Moved` where anything is not as it was when this was decided; whatever the provider raises where it failed.
        """
        obj = await self.fetch(name, namespace)
        if obj["metadata"]["uid"] != uid:
            raise Moved("another resource has taken its name")
        seen = await self.look(obj)
        if not seen.observation.known or seen.made_from != made_from or not seen.diff:
            raise Moved("it is no longer what was decided on")
        return await self._carry_out(seen)

    async def act_on(self, seen: Seen) -> Seen:
        """The same for what was looked at this moment, and needs no second look."""
        await self.confirm(seen)
        return await self._carry_out(seen)

    async def confirm(self, seen: Seen) -> None:
        """Raises `Moved` where the declaration is another by now. Here the journal's write tells: it is refused then."""

    async def _carry_out(self, seen: Seen) -> Seen:
        assert seen.spec is not None
        assert seen.diff.op is not None
        assert not isinstance(seen.observation.state, Unknown)
        before, journaled = seen.obj.get("status") or {}, self.provider.journaled
        obj = await (self.journal(seen) if journaled else self._held(seen))
        if not self.may_act():
            raise Moved("another loop may keep it by now")
        acting = self.trace.phase("act", seen.ref, op=str(seen.diff.op))
        with acting, self._working(obj, seen.ref, seen.observation.state) as task:
            try:
                with self.deadlines.within(self.provider.takes(seen.spec)), CONTAINED:
                    if seen.diff.op is Op.DELETE:
                        await awaited(self.provider.delete(seen.spec), self.provider, "delete")
                    else:
                        await awaited(self.provider.apply(seen.spec, seen.diff), self.provider, "apply")
            except (Moved, Refused):  # nothing was done: the journal is as it was
                if journaled:
                    await self.write_status(obj, before)
                raise
            except Exception:
                await self._keep(obj, task)
                raise
        kept = await self._keep(obj, task)
        with self.trace.phase("verify", seen.ref):
            return await self.read_back({**obj, "status": kept.get("status")}, seen)

    async def journal(self, seen: Seen) -> Object:
        """Writes down what is about to be done. Raises `Moved` where the resource was written to since it was read."""
        obj = seen.obj
        assert seen.diff.op is not None
        intent = Intent(seen.diff.op, seen.made_from, self._key(seen.ref, obj), self._clock.now())
        status = {**(obj.get("status") or {}), "intent": intent.to_status()}
        return await _begun(self.write_status(obj, status, unmoved=True))

    async def _held(self, seen: Seen) -> Object:
        """Puts our finalizer on where it is not yet. Raises `Moved` as `journal` does."""
        return await _begun(self.hold_on(seen.obj))

    async def _keep(self, obj: Object, task: Task) -> Object:
        """Writes down what the provider noted while it acted."""
        status = obj.get("status") or {}
        if task.kept == (status.get("kept") or {}):
            return obj
        return await self.write_status(obj, {**status, "kept": task.kept or None})

    async def read_back(self, obj: Object, acted: Seen) -> Seen:
        """Looks at what was done. RuntimeError where it cannot be seen, or is not what was meant; `Unseen` where it was made and is absent."""
        applied = self._believed[acted.ref] = _as_applied(acted)
        try:
            after = await self.look(obj)
        finally:
            del self._believed[acted.ref]
        if isinstance(after.observation.state, Unknown):
            raise RuntimeError(f"what was done cannot be read back: {after.observation.state.reason}")
        left = compare(acted.declared, applied, self._completed(after.observation.state, applied), self._schema)
        if left:
            lines = render(left, self.sensitive)[:SHOWN]
            unseen = acted.diff.op is Op.CREATE and isinstance(after.observation.state, Absent)
            if left.op is Op.DELETE:
                raise RuntimeError("it was taken away, but is still there when it is looked at")
            raise (Unseen if unseen else RuntimeError)(f"it was done, but reads back differently: {'; '.join(lines) or left.op}")
        return after

    # Writing

    async def hold_on(self, obj: Object) -> Object:
        """Puts our finalizer on, before anything is made for a resource."""
        finalizers = obj["metadata"].get("finalizers") or []
        if FINALIZER in finalizers:
            return obj
        patch = {
            "metadata": {
                "finalizers": [*finalizers, FINALIZER],
                "resourceVersion": obj["metadata"]["resourceVersion"],
            }
        }
        return await self._patch(obj, patch)

    async def let_go(self, obj: Object) -> None:
        """Takes our finalizer off: nothing of the resource is left."""
        kept = [f for f in obj["metadata"].get("finalizers") or () if f != FINALIZER]
        patch = {"metadata": {"finalizers": kept, "resourceVersion": obj["metadata"]["resourceVersion"]}}
        try:
            await self._patch(obj, patch)
        except ApiError as error:
            if error.reason != "NotFound":
                raise

    async def write_status(self, obj: Object, status: Mapping[str, Any], *, unmoved: bool = False) -> Object:
        """Writes what changed of a status, and nothing where nothing did. `unmoved`: refused where anybody wrote since.

        It names the version that it was made for: only so a namesake that was made meanwhile does not get it. (A server does not
        look at the uid in a patch of the status.) Where others wrote since, it is written all the same, but not over a journal that it was
        made without knowing of: then what was seen was old, and is looked at again.
        """
        for left in range(STATUS_TRIES - 1, -1, -1):
            before, beside = obj.get("status") or {}, self.provider.beside
            if beside:  # what others keep there is neither taken away nor a reason to write
                before, status = ({name: one[name] for name in one if name not in beside} for one in (before, status))
            patch = change_of(before, status)
            told = self.provider.tells(obj, status)
            if told is None or not (patch or told):
                return obj
            patch |= told
            same = {name: obj["metadata"][name] for name in ("uid", "resourceVersion")}
            try:
                return await self._patch(obj, {"metadata": same, "status": patch}, "status")
            except ApiError as error:
                if error.reason != "Conflict" or unmoved or not left:
                    raise
                known, obj = obj, await self.fetch(obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
                if obj["metadata"]["uid"] != known["metadata"]["uid"]:
                    raise not_found(self.info.group, self.info.plural, obj["metadata"]["name"]) from None
                if self.has_aged(known, obj):
                    raise
        raise AssertionError("the last try returns or raises")

    def has_aged(self, known: Object, now: Object) -> bool:
        """Whether what a resource was known as lacks what its journal says by now: a cache was behind, and what follows from it is wrong."""
        before, after = known.get("status"), now.get("status")
        return self.provider.journaled and before is not after and journal_of(before or {}) != journal_of(after or {})

    async def _patch(self, obj: Object, patch: Object, subresource: str = "") -> Object:
        metadata = obj["metadata"]
        return await self.resource.patch(
            metadata["name"],
            patch,
            namespace=metadata.get("namespace", ""),
            subresource=subresource,
            field_manager=MANAGER,
        )


def _as_applied(acted: Seen) -> Mapping[str, Any]:
    """For the comparison after an action: what was declared is what was applied."""
    return {} if isinstance(acted.declared, Absent) else acted.declared


async def _begun(write: Awaitable[Object]) -> Object:
    """A write that comes before an action. Raises `Moved` where others were faster, or the server is out of reach: nothing was done then."""
    try:
        return await write
    except Unreachable as error:
        raise Moved(f"it could not be written down: {error}") from error
    except ApiError as error:
        if error.reason == "Conflict":
            raise Moved("it was written to in the meantime") from error
        raise


def _may_adopt(obj: Object) -> bool:
    return (obj["metadata"].get("annotations") or {}).get(ADOPT) == "true"
