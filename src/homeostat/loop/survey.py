"""Many resources by few calls: in a full pass, what has not moved since it was last seen to be as declared is not opened again.

A resource has not moved where its declaration, status included, is the very one that was written then, and where what is observed
now, and what is wanted of it, are the same as then. Everything else is looked at by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import orjson
from xxhash import xxh3_128_digest

from homeostat.client import Key, Packed
from homeostat.loop.declarations import Declarations, Followed, Object
from homeostat.loop.failure import CONTAINED, Mistake, awaited, shown
from homeostat.loop.fleet import Ref
from homeostat.loop.observation import Absent, Unknown
from homeostat.loop.provider import Provider
from homeostat.model.kinds import InvalidSpec, Spec, decode, encode

BATCH = 1000
"""How many resources go to one `observe_all`."""

Working = Callable[[Object, Ref], AbstractContextManager[Any]]


class Survey:
    """What is remembered of the resources of one provider: 16 bytes for each that was seen to be as declared."""

    def __init__(
        self, provider: Provider[Any, Any], declarations: Declarations, kind: str, working: Working
    ) -> None:
        self._provider = provider
        self._declarations = declarations
        self._kind = kind
        self._working = working
        self._settled: dict[Key, bytes] = {}
        envelope: Any = msgspec.defstruct("Envelope", [("spec", provider.info.spec)])
        self._decoder = msgspec.json.Decoder(envelope)

    def settled(self, key: Key, revision: str, declared: Any, state: Any) -> None:
        """It is as declared: the resource in this revision, what was wanted, and what was observed."""
        if self._provider.batches():
            self._settled[key] = self._digest(revision, declared if self._provider.translates() else None, state)

    def forget(self, key: Key) -> None:
        """It is gone, or must be looked at anew."""
        self._settled.pop(key, None)

    async def unmoved(self, keys: Sequence[Key]) -> set[Key]:
        """Those that are as they were. What cannot be read, or is not known, is not among them."""
        found: set[Key] = set()
        if isinstance(self._declarations, Followed):
            for start in range(0, len(keys), BATCH):
                await self._look(keys[start : start + BATCH], self._declarations, found)
        return found

    async def _look(self, keys: Sequence[Key], declarations: Followed, found: set[Key]) -> None:
        packed = dict(self._candidates(keys, declarations))
        specs = {ref: self._spec(one) for ref, one in packed.items()}
        known = {ref: spec for ref, spec in specs.items() if spec is not None}
        async with asyncio.timeout(self._provider.deadline):
            with CONTAINED:
                states = self._checked(await awaited(self._provider.observe_all(known), self._provider, "observe_all"))
        for ref, spec in known.items():
            state = states.get(ref)
            if state is None or isinstance(state, Unknown | Absent):
                continue
            one = packed[ref]
            wanted = None
            if self._attentive:
                async with asyncio.timeout(self._provider.deadline):
                    with self._working(one.load(), ref), CONTAINED:
                        if await self._provider.unhealthy(spec, state):
                            continue
                        wanted = await self._provider.wanted(spec)
            declared = None if wanted is None else encode(wanted)
            if self._digest(one.revision, declared, encode(state)) == self._settled.get(one.key):
                found.add(one.key)
        await asyncio.sleep(0)  # others have their turn between two batches

    def _checked(self, states: Any) -> Mapping[Ref, Any]:
        """Raises `Mistake` where what `observe_all` returned are no states."""
        name = f"{type(self._provider).__name__}.observe_all"
        if not isinstance(states, Mapping):
            raise Mistake(f"{name} returned {shown(states)}; it returns a mapping from the Refs that it was given to their states")
        for ref, state in states.items():
            if not isinstance(ref, Ref):
                raise Mistake(f"{name} returned a mapping with {shown(ref)} as a key; the keys are the Refs that it was given")
            if not isinstance(state, (Spec, Absent, Unknown)):
                raise Mistake(f"{name} returned {shown(state)} for {ref.name}; it returns a {self._provider.state_type.__name__}, ABSENT or Unknown(why)")
        return states

    def _candidates(self, keys: Sequence[Key], declarations: Followed) -> Iterator[tuple[Ref, Packed]]:
        for key in keys:
            one = declarations.packed(key)
            if one is not None and not one.deleting and key in self._settled:
                yield Ref(self._kind, key.namespace, key.name, one.uid), one

    @property
    def _attentive(self) -> bool:
        """Whether more than the state decides: what is wanted hangs on other things, or health does."""
        return self._provider.translates() or type(self._provider).unhealthy is not Provider.unhealthy

    def _spec(self, one: Packed) -> Any:
        try:
            return self._decoder.decode(one.body).spec
        except msgspec.ValidationError:  # what the lenient way reads, such as durations
            try:
                return decode(self._provider.info.spec, one.load().get("spec") or {})
            except InvalidSpec:
                return None

    def _digest(self, revision: str, declared: Mapping[str, Any] | None, state: Any) -> bytes:
        return xxh3_128_digest(orjson.dumps((revision, declared, state), option=orjson.OPT_SORT_KEYS))
