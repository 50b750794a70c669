"""Namespaces and definitions under deletion: their content goes first, then they go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homeostat.api.admission import NAMESPACES
from homeostat.api.builtin.namespaces import FINALIZER as NAMESPACE_FINALIZER
from homeostat.api.controllers.worker import Worker
from homeostat.api.crds import CRDS, DEFINITIONS, accept_names, accepted
from homeostat.api.crds import FINALIZER as CRD_FINALIZER
from homeostat.api.delete import DeleteOptions, remove
from homeostat.api.resource import Object, Resource, split_key
from homeostat.model.conditions import condition_is, set_condition
from homeostat.model.errors import ApiError
from homeostat.store import Event

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

_PAGE = 500
_NOTHING_FAILED = (
    ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
)
"""What cannot go wrong here, said all the same to those who wait for it: type, status, reason, message."""
CONTENT = "NamespaceContentRemaining"
_NO_CONTENT = ("False", "ContentRemoved", "All content successfully removed")
_NOTHING_HELD = ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished")


class Lifecycle:
    """Empties what is to be deleted, and lets it go once it is empty."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._namespaces = Worker("namespace-lifecycle", self._empty_namespace)
        self._definitions = Worker("definition-lifecycle", self._look_at_definition)
        self._ending: set[str] = set()  # prefixes of kinds whose definition is being deleted

    async def start(self) -> None:
        follower = self._plane.follower
        await follower.follow(NAMESPACES, self._namespace_changed)
        await follower.follow(CRDS, self._definition_changed)
        follower.follow_all(self._object_changed)
        self._namespaces.start()
        self._definitions.start()

    async def stop(self) -> None:
        await self._namespaces.stop()
        await self._definitions.stop()

    def _namespace_changed(self, event: Event) -> None:
        if event.value is not None and b'"deletionTimestamp"' in event.value:
            self._namespaces.add(event.key[len(NAMESPACES) :])

    def _definition_changed(self, event: Event) -> None:
        if event.value is None:
            # A name became free: another definition may have waited for it.
            for key, crd in self._plane.definitions.items():
                if not accepted(crd):
                    self._definitions.add(key)
            self._ending.discard(event.key[len(CRDS) :] + "/")
        elif b'"deletionTimestamp"' in event.value:
            self._definitions.add(event.key)

    def _object_changed(self, event: Event) -> None:
        """Something went: perhaps it was the last of what is being emptied."""
        if event.value is not None:
            return
        kind, namespace, _ = split_key(event.key)
        if namespace:
            room = self._plane.admission.namespaces.get(namespace)
            if room is not None and room["metadata"].get("deletionTimestamp"):
                self._namespaces.add(namespace)
        if f"{kind}/" in self._ending:
            self._definitions.add(CRDS + kind)

    # Namespaces

    async def _empty_namespace(self, name: str) -> None:
        plane = self._plane
        room = plane.admission.namespaces.get(name)
        if room is None or not room["metadata"].get("deletionTimestamp"):
            return
        remaining: dict[str, int] = {}
        finalizers: dict[str, int] = {}
        for resource in self._namespaced():
            left = await self._delete_all(resource, name, finalizers)
            if left:
                remaining[f"{resource.plural}.{resource.group}"] = left  # "configmaps." in the core group, as upstream
        held = NAMESPACE_FINALIZER in ((room.get("spec") or {}).get("finalizers") or ())
        if remaining or (held and not _known_empty(room)):
            # Who was let in before the end was known writes before this report. It brings us here again, to find him.
            await self._report(name, remaining, finalizers)
            return
        if held:
            await plane.act("namespaces", "", name, _without_namespace_finalizer, subresource="finalize")

    def _namespaced(self) -> list[Resource]:
        kinds = {r.prefix: r for r in self._plane.registry if r.namespaced and "delete" in r.verbs}
        # Events last: deleting the others may still tell of itself.
        return sorted(kinds.values(), key=lambda r: r.plural == "events")

    async def _delete_all(self, resource: Resource, namespace: str, finalizers: dict[str, int]) -> int:
        """Deletes what is there of a kind, and counts what stays because finalizers hold it."""
        plane = self._plane
        after, left = "", 0
        while True:
            page = await plane.store.range(resource.collection(namespace), after=after, limit=_PAGE)
            for entry in page.entries:
                _, where, name = split_key(entry.key)
                call = plane.internal("delete", resource, where, name)
                try:
                    obj, gone, _ = await remove(plane, call, DeleteOptions())
                except ApiError as error:
                    if error.reason != "NotFound":
                        raise
                    continue
                if not gone:
                    left += 1
                    for finalizer in obj["metadata"].get("finalizers", ()):
                        finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
            if not page.more:
                return left
            after = page.entries[-1].key

    async def _report(self, name: str, remaining: dict[str, int], finalizers: dict[str, int]) -> None:
        """Says in the namespace's status what keeps it."""
        kinds = ", ".join(f"{kind} has {n} resource instances" for kind, n in sorted(remaining.items()))
        holders = ", ".join(f"{f} in {n} resource instances" for f, n in sorted(finalizers.items()))
        now = self._plane.clock.timestamp()

        def reported(live: Object) -> Object:
            status = live.get("status") or {}
            obj = {**live, "status": {**status, "conditions": list(status.get("conditions", ()))}}
            obj["status"]["phase"] = "Terminating"
            content = ("True", "SomeResourcesRemain", f"Some resources are remaining: {kinds}")
            held = (
                "True",
                "SomeFinalizersRemain",
                f"Some content in the namespace has finalizers remaining: {holders}",
            )
            conditions = (
                *_NOTHING_FAILED,
                (CONTENT, *(content if remaining else _NO_CONTENT)),
                ("NamespaceFinalizersRemaining", *(held if finalizers else _NOTHING_HELD)),
            )
            for kind, truth, reason, message in conditions:
                set_condition(obj, kind, truth, now=now, reason=reason, message=message)
            return obj

        await self._plane.act("namespaces", "", name, reported, subresource="status")

    # Definitions

    async def _look_at_definition(self, key: str) -> None:
        plane = self._plane
        crd = plane.definitions.get(key)
        if crd is None:
            return
        name = crd["metadata"]["name"]
        if not crd["metadata"].get("deletionTimestamp"):
            if not accepted(crd):
                await plane.act(DEFINITIONS, "", name, self._renamed, subresource="status")
            return
        if CRD_FINALIZER not in crd["metadata"].get("finalizers", ()):
            return
        resource = plane.registry.get(name)
        if resource is not None:
            self._ending.add(resource.prefix)
            if await self._delete_all(resource, "", {}):
                return  # finalizers hold some; the last of them to go wakes us
        await plane.act(DEFINITIONS, "", name, _without_crd_finalizer)

    def _renamed(self, live: Object) -> Object:
        return accept_names(dict(live), self._plane.definitions.values(), self._plane.clock.timestamp())


def _known_empty(namespace: Object) -> bool:
    return condition_is(namespace, CONTENT, "False")


def _without_namespace_finalizer(live: Object) -> Object:
    spec = dict(live.get("spec") or {})
    spec["finalizers"] = [f for f in spec.get("finalizers", ()) if f != NAMESPACE_FINALIZER]
    return {**live, "spec": spec}


def _without_crd_finalizer(live: Object) -> Object:
    metadata = dict(live["metadata"])
    metadata["finalizers"] = [f for f in metadata.get("finalizers", ()) if f != CRD_FINALIZER]
    return {**live, "metadata": metadata}
