"""Posts how Syncs stand as statuses of their commits, where a GitSource says so: applied, refused, held, drifted, taken back.

    Synced: a new status ─▶ reports_of: what there is to say ─▶ WriteBack: after a moment's calm, once, again until it was taken

What was said is kept in the status of the Sync, so a restart repeats nothing. Names of objects go out, what is in them does not. A receiver
that is slow, gone or refuses holds nothing up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from homeostat.client import Client, Key
from homeostat.guards.policy import SecretReference
from homeostat.guards.posting import AGAIN, Hosts, NotDelivered, Poster
from homeostat.loop.events import masked
from homeostat.loop.parents import child_is
from homeostat.loop.queue import WorkQueue
from homeostat.model.clock import Clock
from homeostat.model.conditions import find_condition
from homeostat.sources.goals import SHORT
from homeostat.sources.kinds import WriteBack as Declared

log = logging.getLogger("homeostat.sources")

VERSION = "homeostat.dev/commit-status/v1"
WORKERS = 4
CALM_SECONDS = 2.0
"""So long a state has to last before it is told: most drift is repaired by then, and nobody's commit turns red for it."""
KEPT = 4
"""Of so many commits of a Sync it is known what was told last."""
NAMED = 20
"""So many objects are named to a receiver of the generic form."""
DESCRIPTION_LENGTH = 140
"""What GitHub takes."""

_GITLAB = {"success": "success", "pending": "pending", "failure": "failed"}

Object = dict[str, Any]


class Report(NamedTuple):
    """What there is to say about a commit."""

    commit: str
    state: str
    """`pending`, `success` or `failure`."""
    description: str
    objects: tuple[str, ...] = ()
    """Which are not as declared."""


def reports_of(sync: Mapping[str, Any], late: Sequence[str]) -> list[Report]:
    """What a Sync says of commits, by its spec and status; `late` are its objects that were seen not to be as declared. Pure.

    Where nothing newer can be had of a source, that says nothing about any commit; nor does what was not looked at after a restart.
    """
    status, hold = sync.get("status") or {}, (sync.get("spec") or {}).get("hold")
    ready = find_condition(sync, "Ready") or {}
    reason, goal, refused = ready.get("reason"), status.get("goal") or "", status.get("refused")
    found = []
    if refused:
        place = ":".join(str(refused[name]) for name in ("file", "line") if refused.get(name))
        said = masked(f"refused: {f'{place}: ' if place else ''}{refused['message']}")
        found.append(Report(refused["commit"], "failure", said))
    elif ready.get("status") == "True" and status.get("commit"):
        count = (status.get("objects") or {}).get("desired", 0)
        found.append(Report(status["commit"], "success", f"applied: {count} objects are as declared"))
    elif reason in ("ObjectsHeld", "ObjectsNotReady") and goal and (late or status.get("commit") != goal):
        found.append(_unfinished(sync, goal, reason, late))
    if hold and goal == hold.get("commit") != hold.get("notPast"):
        why = f": {hold['reason']}" if hold.get("reason") else ""
        found.append(Report(hold["notPast"], "failure", masked(f"taken back to {goal[:SHORT]}{why}")))
    return [one._replace(description=_short(one.description)) for one in found]


def _unfinished(sync: Mapping[str, Any], goal: str, reason: str, late: Sequence[str]) -> Report:
    status = sync["status"]
    drifted, held = status.get("commit") == goal, reason == "ObjectsHeld"
    names = ", ".join(late[:3]) + (f" and {len(late) - 3} more" if len(late) > 3 else "")
    what = "drift" if drifted else "not yet applied"
    said = f"{what}: {'guards hold ' if held else ''}{names or 'nothing is looked at yet'}"
    bad = child_is(sync, "Degraded") or (drifted and held)
    return Report(goal, "failure" if bad else "pending", said, tuple(late[:NAMED]))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= DESCRIPTION_LENGTH else line[: DESCRIPTION_LENGTH - 1] + "…"


def message(form: str, report: Report, sync: Key, source: str, link: str, at: str) -> Object:
    """A report in the form that a receiver takes."""
    context = f"homeostat/{sync.namespace}/{sync.name}"
    where = {"target_url": link} if link else {}
    if form == "GitHub":
        return {"state": report.state, "description": report.description, "context": context, **where}
    if form == "GitLab":
        return {"state": _GITLAB[report.state], "description": report.description, "name": context, **where}
    return {
        "version": VERSION,
        "commit": report.commit,
        "state": report.state,
        "description": report.description,
        "context": context,
        "sync": f"{sync.namespace}/{sync.name}",
        "source": source,
        "objects": list(report.objects),
        "link": link,
        "sent": at,
    }


class _Desk(msgspec.Struct):
    """What is told of one Sync: whereto, what is owed, and what was said of which commit, the newest last."""

    uid: str
    to: Declared
    source: str
    owed: dict[str, Report] = msgspec.field(default_factory=dict)
    said: dict[str, Report] = msgspec.field(default_factory=dict)
    failures: int = 0
    error: str = ""


class WriteBack:
    """Delivers. `start` and `stop` it. `changed` hears of a Sync whose status has something new to show."""

    def __init__(self, client: Client, clock: Clock, hosts: Hosts, changed: Callable[[Key], None]) -> None:
        self._poster = Poster(client, hosts)
        self._clock = clock
        self._changed = changed
        self._random = client.random
        self._desks: dict[Key, _Desk] = {}
        self._queue: WorkQueue[Key] = WorkQueue(source=client.random)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._work(), name=f"write back {number}") for number in range(WORKERS)]

    async def stop(self) -> None:
        self._queue.close(drain=False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._poster.close()

    def forget(self, key: Key) -> None:
        self._desks.pop(key, None)

    def tell(self, key: Key, to: Declared | None, sync: Mapping[str, Any], late: Iterable[str]) -> None:
        """Takes note of how a Sync stands. Never waits, never fails."""
        if to is None:
            self.forget(key)
            return
        desk, uid = self._desks.get(key), sync["metadata"]["uid"]
        if desk is None or desk.uid != uid or (desk.to.url, desk.to.form) != (to.url, to.form):
            kept = ((sync.get("status") or {}).get("writtenBack") or {}) if desk is None else {}
            said = kept.get("said") or () if kept.get("url") == to.url else ()
            known = {one["commit"]: Report(one["commit"], one["state"], one["description"]) for one in reversed(said)}
            desk = self._desks[key] = _Desk(uid, to, "", said=known)
        if desk.to != to:
            desk.failures = 0  # it may have been corrected
        desk.to, desk.source = to, f"{key.namespace}/{sync['spec']['source']['name']}"
        desk.owed.clear()  # what is not so any more is not told
        for report in reports_of(sync, sorted(late)):
            if report[:3] != desk.said.get(report.commit, ())[:3]:
                desk.owed[report.commit] = report
        if desk.owed and not desk.failures:
            self._queue.add_after(key, CALM_SECONDS)

    def shown(self, key: Key) -> Object | None:
        """For the status of a Sync: what was told last, the newest first, and why nothing can be."""
        desk = self._desks.get(key)
        if desk is None:
            return None
        newest = reversed(desk.said.values())
        said = [{"commit": one.commit, "state": one.state, "description": one.description} for one in newest]
        return {"url": desk.to.url, "said": said} | ({"error": desk.error} if desk.error else {})

    # Delivery

    async def _work(self) -> None:
        while (key := await self._queue.get()) is not None:
            try:
                if (desk := self._desks.get(key)) is not None:
                    await self._deliver(key, desk)
            finally:
                self._queue.done(key)

    async def _deliver(self, key: Key, desk: _Desk) -> None:
        before = desk.error
        told = 0
        try:
            while desk.owed:
                commit, report = next(iter(desk.owed.items()))
                await self._post(key, desk, report)
                if desk.owed.get(commit) == report:
                    del desk.owed[commit]
                desk.said.pop(commit, None)
                desk.said[commit] = report
                for old in list(desk.said)[:-KEPT]:
                    del desk.said[old]
                told += 1
            desk.failures, desk.error = 0, ""
        except Exception as error:
            if not isinstance(error, NotDelivered):
                log.exception("how Sync %s stands could not be told", key)
                error = NotDelivered(f"it could not be made: {type(error).__name__}")
            desk.failures, desk.error = desk.failures + 1, str(error)
            pause = max(error.wait, AGAIN.delay(desk.failures, self._random))
            self._queue.add_after(key, pause)
            log.warning("Sync %s: %s is not told, and will be in %.0f s: %s", key, urlsplit(desk.to.url).hostname, pause, error)
        if (told or desk.error != before) and self._desks.get(key) is desk:
            self._changed(key)

    async def _post(self, key: Key, desk: _Desk, report: Report) -> None:
        to = desk.to
        parts = urlsplit(to.url)
        if to.secret and parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
            raise NotDelivered("with a secret the address must be https")
        url = to.url if to.form == "Generic" else f"{to.url.rstrip('/')}/statuses/{report.commit}"
        link = to.link.replace("{namespace}", key.namespace).replace("{name}", key.name)
        secret = SecretReference(namespace=key.namespace, name=to.secret) if to.secret else None
        await self._poster.post(url, message(to.form, report, key, desk.source, link, self._clock.timestamp()), secret)
