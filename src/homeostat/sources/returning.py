"""Brings Syncs back to their last good commit where a commit failed, and the Sync or the GuardPolicy says so. They hold there."""

from __future__ import annotations

import asyncio
import logging

from homeostat.client import Client, Key, Unreachable
from homeostat.loop.controller import MANAGER
from homeostat.loop.fleet import RETURN_PREFIX, Fleet, Verdict
from homeostat.loop.listener import Listener
from homeostat.model.errors import ApiError
from homeostat.sources.goals import SHORT
from homeostat.sources.kinds import API
from homeostat.sources.status import last_good
from homeostat.sources.synced import Synced

log = logging.getLogger("homeostat.sources")

CANARY = "canary"
REASON_LENGTH = 1000


class Returning(Listener):
    """Hears of the verdicts of the guards. A commit that its canary halts has failed; to go back from one is a change set of its own."""

    def __init__(self, client: Client, synced: Synced) -> None:
        self._resource = client.kind(API, "Sync")
        self._synced = synced
        self._begun: set[tuple[Key, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def decided(self, fleet: Fleet, verdict: Verdict, seconds: float) -> None:
        if not verdict.halts and not verdict.returns:
            return
        failed = {
            halt.change_set: (halt.reason, False)
            for halt in verdict.halts.values()
            if halt.guard == CANARY and halt.change_set
        }
        failed |= {one.change_set: (one.reason, True) for one in verdict.returns}
        for change_set, (reason, by_policy) in failed.items():
            if change_set.startswith(RETURN_PREFIX):
                continue
            for key in self._synced.at(change_set):
                if (key, change_set) not in self._begun:
                    self._begun.add((key, change_set))
                    self._spawn(key, change_set, reason, by_policy)

    def _spawn(self, key: Key, change_set: str, reason: str, by_policy: bool) -> None:
        task = asyncio.get_running_loop().create_task(
            self._bring_back(key, change_set, reason, by_policy), name=f"return of {key}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bring_back(self, key: Key, change_set: str, reason: str, by_policy: bool) -> None:
        try:
            obj = await self._resource.get(key.name, namespace=key.namespace)
            failed = self._synced.commit_of(key)
            good = last_good((obj.get("status") or {}).get("history") or (), failed)
            if not (by_policy or (obj.get("spec") or {}).get("returnOnFailure")) or not good:
                return
            hold = {"commit": good, "notPast": failed, "reason": f"automatic return: {reason}"[:REASON_LENGTH]}
            patch = {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}, "spec": {"hold": hold}}
            await self._resource.patch(key.name, patch, namespace=key.namespace, field_manager=f"{MANAGER}-return")
            log.warning("Sync %s goes back from %s to %s: %s", key, failed[:SHORT], good[:SHORT], reason)
        except (ApiError, Unreachable) as error:
            self._begun.discard((key, change_set))  # the next decision tries again
            log.warning("Sync %s could not be brought back: %s", key, error)
