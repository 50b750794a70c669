"""All that the governor says and nobody acts on: to those that wait, of what it warns about, and how tenants, pools and nodes stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from homeostat.client import Client, Informer
from homeostat.gpu.controller.notices import Notices
from homeostat.gpu.controller.standing import Object, ended_at, ready
from homeostat.gpu.controller.telling import Teller
from homeostat.gpu.controller.waiting import EVERY_SECONDS, FIRST_AFTER, Waiting
from homeostat.gpu.decisions import Decision, Plan
from homeostat.gpu.kinds import WORKLOAD
from homeostat.gpu.kinds import Phase as Stage
from homeostat.gpu.snapshot import Snapshot
from homeostat.loop.events import About
from homeostat.loop.fleet import Ref
from homeostat.loop.recorder import Recorder
from homeostat.model.clock import Clock, format_micro_time, parse_time

Informers = Mapping[str, Informer[Any]]

_UNDER_WAY = (Stage.STARTING, Stage.SUSPENDING)
_ENDED = (Stage.SUCCEEDED, Stage.FAILED)


class Speaker:
    """What is said of workloads is written by the loop, together with its own words: it asks `words`. All else is written in the background."""

    def __init__(self, client: Client, clock: Clock, manager: str, informers: Informers, ref_of: Callable[[str], Ref | None]) -> None:
        self._clock = clock
        self._informers = informers
        self._ref_of = ref_of
        self._waiting, self._notices = Waiting(), Notices()
        self._teller, self._recorder = Teller(client, clock, manager), Recorder(client, clock)
        self._submitted: dict[str, str] = {}  # by uid, of those whose status does not say so yet
        self._due: set[str] = set()  # by uid: those for whom there are words
        self._busy = False  # with more important work, when it last spoke

    async def run(self) -> None:
        """Writes, until it is cancelled."""
        await self._teller.run()

    async def stop(self) -> None:
        """What was not written yet is lost."""
        await self._recorder.stop()

    # At each cycle

    def speak(self, snapshot: Snapshot, plan: Plan, *, busy: bool) -> Iterable[Ref]:
        """Says what is new; gives those that the loop has to look at for it. `busy`: there is more important work."""
        self._busy = busy
        uids = dict.fromkeys(self._waiting.renew(plan.pending, snapshot.now, busy=busy))
        for notice in self._notices.of(plan, self._about):
            if self._recorder.room(notice.warning):
                self._recorder.record(notice)
        uids |= dict.fromkeys(sorted(self._notices.changed))
        self._teller.tell(snapshot, plan, self._informers, busy=busy)
        self._due.update(uids)
        return [ref for uid in uids if (ref := self._ref_of(uid)) is not None]

    def _about(self, decision: Decision) -> About | None:
        if decision.kind == WORKLOAD.kind:
            ref = self._ref_of(decision.subject)
            return None if ref is None else About(WORKLOAD.api_version, WORKLOAD.kind, ref.namespace, ref.name, ref.uid)
        found = self._informers[decision.kind].get(decision.name) if decision.kind in self._informers else None
        return About(WORKLOAD.api_version, decision.kind, "", decision.name, "" if found is None else found["metadata"]["uid"])

    @property
    def again(self) -> float:
        """After so many seconds it should be asked to speak again, though nothing happens: what is told is to be true."""
        return EVERY_SECONDS if self._waiting.owes or self._busy else math.inf

    # Of one workload

    def has_words(self, uid: str) -> bool:
        """Whether there may be something to say of it that the loop was not asked for yet."""
        return uid in self._due

    def hear(self, obj: Object, came: float | None) -> Mapping[str, Any]:
        """Takes note of a workload that was first heard of at this time. Gives what its status lacks as long as nothing was written there.

        The server says when it was submitted to the second; when it was first heard of says it more exactly.
        """
        uid = obj["metadata"]["uid"]
        if (obj.get("status") or {}).get("submittedAt"):
            self._submitted.pop(uid, None)
            return {}
        if uid not in self._submitted:
            created = parse_time(obj["metadata"]["creationTimestamp"])
            self._submitted[uid] = format_micro_time(created if came is None else min(max(came, created), created + 1))
        return {"submittedAt": self._submitted[uid]}

    def forget(self, uid: str) -> None:
        """It is no more."""
        self._submitted.pop(uid, None)
        self._due.discard(uid)
        self._notices.forget(uid)
        self._waiting.forget(uid)

    def first_words(self, obj: Mapping[str, Any]) -> Object:
        """What stands in every status from the first word on."""
        uid, status = obj["metadata"]["uid"], obj.get("status") or {}
        if status.get("submittedAt") or uid not in self._submitted:
            return {}
        return {"submittedAt": self._submitted[uid]} | ({} if status.get("phase") else {"phase": str(Stage.PENDING)})

    def words(self, obj: Mapping[str, Any], status: Mapping[str, Any], settled: Object | None) -> Object | None:
        """What is told of a workload beside what the loop says in `status`; None: nothing at all is written of it for now.

        `settled` is what follows from the reports of agents. What is on its way was told when that was written; and what has only just
        come, and may be placed in a moment, is told when it is.
        """
        before = obj.get("status") or {}
        self._due.discard(obj["metadata"]["uid"])
        if settled is not None and settled.get("phase") in _ENDED:
            self._end(obj)
        marked = self._notices.conditions(obj, status, self._clock.timestamp())
        more: Object = {} if marked is None else {"conditions": marked}
        if settled is not None:
            return settled | more
        if not more and before.get("phase") in _UNDER_WAY and (ready(before) == ready(status) or self._is_new(before)):
            return None
        if (said := self._waiting.words(obj, self._clock.now())) is not None:
            return self.first_words(obj) | said | more
        return None if not more and not before.get("conditions") and "drift" not in status else more

    def _end(self, obj: Mapping[str, Any]) -> None:
        """Tells of one that ended too late."""
        notice = self._notices.ended(obj, ended_at(obj.get("status") or {}, self._clock.now()))
        if notice is None:
            return
        self._teller.miss(obj["spec"]["tenant"])
        if self._recorder.room(notice.warning):
            self._recorder.record(notice)

    def keeps_silent(self, obj: Object) -> bool:
        """Whether `words` would give None, whatever the loop says, where nothing is settled: it was placed just now, and nothing is to be
        warned of."""
        status = obj.get("status") or {}
        silent = status.get("phase") in _UNDER_WAY and self._is_new(status) and self._notices.is_silent(obj)
        if silent:
            self._due.discard(obj["metadata"]["uid"])
        return silent

    def _is_new(self, status: Mapping[str, Any]) -> bool:
        """Whether it was placed just now: then it is told how that goes when agents say so, or when they do not for a moment."""
        if status.get("conditions") or not status.get("startedAt"):
            return False
        return self._clock.now() - parse_time(status["startedAt"]) < FIRST_AFTER
