"""A Kubernetes cluster, through its API: its nodes and all Pods are followed, for those of others have GPUs too."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from homeostat.client import Client, Informer, Key, Unreachable
from homeostat.gpu.bridge.cluster import Job, Mark, Order, Sight, Unreadable
from homeostat.gpu.bridge.kubernetes.pods import FINALIZER, MANAGER, Options, name_of, pod_of
from homeostat.gpu.bridge.kubernetes.reading import booked, finalizers, job_of, last_words, mark_of, member_of
from homeostat.loop.provider import Refused
from homeostat.model.errors import ApiError

Object = dict[str, Any]

SYNC_SECONDS = 10.0
"""How long the first reading of nodes and Pods may take before it is said that they cannot be read."""
PROBE_SECONDS = 5.0
"""How often the API is asked whether it is there: a connection on which nothing comes may be dead."""
_NEVER = (400, 422)
"""Codes of what will be refused again; a right or a quota that is missing may be given."""


class Kubernetes:
    """Talks to a cluster's API. `client` is that cluster's, and is closed with this."""

    what = "Kubernetes"
    queues = False

    def __init__(self, client: Client, options: Options | None = None) -> None:
        self._client = client
        self._options = options or Options()
        self._nodes: Informer[Object] = client.kind("v1", "Node").informer(labels=self._options.selector)
        self._pods: Informer[Object] = client.kind("v1", "Pod").informer()
        self._own = client.kind("v1", "Pod", namespace=self._options.namespace)
        self._stack = AsyncExitStack()
        self._answered = -math.inf

    async def open(self, wake: Callable[[], None]) -> None:
        await self._stack.enter_async_context(self._client)

        def heard(key: Key) -> None:
            wake()

        for informer in (self._nodes, self._pods):
            await self._stack.enter_async_context(informer)
            informer.subscribe(heard)

    async def close(self) -> None:
        await self._stack.aclose()

    # Looking

    async def look(self) -> Sight:
        for informer in (self._nodes, self._pods):
            try:
                await informer.wait_synced(SYNC_SECONDS)
            except TimeoutError as error:
                raise Unreadable(str(error)) from None
        await self._probe()
        pods = self._pods.all()
        used = booked(pods, self._options.resource)
        found = [member_of(node, used.get(node["metadata"]["name"], 0), self._options) for node in self._nodes.all()]
        jobs = [job_of(pod, mark, self._options.resource) for pod in self._ours() if (mark := mark_of(pod)) is not None]
        return Sight({one.name: one for one in found if one is not None}, jobs)

    async def _probe(self) -> None:
        # A copy keeps its trouble until the next event. One that is late does no harm: no Pod is made twice, and only that very Pod is deleted.
        now, troubled = asyncio.get_running_loop().time(), self._nodes.problem or self._pods.problem
        if now - self._answered < PROBE_SECONDS and not troubled:
            return
        try:
            await self._client.request("GET", "/api/v1/nodes", {"limit": "1"})
        except ApiError as error:
            raise Unreadable(error.message) from None
        except Unreachable as error:
            raise Unreadable(str(error)) from None
        self._answered = now

    def _ours(self) -> list[Object]:
        return self._pods.all(self._options.namespace)

    def _pod(self, name: str) -> Object | None:
        return self._pods.get(name, self._options.namespace)

    async def left(self, mark: Mark) -> Job | None:
        """Asked of the server: what was made a moment ago may not have come here yet."""
        try:
            pod = await self._own.get(name_of(mark))
        except ApiError as error:
            if error.code == 404:
                return None
            raise Unreadable(error.message) from None
        except Unreachable as error:
            raise Unreadable(str(error)) from None
        raise Unreadable(f"Pod {pod['metadata']['name']} is there, and its news is on the way")

    async def said(self, mark: Mark) -> str:
        pod = self._pod(name_of(mark))
        return last_words(pod) if pod is not None else ""

    # Doing

    async def start(self, order: Order) -> None:
        pod = pod_of(order, self._options)
        try:
            await self._own.create(pod, field_manager=MANAGER)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return
            if error.code in _NEVER:
                raise Refused(f"Kubernetes does not take it: {error.message}") from None
            raise Unreadable(error.message) from None
        except Unreachable as error:
            raise Unreadable(str(error)) from None

    async def ask_to_end(self, job: Job, name: str, grace: float) -> None:
        await self._delete(job.id, max(1, math.ceil(grace)))

    async def end(self, job: Job) -> None:
        # Never 0: then the Pod would count as gone before its node has ended it.
        await self._delete(job.id, 1)

    async def noted(self, job: Job) -> None:
        pod = self._pod(job.id)
        if pod is not None and FINALIZER in (pod["metadata"].get("finalizers") or ()):
            meta = {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"], "finalizers": finalizers(pod)}
            await self._tried(self._own.patch(job.id, {"metadata": meta}))

    async def forget(self, mark: Mark) -> None:
        for pod in self._ours():
            other = mark_of(pod)
            if other is not None and (other.uid, other.replica, other.node) == (mark.uid, mark.replica, mark.node):
                job = job_of(pod, other, self._options.resource)
                await self.noted(job)
                await self._delete(job.id, 1)

    async def _delete(self, name: str, grace: int) -> None:
        pod = self._pod(name)
        if pod is not None:
            await self._tried(self._own.delete(name, uid=pod["metadata"]["uid"], grace_seconds=grace))

    async def _tried(self, doing: Any) -> None:
        """What has changed or gone meanwhile is looked at again."""
        try:
            await doing
        except ApiError as error:
            if error.reason not in ("NotFound", "Conflict"):
                raise Unreadable(error.message) from None
        except Unreachable as error:
            raise Unreadable(str(error)) from None
