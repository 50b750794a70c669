"""A fleet and its ledger: every open difference, and what is being done about it, as plain data that guards can judge.

A fleet is what one policy selects. Nothing here does I/O and nothing waits: `guards` are functions from a `Fleet` and
the time to a verdict, so that a decision can be replayed, explained and simulated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from homeostat.loop.breaker import Breaker, BreakerPolicy, Circuit, Permit

State = Mapping[str, Any]
Invariant = Callable[[Mapping["Ref", State], Mapping["Ref", State]], str | None]
"""Looks at the fleet as it is and as it would be; says what would be broken, or None. Raises `Unanswered` where it cannot tell."""
Health = Callable[[State, State], str]
"""Looks at a declared object and its observed state; says why it does not do its work, or nothing."""


class Unanswered(Exception):
    """An invariant could not be evaluated on this fleet, and why."""


RETURN_PREFIX = "return-of/"
"""How the change set is named that returns another to its last good revision. One that fails is not returned in its
turn."""


class Op(StrEnum):
    """What an action does to the world."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Cause(StrEnum):
    """Why the world differs: the declaration changed, reality changed, or both."""

    INTENT = "intent"
    DRIFT = "drift"
    BOTH = "both"


class Phase(StrEnum):
    """How far an open difference is."""

    OPEN = "open"  # seen, not acted on
    ACTING = "acting"  # an action is under way
    SETTLING = "settling"  # acted on; not yet verified healthy
    FAILED = "failed"  # the last action failed, or what it did was not healthy


class Ref(msgspec.Struct, frozen=True, order=True, gc=False):
    """One declared resource. Identity includes the uid: a reused name is another resource."""

    kind: str  # plural.group
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


class Parts(NamedTuple):
    """What one difference does inside of its thing, where that consists of many: so guards judge it as the fleet that it is.

    `size` counts what there is now; the others what would be made, changed and destroyed. `lost` of what would be made was there when all
    was well last, and nobody knows that it was taken away: its tool's books may be others.
    """

    size: int
    adds: int = 0
    changes: int = 0
    deletions: int = 0
    lost: int = 0


class Drift(msgspec.Struct):
    """One line of the ledger: an open difference between declared and observed.

    `made_from` ties an action to what it was decided on (declared generation, last applied, observed state): if any of
    them moved, the action is no longer this one.
    """

    ref: Ref
    op: Op
    cause: Cause
    since: float  # wall seconds when it was first seen
    made_from: str  # fingerprint of declaration and observation
    generation: int = 0
    paths: tuple[str, ...] = ()  # fields that differ
    changes: tuple[str, ...] = ()  # what becomes what, in lines for people, secrets masked; of what exists and stays
    desired: State | None = None  # what the action leads to, for invariants; None where it deletes
    owned: bool = True  # whether what exists is ours to change; always so for what does not exist yet
    foreign: str = ""  # why this change is another's to make, though the thing is ours
    change_set: str = ""
    by: tuple[str, ...] = ()  # who made it differ, where that is known
    against: str = ""  # whose declaration it takes back, where that is somebody else's
    phase: Phase = Phase.OPEN
    attempts: int = 0
    failures: int = 0  # in a row
    error: str = ""  # why the last action failed
    retry_at: float = 0.0  # not before
    reversals: tuple[float, ...] = ()  # times at which somebody undid what we did
    target: str = ""  # what a circuit breaker protects: a host, an API
    domain: str = ""  # fault domain: a rack, a zone
    permit: Permit | None = None  # the breaker's leave for the action under way
    approved: str = ""  # the `made_from` that a person approved: the approval is for that and nothing else
    part_of: str = ""  # the uid of what it goes with: a parent that is gone, and whose deletion was one
    touches: Op = None  # type: ignore[assignment]  # as what guards count it: its `op`, or CREATE where it harms nothing that exists
    parts: Parts | None = None  # of what consists of many things
    judged_in: str = ""  # the fleet that judges it, where its labels lead to another by now
    unseen: bool = False  # it was made, and was not there when it was looked at

    def __post_init__(self) -> None:
        self.touches = self.touches or self.op

    @property
    def is_approved(self) -> bool:
        return self.approved == self.made_from != ""

    @property
    def lost(self) -> bool:
        """It was made before, and is read as gone."""
        return self.op is _CREATE and self.cause is not _INTENT

    @property
    def in_flight(self) -> bool:
        """Acted on, and its verdict is not there yet."""
        return self.phase is _ACTING or self.phase is _SETTLING

    @property
    def wave(self) -> str:
        """Which waves it goes in: those of its change set, or, where only reality changed, those of repairs (``""``)."""
        return "" if self.cause is _DRIFT else self.change_set or "unnamed"


# Reading a member through its class costs more than the comparison that it is for.
_ACTING, _SETTLING, _DRIFT, _INTENT, _CREATE = Phase.ACTING, Phase.SETTLING, Cause.DRIFT, Cause.INTENT, Op.CREATE
_CLOSED = Breaker()
_FREE = Permit(_CLOSED.epoch)


PASSING = frozenset(("cap", "canary", "domain", "backoff", "wave"))
"""Guards whose holds pass by themselves, unless they name a plan."""


class Hold(msgspec.Struct, frozen=True):
    """Why a difference is not acted on now, in words for people, and when to look again (0: when something changes)."""

    guard: str
    reason: str
    until: float = 0.0
    plan: str = ""  # approving this plan lets it through
    lasts: bool = False  # though what its guard holds passes by itself, as a rule

    @property
    def passes(self) -> bool:
        """Whether it ends by itself, as waves are verified and time goes by: nobody need do anything."""
        return self.guard in PASSING and not (self.plan or self.lasts)


class Halt(msgspec.Struct, frozen=True):
    """A guard closed the gate: for the existing things of the whole fleet, or for one change set.

    It ends by a fix, or by an approval of exactly this plan.
    """

    guard: str
    reason: str
    since: float
    plan: str  # hash of the plan that was refused
    what_to_do: str = ""
    change_set: str = ""  # what it closes the gate for; empty: the fleet
    calm: int = -1  # how many passes had begun when its cause was first seen gone; -1: it is still there


class Return(msgspec.Struct, frozen=True):
    """A change set failed and its policy wants the last good revision back. `guards.returning` writes it, as a change set of
    its own."""

    change_set: str
    reason: str


class Taken(NamedTuple):
    """How it stands with the return of a change set, in words that go on a sentence, and since when (wall seconds)."""

    words: str
    at: float
    under_way: bool = False


class Grant(NamedTuple):
    """The approval that a change set carries: so many changes and deletions its author was shown and said yes to."""

    changes: int = 0
    deletions: int = 0


class Whole(NamedTuple):
    """What a policy selects beside a fleet of its, where others select a part of the same; and its limits, which are on all of it."""

    policy: str
    size: int
    changes: int  # open there, or touched there by a change set that is open, and approved by nobody
    deletions: int
    limit: int | str  # of mass drift
    fleet_of: int
    confirm_above: int | str


class Acted(NamedTuple):
    """What a wave did to a member, when, and whether a person had approved exactly that."""

    op: Op
    at: float
    approved: bool = False


class Wave(msgspec.Struct):
    """What is acted on together. It ends when all of it was read back and is healthy; then the next begins.

    Only what existed before is in it: creations harm nothing, and nobody waits for them.
    """

    number: int
    change_set: str
    members: dict[Ref, Acted] = msgspec.field(default_factory=dict)
    verified: set[Ref] = msgspec.field(default_factory=set)
    failed: set[Ref] = msgspec.field(default_factory=set)
    started: float = 0.0
    behind: dict[Ref, Acted] = msgspec.field(default_factory=dict)  # verified in the waves of this change set before

    @property
    def done(self) -> bool:
        return self.members.keys() <= self.verified | self.failed

    @property
    def healthy(self) -> dict[Ref, Acted]:
        """All that was verified in this wave and those before it."""
        return self.behind | {ref: acted for ref, acted in self.members.items() if ref in self.verified}

    def outstanding(self) -> Iterator[tuple[Ref, Acted]]:
        """Members without a verdict."""
        return ((r, a) for r, a in self.members.items() if r not in self.verified and r not in self.failed)

    def overdue(self, now: float, within: float) -> list[Ref]:
        """Members whose verdict did not come in time (seconds). A missing verdict is a failure."""
        return [ref for ref, acted in self.outstanding() if now - acted.at > within]


class Ended(NamedTuple):
    """A wave of a change set that is over: how many were in it, and how it went."""

    change_set: str
    number: int
    members: int
    verified: int
    failed: int
    started: float


ENDED_KEPT = 64
"""Waves that are over, of each fleet."""


class Fleet(msgspec.Struct):
    """Everything one policy selects, as the guards see it.

    Guards only read it. It changes by what the engine reports: `take` a verdict, `begin` an action, `verified`, `failed`,
    `forget`, `pass_begun`, `pass_done`.
    """

    name: str
    size: int  # resources that exist, or should; those `aside` are not counted
    drifts: dict[Ref, Drift] = msgspec.field(default_factory=dict)
    aside: set[Ref] = msgspec.field(default_factory=set)  # declared, and not among those that exist at present
    unknown: dict[Ref, str] = msgspec.field(default_factory=dict)  # unreadable, and why
    unhealthy: dict[Ref, str] = msgspec.field(default_factory=dict)  # as declared and not at work; by which change set
    in_spite: dict[Ref, str] = msgspec.field(default_factory=dict)  # of these, those in spite of which a person let their change set go on
    in_doubt: set[Ref] = msgspec.field(default_factory=set)  # repaired by a loop that ended before it was seen well, and not well since
    waves: dict[str, Wave] = msgspec.field(
        default_factory=dict
    )  # under way or failed, by change set; drift of reality under ""
    passed: dict[str, Wave] = msgspec.field(
        default_factory=dict
    )  # the last wave that ended well, by change set, till a pass is done
    moving: dict[Ref, str] = msgspec.field(default_factory=dict)  # not as declared, and its labels lead to another fleet; which
    ended: deque[Ended] = msgspec.field(default_factory=lambda: deque(maxlen=ENDED_KEPT))  # of change sets, the last last
    halts: dict[str, Halt] = msgspec.field(default_factory=dict)  # by guard and what it is about
    doubted: frozenset[Op] = frozenset()  # of which more failed than the cap: what was approved before is so no more
    approvals: frozenset[str] = frozenset()  # plan hashes that a person approved, each good once
    grants: dict[str, Grant] = msgspec.field(default_factory=dict)  # what is left of the approvals that change sets carry
    wholes: tuple[Whole, ...] = ()  # what its policies select beside it; the gate's to say
    shown_at: float = 0.0  # when something that was lost was last made again, and could be seen
    gathering: Mapping[str, float] = msgspec.field(default_factory=dict)  # change sets still coming in, and how long they are awaited
    returned: Mapping[str, Taken] = msgspec.field(default_factory=dict)  # change sets whose return was asked for; the gate's to say
    interrupted: Mapping[str, float] = msgspec.field(default_factory=dict)  # change sets whose wave a crash cut off, and when it began; the gate's to say
    domains_busy: frozenset[str] = frozenset()  # fault domains that something else is at work in
    breakers: dict[str, Breaker] = msgspec.field(default_factory=dict)  # by target, of those that failed and did not work since
    limits: BreakerPolicy = msgspec.field(default_factory=BreakerPolicy)  # when they open; the gate's to say
    invariants: tuple[Invariant, ...] = ()  # the gate's to say, as is `health`
    health: tuple[Health, ...] = ()
    observed: dict[Ref, State] = msgspec.field(default_factory=dict)  # what exists, for invariants; empty where there are none
    stock_since: int = 0  # how many passes had begun when `observed` began to be kept
    passes_begun: int = 0
    passes_done: int = 0  # full looks at every resource, the first one after a start included
    at_most: int = 0  # how many it may turn out to have when the first look is done: all that is declared of a kind of its

    @property
    def seen_whole(self) -> bool:
        """Whether everything was looked at since `observed` is kept: before, it is a part and says nothing."""
        return self.passes_done > self.stock_since

    def open_drifts(self, *ops: Op) -> list[Drift]:
        return [d for d in self.drifts.values() if not ops or d.op in ops]

    def take(self, verdict: Verdict) -> None:
        """Enters a verdict: halts as they stand now, approvals used up, and what they were used for."""
        for change_set in verdict.forgiven & self.waves.keys():
            self._end(self.waves[change_set])
        self.halts = dict(verdict.halts)
        self.approvals -= verdict.used
        self.grants.update(verdict.grants)
        known = self.in_spite | verdict.in_spite
        self.in_spite = {ref: change_set for ref, change_set in known.items() if self.unhealthy.get(ref) == change_set}
        for drift in self.drifts.values() if verdict.doubted - self.doubted else ():
            if drift.touches in verdict.doubted - self.doubted and drift.phase is Phase.OPEN:
                drift.approved = ""
        self.doubted = frozenset(verdict.doubted)
        for ref in verdict.approved & self.drifts.keys():
            self.drifts[ref].approved = self.drifts[ref].made_from

    def begin(self, drift: Drift, now: float) -> None:
        """An allowed difference is being acted on: it joins the wave under way, or the next one."""
        drift.phase = _ACTING
        drift.attempts += 1
        if (breaker := self.breakers.get(drift.target)) is not None:
            self.breakers[drift.target], answer = breaker.ask(self.limits, now)
            drift.permit = answer if isinstance(answer, Permit) else None
        else:
            drift.permit = _FREE
        if drift.touches is _CREATE:
            return
        key = drift.wave
        wave = self.waves.get(key)
        if wave is None:
            last = self.passed.get(key)
            number, behind = (last.number + 1, last.healthy if key else {}) if last else (1, {})
            wave = self.waves[key] = Wave(number, key, started=now, behind=behind)
        wave.members[drift.ref] = Acted(drift.touches, now, drift.is_approved)
        wave.verified.discard(drift.ref)
        wave.failed.discard(drift.ref)

    def answered(self, drift: Drift, now: float, worked: bool | None, reason: str = "") -> None:
        """What became of an action says how its target is: it works, it does not, or (None) nothing can be said."""
        permit, drift.permit = drift.permit, None
        breaker = self.breakers.get(drift.target, _CLOSED)
        if permit is None or (breaker is _CLOSED and worked is not False):
            return
        if worked is None:
            after = breaker.dropped(permit, self.limits)
        elif worked:
            after = breaker.succeeded(permit, now)
        else:
            after = breaker.failed(permit, self.limits, now, reason)
        if after.circuit is Circuit.CLOSED and not after.failures:
            self.breakers.pop(drift.target, None)
        else:
            self.breakers[drift.target] = after

    def verified(self, ref: Ref) -> None:
        """It was read back as declared, and healthy: the difference is closed."""
        drift = self.drifts.pop(ref, None)
        if drift is None or (wave := self.waves.get(drift.wave)) is None or ref not in wave.members:
            return
        wave.failed.discard(ref)
        wave.verified.add(ref)
        if wave.done and (not wave.failed or not wave.change_set):
            self._end(wave)

    def failed(self, ref: Ref, retry_at: float = 0.0) -> None:
        """The action failed, or what it did was not healthy, or nothing was heard of it in time."""
        drift = self.drifts[ref]
        drift.phase = Phase.FAILED
        drift.failures += 1
        drift.retry_at = retry_at
        wave = self.waves.get(drift.wave)
        if wave is None or ref not in wave.members:
            return
        wave.failed.add(ref)
        if wave.done and not wave.change_set:  # repairs go on; a change set with a failure waits for a person
            self._end(wave)

    def forget(self, ref: Ref) -> None:
        """The difference is moot: the declaration is gone, or a newer one took its place."""
        drift = self.drifts.pop(ref, None)
        if drift is None or (wave := self.waves.get(drift.wave)) is None:
            return
        wave.members.pop(ref, None)
        wave.failed.discard(ref)
        if wave.done and not wave.failed:
            self._end(wave)

    def clock_set(self, by: float) -> None:
        """The wall clock was set, by so many seconds: what began so long ago, or is to wait so long, still did and does."""
        for drift in self.drifts.values():
            drift.since += by
            drift.retry_at += by if drift.retry_at else 0.0
            drift.reversals = tuple(at + by for at in drift.reversals)
        for wave in (*self.waves.values(), *self.passed.values()):
            wave.started += by
            for acted in (wave.members, wave.behind):
                acted.update({ref: one._replace(at=one.at + by) for ref, one in acted.items()})
        self.shown_at += by if self.shown_at else 0.0
        self.halts = {key: replace(halt, since=halt.since + by) for key, halt in self.halts.items()}
        self.breakers = {target: replace(one, since=one.since + by) for target, one in self.breakers.items()}

    def pass_begun(self) -> None:
        """A full look at every resource of the fleet begins."""
        self.passes_begun += 1

    def pass_done(self) -> None:
        """The full look is complete. What is known of change sets that have nothing open any more is forgotten."""
        self.passes_done = self.passes_begun
        alive = {drift.wave for drift in self.drifts.values()} | {""} | self.gathering.keys()
        for waves in (self.waves, self.passed):
            for key in waves.keys() - alive:
                del waves[key]
        for key in self.grants.keys() - alive:
            del self.grants[key]
        if (repairs := self.waves.get("")) is not None:
            for ref in [ref for ref, _ in repairs.outstanding() if not self._under_way(ref)]:
                del repairs.members[ref]  # its verdict got lost, and this pass has looked at it
            if repairs.done:
                self._end(repairs)

    def _under_way(self, ref: Ref) -> bool:
        drift = self.drifts.get(ref)
        return drift is not None and drift.in_flight

    def _end(self, wave: Wave) -> None:
        del self.waves[wave.change_set]
        self.passed[wave.change_set] = wave
        if wave.change_set:  # of repairs nobody asks how they went
            self.ended.append(Ended(wave.change_set, wave.number, len(wave.members), len(wave.verified), len(wave.failed), wave.started))


class Verdict(msgspec.Struct):
    """What may be done now, what not and why, and which halts stand after this look."""

    allowed: list[Drift] = msgspec.field(default_factory=list)
    held: dict[Ref, Hold] = msgspec.field(default_factory=dict)
    halts: dict[str, Halt] = msgspec.field(default_factory=dict)
    returns: list[Return] = msgspec.field(default_factory=list)  # change sets to bring back to their last good revision
    approved: set[Ref] = msgspec.field(default_factory=set)  # what an approval was used for in this look
    used: set[str] = msgspec.field(default_factory=set)  # plan hashes of approvals that are used up by it
    grants: dict[str, Grant] = msgspec.field(default_factory=dict)  # what is left of the approvals of change sets
    forgiven: set[str] = msgspec.field(default_factory=set)  # change sets that a person lets go on in spite of their failures
    doubted: set[Op] = msgspec.field(default_factory=set)  # of which more failed than the cap
    in_spite: dict[Ref, str] = msgspec.field(default_factory=dict)  # what is ill, and the change set that a person lets go on all the same

    def hold(self, drifts: Iterable[Drift], guard: str, reason: str, until: float = 0.0, plan: str = "") -> None:
        """Takes these out of what is allowed."""
        gone = {id(d) for d in drifts}
        if gone:
            hold = Hold(guard, reason, until, plan)
            self.sift(lambda d: hold if id(d) in gone else None)

    def hold_all(self, guard: str, reason: str, until: float = 0.0) -> None:
        """Allows nothing."""
        self.held.update(dict.fromkeys((d.ref for d in self.allowed), Hold(guard, reason, until)))
        self.allowed = []

    def sift(self, judged: Callable[[Drift], Hold | None]) -> None:
        """Asks of each that is still allowed; those with an answer are held for it."""
        kept = []
        for drift in self.allowed:
            hold = judged(drift)
            if hold is None:
                kept.append(drift)
            else:
                self.held[drift.ref] = hold
        self.allowed = kept

    def explain(self) -> Mapping[Ref, Hold]:
        return self.held


def plan_hash(drifts: Iterable[Drift]) -> str:
    """The name of exactly this plan: which resources, what is done to them, and what that was decided on. A plan to do nothing has none:
    there is nothing to approve."""
    import hashlib

    lines = sorted(f"{d.op}\0{d.ref}\0{d.ref.uid}\0{d.made_from}" for d in drifts)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] if lines else ""


def share(limit: int | str, size: int) -> int:
    """A limit as a count: a number, or a percentage of the fleet rounded down, and never below 1."""
    if isinstance(limit, int):
        return limit
    if limit.endswith("%"):
        return max(1, int(float(limit[:-1]) * size / 100))
    return int(limit)
