"""What a parent says: its status is the sum of what is known of its children, written where that changed, and not before it is worth saying."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping

from homeostat.client import Key, Packed, Resource
from homeostat.loop.controller import MANAGER
from homeostat.loop.declarations import Object
from homeostat.loop.inmemory import Verified
from homeostat.loop.parents import Parent, is_said, parent_status, under_way
from homeostat.loop.queue import WorkQueue
from homeostat.loop.status import OBSERVED_AT, merge_patch
from homeostat.model.clock import Clock
from homeostat.model.conditions import find_condition
from homeostat.model.errors import ApiError

PATIENCE_SECONDS = 1.0
"""So long a change may take before its parent says that it is under way: most are done by then, and say only that."""
QUEUED_SECONDS = 10.0
"""So long all children may wait to be looked at before their parent says so: where many came at once, the saying makes each wait longer."""
CONFLICT_SECONDS = 0.05
"""After so long it is tried again where somebody else's write came first: the news of it is on its way."""


class ParentReporter:
    """Writes the statuses of a composer's parents; `queue` has those that are to be composed, and reported, again.

    `declared` are the declarations of their children, each with its status, and `verified` the states in which these were last seen to be
    as declared. Both are those of `Composed`, and so is the queue. `kept` are the kinds that a loop keeps.
    """

    def __init__(
        self,
        resource: Resource[Packed],
        queue: WorkQueue[Key],
        declared: Mapping[Key, Object],
        verified: Mapping[Key, Verified],
        kept: Container[str],
        clock: Clock,
    ) -> None:
        self._resource = resource
        self._queue = queue
        self._declared = declared
        self._verified = verified
        self._kept = kept
        self._clock = clock

    async def report(self, known: Parent, obj: Object) -> None:
        """Writes the status of a parent. `obj` is the parent as it was composed."""
        staying: list[Object] = []
        leaving: list[Object] = []
        for child, key in known.declared.items():
            (staying if child in known.wanted else leaving).append(self._declared[key])
        children = [*staying, *leaving]
        seen = len([child for child in children if find_condition(child, "Ready") is not None])
        if not known.problem and seen < len(children):
            told = (obj.get("status") or {}).get("observedGeneration") == obj["metadata"].get("generation", 0)
            if told or (not seen and self._waits(known, QUEUED_SECONDS)):
                return  # what was said before a restart stands until the children were looked at
        now = self._clock.timestamp()
        status = parent_status(
            obj,
            staying,
            leaving,
            now=now,
            desired=len(known.wanted),
            waiting=known.waiting,
            problem=known.problem,
            kept=self._kept,
        )
        before = obj.get("status") or {}
        if status == before:
            return
        status[OBSERVED_AT] = now
        if is_said({"status": status}, "Ready", obj["metadata"]["generation"]):
            verified = {child: one for child, key in known.declared.items() if (one := self._verified.get(key)) is not None}
            status["verified"] = known.digest(verified) if len(verified) == len(known.declared) else None
            self._queue.not_later(known.key)
        elif not known.problem and all(map(under_way, children)) and self._waits(known, PATIENCE_SECONDS):
            return
        metadata = obj["metadata"]
        same = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}  # a namesake made meanwhile does not get it
        try:
            await self._resource.patch(
                metadata["name"],
                {"metadata": same, "status": merge_patch(before, status)},
                namespace=metadata.get("namespace", ""),
                subresource="status",
                field_manager=MANAGER,
            )
        except ApiError as error:
            if error.reason not in ("Conflict", "NotFound"):
                raise
            self._queue.add_after(known.key, CONFLICT_SECONDS)

    def _waits(self, known: Parent, seconds: float) -> bool:
        """Whether it is too early to say that a parent is not done, so many seconds after it was composed; it is looked at then."""
        left = known.composed_at + seconds - asyncio.get_running_loop().time()
        if left > 0:
            self._queue.add_after(known.key, left)
        return left > 0
