"""Who keeps a kind: of several loops one at a time, by a Lease in the API, as Kubernetes' own controllers do it.

Two loops on one kind would undo each other's work. `Candidacy` decides, from leases that it is shown; `Election` reads and writes them
and tells when what is held changes. Nobody's clock is compared with another's: a candidate counts, on its own clock, how long a lease
has stood still before its eyes, and a holder stops by its own clock before anybody can have counted to the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from homeostat.client import Client, Unreachable
from homeostat.model.clock import Clock, format_micro_time
from homeostat.model.errors import ApiError

log = logging.getLogger("homeostat.loop")

NAMESPACE = "kube-system"
"""Where the leases are: every cluster has it."""
PREFIX = "homeostat-"
"""How the lease of a kind is named: `homeostat-files.files.homeostat.dev`."""
JITTER = 0.2
"""By how much of itself a wait of those who stand by may be longer, so that they do not all come at once."""
EARLY = 0.1
"""Seconds by which a renewal may come before it is due: two clocks, and kinds that were taken one after another, meet in one round."""
RELEASE_SECONDS = 1.0
"""How long an orderly stop waits for leases to be given back; after that they run out by themselves."""

Object = dict[str, Any]
LAST_PASS = "homeostat.dev/last-pass"
"""Annotation of a lease: when the last whole pass over its kind ended, by a renewal or two."""

TROUBLE = "homeostat.dev/trouble"
"""Annotation of a lease: why its holder cannot keep the kind at present."""

_MOVED = ("Conflict", "AlreadyExists", "NotFound")
_NEVER = -math.inf


class Timing(msgspec.Struct, frozen=True):
    """How long what may take, in seconds. `lease`, `deadline` and `retry` are those of Kubernetes' own controllers."""

    lease: float = 15.0
    """How long a lease must stand still before others may take it."""
    deadline: float = 10.0
    """How long after its last renewal a holder acts. It must end before others may begin: less than `lease`."""
    renew: float = 5.0
    """How old a renewal gets before the next."""
    retry: float = 2.0
    """Between two tries of who stands by, or could not renew."""
    patience: float = 3.0
    """How long one try may take."""

    def __post_init__(self) -> None:
        if not 0 < self.renew < self.deadline < self.lease:
            raise ValueError("a lease is renewed before the deadline, and the deadline is before it runs out")


TIMING = Timing()


def elapsed() -> float:
    """Seconds that have passed, those in which the machine slept among them: others were awake then."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Candidacy:
    """One lease in the eyes of one candidate. It is shown what was read and written, and says what to write. `now` is time elapsed."""

    def __init__(self, identity: str, timing: Timing = TIMING) -> None:
        self.identity = identity
        self.lease: Object | None = None  # as it was seen last
        self._timing = timing
        self._still_since = _NEVER
        self._renewed = _NEVER

    @property
    def holder(self) -> str:
        """Who held it when it was seen last; empty where nobody did."""
        return str(self._spec.get("holderIdentity") or "")

    @property
    def _spec(self) -> Object:
        return (self.lease or {}).get("spec") or {}

    def leads(self, now: float) -> bool:
        """Whether we hold it, and nobody else can: only then may we act."""
        return now < self.fence

    @property
    def fence(self) -> float:
        """Until when we may act, unless it is renewed."""
        return self._renewed + self._timing.deadline

    @property
    def due(self) -> float:
        """When to renew it; of one that is not ours, ever since: it may be to be had."""
        return self._renewed + self._timing.renew

    def saw(self, lease: Object | None, now: float) -> None:
        """This is the lease, or there is none."""
        before = self.lease
        self.lease = lease
        if before is None or self._spec != (before.get("spec") or {}):
            self._still_since = now
        if self.holder != self.identity:
            self._renewed = _NEVER

    def wish(self, now: float, wall: float) -> Object | None:
        """The spec to write, to take the lease or to keep it; None while it is another's. `wall` is the time of day, for people."""
        spec, mine = self._spec, self.holder == self.identity
        runs_out = self._still_since + (spec.get("leaseDurationSeconds") or self._timing.lease)
        if self.holder and not mine and now < runs_out:
            return None
        moment = format_micro_time(wall)
        transitions = int(spec.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._timing.lease),
            "acquireTime": spec.get("acquireTime", moment) if mine else moment,
            "renewTime": moment,
            "leaseTransitions": transitions if mine or self.lease is None else transitions + 1,
        }

    def wrote(self, lease: Object, asked: float) -> None:
        """The wish was granted; `asked` is when it was sent, for others may have seen it from then on."""
        self.lease, self._renewed = lease, asked

    def resign(self, wall: float) -> Object:
        """The spec that gives the lease back. From now on we hold it no more."""
        self._renewed = _NEVER
        moment = format_micro_time(wall)
        transitions = self._spec.get("leaseTransitions") or 0
        return {"leaseDurationSeconds": 1, "acquireTime": moment, "renewTime": moment, "leaseTransitions": transitions}


class Election:
    """Stands for the leases of several kinds (plural and group), each on its own. `changed` is set when `held` may have changed.

    `identity` is that of no other living loop; a lease in that name is one's own, also after a restart, and is not waited for.
    `notes` gives, by kind, annotations that go with each renewal: what is told so costs no write of its own.
    """

    def __init__(
        self,
        client: Client,
        kinds: Iterable[str],
        identity: str,
        *,
        timing: Timing = TIMING,
        clock: Clock | None = None,
        elapsed: Callable[[], float] = elapsed,
        source: random.Random | None = None,
        notes: Callable[[str], dict[str, str]] = lambda kind: {},
    ) -> None:
        self.identity = identity
        self.changed = asyncio.Event()
        self._notes = notes
        self._leases = client.kind("coordination.k8s.io/v1", "Lease", namespace=NAMESPACE)
        self._candidacies = {kind: Candidacy(identity, timing) for kind in kinds}
        self._timing = timing
        self._clock = clock or Clock()
        self._elapsed = elapsed
        self._random = source or random.Random()
        self._held: frozenset[str] = frozenset()
        self._said: dict[str, str] = {}
        self._fence: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def held(self) -> frozenset[str]:
        """The kinds that are ours to keep at this moment."""
        now = self._elapsed()
        return frozenset(kind for kind, candidacy in self._candidacies.items() if candidacy.leads(now))

    @property
    def holders(self) -> dict[str, str]:
        """Who held each kind when it was looked at last; empty where nobody did, or nobody knows."""
        return {kind: candidacy.holder for kind, candidacy in self._candidacies.items()}

    def holds(self, kinds: Iterable[str]) -> bool:
        """Whether all of these are ours. Ask right before acting: a process may have stood still since it was told."""
        now = self._elapsed()
        return all(self._candidacies[kind].leads(now) for kind in kinds)

    async def start(self) -> None:
        """Tries for all once, and goes on in the background. Whatever goes wrong is logged and tried again."""
        await self._round()
        self._task = asyncio.get_running_loop().create_task(self._forever(), name="election")

    async def stop(self) -> None:
        """Gives back what is held, so that others need not wait. Stop acting before."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._fence is not None:
            self._fence.cancel()
        await asyncio.gather(*(self._release(kind) for kind in self.held))

    async def _forever(self) -> None:
        while True:
            await asyncio.sleep(self._pause())
            await self._round()

    def _pause(self) -> float:
        """Seconds to the next renewal; where something is to be had or was not renewed, to the next try at most."""
        now = self._elapsed()
        dues = [candidacy.due for candidacy in self._candidacies.values()]
        again = now + self._timing.retry * (1 + JITTER * self._random.random())
        return max(0.0, min(again if due <= now else due for due in dues) - now) if dues else math.inf

    async def _round(self) -> None:
        now = self._elapsed() + EARLY
        due = [kind for kind, candidacy in self._candidacies.items() if candidacy.due <= now]
        await asyncio.gather(*(self._try(kind) for kind in due))  # at once: a store commits them together
        self._tell()

    def _tell(self) -> None:
        held = self.held
        if held != self._held:
            self._held = held
            self.changed.set()
        if self._fence is not None:
            self._fence.cancel()
        if held:
            first = min(self._candidacies[kind].fence for kind in held) - self._elapsed()
            self._fence = asyncio.get_running_loop().call_later(max(0.0, first), self._tell)

    # One lease

    async def _try(self, kind: str) -> None:
        candidacy = self._candidacies[kind]
        try:
            async with asyncio.timeout(self._timing.patience):
                # Who holds it knows how it is, and writes without a look; who is refused looks.
                if not (candidacy.leads(self._elapsed()) and await self._write(kind, candidacy)):
                    candidacy.saw(await self._read(kind), self._elapsed())
                    await self._write(kind, candidacy)
        except Exception as error:  # whatever it is: who gives up here keeps nothing ever again
            self._say(kind, f"the lease of {kind} cannot be had or renewed: {str(error) or type(error).__name__}")
            return
        if candidacy.holder == self.identity:
            self._say(kind, "")
        elif candidacy.holder:
            self._say(kind, f"{kind} is kept by another loop, {candidacy.holder}; this one stands by")

    async def _read(self, kind: str) -> Object | None:
        try:
            return await self._leases.get(PREFIX + kind)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            return None

    async def _write(self, kind: str, candidacy: Candidacy) -> bool:
        """Writes what is wished for, if anything; False where somebody came first."""
        spec = candidacy.wish(self._elapsed(), self._clock.now())
        if spec is None:
            return True
        asked = self._elapsed()
        try:
            candidacy.wrote(await self._put(kind, candidacy.lease, spec), asked)
        except ApiError as error:
            if error.reason not in _MOVED:
                raise
            return False
        return True

    async def _put(self, kind: str, lease: Object | None, spec: Object) -> Object:
        metadata: Object = lease["metadata"] if lease is not None else {"name": PREFIX + kind}
        before, notes = metadata.get("annotations") or {}, self._notes(kind)
        if notes or TROUBLE in before:
            metadata = {**metadata, "annotations": {name: text for name, text in before.items() if name != TROUBLE} | notes}
        if lease is None:
            return await self._leases.create({"metadata": metadata, "spec": spec})
        return await self._leases.replace({**lease, "metadata": metadata, "spec": spec})

    async def _release(self, kind: str) -> None:
        candidacy = self._candidacies[kind]
        spec = candidacy.resign(self._clock.now())
        with contextlib.suppress(ApiError, Unreachable, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._put(kind, candidacy.lease, spec)

    def _say(self, kind: str, trouble: str) -> None:
        """Logs what is new, and when it is over; the same again and again says nothing."""
        if self._said.get(kind, "") != trouble:
            self._said[kind] = trouble
            log.warning("%s", trouble or f"{kind} is kept by this loop now")
