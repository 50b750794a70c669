"""Follows GitSources: looks whether their repositories have something new, fetches it, verifies it, and tells who wants to know.

A fetch that fails changes nothing: the last commit that was fetched and verified stays the one that counts, and a condition of the
source says since when and why it cannot be read. Several sources of one address are asked and fetched as one.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from homeostat.client import Client, Key, Unreachable
from homeostat.loop.controller import MANAGER
from homeostat.loop.queue import Backoff, WorkQueue
from homeostat.model.clock import Clock
from homeostat.model.conditions import set_condition
from homeostat.model.errors import ApiError
from homeostat.model.kinds import InvalidSpec, decode
from homeostat.providers.addresses import Forbidden, Hosts
from homeostat.sources.choosing import Chosen, NoSuchRevision, choose
from homeostat.sources.kinds import GIT_SOURCE, GitSourceSpec
from homeostat.sources.repository import NOBODY, Allowance, Credentials, GitFailure, Repository, credentials_of
from homeostat.sources.signatures import NotSigned, verify

log = logging.getLogger("homeostat.sources")

WORKERS = 4
JITTER = 0.1
"""An interval is up to this part longer or shorter, so that a thousand sources do not ask at once."""
SHARED_SECONDS = 0.5
"""So long the answer of a repository counts for all sources of the same address; a webhook asks anew."""
RETRY = Backoff(first=1.0, most=60.0)

Object = dict[str, Any]


class SourceState(msgspec.Struct, frozen=True):
    """What is known of a source: the commit that counts (empty: none was ever had), and why nothing newer can be had."""

    commit: str = ""
    shown: str = ""
    """The name it was found by: `main`, `tag v1.2.0`."""
    problem: str = ""
    reason: str = ""
    repository: Repository | None = None
    spec: GitSourceSpec | None = None
    signed_by: str = ""


UNKNOWN = SourceState(problem="there is no such GitSource", reason="NoSource")


class Bounds:
    """Which repositories may be read from this host: hosts by name (`github.com`, `*.example.com`), directories by path. None: all."""

    def __init__(self, allowed: tuple[str, ...] | None = None) -> None:
        hosts = None if allowed is None else [one for one in allowed if not one.startswith("/")]
        self.hosts = Hosts(hosts)
        self._paths = None if allowed is None else [Path(one).resolve() for one in allowed if one.startswith("/")]

    async def check(self, url: str) -> None:
        """Raises `Forbidden` where the repository is out of bounds."""
        if url.startswith(("/", "file://")):
            place = Path(url.removeprefix("file://")).resolve()
            if self._paths is not None and not any(place.is_relative_to(one) for one in self._paths):
                raise Forbidden(f"{url} is not among the directories that the administrator allows (--allow git:DIR)")
            return
        if "://" not in url:  # user@host:path
            await self.hosts.check_all(url.partition("@")[2].partition(":")[0], 22)
            return
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 22)
        await self.hosts.check_all(parts.hostname or "", port)


class Sources:
    """All GitSources of one API. `state` tells what is known of one; `subscribe` tells when that changes."""

    def __init__(self, client: Client, clock: Clock, directory: Path, bounds: Bounds) -> None:
        self._client = client
        self._clock = clock
        self._directory = directory
        self._bounds = bounds
        self._resource = client.kind(GIT_SOURCE.api_version, GIT_SOURCE.kind)
        self.informer = self._resource.informer()
        self._queue: WorkQueue[Key] = WorkQueue(source=client.random)
        self._states: dict[Key, SourceState] = {}
        self._generations: dict[Key, tuple[str, int]] = {}
        self._failures: dict[Key, int] = {}
        self._repositories: dict[str, Repository] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._heads: dict[tuple[str, str], tuple[float, dict[str, str]]] = {}
        self._handlers: list[Callable[[Key], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.fetches = 0
        """How often a repository was asked, for whoever counts."""

    # Its life

    async def start(self) -> None:
        """Reads what is declared, and takes up what was fetched before; nothing waits for the network."""
        self.informer.start()
        await self.informer.wait_synced()
        for obj in self.informer.all():
            await self._take_up(_key(obj), obj)
        self.informer.subscribe(self._changed)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._work(), name=f"git fetch {number}") for number in range(WORKERS)]

    async def stop(self) -> None:
        self._queue.close(drain=False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.informer.stop()

    def state(self, key: Key) -> SourceState:
        """What is known of a source."""
        return self._states.get(key, UNKNOWN)

    def subscribe(self, handler: Callable[[Key], None]) -> None:
        self._handlers.append(handler)

    def poke(self, key: Key) -> None:
        """Somebody pushed: look now."""
        state = self._states.get(key)
        if state is not None and state.spec is not None:
            self._heads = {place: known for place, known in self._heads.items() if place[0] != state.spec.url}
        self._queue.add(key)

    # What changes

    async def _take_up(self, key: Key, obj: Object) -> None:
        """What was fetched before a restart counts until something newer is known."""
        status = obj.get("status") or {}
        spec = _spec(obj)
        if spec is not None and status.get("commit") and status.get("url") == spec.url:
            try:
                await self._bounds.check(spec.url)
                repository = await self._repository(spec.url)
                if await asyncio.to_thread(repository.has, status["commit"]):
                    self._states[key] = SourceState(
                        status["commit"],
                        status.get("found", ""),
                        repository=repository,
                        spec=spec,
                        signed_by=status.get("signedBy", ""),
                    )
            except (GitFailure, Forbidden):
                pass  # it is told when it is looked at
        self._states.setdefault(key, SourceState(problem="it was not fetched yet", reason="NotFetched", spec=spec))
        self._queue.add(key)

    def _changed(self, key: Key) -> None:
        obj = self.informer.at(key)
        mark = (obj["metadata"]["uid"], obj["metadata"].get("generation", 0)) if obj is not None else ("", 0)
        if self._generations.get(key) != mark:  # our own reports come by here too
            self._generations[key] = mark
            self._queue.add(key)

    async def _work(self) -> None:
        while (key := await self._queue.get()) is not None:
            try:
                await self._look(key)
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("GitSource %s cannot be looked at", key)
                self._queue.add_after(key, RETRY.most)
            finally:
                self._queue.done(key)

    async def _look(self, key: Key) -> None:
        obj = self.informer.at(key)
        if obj is None:
            self._set(key, None)
            return
        before = self._states.get(key, SourceState())
        try:
            spec = decode(GitSourceSpec, obj.get("spec") or {})
            if before.spec is not None and before.spec.url != spec.url:
                before = SourceState()  # another repository: what the old one had says nothing
            if spec.suspend and before.commit:
                state = replace(before, spec=spec, problem="", reason="Suspended")
            else:
                state = await self._fetched(key, spec, before)
            self._failures.pop(key, None)
            interval = spec.interval.total_seconds() * self._client.random.uniform(1 - JITTER, 1 + JITTER)
        except (GitFailure, NoSuchRevision, NotSigned, Forbidden, InvalidSpec, ApiError, Unreachable) as error:
            reason = _REASONS.get(type(error), "FetchFailed")
            state = replace(before, problem=str(error), reason=reason, spec=_spec(obj) or before.spec)
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            interval = RETRY.delay(failures, self._client.random)
        self._queue.add_after(key, interval)
        self._set(key, state)
        await self._report(obj, state)

    def _set(self, key: Key, state: SourceState | None) -> None:
        before = self._states.get(key)
        if state is None:
            self._states.pop(key, None)
        else:
            self._states[key] = state
        if before != state:
            for handler in tuple(self._handlers):
                handler(key)

    # One look

    async def _fetched(self, key: Key, spec: GitSourceSpec, before: SourceState) -> SourceState:
        await self._bounds.check(spec.url)
        if (
            spec.secret
            and spec.url.startswith("http://")
            and urlsplit(spec.url).hostname not in ("127.0.0.1", "::1", "localhost")
        ):
            raise GitFailure(f"{spec.url}: with a secret the address must be https")
        credentials = credentials_of(await self._secret(key, spec.secret)) if spec.secret else NOBODY
        allowance = Allowance(spec.limits.time.total_seconds(), spec.limits.mebibytes * 2**20)
        repository = await self._repository(spec.url)
        async with self._locks.setdefault(spec.url, asyncio.Lock()):
            if spec.revision.commit:
                chosen = choose({}, spec.revision)
            else:
                chosen = choose(await self._ask(repository, credentials, allowance), spec.revision)
            commit = await asyncio.to_thread(self._bring, repository, chosen, credentials, allowance, spec.depth)
        signed_by = before.signed_by if spec.verify and before.commit == commit and before.spec == spec else ""
        if spec.verify is not None and not signed_by:
            keys = await self._secret(key, spec.verify.secret)
            what = chosen.id if spec.verify.tag else commit
            signature, payload = await asyncio.to_thread(repository.signed, what)
            try:
                signed_by = await asyncio.to_thread(verify, signature, payload, keys)
            except NotSigned as error:
                raise NotSigned(
                    f"{'tag' if spec.verify.tag else 'commit'} {what[:12]} ({chosen.shown}) does not count: {error}"
                ) from None
        return SourceState(commit, chosen.shown, repository=repository, spec=spec, signed_by=signed_by)

    async def _ask(self, repository: Repository, credentials: Credentials, allowance: Allowance) -> Mapping[str, str]:
        place, now = (repository.url, credentials.digest), asyncio.get_running_loop().time()
        known = self._heads.get(place)
        if known is not None and now - known[0] < SHARED_SECONDS:
            return known[1]
        self.fetches += 1
        shared = self._heads  # who pokes meanwhile puts another in its place: what was asked before a push says nothing of it
        heads = await asyncio.to_thread(repository.heads, credentials, allowance)
        shared[place] = now, heads
        return heads

    @staticmethod
    def _bring(
        repository: Repository, chosen: Chosen, credentials: Credentials, allowance: Allowance, depth: int
    ) -> str:
        try:
            return repository.peel(chosen.id)
        except GitFailure:
            pass  # it is not here yet
        repository.fetch(chosen.what, credentials, allowance, depth)
        return repository.peel(chosen.id)

    async def _repository(self, url: str) -> Repository:
        if url not in self._repositories:
            made = await asyncio.to_thread(Repository, self._directory, url)
            self._repositories.setdefault(url, made)
        return self._repositories[url]

    async def _secret(self, key: Key, name: str) -> dict[str, bytes]:
        try:
            secret = await self._client.kind("v1", "Secret").get(name, namespace=key.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            raise GitFailure(f"Secret {key.namespace}/{name} is not there") from None
        return {name: base64.b64decode(value) for name, value in (secret.get("data") or {}).items()}

    # Reporting

    async def _report(self, obj: Object, state: SourceState) -> None:
        """Writes what changed; a look that found nothing new writes nothing."""
        before = obj.get("status") or {}
        said: Object = {"status": {"conditions": [dict(one) for one in before.get("conditions") or ()]}}
        generation = obj["metadata"].get("generation", 0)
        good = not state.problem
        message = state.problem or f"{state.shown} is at {state.commit[:12]}"
        if state.problem and state.commit:
            short = state.commit[:12]
            kept = "what was applied of it stays" if f"commit {short} " in state.problem else f"{short} still counts"
            message += f"; {kept}, and nothing is changed or deleted"
        set_condition(
            said, "Ready", "True" if good else "False" if state.commit or state.reason != "FetchFailed" else "Unknown",
            now=self._clock.timestamp(), reason=state.reason or "Fetched", message=message, observed_generation=generation,
        )  # fmt: skip
        status = {**said["status"], "observedGeneration": generation}
        if state.commit and state.repository is not None:
            status |= {
                "commit": state.commit,
                "found": state.shown,
                "url": state.repository.url,
                "signedBy": state.signed_by or None,
            }
            if before.get("commit") != state.commit:
                status["fetchedAt"] = self._clock.timestamp()
        changed = {name: value for name, value in status.items() if before.get(name) != value}
        if not changed:
            return
        metadata = obj["metadata"]
        try:
            await self._resource.patch(
                metadata["name"], {"metadata": {"uid": metadata["uid"]}, "status": changed},
                namespace=metadata.get("namespace", ""), subresource="status", field_manager=MANAGER,
            )  # fmt: skip
        except ApiError as error:
            if error.reason not in ("Conflict", "NotFound"):
                raise


_REASONS = {NotSigned: "NotVerified", NoSuchRevision: "NoSuchRevision", Forbidden: "NotAllowed", InvalidSpec: "Invalid"}


def _key(obj: Object) -> Key:
    return Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def _spec(obj: Object) -> GitSourceSpec | None:
    try:
        return decode(GitSourceSpec, obj.get("spec") or {})
    except InvalidSpec:
        return None
