"""Declares what a commit wants, stage by stage, and that the rest is to go: the same each time it is asked, until all is so."""

from __future__ import annotations

from typing import Any, NamedTuple

from homeostat.client import Key, Packed
from homeostat.loop.compose import Child, applied_by, removals
from homeostat.loop.live import unmarked
from homeostat.loop.parents import going
from homeostat.sources.declared import By, Declared
from homeostat.sources.files import RenderError
from homeostat.sources.holdings import Holdings, NotYet
from homeostat.sources.preparing import Prepared, is_base, is_mine, may_go
from homeostat.sources.readying import Readying, claimed_twice

SOON_SECONDS, LATER_SECONDS = 1.0, 60.0

Object = dict[str, Any]


class Placed(NamedTuple):
    """How far it came: how many wait for their stage, which are declared and not yet so, and what was found to be wrong."""

    waiting: int
    late: set[Child]
    refused: RenderError | None = None
    again: float = 0.0
    """In so many seconds it is to be tried again, whatever happens; 0: only when something does."""


class Placing:
    """Declares the objects of Syncs. `manager` is the field manager that they are applied as."""

    def __init__(self, holdings: Holdings, declared: Declared, readying: Readying, manager: str) -> None:
        self._holdings = holdings
        self._declared = declared
        self._readying = readying
        self._manager = manager

    async def place(self, by: By, prepared: Prepared, *, prune: bool) -> Placed:
        """Declares each stage when the one before is as declared and healthy, and then that the rest is to go."""
        existing, declared = self._holdings.of(by.uid), self._declared.of(by.sync)
        ready, waiting, late = True, 0, set()
        refused, again = None, 0.0
        for stage in prepared.order:
            if ready and not prepared.unproven.isdisjoint(stage):
                refused, again = await self._prove(prepared, stage)
                ready = not again
            for child in stage:
                manifest = prepared.wanted[child]
                if (other := self._other(by, child, manifest)) is not None:  # it came between the check and now
                    refused, again, ready, waiting = (
                        claimed_twice(prepared.places[child], child, other, by.sync),
                        LATER_SECONDS,
                        False,
                        waiting + 1,
                    )
                elif ready or (
                    child not in prepared.unproven
                    and child in existing
                    and self._readying.is_so(existing[child].load(), manifest)
                ):
                    self._put(by, child, manifest)
                elif child not in declared or self._declared.manifest(by.sync, child) is not manifest:
                    waiting += 1
            missed = [child for child in stage if not self._declared.is_ready(by.sync, child)]
            ready = ready and not missed
            late.update(missed)
        self._sort_out(by, prepared.wanted, existing, prune=prune)
        if prune and ready:
            self._prune(by, prepared.wanted)
        return Placed(waiting, (late & declared.keys()) | (declared.keys() - prepared.wanted.keys()), refused, again)

    def clear(self, by: By) -> bool:
        """Declares that all is to go; whether anything is left."""
        self._sort_out(by, {}, self._holdings.of(by.uid), prune=True)
        return self._prune(by, {})

    async def _prove(self, prepared: Prepared, stage: list[Child]) -> tuple[RenderError | None, float]:
        """Asks about what could not be asked about before that was there which it needs. What is wrong; and when to ask again."""
        which = [child for child in stage if child in prepared.unproven]
        kinds = {(prepared.wanted[child]["apiVersion"], child.kind) for child in which}
        await self._holdings.read(kinds)
        if not kinds <= self._holdings.names.keys():
            raise NotYet("a kind that comes with the commit is not served yet")
        try:
            later, _ = await self._readying.ask(prepared.wanted, prepared.places, which, lambda manifest, _: manifest.line)
        except RenderError as error:
            return error, LATER_SECONDS
        prepared.unproven -= set(which) - later
        return None, SOON_SECONDS if later else 0.0

    def _sort_out(self, by: By, wanted: dict[Child, Object], existing: dict[Child, Packed], *, prune: bool) -> None:
        """Of what is not wanted any more: what is to go is declared as it is, till its turn comes; what is to stay is forgotten, and so is
        what was never made."""
        declared = self._declared.of(by.sync)
        for child in sorted((existing.keys() | declared.keys()) - wanted.keys()):
            live = existing[child].load() if child in existing else None
            if live is None:
                goes = prune and child in declared and going(self._declared.at(declared[child]))
            else:
                goes = prune and is_mine(live, by.uid, self._manager) and may_go(live, child)
            if not goes and child in declared:
                self._declared.drop(declared[child])
            elif goes and child not in declared and live is not None:
                self._put(by, child, self._as_it_is(live))

    def _prune(self, by: By, wanted: dict[Child, Object]) -> bool:
        """Has the last stage go of what is not wanted any more, namespaces and definitions after all else. Whether there is any."""
        left = {
            child: self._declared.manifest(by.sync, child)
            for child in self._declared.of(by.sync)
            if child not in wanted
        }
        above = {child: manifest for child, manifest in left.items() if not is_base(child)}
        for stage in removals(above or left)[:1]:
            for child in stage:
                self._put(by, child, left[child], leaves=True)
        return bool(left)

    def _other(self, by: By, child: Child, manifest: Object) -> Key | None:
        """The Sync that declares an object already, where that is another one."""
        kind = manifest["apiVersion"], child.kind
        if child in self._declared.of(by.sync) or kind not in self._holdings.names:
            return None
        found = self._declared.owner(Key(child.namespace, f"{self._holdings.names[kind][0]}/{child.name}"))
        return found[0] if found is not None and found[0] != by.sync else None

    def _put(self, by: By, child: Child, manifest: Object, *, leaves: bool = False) -> None:
        self._declared.put(
            by, child, self._holdings.names[manifest["apiVersion"], child.kind][0], manifest, leaves=leaves
        )

    def _as_it_is(self, live: Object) -> Object:
        """An object as we once declared it."""
        ours = unmarked(applied_by(live, self._manager), {})
        names = {name: live["metadata"][name] for name in ("name", "namespace") if name in live["metadata"]}
        return {
            **ours,
            "apiVersion": live["apiVersion"],
            "kind": live["kind"],
            "metadata": {**ours.get("metadata", {}), **names},
        }
