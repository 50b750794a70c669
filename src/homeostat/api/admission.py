"""What must hold beyond one object before it may be created or deleted: its namespace lives, its quota has room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from homeostat.api.builtin.checks import COUNTED_KINDS
from homeostat.api.call import Call
from homeostat.api.codec import encode
from homeostat.api.resource import Object, Resource
from homeostat.model.errors import ApiError, forbidden, not_found
from homeostat.model.quantity import parse_quantity
from homeostat.store import Compare, Event, Put

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

NAMESPACES = "namespaces/"
QUOTAS = "resourcequotas/"
LASTING_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
"""Namespaces that cannot be deleted."""


class Admission:
    """Knows all namespaces and quotas, and judges creations and deletions by them."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.namespaces: dict[str, Object] = {}
        self.quotas: dict[str, set[str]] = {}  # keys by namespace

    async def start(self) -> None:
        """Learns what there is, and follows it from then on."""
        await self._plane.follower.follow(NAMESPACES, self._namespace_changed)
        await self._plane.follower.follow(QUOTAS, self._quota_changed)

    def _namespace_changed(self, event: Event) -> None:
        name = event.key[len(NAMESPACES) :]
        if event.value is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = orjson.loads(event.value)

    def _quota_changed(self, event: Event) -> None:
        namespace = event.key[len(QUOTAS) :].partition("/")[0]
        if event.value is None:
            self.quotas.get(namespace, set()).discard(event.key)
        else:
            self.quotas.setdefault(namespace, set()).add(event.key)

    def placing(self, call: Call, obj: Object) -> None:
        """Refuses what has no place: its kind is going, or its namespace is not there or is going."""
        if call.resource.ending:
            why = "create not allowed while custom resource definition is terminating"
            raise forbidden(call.resource.group, call.resource.plural, obj["metadata"].get("name", ""), why)
        if call.namespace:
            self._check_namespace(call, obj)

    async def creating(self, call: Call, obj: Object) -> tuple[list[Compare], list[Put]]:
        """Refuses, or gives what must hold and be written together with the object: the quotas that count it.

        Write at once: that the namespace lives is known only until something else is awaited.
        """
        self.placing(call, obj)
        keys = self.quotas.get(call.namespace) if call.namespace else None
        if not keys:
            return [], []
        charged = await self._charge(call, keys, obj)
        self._check_namespace(call, obj)
        return charged

    def _check_namespace(self, call: Call, obj: Object) -> None:
        room = self.namespaces.get(call.namespace)
        if room is None:
            raise not_found("", "namespaces", call.namespace)
        if room["metadata"].get("deletionTimestamp"):
            raise _terminating(call, call.namespace, obj["metadata"].get("name", ""))

    async def _charge(self, call: Call, keys: set[str], obj: Object) -> tuple[list[Compare], list[Put]]:
        compares: list[Compare] = []
        writes: list[Put] = []
        for key in sorted(keys):
            entry = await self._plane.store.get(key)
            if entry is None:
                continue
            quota = orjson.loads(entry.value)
            hard = quota["spec"].get("hard") or {}
            counted = sorted(name for name in _count_names(call.resource) if name in hard)
            if not counted:
                continue
            used = await self.usage(quota)
            counts = {n: parse_quantity(used[n]).value for n in counted}  # others may write the status as well: `1k`
            over = [n for n in counted if counts[n] + 1 > parse_quantity(hard[n]).value]
            if over:
                raise _exceeded(call, obj, key.rpartition("/")[2], over, used, hard)
            for name in counted:
                used[name] = str(counts[name] + 1)
            quota["status"] = {"hard": hard, "used": used}
            compares.append(Compare(key, entry.revision))
            writes.append(Put(key, encode(quota)))
        return compares, writes

    async def usage(self, quota: Object) -> dict[str, str]:
        """What a quota counts: its own record where that is complete, otherwise counted afresh."""
        hard = quota["spec"].get("hard") or {}
        recorded = (quota.get("status") or {}).get("used") or {}
        if all(name in recorded for name in hard):
            return dict(recorded)
        return await self.count(quota)

    async def count(self, quota: Object) -> dict[str, str]:
        """Counts the objects that a quota limits."""
        namespace = quota["metadata"]["namespace"]
        counts: dict[str, str] = {}
        for name in quota["spec"].get("hard") or {}:
            resource = self._counted(name)
            if resource is not None:
                counts[name] = str(await self._plane.store.count(resource.collection(namespace)))
            else:
                counts[name] = "0"
        return counts

    def _counted(self, name: str) -> Resource | None:
        if name.startswith("count/"):
            return self._plane.registry.get(name[len("count/") :])
        return self._plane.registry.get(name) if name in COUNTED_KINDS else None

    def deleting(self, call: Call) -> None:
        """Refuses the deletion of what everything else stands on."""
        if call.resource.prefix == NAMESPACES and call.name in LASTING_NAMESPACES:
            raise forbidden("", "namespaces", call.name, "this namespace may not be deleted")


def _count_names(resource: Resource) -> tuple[str, ...]:
    """The names under which quotas count a kind."""
    names = (f"count/{resource.qualified}",)
    return (*names, resource.plural) if not resource.group and resource.plural in COUNTED_KINDS else names


def _terminating(call: Call, namespace: str, name: str) -> ApiError:
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    error = forbidden(call.resource.group, call.resource.plural, name, why)
    error.causes = [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    return error


def _exceeded(
    call: Call, obj: Object, quota: str, over: list[str], used: dict[str, Any], hard: dict[str, Any]
) -> ApiError:
    def listed(values: dict[str, Any]) -> str:
        return ",".join(f"{n}={values[n]}" for n in over)

    requested = ",".join(f"{n}=1" for n in over)
    why = f"exceeded quota: {quota}, requested: {requested}, used: {listed(used)}, limited: {listed(hard)}"
    return forbidden(call.resource.group, call.resource.plural, obj["metadata"].get("name", ""), why)
