"""What must hold beyond one object before it may be written or deleted: its namespace lives, its priority is one that there is,
it is within the limits of its namespace, its quota has room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from homeostat.api.builtin import limits
from homeostat.api.builtin.podrules import qos_class, tolerate_lost_nodes
from homeostat.api.builtin.scaling import SYSTEM_PRIORITY_CLASSES
from homeostat.api.builtin.usage import measured
from homeostat.api.call import Call
from homeostat.api.quotas import Charge, Quotas
from homeostat.api.resource import Object
from homeostat.model.errors import ApiError, forbidden, not_found
from homeostat.store import Event

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

NAMESPACES = "namespaces/"
RANGES = "limitranges/"
LASTING_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
"""Namespaces that cannot be deleted."""
PRIORITIES = "priorityclasses.scheduling.k8s.io/"
_LASTING_PRIORITIES = frozenset(priority["metadata"]["name"] for priority in SYSTEM_PRIORITY_CLASSES)
_NO_CLASS: Object = {"value": 0, "preemptionPolicy": "PreemptLowerPriority"}


class Admission:
    """Knows all namespaces, quotas, limit ranges and priority classes, and judges writes and deletions by them."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.namespaces: dict[str, Object] = {}
        self.quotas = Quotas(plane)
        self.ranges: dict[str, dict[str, Object]] = {}  # by namespace and key
        self.priorities: dict[str, Object] = {}

    async def start(self) -> None:
        """Learns what there is, and follows it from then on."""
        await self._plane.follower.follow(NAMESPACES, self._namespace_changed)
        await self.quotas.start()
        await self._plane.follower.follow(RANGES, self._range_changed)
        await self._plane.follower.follow(PRIORITIES, self._priority_changed)

    def _namespace_changed(self, event: Event) -> None:
        _note(self.namespaces, event.key[len(NAMESPACES) :], event)

    def _range_changed(self, event: Event) -> None:
        _note(self.ranges.setdefault(event.key[len(RANGES) :].partition("/")[0], {}), event.key, event)

    def _priority_changed(self, event: Event) -> None:
        _note(self.priorities, event.key[len(PRIORITIES) :], event)

    def placing(self, call: Call, obj: Object) -> None:
        """Refuses what has no place: its kind is going, or its namespace is not there or is going."""
        if call.resource.ending:
            why = "create not allowed while custom resource definition is terminating"
            raise _forbidden(call, obj, why)
        if call.namespace:
            self._check_namespace(call, obj)

    def completing(self, call: Call, obj: Object, old: Object | None) -> bool:
        """Gives pods what nobody asked for, and so nobody owns: the usual limits of their namespace, the priority of their class,
        time on nodes that are lost.

        Says whether it may have done so. Keeps it so that there is one class at most for pods that name none.
        """
        if call.subresource:
            return False
        if call.resource.prefix == "pods/":
            tolerate_lost_nodes(obj["spec"])
            if old is None:
                self._rank(call, obj)
                if ranges := self.ranges.get(call.namespace):
                    limits.fill_in(obj, ranges.values())
                    obj["status"]["qosClass"] = qos_class(obj["spec"])
            return True
        if call.resource.prefix == PRIORITIES and obj.get("globalDefault"):
            usual = self._usual()
            if usual is not None and (old is None or usual["metadata"]["name"] != call.name):
                why = f"PriorityClass {usual['metadata']['name']} is already marked as default. Only one default can exist"
                raise _forbidden(call, obj, why)
        return False

    def _rank(self, call: Call, pod: Object) -> None:
        spec = pod["spec"]
        name = spec.get("priorityClassName") or ""
        rank = self.priorities.get(name) if name else self._usual() or _NO_CLASS
        if rank is None:
            raise _forbidden(call, pod, f"no PriorityClass with name {name} was found")
        if not name and "metadata" in rank:
            spec["priorityClassName"] = rank["metadata"]["name"]
        for field, value, words in (
            ("priority", rank.get("value") or 0, "the integer value of priority"),
            ("preemptionPolicy", rank.get("preemptionPolicy"), "the string value of PreemptionPolicy"),
        ):
            given = spec.get(field)
            if given is not None and given != value:
                computed = f"priority admission controller computed {value} from the given PriorityClass name"
                raise _forbidden(call, pod, f"{words} ({given}) must not be provided in pod spec; {computed}")
            spec[field] = value

    def _usual(self) -> Object | None:
        """The class of pods that name none; the lowest, should there be several."""
        usual = [priority for priority in self.priorities.values() if priority.get("globalDefault")]
        return min(usual, key=lambda priority: priority.get("value") or 0, default=None)

    def limiting(self, call: Call, obj: Object) -> None:
        """Refuses what is too small or too large for its namespace."""
        ranges = self.ranges.get(call.namespace)
        if ranges and call.subresource in ("", "resize"):
            why = limits.problems(call.resource.qualified, obj, ranges.values())
            if why:
                raise _forbidden(call, obj, why)

    async def creating(self, call: Call, obj: Object) -> Charge:
        """Refuses, or gives what must hold and be written together with the object: the quotas that count it.

        Write at once: that the namespace lives is known only until something else is awaited.
        """
        self.placing(call, obj)
        if not call.namespace or not self.quotas.of(call.namespace):
            return [], []
        charged = await self.quotas.charge(call, obj)
        self._check_namespace(call, obj)
        return charged

    async def changing(self, call: Call, obj: Object, old: Object) -> Charge:
        """The same for an object that is there, and may grow."""
        grows = call.resource.qualified != "pods" if not call.subresource else call.subresource == "resize"
        if not grows or not measured(call.resource.qualified) or obj["metadata"].get("deletionTimestamp"):
            return [], []
        self.limiting(call, obj)
        return await self.quotas.charge(call, obj, old) if self.quotas.of(call.namespace) else ([], [])

    def _check_namespace(self, call: Call, obj: Object) -> None:
        room = self.namespaces.get(call.namespace)
        if room is None:
            raise not_found("", "namespaces", call.namespace)
        if room["metadata"].get("deletionTimestamp"):
            raise _terminating(call, call.namespace, obj["metadata"].get("name", ""))

    def deleting(self, call: Call) -> None:
        """Refuses the deletion of what everything else stands on."""
        if call.resource.prefix == NAMESPACES and call.name in LASTING_NAMESPACES:
            raise forbidden("", "namespaces", call.name, "this namespace may not be deleted")
        if call.resource.prefix == PRIORITIES and call.name in _LASTING_PRIORITIES:
            why = "this is a system priority class and cannot be deleted"
            raise forbidden(call.resource.group, call.resource.plural, call.name, why)


def _note(known: dict[str, Object], name: str, event: Event) -> None:
    """Takes note of how an object is now, or that it is gone."""
    if event.value is None:
        known.pop(name, None)
    else:
        known[name] = orjson.loads(event.value)


def _forbidden(call: Call, obj: Object, why: str) -> ApiError:
    return forbidden(call.resource.group, call.resource.plural, obj["metadata"].get("name", ""), why)


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
