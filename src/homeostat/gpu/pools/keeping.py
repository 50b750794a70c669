"""Asks pools: what they have, for more, and to take nodes back. What acts here is called only through the gate."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from homeostat.client import Client
from homeostat.gpu.kinds import NodePoolSpec, PoolNode
from homeostat.gpu.pools.books import Books
from homeostat.gpu.pools.exec import ByCommand
from homeostat.gpu.pools.simulated import Simulated
from homeostat.gpu.pools.standing import distrust
from homeostat.gpu.pools.ways import Had, Pool, PoolFailed, Way
from homeostat.gpu.pools.webhook import ByWebhook
from homeostat.loop.provider import Refused
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError
from homeostat.providers.addresses import Hosts

AT_ONCE = 8
"""How many nodes of one pool are asked for at the same time."""
REFUSED_MOST = 300
"""Letters of what is noted of a refusal."""
TIMEOUT_MOST = 600.0
"""Seconds that one answer of a pool may take."""


class Reach(msgspec.Struct, frozen=True):
    """What pools may touch from this host. Nothing, unless it is said.

    `programs` may be run for pools, or those below; `hosts` may be sent webhooks; in `folder`, simulated nodes are kept whose agents join by
    `kubeconfig`.
    """

    programs: Collection[str] | None = None
    hosts: Hosts | None = None
    folder: Path | None = None
    kubeconfig: str | None = None


def new_key(pool: str) -> str:
    """A key that was never used: also the name of a node, where its pool gives it none."""
    return f"{pool}-{secrets.token_hex(4)}"


class Pools:
    """All pools, by whatever way. `lease` tells the seconds after which a node is lost, `key` makes keys."""

    def __init__(
        self, reach: Reach, lease: Callable[[], float], clock: Clock, key: Callable[[str], str] = new_key
    ) -> None:
        self._clock = clock
        self._key = key
        self._command = ByCommand(reach.programs, self._secrets)
        self._webhook = ByWebhook(reach.hosts, self._secrets)
        self._simulated = Simulated(reach.folder, reach.kubeconfig, lease)

    def open(self, client: Client) -> None:
        """Begins to work for the pools of an API."""
        self._books = Books(client)
        self._held = client.kind("v1", "Secret")

    async def close(self) -> None:
        """Lets go of connections, and of no node."""
        await self._webhook.close()
        self._simulated.close()

    def _way(self, pool: Pool) -> Way:
        how = pool.spec.provision
        if not 0 < how.timeout.total_seconds() <= TIMEOUT_MOST:
            raise Refused(f"spec.provision.timeout: it is between 0 and {TIMEOUT_MOST:g} s, not {how.timeout.total_seconds():g}")
        if how.exec:
            return self._command
        return self._webhook if how.webhook else self._simulated

    async def _secrets(self, pool: Pool) -> Mapping[str, bytes]:
        which = pool.spec.provision.secret
        if which is None:
            return {}
        try:
            data = (await self._held.get(which.name, namespace=which.namespace)).get("data") or {}
            return {name: base64.b64decode(value) for name, value in data.items()}
        except ApiError as error:
            raise PoolFailed(f"its secret {which.namespace}/{which.name} cannot be read: {error.message}") from None

    # What is asked

    async def asked(self, name: str, uid: str) -> Sequence[PoolNode]:
        """What a pool was asked for and has not taken back, by what is stored at this moment."""
        return await self._books.change(name, uid, lambda before: before)

    async def has(self, name: str, spec: NodePoolSpec) -> list[Had]:
        """What a pool has. Raises where that is not known."""
        pool = Pool(name, spec)
        return await self._way(pool).has(pool)

    async def grow(
        self,
        name: str,
        uid: str,
        spec: NodePoolSpec,
        missing: int,
        replaces: Sequence[str],
        back: Collection[str],
        unjoined: Collection[str] = (),
    ) -> None:
        """Gives `back` what is late or unwanted, and asks for what is missing and for what was asked for before and never came back with a name.
        `unjoined` are those of them that were had and did not join: they are counted.

        All of it is written down before it is asked for. Where some cannot be had the others are, and it raises.
        """
        pool = Pool(name, spec)
        way = self._way(pool)
        had = {one.key: one for one in await way.has(pool)}
        for one in await self.asked(name, uid):
            if one.key in back:
                await way.give_back(pool, had.get(one.key, Had(one.key, one.node)))
        wanted = self._entries(name, missing, replaces)

        def kept(before: Sequence[PoolNode]) -> list[PoolNode]:
            return [*(one for one in before if one.key not in back), *_new(before, wanted)]

        def counted(status: Mapping[str, Any]) -> Mapping[str, Any]:
            if not any(one["key"] in unjoined for one in status.get("machines") or ()):
                return {}
            more = {"unjoined": status.get("unjoined", 0) + 1, "unjoinedAt": self._clock.timestamp()}
            trouble = distrust(more, (), self._clock.now(), spec.arrives_within.total_seconds())
            return {**more, "trouble": trouble or status.get("trouble", "")}

        machines = await self._books.change(name, uid, kept, counted)
        await self._get_all(way, pool, uid, [one for one in machines if not one.node])

    def _entries(self, name: str, missing: int, replaces: Sequence[str]) -> list[PoolNode]:
        now = datetime.fromtimestamp(int(self._clock.now()), UTC)
        instead = [*replaces[:missing], *[""] * (missing - len(replaces))]
        return [PoolNode(key=self._key(name), since=now, replaces=uid) for uid in instead]

    async def _get_all(self, way: Way, pool: Pool, uid: str, asked: Iterable[PoolNode]) -> None:
        turn = asyncio.Semaphore(AT_ONCE)

        async def note(key: str, **said: Any) -> None:
            await self._books.change(
                pool.name, uid, lambda all_: [msgspec.structs.replace(e, **said) if e.key == key else e for e in _alone(all_, key, said)]
            )

        async def get(one: PoolNode) -> None:
            try:
                async with turn:
                    node = await way.get(pool, one.key)
                now = datetime.fromtimestamp(int(self._clock.now()), UTC)
                await note(one.key, node=node, since=now, refused="")
            except (PoolFailed, Refused) as error:
                await note(one.key, refused=str(error)[:REFUSED_MOST])
                raise

        failed = [one for one in await asyncio.gather(*map(get, asked), return_exceptions=True) if one is not None]
        for error in failed:
            raise error

    async def give_back(self, name: str, uid: str, spec: NodePoolSpec, node: str) -> None:
        """Gives back a node that was drained, and strikes it out. Fine if the pool has it no more."""
        pool = Pool(name, spec)
        way = self._way(pool)
        for one in await way.has(pool):
            if one.node == node:
                await way.give_back(pool, one)
        await self._books.change(name, uid, lambda before: [one for one in before if one.node != node])

    async def give_all_back(self, name: str, uid: str, spec: NodePoolSpec, keys: Collection[str]) -> None:
        """Gives back those of a pool that never became nodes."""
        pool = Pool(name, spec)
        way = self._way(pool)
        for one in await way.has(pool):
            if one.key in keys:
                await way.give_back(pool, one)
        await self._books.change(name, uid, lambda before: [one for one in before if one.key not in keys])


def _alone(machines: Sequence[PoolNode], key: str, said: Mapping[str, Any]) -> Sequence[PoolNode]:
    """The entries, where no other has the node that this one is said to have: who gave back one would take away both."""
    for one in machines:
        if said.get("node") and one.node == said["node"] and one.key != key:
            raise PoolFailed(f"get: it gave {one.node} for {key}, which it has given for {one.key} already: each key is a node of its own")
    return machines


def _new(before: Sequence[PoolNode], wanted: Sequence[PoolNode]) -> list[PoolNode]:
    """Those to be asked for, but for replacements that somebody asked for meanwhile."""
    known = {one.replaces for one in before if one.replaces}
    return [one for one in wanted if one.replaces not in known or not one.replaces]
