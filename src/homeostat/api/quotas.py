"""Quotas: what a namespace may hold, kept exactly, whoever writes at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from homeostat.api.builtin.usage import NOTHING, Amounts, in_scope, kind_of, measured, scoped, unsaid, usage_of
from homeostat.api.call import Call
from homeostat.api.codec import encode
from homeostat.api.resource import Object, Resource
from homeostat.model.errors import ApiError, forbidden
from homeostat.model.quantity import Quantity, parse_quantity
from homeostat.store import Compare, Event, Put

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

QUOTAS = "resourcequotas/"
_PAGE = 500

Charge = tuple[list[Compare], list[Put]]
"""What must hold and be written together with an object."""


class Quotas:
    """Knows where there are quotas, charges them with what is written, and counts what they limit."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._keys: dict[str, set[str]] = {}  # by namespace

    async def start(self) -> None:
        """Learns what there is, and follows it from then on."""
        await self._plane.follower.follow(QUOTAS, self._changed)

    def _changed(self, event: Event) -> None:
        namespace = event.key[len(QUOTAS) :].partition("/")[0]
        if event.value is None:
            self._keys.get(namespace, set()).discard(event.key)
        else:
            self._keys.setdefault(namespace, set()).add(event.key)

    def of(self, namespace: str) -> set[str]:
        """The keys of the quotas of a namespace."""
        return self._keys.get(namespace) or set()

    async def charge(self, call: Call, obj: Object, old: Object | None = None) -> Charge:
        """Refuses what there is no room for, or gives what its quotas hold with it. `old` was charged before."""
        compares: list[Compare] = []
        writes: list[Put] = []
        for key in sorted(self.of(call.namespace)):
            entry = await self._plane.store.get(key)
            quota = orjson.loads(entry.value) if entry is not None else {}
            more = _more(quota, call.resource.qualified, obj, old) if quota else {}
            if entry is None or not more:
                continue
            name, hard = quota["metadata"]["name"], quota["spec"].get("hard") or {}
            if call.resource.qualified == "pods" and (why := unsaid(hard, obj)):
                raise _refusal(call, obj, f"failed quota: {name}: {why}")
            used = await self._used(quota)
            now = {n: parse_quantity(used[n]) + amount for n, amount in more.items()}
            over = [n for n in sorted(more) if now[n] > parse_quantity(hard[n])]
            if over:
                asked, before, most = (_listed(over, values) for values in (more, used, hard))
                why = f"exceeded quota: {name}, requested: {asked}, used: {before}, limited: {most}"
                raise _refusal(call, obj, why)
            quota["status"] = {"hard": hard, "used": used | {n: str(amount) for n, amount in now.items()}}
            compares.append(Compare(key, entry.revision))
            writes.append(Put(key, encode(quota)))
        return compares, writes

    async def _used(self, quota: Object) -> dict[str, str]:
        """What a quota counts: its own record where that is complete, otherwise counted afresh."""
        hard = quota["spec"].get("hard") or {}
        recorded = (quota.get("status") or {}).get("used") or {}
        if all(name in recorded for name in hard):
            return dict(recorded)
        return await self.count(quota)

    async def count(self, quota: Object) -> dict[str, str]:
        """Counts what the objects of a namespace use of what a quota limits."""
        hard = quota["spec"].get("hard") or {}
        used: Amounts = dict.fromkeys(hard, NOTHING)
        for kind in dict.fromkeys(kind_of(name) for name in hard):
            resource = self._plane.registry.get(kind)
            if resource is None:
                continue
            names = [name for name in hard if kind_of(name) == kind]
            if measured(kind) or scoped(quota):
                for name, amount in (await self._sum(quota, resource)).items():
                    if name in names:
                        used[name] = amount
            else:
                count = await self._plane.store.count(resource.collection(quota["metadata"]["namespace"]))
                used |= dict.fromkeys(names, Quantity(count * 10**9))
        return {name: str(amount) for name, amount in used.items()}

    async def _sum(self, quota: Object, resource: Resource) -> Amounts:
        total: Amounts = {}
        after = ""
        while True:
            page = await self._plane.store.range(
                resource.collection(quota["metadata"]["namespace"]), after=after, limit=_PAGE
            )
            for entry in page.entries:
                obj = orjson.loads(entry.value)
                if in_scope(quota, resource.qualified, obj):
                    for name, amount in usage_of(resource.qualified, obj).items():
                        total[name] = total.get(name, NOTHING) + amount
            if not page.more:
                return total
            after = page.entries[-1].key


def _more(quota: Object, kind: str, obj: Object, old: Object | None) -> Amounts:
    """What a write adds to what a quota limits; what it gives back is counted afterwards."""
    hard = quota["spec"].get("hard") or {}
    if not in_scope(quota, kind, obj):
        return {}
    before = usage_of(kind, old) if old is not None and in_scope(quota, kind, old) else {}
    added = {name: amount - before.get(name, NOTHING) for name, amount in usage_of(kind, obj).items() if name in hard}
    return {name: amount for name, amount in added.items() if amount > NOTHING}


def _listed(names: list[str], values: dict[str, str] | Amounts) -> str:
    return ",".join(f"{name}={values[name]}" for name in names)


def _refusal(call: Call, obj: Object, why: str) -> ApiError:
    return forbidden(call.resource.group, call.resource.plural, obj["metadata"].get("name", ""), why)
