"""A control plane on a thread of its own, so that synchronous clients and every event loop can use it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Client

if TYPE_CHECKING:
    from homeostat.loop.compose import Composer
    from homeostat.loop.provider import Provider

T = TypeVar("T")

TESTER = "homeostat-testing"
"""As whom `apply` and `wait_for` write: audit and managed fields name it."""
LOOP_USER = "homeostat-testing-loop"
"""As whom a loop of `TestPlane.loop` writes."""
WAIT_SECONDS = 10.0
_READ_EARLY = ("kubernetes.config.kube_config", "kubernetes_asyncio.config.kube_config")


class TestPlane:
    """A running control plane. Its state is in memory where the machine has a place for it, and gone at the end."""

    __test__ = False  # not a test class, whatever its name looks like

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop

    @property
    def url(self) -> str:
        """`https://127.0.0.1:PORT`."""
        return self._server.url

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of an administrator, with everything embedded."""
        return self._server.kubeconfig

    def client(self, **options: Any) -> Client:
        """A client over HTTPS for the event loop of the test. Close it: `async with`."""
        return Client.from_kubeconfig(self.kubeconfig, **options)

    @contextlib.contextmanager
    def as_default(self) -> Iterator[None]:
        """Makes it the server that everything in this process and its children finds, while the `with` lasts.

        Sets $KUBECONFIG, also for client libraries that read it when they were imported.
        """
        place = str(self.kubeconfig)
        with contextlib.ExitStack() as undo:
            undo.enter_context(mock.patch.dict(os.environ, KUBECONFIG=place))
            for name in _READ_EARLY:
                if name in sys.modules:
                    undo.enter_context(mock.patch(f"{name}.KUBE_CONFIG_DEFAULT_LOCATION", place))
            yield

    def apply(self, manifests: str) -> list[dict[str, Any]]:
        """Applies YAML documents and gives the objects as they are then; definitions can be used at once.

        Raises `ValueError` where a document is no object, `ApiError` where the server refuses one.
        """
        import yaml

        documents = [document for document in yaml.safe_load_all(manifests) if document]
        for number, document in enumerate(documents, 1):
            if not isinstance(document, dict) or not {"apiVersion", "kind"} <= document.keys():
                raise ValueError(f"document {number} is no object: it needs apiVersion and kind, and is {document!r:.200}")
        return self._call(lambda client: _apply(client, documents))

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        """One object; raises `ApiError` with code 404 where there is none."""
        return self._call(lambda client: client.kind(api_version, kind).get(name, namespace=namespace))

    def wait_for(
        self,
        api_version: str,
        kind: str,
        name: str,
        condition: Callable[[dict[str, Any] | None], bool] = bool,
        *,
        namespace: str = "",
        timeout: float = WAIT_SECONDS,
    ) -> dict[str, Any] | None:
        """Waits until the condition holds of the object (None while there is none) and gives it.

        By default until it exists. Raises `TimeoutError` after `timeout` seconds, saying how the object was then.
        """
        return self._call(lambda client: _wait_for(client, api_version, kind, name, condition, namespace, timeout))

    @contextlib.contextmanager
    def loop(self, *kept: Provider[Any, Any] | Composer[Any], enforce: bool = True) -> Iterator[None]:
        """Runs the loop with these providers and composers while the `with` lasts; their kinds are served from its beginning.

        It acts on everything under the guards' defaults; with `enforce=False` it only observes, as it does for a new kind. Providers run
        on the thread of the control plane: what blocks there blocks the server, too. `TypeError` where one of them is neither.
        """
        from homeostat.loop.compose import Composer
        from homeostat.loop.provider import Provider

        for one in kept:
            if not isinstance(one, (Provider, Composer)):
                name = one.__name__ + "()" if isinstance(one, type) else ""
                raise TypeError(f"a loop keeps providers and composers, not {one!r:.200}" + (f": write {name}" if name else ""))
        from homeostat.guards import Mode
        from homeostat.testing.loop import RunningLoop
        from homeostat.web.children import mount_children, unmount_children

        plane = self._server.plane
        client = local_client(plane, LOOP_USER)
        running = RunningLoop(client, kept, enforce)
        self._run(running.start())
        mount_children(plane, client, kept, Mode.ENFORCE if enforce else Mode.OBSERVE)
        try:
            yield
        finally:
            unmount_children(plane)
            self._run(running.stop())

    def _call(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            async with local_client(self._server.plane, TESTER) as client:
                return await work(client)

        return self._run(run())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _apply(client: Client, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for document in documents:
        handle = client.kind(document["apiVersion"], document["kind"])
        applied = await handle.apply(document, field_manager=TESTER, force=True)
        if document["kind"] == "CustomResourceDefinition":
            name = applied["metadata"]["name"]
            await _wait_for(client, handle.api_version, handle.kind, name, _established, "", WAIT_SECONDS)
        found.append(applied)
    return found


def _established(obj: dict[str, Any] | None) -> bool:
    from homeostat.model.conditions import condition_is

    return obj is not None and condition_is(obj, "Established")


async def _wait_for(
    client: Client,
    api_version: str,
    kind: str,
    name: str,
    condition: Callable[[dict[str, Any] | None], bool],
    namespace: str,
    timeout: float,
) -> dict[str, Any] | None:
    handle = client.kind(api_version, kind)
    where = (namespace or client.namespace) if (await handle.served()).namespaced else ""
    current: dict[str, Any] | None = None
    async with handle.informer(namespace=where, fields=f"metadata.name={name}") as informer:
        try:
            async with asyncio.timeout(timeout):
                await informer.wait_synced()
                current = informer.get(name, where)
                if condition(current):
                    return current
                async for change in informer.changes():
                    current = change.object
                    if condition(current):
                        return current
        except TimeoutError:
            raise TimeoutError(f"{kind} {name} is not as awaited after {timeout:g} s: {current}") from None
    raise AssertionError("changes never end by themselves")


@contextlib.contextmanager
def control_plane() -> Iterator[TestPlane]:
    """A control plane while the `with` lasts. The first of a process takes longer: it makes the certificates."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="homeostat-", dir=memory) as directory:
        data = Path(directory)
        shutil.copytree(_certificates(), data / "pki")
        server = Server(data, Listen(port=0), durable=False)
        with _running_loop() as loop:
            asyncio.run_coroutine_threadsafe(server.start(), loop).result()
            try:
                yield TestPlane(server, loop)
            finally:
                asyncio.run_coroutine_threadsafe(server.stop(), loop).result()


@contextlib.contextmanager
def _running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs on a thread of its own; both are gone afterwards."""
    import uvloop

    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="homeostat", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_settle(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _settle() -> None:
    """Ends what is left, so that the loop closes without a word."""
    loop = asyncio.get_running_loop()
    left = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


@functools.cache
def _certificates() -> Path:
    """One authority, server certificate and signing key for all control planes of this process."""
    import atexit

    from homeostat.api.auth import pki
    from homeostat.api.auth.user import MASTERS
    from homeostat.api.server import ADMIN

    directory = Path(tempfile.mkdtemp(prefix="homeostat-pki-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    pki.ensure_server(directory, ["127.0.0.1"])
    pki.ensure_signing_key(directory)
    pki.ensure_client(directory, ADMIN, [MASTERS])
    return directory
