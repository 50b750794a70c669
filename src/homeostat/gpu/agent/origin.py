"""Which server a machine is kept for, and how far that had come: what another one does not know of was deleted by nobody.

An agent ends what its server has no more. One that it was pointed at by mistake, that began anew empty, or that was restored from a backup
has no more of much that nobody deleted. So it is remembered in the state directory who the server is, by the uid of its namespace
kube-system, and which revision our lease there had last: nobody else writes it, so where it is older, the server went back in time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from homeostat.client import Client
from homeostat.loop.election import NAMESPACE
from homeostat.model.errors import ApiError
from homeostat.providers.process.record import save

log = logging.getLogger("homeostat.gpu.agent")

FILE = "server.json"
Object = Mapping[str, Any]


class OtherServer(RuntimeError):
    """This is not the server that the machine is kept for, and what runs here is none of its business."""


class InDoubt(Exception):
    """The server has forgotten what it knew: until a person says so, nothing is done by what it wants."""


class Lease(msgspec.Struct, frozen=True):
    """The lease of a node as we wrote it last."""

    uid: str
    revision: int
    doubt: str = ""
    """Why nothing is done for the server. It lasts, whatever that does since: a person ends it."""


class Remembered(msgspec.Struct, frozen=True):
    """What is kept in the file."""

    server: str = ""
    leases: dict[str, Lease] = {}
    """By node."""


class Origin:
    """The server of one state directory. `runs` tells whether anything is there to be lost: without that, any server may be the next."""

    def __init__(self, client: Client, state: Path, runs: Callable[[], bool]) -> None:
        self._namespaces = client.kind("v1", "Namespace")
        self._leases = client.kind("coordination.k8s.io/v1", "Lease", namespace=NAMESPACE)
        self._path, self._runs = state / FILE, runs
        self._known: Remembered | None = None
        self._turn = asyncio.Lock()
        self._warned, self._trouble = False, ""
        self.set_back = asyncio.Event()
        """Set when the server turns out to have gone back in time: what was read of it before is of no use."""

    @property
    def trouble(self) -> str:
        """Why nothing can be written into the state directory at present, and so nothing be begun; empty: it can."""
        return self._trouble

    # What is asked

    async def check(self, node: str) -> None:
        """Asks the server before something is taken away by what it wants. `InDoubt` or `OtherServer` where nothing may be."""
        await self.read(node)
        self.check_known(node)

    def check_known(self, node: str) -> None:
        """`InDoubt` where the server is known to have forgotten."""
        ours = self._now.leases.get(node)
        if ours is not None and ours.doubt:
            raise InDoubt(ours.doubt)

    async def read(self, node: str) -> dict[str, Any] | None:
        """The lease of a node as the server has it, None where it has none. `OtherServer` where that is the wrong one."""
        if self._known is None:
            self._known = await asyncio.to_thread(_load, self._path)
        ours = self._known.leases.get(node)  # as of now: it may be renewed while we ask
        try:
            lease = await self._leases.get(node)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            lease = None
        async with self._turn:
            await self._judge(node, ours, lease)
        return lease

    async def _judge(self, node: str, ours: Lease | None, lease: Object | None) -> None:
        if ours is not None and lease is not None and lease["metadata"]["uid"] == ours.uid:
            if _revision(lease) < ours.revision:
                await self._doubt(node, ours, _set_back(node, ours.revision, _revision(lease)))
            return
        server, known = await self._server(), self._now  # the lease is gone, or never was: the server's doing, or a person's
        if known.server and server != known.server:
            if self._runs():
                raise OtherServer(_other(known.server, server or "one that may not be read", self._path))
            await self._keep(Remembered(server))
        elif ours is not None and ours.doubt:
            log.warning("the lease of %s was taken away: what the server wants is done again", node)
            await self._keep(Remembered(known.server or server, {name: one for name, one in known.leases.items() if name != node}))
        elif not known.server and server:
            await self._keep(msgspec.structs.replace(known, server=server))

    async def wrote(self, node: str, lease: Object) -> None:
        """We renewed the lease of a node, and this came of it."""
        async with self._turn:
            ours, new = self._now.leases.get(node), Lease(lease["metadata"]["uid"], _revision(lease))
            if ours is not None and new.revision < ours.revision:  # of a backup from before there was this node
                ours = await self._doubt(node, ours, _set_back(node, ours.revision, new.revision))
            if ours is not None:
                new = msgspec.structs.replace(new, doubt=ours.doubt)
            await self._keep_lease(node, new, durable=ours is None)

    async def _doubt(self, node: str, ours: Lease, why: str) -> Lease:
        if not ours.doubt:
            log.error("nothing is done here for now: %s", why)
            self.set_back.set()
            ours = msgspec.structs.replace(ours, doubt=why)
            await self._keep_lease(node, ours)
        return ours

    async def _keep_lease(self, node: str, lease: Lease, *, durable: bool = True) -> None:
        await self._keep(msgspec.structs.replace(self._now, leases={**self._now.leases, node: lease}), durable=durable)

    @property
    def _now(self) -> Remembered:
        return self._known or Remembered()

    async def _keep(self, known: Remembered, *, durable: bool = True) -> None:
        """While it cannot be written down, it is known as long as we live: a full disk is no reason to let the node be taken for lost."""
        self._known, trouble = known, ""
        try:
            await asyncio.to_thread(save if durable else _put, self._path, known)
        except OSError as error:
            trouble = f"which server this machine is kept for cannot be written down in {self._path}: {error.strerror or error}"
        if trouble and not self._trouble:
            log.error("%s. What runs goes on, and nothing new is begun until there is room", trouble)
        self._trouble = trouble

    async def _server(self) -> str:
        """The uid of the server; empty where it may not be read."""
        try:
            return str((await self._namespaces.get(NAMESPACE))["metadata"]["uid"])
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            if not self._warned:
                self._warned = True
                log.warning("it cannot be told which server this is: %s. Apply the roles of --print-access again", error.message)
            return ""


def _load(path: Path) -> Remembered:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Remembered)
    except FileNotFoundError:
        return Remembered()
    except (OSError, msgspec.MsgspecError) as error:
        raise OtherServer(f"{path} cannot be read, so nobody knows whether this is the right server: {error}; if it is, remove the file") from None


def _put(path: Path, known: Remembered) -> None:
    """Not worth to wait for a disk, every few seconds: what is lost with the machine is a little of how far the server had come."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(msgspec.json.encode(known))
    beside.rename(path)


def _revision(lease: Object) -> int:
    text = lease["metadata"].get("resourceVersion", "")
    return int(text) if text.isdecimal() else 0


def _set_back(node: str, ours: int, its: int) -> str:
    return (
        f"the server has forgotten what it knew: the lease of {node}, renewed as of revision {ours}, is there as of {its}. Most likely it was "
        "restored from a backup. What runs here is left as it is; if all that the server wants is right: "
        f"kubectl -n {NAMESPACE} delete lease {node}"
    )


def _other(ours: str, its: str, path: Path) -> str:
    return (
        f"this is another server than the one that has work running here ({its}, not {ours}, by the uid of its namespace {NAMESPACE}): what it "
        f"does not know of was deleted by nobody, and runs on. Point the agent at the right one; or, if that is no more: rm {path}, and start "
        "it again, and what this server does not know of is ended"
    )
