"""Bugs that a GPU service could have, put into it one at a time, to see whether the simulation finds them. Some of them it had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from homeostat.gpu.agent import witness
from homeostat.gpu.agent.hosted import Hosted
from homeostat.gpu.agent.keeper import Keeper
from homeostat.gpu.controller import governing, standing
from homeostat.gpu.controller.governing import Governor
from homeostat.gpu.controller.notes import Notes
from homeostat.gpu.controller.tenants import Holding
from homeostat.gpu.cycle import Cycle
from homeostat.gpu.decisions import Memory
from homeostat.gpu.kinds import TENANT
from homeostat.gpu.kinds import Phase as Stage
from homeostat.gpu.objects import Reader

Bug = Callable[[pytest.MonkeyPatch], None]


def it_never_takes_a_node_for_lost(patch: pytest.MonkeyPatch) -> None:
    put = Reader.put

    def put_as_renewed_for_ever(self: Reader, obj: Any) -> None:
        put(self, obj)
        if obj.get("kind") == "Lease":
            self._leases[obj["metadata"]["name"]] = 1e12

    patch.setattr(Reader, "put", put_as_renewed_for_ever)


def it_reads_a_quota_once(patch: pytest.MonkeyPatch) -> None:
    take = Governor._take

    def take_once(self: Governor, kind: str, key: Any) -> None:
        if kind != TENANT.kind or key.name not in self._reader._tenants:
            take(self, kind, key)

    patch.setattr(Governor, "_take", take_once)


def it_places_half_a_gang(patch: pytest.MonkeyPatch) -> None:
    target_of = standing.target_of

    def half(decision: Any) -> Any:
        target = target_of(decision)
        if target is None or target.phase is not Stage.RUNNING or len(target.assignment) < 2:
            return target
        return standing.WorkloadState(phase=target.phase, assignment=target.assignment[:-1])

    patch.setattr(governing, "target_of", half)


def it_loses_its_memory_when_it_dies(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Notes) -> Memory:
        return Memory()

    patch.setattr(Notes, "read", nothing)


def it_tells_what_it_had_only_meant_to_do(patch: pytest.MonkeyPatch) -> None:
    load = Hosted.load

    def load_and_show(self: Hosted, found: Any) -> None:
        load(self, found)
        self._shown = self.note

    patch.setattr(Hosted, "load", load_and_show)


def it_does_not_wait_for_who_has_to_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keeper, "_in_the_way", lambda self, one, place: "")


def it_takes_back_what_living_machines_reported(patch: pytest.MonkeyPatch) -> None:
    unheard = standing._unheard
    patch.setattr(standing, "_unheard", lambda status, places, lost, **more: unheard(status, places, lambda node: True, **more))


def it_forgets_how_processes_ended_while_no_agent_was_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(witness, "seen", lambda file, mark: None)


def it_waits_for_ever_for_where_its_state_lies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cycle, "out_of_patience", lambda self, at: False)


def it_lets_tenants_go_while_their_work_runs(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Holding, of: object) -> None:
        pass

    patch.setattr(Holding, "hold", nothing)
    patch.setattr(Holding, "keep", nothing)
