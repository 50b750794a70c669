"""Observes and changes objects on Kubernetes APIs."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from homeostat.client import Client
from homeostat.loop.declarations import ADOPT
from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Op, Ref
from homeostat.loop.live import LiveObject, masked
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Declared, Provider, Refused, Task, Undeclared, current
from homeostat.providers.addresses import Forbidden, Hosts
from homeostat.providers.kubernetes.clusters import Cluster, Clusters
from homeostat.providers.kubernetes.discover import undeclared
from homeostat.providers.kubernetes.hints import Hints, Place
from homeostat.providers.kubernetes.spec import KubernetesObjectSpec, KubernetesObjectState, manifest_of

_POWERS = ("rbac.authorization.k8s.io", "homeostat.dev")
"""Groups, and what is below them, whose objects give rights or have the loop do things."""
_MANAGER_LIMIT = 128
_CLUSTER = "cluster"
"""What is kept of an object that was made elsewhere: the uid of the cluster."""


class KubernetesObject(Provider[KubernetesObjectSpec, KubernetesObjectState], group="kubernetes.homeostat.dev"):
    """An object on another Kubernetes API, or on this one, kept as declared.

    Objects on this API are written with the rights of the loop. So by default only those of the resource's own namespace, and none
    that give rights or have the loop do things; still, who may declare a KubernetesObject may write all else in that namespace.
    `anywhere` lifts the limits: set it where all who may declare one may do everything anyway.
    `allowed_hosts` are the only servers that a kubeconfig may name; default: all but link-local and the like, see `addresses`.
    """

    def __init__(self, allowed_hosts: Collection[str] | None = None, *, anywhere: bool = False) -> None:
        self._hosts = Hosts(allowed_hosts)
        self._anywhere = anywhere
        self._clusters: Clusters
        self._hints = Hints()
        self._live: dict[Ref, tuple[Place, LiveObject]] = {}
        self._at: dict[Ref, Cluster] = {}

    async def open(self, client: Client) -> None:
        self._clusters = Clusters(client, self._hosts)

    async def close(self) -> None:
        await self._hints.close()
        await self._clusters.close()

    def forget(self, ref: Ref) -> None:
        self._live.pop(ref, None)
        self._at.pop(ref, None)
        self._hints.forget(ref)

    def watch(self) -> AsyncIterator[Ref]:
        return self._hints.stream()

    def target(self, spec: KubernetesObjectSpec) -> str:
        return f"kubeconfig {spec.kubeconfig_secret.name}" if spec.kubeconfig_secret else ""

    def identity(self, spec: KubernetesObjectSpec, state: KubernetesObjectState) -> str:
        place, live = self._live[current().ref]
        return f"{_name(place)}@{live.uid}"

    def leaves(self, spec: KubernetesObjectSpec) -> bool:
        return spec.delete_policy == "Keep"

    # Looking

    async def observe(self, spec: KubernetesObjectSpec) -> KubernetesObjectState | Absent:
        task, live = current(), await self._find(spec)
        if await live.read() is None:
            await self._check_whose(task)
            return ABSENT
        declared = manifest_of(spec, live.namespace)
        found = live.owned(declared) if task.deleting else await live.about(declared)
        return KubernetesObjectState(object=masked(found, task.ref.uid))

    async def wanted(self, spec: KubernetesObjectSpec) -> KubernetesObjectState:
        ref = current().ref
        return KubernetesObjectState(object=masked(manifest_of(spec, self._live[ref][1].namespace), ref.uid))

    async def _find(self, spec: KubernetesObjectSpec) -> LiveObject:
        """Where the object is, and all that was known of it."""
        task, declared = current(), spec.object
        cluster = await self._clusters.find(task.ref.namespace, spec.kubeconfig_secret)
        kind = cluster.client.kind(declared["apiVersion"], declared["kind"])
        namespace = ""
        if (await kind.served()).namespaced:
            default = task.ref.namespace if cluster.here else cluster.client.namespace
            namespace = declared["metadata"].get("namespace") or default
        place = Place(cluster.name, declared["apiVersion"], declared["kind"], namespace, declared["metadata"]["name"])
        self._check(cluster, place, task.ref.namespace)
        if task.identity and task.identity.partition("@")[0] != _name(place):
            raise Refused(f"it was {task.identity.partition('@')[0]}, and is now to be {_name(place)}: put that back")
        known = self._live.get(task.ref)
        if known is None or known[0] != place:
            known = self._live[task.ref] = place, LiveObject(kind, place.name, namespace, _manager(task.ref))
        self._at[task.ref] = cluster
        self._hints.follow(task.ref, place, cluster)
        return known[1]

    async def _check_whose(self, task: Task) -> None:
        """What is not at this cluster is not gone where it was made at another."""
        made_at = task.kept.get(_CLUSTER, "")
        if not made_at or task.annotations.get(ADOPT) == "true":
            return
        uid = await self._at[task.ref].uid()
        if uid not in ("", made_at):
            raise Refused(
                f"it was made at another cluster than the kubeconfig leads to (kube-system there is {made_at}, here {uid}): "
                f"put the kubeconfig back; to have it made at this one, annotate it with {ADOPT}=true"
            )

    def _check(self, cluster: Cluster, place: Place, own: str) -> None:
        if not cluster.here or self._anywhere:
            return
        if place.namespace != own:
            where = f"in namespace {place.namespace}" if place.namespace else "in no namespace"
            raise Forbidden(f"{place.kind} {place.name} is {where}; here only objects of namespace {own} may be declared")
        group = place.api_version.rpartition("/")[0]
        if any(group == power or group.endswith(f".{power}") for power in _POWERS):
            raise Forbidden(f"a {place.kind} gives power; here it may not be declared through a KubernetesObject")

    async def discover(self, declared: Sequence[Declared[KubernetesObjectSpec]]) -> list[Undeclared]:
        return await undeclared(self._clusters, declared)

    def attribute(self, spec: KubernetesObjectSpec, diff: Diff) -> Diff:
        return self._live[current().ref][1].attribute(diff)

    def foreign(self, spec: KubernetesObjectSpec, diff: Diff) -> str:
        conflict = self._live[current().ref][1].conflict
        return conflict if diff.op is Op.UPDATE and not spec.force_conflicts else ""

    def facts(self, ref: Ref) -> dict[str, Any] | None:
        obj = self._live[ref][1].obj
        return None if obj is None else {"object": masked(obj, ref.uid)}

    async def unhealthy(self, spec: KubernetesObjectSpec, state: KubernetesObjectState) -> str:
        return self._live[current().ref][1].unhealthy()

    # Acting

    async def apply(self, spec: KubernetesObjectSpec, diff: Diff) -> None:
        task = current()
        cluster, (_, live) = self._at[task.ref], self._live[task.ref]
        if not cluster.here and (uid := await cluster.uid()):
            task.kept[_CLUSTER] = uid
        await live.put(manifest_of(spec, live.namespace), force=spec.force_conflicts)

    async def delete(self, spec: KubernetesObjectSpec) -> None:
        await self._live[current().ref][1].delete()


def _name(place: Place) -> str:
    group = place.api_version.rpartition("/")[0]
    kind = f"{place.kind}.{group}" if group else place.kind
    return f"{kind}/{place.namespace}/{place.name}" if place.namespace else f"{kind}/{place.name}"


def _manager(ref: Ref) -> str:
    """The field manager of one declaration: two that declare the same object are two writers, and conflict."""
    name = f"homeostat/{ref.namespace}/{ref.name}"
    if len(name) <= _MANAGER_LIMIT:
        return name
    return f"{name[: _MANAGER_LIMIT - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
