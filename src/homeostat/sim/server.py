"""The API server as a process of the simulation: a store in a directory, and the real control plane over it.

It may die at any step, between a commit and its answer too. What it had committed is there again when it starts, read back by the
store's own recovery; what it had not is lost, and who asked is left without an answer.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from homeostat.api.apart import Apart
from homeostat.api.audit import AuditLog
from homeostat.api.auth.serviceaccounts import SigningKey
from homeostat.api.auth.user import AUTHENTICATED, MASTERS, User
from homeostat.api.local import LocalTransport, local_client
from homeostat.api.plane import ControlPlane
from homeostat.client.transport import Answer, Headers, Unreachable
from homeostat.guards.keeper import APPROVAL_KIND
from homeostat.guards.keeper import MANAGER as GUARDS
from homeostat.guards.policy import definition
from homeostat.loop.controller import MANAGER
from homeostat.model.clock import Ids
from homeostat.model.kinds import KindInfo, crd_for
from homeostat.sim.boxes import Boxes
from homeostat.sim.loop import Life, SimClock, SimLoop
from homeostat.sim.world import Things
from homeostat.store import Event
from homeostat.store.sqlite import Inline, SqliteStore

KEEP_SECONDS = 3600.0
"""How far back a watch can be taken up; where that is less, a reader that was away misses what was in between."""

Heard = Callable[[Sequence[Event], int], None]


class Server:
    """`start` it; it dies after `steps` or by `crash`, and `start` brings it back on what it had committed.

    `heard` is told of every commit, those that nobody was told of because the server died included. `begins_as` is what its disk holds at
    first (default: `template`).
    """

    def __init__(
        self,
        source: random.Random,
        clock: SimClock,
        heard: Heard,
        keep: float = KEEP_SECONDS,
        begins_as: Callable[[], Path] | None = None,
    ) -> None:
        self.deaths = 0
        self.up = False
        self.life = Life("server")
        self.at_death: Callable[[], None] | None = None
        """Called whenever it dies."""
        self._random = source
        self._clock = clock
        self._heard = heard
        self._keep = keep
        self._revision = 0
        self._scratch = tempfile.TemporaryDirectory(prefix="homeostat-sim-", dir=_memory())
        self._home = Path(self._scratch.name, "0")
        shutil.copytree((begins_as or template)(), self._home)
        self.store: SqliteStore
        self._dead: list[SqliteStore] = []
        self._ways: dict[str, LocalTransport] = {}
        self._asked: dict[asyncio.Future[Answer], None] = {}
        self._streams: list[Answer] = []

    async def start(self, steps: int | None = None) -> None:
        """Starts it on what is stored. Returns when it serves, or is dead before it could."""
        dead = asyncio.Event()

        def died() -> None:
            self._died()
            dead.set()
            if self.at_death is not None:
                self.at_death()

        self.life = Life("server", steps, died)
        starting = self.life.begin(self._start(), "server start")
        gone = asyncio.ensure_future(dead.wait())
        await asyncio.wait([starting, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if starting.done():
            starting.result()

    async def _start(self) -> None:
        store = self.store = await SqliteStore.open(self._home, commit_on=Inline(), durable=False)
        if self._revision:
            self._catch_up(*(await store.since("", self._revision, 1_000_000)))
        self._revision = store.revision
        store.subscribe(self._catch_up)
        ids = Ids(random.Random(self._random.random()))
        plane = ControlPlane(
            store, signing_key=_NoKey(), audit=_NoAudit(), clock=self._clock, ids=ids, keep_seconds=self._keep
        )
        plane.apart.close()
        plane.apart = _AtOnce()
        await plane.start()
        self.plane = plane
        self.up = True

    def _catch_up(self, events: Sequence[Event], revision: int) -> None:
        self._revision = revision
        self._heard(events, revision)

    def crash(self) -> None:
        """Kills it where it stands."""
        self.life.end()

    def _died(self) -> None:
        self.deaths += 1
        self.up = False
        self._ways.clear()
        if hasattr(self, "store"):
            self._dead.append(self.store)
        home = Path(self._scratch.name, str(self.deaths))
        shutil.copytree(self._home, home, ignore=shutil.ignore_patterns("lock", "*-shm"))  # as the disk is at this moment
        self._home = home
        for asked in self._asked:
            if not asked.done():
                asked.set_exception(Unreachable("the server died", sent=True))
        self._asked.clear()
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    async def close(self) -> None:
        """Lets everything go. Call it when all tasks are over."""
        for store in self._dead:
            with suppress(Exception):
                store._reader.close()
                store._writer.close()
            store._place.release()
        if self.up:
            await self.store.close()
        self._scratch.cleanup()

    # Requests

    async def ask(self, user: str, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        """Serves one request in the server's own life: it goes on when whoever asked is dead."""
        if not self.up:
            raise Unreachable("the connection was refused", sent=False)
        way = self._ways.get(user)
        if way is None:
            way = self._ways[user] = LocalTransport(self.plane, User(user, "", (MASTERS, AUTHENTICATED)))
        asked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[asked] = None

        async def serve() -> None:
            try:
                answer = await way.send(method, target, headers, body)
            except Exception as error:
                if not asked.done():
                    asked.set_exception(error)
            else:
                if "watch=true" in target:
                    self._streams.append(answer)
                if not asked.done():
                    asked.set_result(answer)
            finally:
                self._asked.pop(asked, None)

        self.life.begin(serve(), "request")
        return await asked


class Line:
    """A person's way to the server: it never fails by itself, and waits while the server is down."""

    def __init__(self, server: Server, user: str) -> None:
        self._server = server
        self._user = user

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        while not self._server.up:
            await asyncio.sleep(0.5)
        return await self._server.ask(self._user, method, target, headers, body)

    async def close(self) -> None:
        pass


@functools.cache
def template() -> Path:
    """A directory with the store of a control plane that has started once and knows the kinds of the simulation.

    Made once for all houses; call it outside of an event loop.
    """
    return furnished(Things.info, Boxes.info)


def furnished(*kinds: KindInfo) -> Path:
    """A directory with the store of a control plane that has started once and knows these kinds. Call it outside of an event loop."""
    scratch = tempfile.TemporaryDirectory(prefix="homeostat-sim-", dir=_memory())
    _kept.append(scratch)
    home = Path(scratch.name, "store")

    async def furnish() -> None:
        clock = SimClock(asyncio.get_running_loop())
        store = await SqliteStore.open(home, commit_on=Inline(), durable=False)
        ids = Ids(random.Random("template"))
        plane = ControlPlane(store, signing_key=_NoKey(), audit=_NoAudit(), clock=clock, ids=ids)
        plane.apart.close()
        plane.apart = _AtOnce()
        await plane.start()
        client = local_client(plane, "loop", source=random.Random("template"))
        definitions = client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        for crd in (definition(), crd_for(APPROVAL_KIND)):
            await definitions.apply(crd, field_manager=GUARDS, force=True)
        for info in kinds:
            await definitions.apply(crd_for(info), field_manager=MANAGER, force=True)
        await asyncio.sleep(5.0)
        await client.close()
        await plane.stop()
        await store.close()

    with asyncio.Runner(loop_factory=lambda: SimLoop(random.Random("template"))) as runner:
        runner.run(furnish())
    (home / "lock").unlink(missing_ok=True)
    gc.collect()
    gc.freeze()  # what is here now stays: a simulation makes much, and need not look through all of this each time
    return home


_kept: list[tempfile.TemporaryDirectory[str]] = []


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


class _AtOnce(Apart):
    """No threads here: all work is done at once."""

    async def __call__(self, call: Any, stored: int, work: Any, *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)


class _NoKey(SigningKey):
    """Nothing here signs."""

    def __init__(self) -> None:
        self.jwk, self.kid = {}, ""


class _NoAudit(AuditLog):
    """Writes nothing down: what a thread does to a file is none of the simulation's business."""

    def __init__(self) -> None:
        self.lost = 0

    def wants(self, verb: str, group: str, resource: str, code: int) -> bool:
        return False

    def close(self) -> None:
        pass
