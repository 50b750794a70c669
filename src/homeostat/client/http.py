"""HTTPS by aiohttp, which is imported with the first request and not before."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from homeostat.client.credentials import Credentials
from homeostat.client.kubeconfig import ConfigError, Target
from homeostat.client.transport import Headers, Unreachable, Untrusted, http_date
from homeostat.model.errors import ApiError

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 10.0
KEEP_SECONDS = 30.0
"""How long an idle connection is kept: shorter than servers do, so that none is used that they just closed."""


class HttpTransport:
    """One server over HTTPS (or plain HTTP), as a kubeconfig or a service account describes it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._base = target.server.rstrip("/")
        self._credentials = Credentials(target)
        self._session: aiohttp.ClientSession | None = None
        self._certificate: tuple[bytes, bytes] | None = None

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> HttpAnswer:
        answer = await self._send(method, target, headers, body)
        if answer.status == 401 and self._credentials.renewable:
            # A token that was replaced or revoked since it was read; ask for another, once.
            answer.close()
            self._credentials.forget()
            answer = await self._send(method, target, headers, body)
        if answer.status == 401:
            now = http_date(answer.headers.get("date", ""))
            answer.close()
            raise ApiError(401, "Unauthorized", f"{self._base} does not know who asks: {self._credentials.refused(now)}")
        return answer

    async def _send(self, method: str, target: str, headers: Headers, body: bytes) -> HttpAnswer:
        import aiohttp
        from yarl import URL

        proof = await self._credentials.current()
        session = await self._open(proof.certificate)
        name = self._target.tls_server_name or None
        try:
            response = await session.request(
                method,
                URL(self._base + target, encoded=True),
                headers=[*headers, *proof.headers],
                data=body or None,
                server_hostname=name,
                allow_redirects=False,
            )
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_code", 0)
            raise Untrusted(f"{self._base} is not trusted: {error.certificate_error}", why) from None
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(f"cannot reach {self._base}: {_plain(error.os_error)}", sent=False) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the connection to {self._base} broke: {_plain(error)}") from None
        return HttpAnswer(response, self._base)

    async def _open(self, certificate: tuple[bytes, bytes] | None) -> aiohttp.ClientSession:
        """The session; a new one where the client certificate was renewed."""
        import aiohttp

        if self._session is not None and certificate == self._certificate:
            return self._session
        if self._session is not None:
            await self._session.close()
        self._certificate = certificate
        context = tls_context(self._target, certificate) if self._base.startswith("https:") else True
        connector = aiohttp.TCPConnector(
            ssl=context, limit=0, keepalive_timeout=KEEP_SECONDS, loop=asyncio.get_running_loop()
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=1 << 18,
        )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            await asyncio.sleep(0)  # a turn of the loop in which aborted connections go


class HttpAnswer:
    """An answer over HTTP."""

    __slots__ = ("_base", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, base: str) -> None:
        self._response = response
        self._base = base
        self.status = response.status
        self.headers: Mapping[str, str] = _Headers(response.headers)

    async def read(self) -> bytes:
        import aiohttp

        try:
            return await self._response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the answer of {self._base} broke off: {_plain(error)}") from None

    async def piece(self) -> bytes:
        import aiohttp

        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the stream of {self._base} broke off: {_plain(error)}") from None

    def close(self) -> None:
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()  # not read to its end: nobody waits for the peer's farewell
        self._response.close()


class _Headers(dict[str, str]):
    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__()
        for name, value in headers.items():
            self.setdefault(name.lower(), value)


def tls_context(target: Target, certificate: tuple[bytes, bytes] | None) -> ssl.SSLContext:
    """TLS as the target wants it: its own authority or the system's, its client certificate, its name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif target.authority:
        try:
            context.load_verify_locations(cadata=target.authority.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise ConfigError(f"{target.source}: the certificate authority cannot be read: {error}") from None
    else:
        context.load_default_certs()
    if certificate is not None:
        _load_certificate(context, certificate, target.source)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: tuple[bytes, bytes], source: str) -> None:
    """`ssl` takes certificates from files alone, so they are in one, private and gone at once."""
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="homeostat-") as file:
        file.write(certificate[0].rstrip() + b"\n" + certificate[1])
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"{source}: the client certificate and key cannot be used: {error}") from None


def _plain(error: Any) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return text or type(error).__name__
