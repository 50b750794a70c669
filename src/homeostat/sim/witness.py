"""Who sees everything: what is stored, read, decided, claimed and done. It notes at once what never may be.

What it knows it has from the store's own log and from the world, never from the loop's copies, so it knows better than the loop.

- *Ready is never wrong.* Who reports Ready for a generation has read the thing before, and that read showed it as that generation
  declares it; and in the store no Ready stands for a generation that no read since its declaration has shown.
- *Nothing is done past the gate.* Every act has a verdict of its own that let it through, and the last read of the thing succeeded
  and is fresh. No verdict lets through what is frozen, only observed, or unknown.
- *The cap of a wave holds.* No more existing things are touched and not yet read back as healthy than the policy says.
- *An approval is used once*, but for a loop that died before it could write that down.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from homeostat.guards.freeze import covers, standing
from homeostat.guards.gate import PolicyGate
from homeostat.guards.policy import GuardPolicy, Mode
from homeostat.loop.fleet import Drift, Fleet, Op, Verdict
from homeostat.model.conditions import find_condition
from homeostat.sim.boxes import wanted_labels
from homeostat.sim.world import GROUP, Fields, World
from homeostat.store import Event

THINGS, BOXES, LABELS = f"things.{GROUP}", f"boxes.{GROUP}", "configmaps"
POLICIES, APPROVALS = "guardpolicies.homeostat.dev", "approvals.homeostat.dev"
FRESH_SECONDS = 15.0
"""How old a read may be when its thing is acted on: the answer to the journal may be late, and asked for again."""
CLOSING_SECONDS = 15.0
"""How long after the loop knows of a freeze an act may still begin that was let through before."""
READS_KEPT = 50
_STATUS = re.compile(rf"/apis/{re.escape(GROUP)}/v1/namespaces/default/things/([^/?]+)/status(?:\?|$)")

Generation = tuple[str, int]
"""The uid of a resource, and the generation of its declaration."""


class Witness:
    """One for a house. `objects` is what is stored, by kind and name; `declared` of the world is kept from here."""

    def __init__(self, world: World) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {
            kind: {} for kind in (THINGS, BOXES, LABELS, POLICIES, APPROVALS)
        }
        self.revision = 0
        self.written: list[Event] | None = None
        """What is stored from now on, where somebody wants to know."""
        self._world = world
        self._digest = hashlib.sha256()
        self._generations: dict[Generation, tuple[float, Fields | None]] = {}
        self._right: dict[Generation, set[str]] = {}  # of boxes: labels that were, at some moment since, as they should be
        self._labels: dict[str, set[str]] = {}  # all that a box, by its uid, ever had
        self._meant: dict[str, dict[int, dict[str, str]]] = {}  # labels by box and generation
        self._seen: dict[str, list[tuple[float, Fields | None]]] = {}  # what reads showed, whoever read
        self._read: dict[str, tuple[float, bool, Fields | None]] = {}  # the last read by the loop that lives, and whether it worked
        self._allowed: Counter[tuple[str, str]] = Counter()  # verdicts that let something be done, and of which nothing came yet
        self._closed: float | None = None  # since when the loop knows that nothing may be done
        self._touched: dict[Op, set[str]] = {}
        self._granted: dict[str, set[str]] = {}  # by plan: the approvals that people gave
        self._used: dict[str, int] = {}
        self._unsaid: set[str] = set()  # plans that were used, and of which no approval says so yet
        self.guarded = False
        """Whether the loop that lives has a gate that reports its verdicts here."""

    @property
    def trace(self) -> str:
        """The same for every run of the same seed: a digest of all that was ever stored."""
        return self._digest.hexdigest()[:12]

    # What is stored

    def stored(self, events: Sequence[Event], revision: int) -> None:
        """Told of every commit, in order."""
        self.revision = revision
        if self.written is not None:
            self.written += events
        for event in events:
            self._digest.update(b"%d %s\n" % (event.revision, event.key.encode()) + (event.value or b""))
            kind, _, rest = event.key.partition("/")
            known = self.objects.get(kind)
            if known is None:
                continue
            name = rest.rpartition("/")[2]
            before = known.pop(name, None)
            obj: dict[str, Any] | None = orjson.loads(event.value) if event.value is not None else None
            if obj is not None:
                known[name] = obj
            if kind == THINGS:
                self._thing(name, before, obj)
            elif kind in (BOXES, LABELS):
                self._boxes(obj if kind == BOXES else None)
            elif kind == APPROVALS and obj is not None:
                plan = obj["spec"]["plan"]
                self._granted.setdefault(plan, set()).add(obj["metadata"]["uid"])
                if (obj.get("status") or {}).get("used"):
                    self._unsaid.discard(plan)

    def _thing(self, name: str, before: dict[str, Any] | None, obj: dict[str, Any] | None) -> None:
        now = self._now()
        uid = (obj or before or {})["metadata"]["uid"]
        gone = obj is None or "deletionTimestamp" in obj["metadata"]
        fields = None if obj is None or gone else declared_fields(obj)
        history = self._world.declared.setdefault(name, [])
        if not history or history[-1][1:] != (uid, fields):
            history.append((now, uid, fields))
        if obj is None:
            return
        self._generations.setdefault((uid, obj["metadata"]["generation"]), (now, fields))
        ready = find_condition(obj, "Ready")
        if ready is None or ready["status"] != "True" or ready == find_condition(before or {}, "Ready"):
            return
        since, declared = self._generations.get((uid, ready.get("observedGeneration", 0)), (0.0, None))
        if not any(at >= since and shown == declared for at, shown in self._seen.get(name, ())):
            self._world.wrong(f"{name} ({uid}) says Ready for {declared}, and nobody has seen it so since that was declared")

    def _boxes(self, written: dict[str, Any] | None) -> None:
        for box in self.objects[BOXES].values():
            meant = self._meant.setdefault(box["metadata"]["uid"], {})
            meant[box["metadata"]["generation"]] = wanted_labels(box)
            found = labels_of(box, self.objects[LABELS])
            ever = self._labels.setdefault(box["metadata"]["uid"], set())
            ever |= found.keys()
            # Each was seen at its own moment; and what was begun may end after the next edit.
            for number, wanted in meant.items():
                right = self._right.setdefault((box["metadata"]["uid"], number), set())
                right |= {name for name in ever | wanted.keys() if found.get(name) == wanted.get(name)}
        ready = find_condition(written, "Ready") if written is not None else None
        if written is None or ready is None or ready["status"] != "True":
            return
        name, uid = written["metadata"]["name"], written["metadata"]["uid"]
        number = ready.get("observedGeneration", 0)
        wanted = self._meant.get(uid, {}).get(number, {})
        if wrong := sorted((self._labels.get(uid, set()) | wanted.keys()) - self._right.get((uid, number), set())):
            self._world.wrong(f"{name} ({uid}) says Ready, and these were never as they should be: {wrong}")

    # What the loop claims

    def sent(self, method: str, target: str, body: bytes) -> None:
        """Told of every request of the loop, before it goes its way."""
        if method != "PATCH" or (found := _STATUS.search(target)) is None:
            return
        patch = orjson.loads(body)
        ready = find_condition(patch, "Ready")
        if ready is None or ready["status"] != "True":
            return
        name, uid = found[1], (patch.get("metadata") or {}).get("uid", "")
        _, declared = self._generations.get((uid, ready.get("observedGeneration", 0)), (0.0, None))
        at, worked, shown = self._read.get(name, (0.0, False, None))
        if declared is None or not worked or shown != declared:
            what = shown if worked else "not readable"
            self._world.wrong(f"{name} ({uid}) is reported Ready for {declared}; it was {what} when it was read last, at {at:.3f}")

    # What the loop reads, decides and does

    def started(self, guarded: bool) -> None:
        """A new loop begins, and knows nothing."""
        self._read.clear()
        self._allowed.clear()
        self._touched.clear()
        self._closed = None
        self.guarded = guarded
        for plan in self._unsaid:
            self._used[plan] -= 1  # it died before it could say so: the next may use it again
        self._unsaid.clear()

    def read(self, name: str, worked: bool, shown: Fields | None = None, sick: str = "") -> None:
        """Told when a read ends. None was shown: there is no such thing."""
        now = self._now()
        self._read[name] = (now, worked, shown)
        if worked:
            kept = self._seen.setdefault(name, [])
            kept.append((now, shown))
            del kept[:-READS_KEPT]
        if not sick:
            for touched in self._touched.values():
                touched.discard(name)

    def called(self, op: Op, name: str, uid: str) -> None:
        """Told when a call that changes the world begins."""
        now = self._now()
        if op is not Op.CREATE:
            touched = self._touched.setdefault(op, set())
            touched.add(name)
            if len(touched) > self._world.cap:
                self._world.wrong(f"{sorted(touched)} are touched and not read back, more than {self._world.cap}")
        if not self.guarded:
            return
        self._allowed[name, uid] -= 1
        if self._allowed[name, uid] < 0:
            self._world.wrong(f"to {op} {name} for {uid} was never let through")
        at, worked, _ = self._read.get(name, (-1.0, False, None))
        if not worked or now - at > FRESH_SECONDS:
            self._world.wrong(f"to {op} {name} goes by a read that {'is old' if worked else 'failed'}, at {at:.3f}")
        if self._closed is not None and now - self._closed > CLOSING_SECONDS:
            self._world.wrong(f"to {op} {name} though all is frozen or only observed, as the loop knows since {self._closed:.3f}")

    def failed(self, name: str) -> None:
        """A call ended without having worked, as far as the loop knows."""
        for touched in self._touched.values():
            touched.discard(name)

    def judged(self, policy: GuardPolicy, fleet: Fleet, verdict: Verdict, wall: float) -> None:
        """Told of every verdict, as it is given."""
        self._heard_of(policy, wall)
        for drift in verdict.allowed:
            self._let_through(policy, fleet, drift, wall)
        for plan in verdict.used:
            self._used[plan] = self._used.get(plan, 0) + 1
            self._unsaid.add(plan)
            if self._used[plan] > len(self._granted.get(plan, ())):
                self._world.wrong(f"plan {plan} was let through {self._used[plan]} times, approved {self._granted.get(plan)}")

    def _heard_of(self, policy: GuardPolicy, wall: float) -> None:
        """The loop knows this policy now."""
        wide = [freeze for freeze in standing(policy, wall) if not (freeze.kinds or freeze.namespaces or freeze.names)]
        closed = policy.mode is Mode.OBSERVE or bool(wide)
        self._closed = (self._now() if self._closed is None else self._closed) if closed else None

    def _let_through(self, policy: GuardPolicy, fleet: Fleet, drift: Drift, wall: float) -> None:
        ref = drift.ref
        if policy.mode is Mode.OBSERVE or any(covers(freeze, ref) for freeze in standing(policy, wall)):
            self._world.wrong(f"{drift.op} {ref} was let through though it is frozen or only observed")
        if ref in fleet.unknown:
            self._world.wrong(f"{drift.op} {ref} was let through though it is unknown: {fleet.unknown[ref]}")
        if ref.kind == THINGS:
            self._allowed[ref.name, ref.uid] += 1

    def admitted(self, policy: GuardPolicy, fleet: Fleet, drift: Drift, wall: float) -> None:
        """Told of every creation that is let through by itself."""
        self._heard_of(policy, wall)
        self._let_through(policy, fleet, drift, wall)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class WatchedGate(PolicyGate):
    """The gate by policies, with a witness who hears every verdict."""

    def __init__(self, witness: Witness, mode: Mode) -> None:
        super().__init__(mode=mode)
        self._witness = witness

    def judge(self, fleet: Fleet, now: float) -> Verdict:
        verdict = super().judge(fleet, now)
        self._witness.judged(self.policy(fleet), fleet, verdict, now)
        return verdict

    def admits(self, fleet: Fleet, drift: Drift, now: float) -> bool:
        admitted = super().admits(fleet, drift, now)
        if admitted:
            self._witness.admitted(self.policy(fleet), fleet, drift, now)
        return admitted


def declared_fields(obj: Mapping[str, Any]) -> Fields:
    """What of a declaration can be seen in the world."""
    return {name: value for name, value in obj["spec"].items() if name in ("colour", "size")}


def labels_of(box: Mapping[str, Any], labels: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The text of each label that a box has, by the name of its object."""
    uid, found = box["metadata"]["uid"], {}
    for name, obj in labels.items():
        if any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences") or ()):
            found[name] = obj["data"]["text"]
    return found
