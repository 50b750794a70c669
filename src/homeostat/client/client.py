"""The client: one way to every Kubernetes API, over HTTPS or in process."""

from __future__ import annotations

import asyncio
import os
import platform
import random
import time
from collections.abc import Mapping
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload
from urllib.parse import urlencode

import orjson

from homeostat import __version__
from homeostat.client import errors, kubeconfig
from homeostat.client.backoff import Backoff
from homeostat.client.discovery import Discovery
from homeostat.client.resource import Resource
from homeostat.client.transport import Answer, Headers, Reply, Transport, Unreachable, http_date
from homeostat.client.turns import Turns
from homeostat.model.errors import ApiError
from homeostat.model.protocol import JSON

if TYPE_CHECKING:
    from homeostat.client.informer import Informer

T = TypeVar("T")

REQUEST_SECONDS = 60.0
"""How long one try of a request may take, unless the client is told otherwise. Watches have their own measure."""
ATTEMPTS = 6
"""How often a request is tried in all where trying again is safe."""
CONCURRENCY = 128
"""How many requests of one client are under way at a time; watches not counted."""
AGREEING_SECONDS = 2.0
"""By how much two clocks may seem to differ that do not: a Date header has whole seconds, and an answer takes its time."""


class Client:
    """Talks to one server. Use it in the event loop it was first used in, and close it: `async with` does.

    `namespace` is where objects of namespaced kinds are looked for when nobody says otherwise. `timeout` is in seconds
    for one try of a request; None waits for as long as it takes, for a server from which no answer can get lost.
    `source` gives the jitter of retries: hand in a seeded `random.Random` to repeat them. `headers` go with every
    request, such as the change set that all its writes belong to. `streams_lists=False` has informers read by lists, which costs less
    where no network lies between.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str = kubeconfig.DEFAULT_NAMESPACE,
        user_agent: str = "",
        timeout: float | None = REQUEST_SECONDS,
        attempts: int = ATTEMPTS,
        concurrency: int = CONCURRENCY,
        source: random.Random | None = None,
        headers: Mapping[str, str] | None = None,
        streams_lists: bool = True,
    ) -> None:
        self.namespace = namespace
        self.timeout = timeout
        self.streams_lists = streams_lists
        self.random = source or random.Random()
        self.discovery = Discovery(self._document)
        self.user_agent = user_agent or default_user_agent()
        self._transport = transport
        self._headers = tuple((headers or {}).items())
        self._said: dict[tuple[str, str], Headers] = {}  # what goes with requests, by what they accept and hold
        self._attempts = max(1, attempts)
        self._turns = Turns(concurrency)
        self._informers: dict[tuple[str, str], list[Informer[Any]]] = {}
        self._dated = ("", 0.0)  # the Date of the last answer, and our time then

    @classmethod
    def from_kubeconfig(
        cls, path: str | os.PathLike[str] | None = None, context: str | None = None, **options: Any
    ) -> Self:
        """By a kubeconfig: `path`, else $KUBECONFIG (several files are merged), else ~/.kube/config.

        `context` is the current one where not said; `options` are those of the class. Raises `ConfigError`.
        """
        return cls._over_http(kubeconfig.from_kubeconfig(path, context), options)

    @classmethod
    def in_cluster(cls, **options: Any) -> Self:
        """By the service account of the pod that this runs in. Raises `ConfigError` outside of one."""
        return cls._over_http(kubeconfig.in_cluster(), options)

    @classmethod
    def connect(cls, **options: Any) -> Self:
        """Whatever is there: a kubeconfig where one exists or is named by $KUBECONFIG, else the cluster around us."""
        files = kubeconfig.kubeconfig_files(None)
        if os.environ.get("KUBECONFIG") or files[0].exists() or "KUBERNETES_SERVICE_HOST" not in os.environ:
            return cls.from_kubeconfig(**options)
        return cls.in_cluster(**options)

    @classmethod
    def _over_http(cls, target: kubeconfig.Target, options: dict[str, Any]) -> Self:
        from homeostat.client.http import HttpTransport

        options.setdefault("namespace", target.namespace)
        return cls(HttpTransport(target), **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the informers and whatever else is open."""
        for informer in [one for those in self._informers.values() for one in those]:
            await informer.stop()
        await self._transport.close()

    @overload
    def kind(self, api_version: str, kind: str, *, namespace: str = "") -> Resource[dict[str, Any]]: ...

    @overload
    def kind(self, api_version: str, kind: str, form: type[T], *, namespace: str = "") -> Resource[T]: ...

    def kind(self, api_version: str, kind: str, form: Any = dict, *, namespace: str = "") -> Resource[Any]:
        """A handle on a kind: `client.kind("apps/v1", "Deployment")`. Costs nothing until it is used.

        `form` is what its objects come as: dicts, or a msgspec Struct type with a field `metadata: Metadata`.
        `namespace` binds the handle to one namespace.
        """
        return Resource(self, api_version, kind, form, namespace)

    async def version(self) -> dict[str, Any]:
        """What the server says of its version."""
        found: dict[str, Any] = await self._document("/version")
        return found

    async def _document(self, path: str) -> Any:
        return (await self.request("GET", path)).json()

    # Requests

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        idempotent: bool | None = None,
    ) -> Reply:
        """One request of any kind, answered in whole; tried again, with growing pauses, where that is safe.

        Safe is what the server said to try later, what never left, and (where `idempotent`: reads, unless said) what
        was lost on the way. Raises `ApiError` where the server refuses and `Unreachable` where it does not answer.
        """
        repeat = method == "GET" if idempotent is None else idempotent
        target, headers, data = self._prepared(path, params, body, content_type, accept)
        backoff: Backoff | None = None
        for left in range(self._attempts - 1, -1, -1):
            try:
                if not self._turns.free():
                    await self._turns.wait()
                try:
                    reply = await self._answered(method, target, headers, data)
                finally:
                    self._turns.end()
                if reply.status >= 400:
                    raise reply.refusal()
                return reply
            except Unreachable as error:
                if not left or (error.sent and not repeat):
                    raise
                backoff = backoff or Backoff(source=self.random)
                pause = backoff.next()
            except ApiError as error:
                told = error.retry_after
                if not left or error.code not in errors.PASSING or not (told or (repeat and error.code in (429, 503))):
                    raise
                if errors.is_expired(error) and left < self._attempts - 1:
                    raise  # a revision that has not come after a moment is not about to
                backoff = backoff or Backoff(source=self.random)
                pause = max(told, 0) + backoff.next()
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def _answered(self, method: str, target: str, headers: Headers, data: bytes) -> Reply:
        """What the server says, in whole."""
        if self.timeout is None:  # a deadline that nobody set would cost a quarter of a read in process; and our clock is the server's
            answer = await self._transport.send(method, target, headers, data)
            return answer if isinstance(answer, Reply) else await _whole(answer)
        try:
            async with asyncio.timeout(self.timeout):
                reply = await _whole(await self._transport.send(method, target, headers, data))
        except TimeoutError:
            path = target.partition("?")[0]
            raise Unreachable(f"{method} {path} was not answered within {self.timeout:g} s") from None
        if date := reply.headers.get("date"):
            self._dated = (date, time.time())
        return reply

    def now(self) -> float:
        """Seconds since 1970 by the server's clock, as its last answer told it; by ours where none did, or they agree to the second.

        Compare with it what stands in objects: the clock of who looks may be wrong.
        """
        date, heard = self._dated
        ahead = heard - http_date(date) if date else 0.0
        return time.time() - (ahead if abs(ahead) > AGREEING_SECONDS else 0.0)

    async def stream(self, path: str, params: Mapping[str, str]) -> Answer:
        """Opens a stream of a GET and gives it when it has begun; tried once. The caller closes it."""
        seconds = REQUEST_SECONDS if self.timeout is None else self.timeout
        target, headers, data = self._prepared(path, params, None, JSON, JSON)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._transport.send("GET", target, headers, data)
                if answer.status < 400:
                    return answer
                refused = await _whole(answer)
        except TimeoutError:
            raise Unreachable(f"the watch of {path} did not begin within {seconds:g} s") from None
        raise refused.refusal()

    def _prepared(
        self, path: str, params: Mapping[str, str] | None, body: Any, content_type: str, accept: str
    ) -> tuple[str, Headers, bytes]:
        """A request as it travels: its target, its headers, its body."""
        target = f"{path}?{_query(tuple(params.items()))}" if params else path
        if body is None:
            content_type, data = "", b""
        else:
            data = body if isinstance(body, bytes) else orjson.dumps(body)
        headers = self._said.get((accept, content_type))
        if headers is None:
            held = (("Content-Type", content_type),) if content_type else ()
            headers = (("Accept", accept), ("User-Agent", self.user_agent), *self._headers, *held)
            self._said[accept, content_type] = headers
        return target, headers, data

    # Reading what was written

    def follow(self, informer: Informer[Any]) -> None:
        """Tells an informer of the writes that go through this client from now on."""
        self._informers.setdefault(informer.of, []).append(informer)

    def unfollow(self, informer: Informer[Any]) -> None:
        """Ends that."""
        if informer in (those := self._informers.get(informer.of, [])):
            those.remove(informer)

    def wrote(self, api_version: str, kind: str, obj: Any, body: bytes) -> None:
        """A write was answered with this object; `body` is the answer itself."""
        for informer in tuple(self._informers.get((api_version, kind), ())):
            informer.wrote(obj, body)

    def removed(self, api_version: str, kind: str, namespace: str, name: str, uid: str) -> None:
        """A deletion was answered with success: nothing is left of the object."""
        for informer in tuple(self._informers.get((api_version, kind), ())):
            informer.removed(namespace, name, uid)


async def _whole(answer: Answer) -> Reply:
    if isinstance(answer, Reply):
        return answer
    try:
        return Reply(answer.status, answer.headers, await answer.read())
    finally:
        answer.close()


@lru_cache(256)
def _query(params: tuple[tuple[str, str], ...]) -> str:
    """Of a watch or a write much the same each time."""
    return urlencode(params)


def default_user_agent() -> str:
    """`homeostat/VERSION (linux/x86_64)`: the part before the slash becomes the field manager of plain writes."""
    return f"homeostat/{__version__} ({platform.system().lower()}/{platform.machine()})"
