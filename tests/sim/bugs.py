"""Bugs that controllers are known for, put into the loop one at a time, to see whether the simulation finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from homeostat.client import Resource
from homeostat.client.cache import Cache
from homeostat.guards import cap, freeze
from homeostat.loop import controller as controlling
from homeostat.loop import reporting
from homeostat.loop.composed import Composed
from homeostat.loop.controller import Controller
from homeostat.loop.diff import NOTHING
from homeostat.loop.observation import ABSENT
from homeostat.loop.rounds import Rounds
from homeostat.sim.world import Things

Bug = Callable[[pytest.MonkeyPatch], None]


def it_does_not_read_again_before_it_acts(patch: pytest.MonkeyPatch) -> None:
    read, write = Resource.get, Controller.write_status

    async def remember(self: Any, name: str, *, namespace: str = "") -> Any:
        for informer in self.client._informers.get((self.api_version, self.kind), ()):
            if informer.synced and (known := informer.get(name, namespace)):
                return known
        return await read(self, name, namespace=namespace)

    async def write_anyway(self: Controller, obj: Any, status: Any, *, unmoved: bool = False) -> Any:
        written = await write(self, obj, status)
        return {**obj, "status": written.get("status")}

    patch.setattr(Resource, "get", remember)
    patch.setattr(Controller, "write_status", write_anyway)


def it_takes_what_it_finds_for_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controlling, "_may_adopt", lambda obj: True)


def it_writes_the_journal_after_the_act(patch: pytest.MonkeyPatch) -> None:
    write = Controller.write_status

    async def write_no_intent(self: Controller, obj: Any, status: Mapping[str, Any], *, unmoved: bool = False) -> Any:
        return obj if unmoved else await write(self, obj, status)

    patch.setattr(Controller, "write_status", write_no_intent)


def it_takes_what_was_begun_and_cannot_be_seen_for_done(patch: pytest.MonkeyPatch) -> None:
    """Fields that nobody can see are believed to be as they were applied last, also after an action of which nobody knows what came of it."""
    patch.setattr(Controller, "_doubted", lambda self, diff, declared: diff)


def it_reads_an_error_as_empty(patch: pytest.MonkeyPatch) -> None:
    observe = Things.observe

    async def observe_or_nothing(self: Things, spec: Any) -> Any:
        try:
            return await observe(self, spec)
        except ConnectionError:
            return ABSENT

    patch.setattr(Things, "observe", observe_or_nothing)


def it_writes_a_status_though_nothing_changed(patch: pytest.MonkeyPatch) -> None:
    told = reporting.status_of

    def told_with_the_time(obj: Any, record: Any, *, now: str, **more: Any) -> Any:
        return {**told(obj, record, now=now, **more), "extra": now}

    patch.setattr(reporting, "status_of", told_with_the_time)


def it_holds_on_to_nothing_before_it_makes_something(patch: pytest.MonkeyPatch) -> None:
    async def let_be(self: Controller, obj: Any) -> Any:
        return obj

    patch.setattr(Controller, "hold_on", let_be)


def it_uses_one_key_for_all_creations_of_a_resource(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controlling, "creation_key", lambda ref, version: ref.uid)


def it_does_not_count_what_is_in_hand(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cap, "_taken", lambda fleet, op: 0)


def it_believes_an_answer_that_is_older_than_the_end(patch: pytest.MonkeyPatch) -> None:
    end = Cache.event

    def forget_ends(self: Any, kind: str, obj: Any) -> Any:
        found = end(self, kind, obj)
        self._ended.clear()
        return found

    patch.setattr(Cache, "event", forget_ends)


def it_acts_though_the_declaration_moved_meanwhile(patch: pytest.MonkeyPatch) -> None:
    write = Controller.write_status

    async def write_anyway(self: Controller, obj: Any, status: Any, *, unmoved: bool = False) -> Any:
        return await write(self, obj, status)

    patch.setattr(Controller, "write_status", write_anyway)


def it_hangs_on_events_alone(patch: pytest.MonkeyPatch) -> None:
    async def never(self: Rounds, settle: float) -> None:
        await asyncio.get_running_loop().create_future()

    patch.setattr(Rounds, "forever", never)


def it_takes_its_own_word_for_it(patch: pytest.MonkeyPatch) -> None:
    async def believe(self: Controller, obj: Any, acted: Any) -> Any:
        return replace(acted, obj=obj, diff=NOTHING)

    patch.setattr(Controller, "read_back", believe)


def it_acts_though_it_is_frozen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(freeze, "standing", lambda policy, now: [])


def it_never_prunes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Composed, "_prune", lambda self, *parent: None)
