"""Full passes as they are made: everything is looked at once, many by one call where that can be, and then all know it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Protocol

from homeostat.loop.controller import Controller
from homeostat.loop.failure import told
from homeostat.loop.members import Where
from homeostat.loop.passes import PassPolicy, first_pass, next_pass
from homeostat.loop.queue import Priority, WorkQueue
from homeostat.model.clock import Clock

log = logging.getLogger("homeostat.loop")

STEP = 1000
"""After so many resources of a pass others have their turn."""


class Passing(Protocol):
    """Who makes passes."""

    def pass_begins(self) -> None: ...

    def pass_ends(self, size: int, seconds: float) -> None: ...

    def is_calm(self, controller: Controller, where: Where, *, anew: bool) -> bool:
        """Whether nothing of a resource is open that has not moved. `anew`: find its fleet again."""


class Rounds:
    """One pass after another, by a timer or when one is `wanted`; never two at once."""

    def __init__(
        self,
        who: Passing,
        controllers: Mapping[str, Controller],
        queue: WorkQueue[Where],
        policy: PassPolicy,
        clock: Clock,
        source: random.Random,
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        self._who = who
        self._controllers = controllers
        self._queue = queue
        self._policy = policy
        self._clock = clock
        self._random = source
        self._spawn = spawn
        self._unlooked: dict[Where, None] = {}  # of the pass under way, in order
        self._size, self._started = 0, 0.0
        self._anew = False
        self._wanted = asyncio.Event()
        self.done = 0
        """How many passes were made."""
        self.ended_at = 0.0
        """When the last one ended (wall seconds)."""
        self.again = False
        """Another pass is wanted after the one under way."""
        self.sizes: dict[str, int] = {}
        """How many resources of each kind the last pass that began is about."""

    @property
    def under_way(self) -> bool:
        """Whether a pass is being made."""
        return bool(self._unlooked)

    def want(self) -> None:
        """Has a pass made soon, rather than when it is due."""
        self._wanted.set()

    def regroup(self) -> None:
        """Has everything find its fleet again: by a pass now, or by one after that under way, which is partly by the old order."""
        self._anew = True
        if self._unlooked:
            self.again = True
        else:
            self.begin()

    def begin(self) -> None:
        """Begins a pass."""
        wheres = {name: [Where(name, key) for key in c.declarations.all()] for name, c in self._controllers.items()}
        self._unlooked = dict.fromkeys(chain.from_iterable(wheres.values()))
        self.sizes = {name: len(all_of_it) for name, all_of_it in wheres.items()}
        self._size, self._started = len(self._unlooked), self._clock.now()
        self._who.pass_begins()
        for name, controller in self._controllers.items():
            if not controller.batches:
                self._queue.add_all(wheres[name], Priority.PASS)
            elif wheres[name]:
                self._spawn(self._survey(controller, wheres[name], self._anew), f"loop pass {name}")
        self._anew = False
        if not self._unlooked:
            self._end()

    def looked(self, where: Where) -> None:
        """A resource was looked at, by whomever."""
        if where in self._unlooked:
            del self._unlooked[where]
            if not self._unlooked:
                self._end()

    async def forever(self, settle: float) -> None:
        """Makes passes, by the policy and where they are wanted; those `settle` seconds later, for more may want one."""
        loop = asyncio.get_running_loop()
        due = first_pass(self._policy, loop.time(), self._random)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wanted.wait()
                    await asyncio.sleep(settle)
            self._wanted.clear()
            started = loop.time()
            if not self._unlooked:
                self.begin()
            due = next_pass(self._policy, started, loop.time(), self._random)

    async def _survey(self, controller: Controller, wheres: list[Where], anew: bool) -> None:
        """Looks at many by few calls. What is not plainly as it was goes into the queue, to be looked at by itself."""
        try:
            calm = await controller.unmoved([where.key for where in wheres], first=not self.done)
        except Exception as error:
            log.warning("%s cannot be looked at together, and are one by one: %s", controller.name, told(error, controller.provider))
            calm = set()
        for number, where in enumerate(wheres):
            if where.key in calm and self._who.is_calm(controller, where, anew=anew):
                self.looked(where)
            else:
                self._queue.add(where, Priority.PASS)
            if number % STEP == 0:
                await asyncio.sleep(0)

    def _end(self) -> None:
        self.done, self.ended_at = self.done + 1, self._clock.now()
        self._who.pass_ends(self._size, max(0.0, self.ended_at - self._started))
        if self.again:
            self.again = False
            self.want()
