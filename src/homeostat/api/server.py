"""A control plane with its data directory, certificates and port: what `homeostat up` runs and what tests start."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from homeostat.api.audit import AuditLog
from homeostat.api.auth import pki
from homeostat.api.auth.authenticate import identify
from homeostat.api.auth.serviceaccounts import SigningKey
from homeostat.api.auth.user import MASTERS
from homeostat.api.checkpoints import Timed
from homeostat.api.history import History, Retention
from homeostat.api.http import HttpServer
from homeostat.api.plane import ControlPlane
from homeostat.model.clock import Clock
from homeostat.store import SqliteStore, Store
from homeostat.store.archive import Archive

log = logging.getLogger("homeostat")

ADMIN = "admin"
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 7443

_LOOPBACK = {"0.0.0.0": DEFAULT_HOST, "::": "::1"}
"""How this machine reaches a server that listens on every address."""


class CannotListen(Exception):
    """The address is no good for listening. The message says why, and what to do."""


class Listen(msgspec.Struct, frozen=True):
    """Where to listen; port 0 takes any free one."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT

    @classmethod
    def parse(cls, text: str) -> Listen:
        """From `HOST:PORT`, `[V6]:PORT`, `HOST`, `V6`, `:PORT` or `PORT`. Raises ValueError where it is none."""
        host, _, port = text.rpartition(":")
        if _is_v6(text) or (port and not (port.isascii() and port.isdecimal())):
            host, port = text, ""
        number = int(port or DEFAULT_PORT)
        if number > 65535:
            raise ValueError(f"{number} is no port: use 0 to 65535")
        return cls(host.strip("[]") or DEFAULT_HOST, number)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def everywhere(self) -> bool:
        """Whether it is every address of this machine, so that others reach it too."""
        return self.host in _LOOPBACK

    @property
    def url_host(self) -> str:
        host = _LOOPBACK.get(self.host, self.host)
        return f"[{host}]" if ":" in host else host

    def explain(self, error: OSError) -> CannotListen:
        """What it means that the system would not let us listen here."""
        if isinstance(error, socket.gaierror):
            return CannotListen(f"{self.host} is no address: give HOST:PORT, such as {Listen()}")
        if error.errno == errno.EADDRINUSE:
            return CannotListen(f"{self} is taken by another process: stop it, or choose another port")
        if error.errno == errno.EADDRNOTAVAIL:
            return CannotListen(f"{self.host} is no address of this machine: choose one that is, such as {DEFAULT_HOST}")
        if error.errno in (errno.EACCES, errno.EPERM):
            return CannotListen(f"no permission to listen on {self}: choose a port from 1024 up")
        return CannotListen(f"cannot listen on {self}: {error.strerror or error}")


def _is_v6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


class Server:
    """Opens everything in order, closes it in reverse.

    `retention` says how much of the past is kept, `checkpoints` where checkpoints go, every how many seconds, and how many stay. `durable=False` leaves it to the operating system when writes reach the disk: for tests.
    """

    def __init__(
        self,
        data: Path,
        listen: Listen,
        *,
        durable: bool = True,
        retention: Retention | None = None,
        checkpoints: tuple[Path, float, int] | None = None,
    ) -> None:
        self.data = data
        self.listen = listen
        self.durable = durable
        self.retention = retention
        self.checkpoints = checkpoints
        self.kubeconfig = data / "admin.kubeconfig"
        self.url = ""
        self.store: Store
        self.plane: ControlPlane
        self._open = AsyncExitStack()

    async def start(self) -> None:
        """Ready to serve when it returns. All state is under `data`."""
        certificates = self.data / "pki"
        async with AsyncExitStack() as opened:
            self.store = await SqliteStore.open(self.data, durable=self.durable)
            opened.push_async_callback(self.store.close)
            pki.ensure_server(certificates, [self.listen.host, socket.gethostname()])
            pki.ensure_signing_key(certificates)
            admin = pki.ensure_client(certificates, ADMIN, [MASTERS])
            audit = AuditLog(self.data / "audit.log")
            history = History(self.store, Clock(), Archive(self.data / "history.db"), self.retention)
            self.plane = ControlPlane(
                self.store,
                signing_key=SigningKey(certificates),
                audit=audit,
                history=history,
                authority=pki.authority(certificates),
            )
            opened.push_async_callback(self.plane.stop)
            await self.plane.start()
            for kind in self.retention.kinds if self.retention is not None else ():
                if self.plane.registry.get(kind) is None:
                    log.warning("how long %s are kept was said, but there is no such kind now: name it by plural and group", kind)
            http = HttpServer(self.plane.answer, tls=pki.server_context(certificates), identify=identify)
            opened.push_async_callback(http.stop)
            try:
                port = await http.start(self.listen.host, self.listen.port)
            except OSError as error:
                raise self.listen.explain(error) from error
            self.url = f"https://{self.listen.url_host}:{port}"
            self.plane.address = self.url
            pki.write_kubeconfig(self.kubeconfig, self.url, pki.authority(certificates), client=admin, user=ADMIN)
            if self.checkpoints is not None:
                timed = Timed(self.plane, *self.checkpoints)
                timed.start()
                opened.push_async_callback(timed.stop)
            self._open = opened.pop_all()

    async def stop(self) -> None:
        """Ends open watches, finishes what is under way, and lets the data directory go."""
        await self._open.aclose()
