"""The usual four ways to look at a thing: run a command, ask over HTTP, connect, ask over gRPC.

Each is a `Check`: call it to look once. A thing that does not answer or answers badly has failed; where the fault is on
this side (no sockets left, no such command, a name that does not resolve) the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import msgspec

from homeostat.loop.grpc_health import NotHttp2, ask_health
from homeostat.loop.probes import Check, Outcome, ProbePolicy, Result

OUTPUT_LIMIT = 4096
"""Bytes of what a command or a server says that are kept for the message."""
BODY_LIMIT = 10 * 1024
"""Bytes of an HTTP answer that are read at most."""

_OURS = {
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.EADDRNOTAVAIL,
    errno.ENETDOWN,
    errno.ENETUNREACH,
}
"""Errors of a connection that say nothing of the other end."""


class ExecCheck(msgspec.Struct, frozen=True):
    """Runs a command: it passes with exit status 0. A command that takes too long is killed with all it started.

    It inherits nothing from this process but PATH: what it needs stands in `env`.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    cwd: str | None = None

    async def __call__(self) -> Result:
        env = {"PATH": os.environ.get("PATH", os.defpath), **self.env}
        with _Output() as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output.end,
                    stderr=output.end,
                    env=env,
                    cwd=self.cwd,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                return Result(Outcome.UNKNOWN, f"{self.command[0]} cannot be run: {_plain(error)}")
            try:
                status = await process.wait()
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
                raise
            said = output.text()
        if status == 0:
            return Result(Outcome.PASSED, said)
        how = f"exit status {status}" if status > 0 else f"killed by signal {-status}"
        return Result(Outcome.FAILED, f"{how}: {said}" if said else how)


class _Output:
    """A pipe of which only the beginning is kept. Whoever else holds its other end is not waited for."""

    def __init__(self) -> None:
        self._read, self.end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.end, True)
        self._kept = bytearray()

    def __enter__(self) -> _Output:
        asyncio.get_running_loop().add_reader(self._read, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._read)
        os.close(self._read)
        os.close(self.end)

    def _take(self) -> bool:
        try:
            piece = os.read(self._read, 65536)
        except BlockingIOError:
            return False
        self._kept += piece[: OUTPUT_LIMIT - len(self._kept)]
        return bool(piece)

    def text(self) -> str:
        """What was said until now."""
        for _ in range(16):  # as much as a pipe holds; who goes on talking is not listened to
            if not self._take():
                break
        return self._kept.decode(errors="replace").strip()


class HttpCheck(msgspec.Struct, frozen=True):
    """Gets a page: it passes with a status from 200 to 399. Redirects are not followed.

    Over HTTPS the certificate is not verified, as Kubernetes does not either, unless `verify` is set: a probe asks whether
    it works, not who it is.
    """

    host: str
    port: int
    path: str = "/"
    scheme: str = "http"
    headers: tuple[tuple[str, str], ...] = ()
    verify: bool = False

    async def __call__(self) -> Result:
        import aiohttp
        from yarl import URL

        host = f"[{self.host}]" if ":" in self.host else self.host
        url = URL(f"{self.scheme}://{host}:{self.port}/{self.path.removeprefix('/')}")
        headers = [("User-Agent", "homeostat-probe"), ("Accept", "*/*")]
        told = {name.lower() for name, _ in self.headers}
        headers = [(name, value) for name, value in headers if name.lower() not in told] + list(self.headers)
        connector = aiohttp.TCPConnector(force_close=True, ssl=self.verify)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    timeout=aiohttp.ClientTimeout(total=None),
                ) as session,
                session.get(url, headers=headers, allow_redirects=False) as response,
            ):
                said = await _beginning(response.content)
        except aiohttp.ClientConnectorDNSError as error:
            return Result(Outcome.UNKNOWN, f"{self.host} cannot be resolved: {_plain(error.os_error)}")
        except aiohttp.ClientConnectorError as error:
            return _broken(error.os_error)
        except aiohttp.ClientError as error:
            return Result(Outcome.FAILED, f"no proper answer: {_plain(error)}")
        except OSError as error:
            return _broken(error)
        passed = 200 <= response.status < 400
        return Result(
            Outcome.PASSED if passed else Outcome.FAILED, f"HTTP {response.status}" + ("" if passed else said)
        )


async def _beginning(content: Any) -> str:
    """Reads an answer as far as the limit, and gives what of it fits a message."""
    body = bytearray()
    while len(body) < BODY_LIMIT and (piece := await content.read(BODY_LIMIT - len(body))):
        body += piece
    said = body[:OUTPUT_LIMIT].decode(errors="replace").strip()
    return f": {said}" if said else ""


class TcpCheck(msgspec.Struct, frozen=True):
    """Opens a connection, and closes it at once: it passes when somebody accepts."""

    host: str
    port: int

    async def __call__(self) -> Result:
        try:
            _, writer = await asyncio.open_connection(self.host, self.port)
        except OSError as error:
            return _broken(error)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return Result(Outcome.PASSED, "connected")


class GrpcCheck(msgspec.Struct, frozen=True):
    """Asks grpc.health.v1.Health/Check: it passes when the answer is SERVING. `service` empty asks for the whole server.

    Without `tls` it speaks HTTP/2 in the clear, as Kubernetes does.
    """

    host: str
    port: int
    service: str = ""
    tls: ssl.SSLContext | None = None

    async def __call__(self) -> Result:
        try:
            status = await ask_health(self.host, self.port, self.service, self.tls)
        except NotHttp2 as error:
            return Result(Outcome.FAILED, str(error))
        except OSError as error:
            return _broken(error)
        except asyncio.IncompleteReadError:
            return Result(Outcome.FAILED, "the connection was closed before the answer")
        return Result(Outcome.PASSED if status == "SERVING" else Outcome.FAILED, status)


def _broken(error: OSError) -> Result:
    """What it means that a connection failed: the other end does not answer, or this end could not ask."""
    ours = isinstance(error, socket.gaierror) or error.errno in _OURS
    return Result(Outcome.UNKNOWN if ours else Outcome.FAILED, _plain(error))


def _plain(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def from_spec(spec: Mapping[str, Any], host: str, env: Mapping[str, str] | None = None) -> tuple[ProbePolicy, Check]:
    """A probe as Kubernetes writes it (`httpGet`, `tcpSocket`, `exec` or `grpc`, with its seconds and thresholds).

    `host` is where to look when the probe does not say; `env` is for commands. Ports are numbers here: a name has to be
    looked up before. Raises ValueError where there is not exactly one way to look.
    """
    ways = [way for way in ("exec", "httpGet", "tcpSocket", "grpc") if spec.get(way) is not None]
    if len(ways) != 1:
        raise ValueError(f"a probe has exactly one of exec, httpGet, tcpSocket and grpc; this one has {ways or 'none'}")
    default = ProbePolicy()
    policy = ProbePolicy(
        initial_delay=spec.get("initialDelaySeconds", default.initial_delay),
        period=spec.get("periodSeconds") or default.period,
        timeout=spec.get("timeoutSeconds") or default.timeout,
        success_threshold=spec.get("successThreshold") or default.success_threshold,
        failure_threshold=spec.get("failureThreshold") or default.failure_threshold,
    )
    return policy, _check(ways[0], spec[ways[0]], host, env or {})


def _check(way: str, how: Mapping[str, Any], host: str, env: Mapping[str, str]) -> Check:
    if way == "exec":
        if not how.get("command"):
            raise ValueError("exec needs a command")
        return ExecCheck(tuple(how["command"]), env)
    where = how.get("host") or host
    if way == "tcpSocket":
        return TcpCheck(where, _port(how))
    if way == "grpc":
        return GrpcCheck(host, _port(how), how.get("service") or "")
    headers = tuple((header["name"], header.get("value", "")) for header in how.get("httpHeaders") or ())
    return HttpCheck(where, _port(how), how.get("path") or "/", (how.get("scheme") or "HTTP").lower(), headers)


def _port(how: Mapping[str, Any]) -> int:
    port = how.get("port")
    if isinstance(port, int) and 0 < port < 65536:
        return port
    raise ValueError(f"a probe needs a port from 1 to 65535, not {port!r}")
