"""One request and its answer, within limits: of time, of size, of pace, and of where it may go."""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import orjson

from homeostat.providers.addresses import Forbidden, Hosts

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver

ANSWER_LIMIT = 1 << 20
"""Bytes of an answer that are read at most."""
REDIRECTS = 3
LONGEST_WAIT = 3600.0
"""Seconds for which a server is left alone at most, whatever its Retry-After says."""
PATIENCE = 2.0
"""Seconds of a Retry-After that are waited out at once; who asks for more is asked again later."""
SHOWN = 200
"""Characters of an answer that are shown in a message."""


class Failed(Exception):
    """No answer that could be understood. `sent` says whether the server may have acted on the request all the same."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Access:
    """How to talk to one server. `secrets` are texts that no message may have in it."""

    origin: str
    headers: Mapping[str, str] = field(default_factory=dict)
    proof: Mapping[str, str] = field(default_factory=dict, repr=False)
    authority: bytes = b""
    timeout: float = 10.0
    secrets: Sequence[str] = field(default=(), repr=False)

    def scrub(self, text: str) -> str:
        """A text from the other side without what we told it in confidence."""
        for secret in self.secrets:
            if secret:
                text = text.replace(secret, "***")
        return text


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    url: str = ""
    """Who gave it, behind all redirects."""

    def json(self) -> Any:
        """The body, decoded. `Failed` where it is no JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            raise Failed(f"the answer ({self.status}) is not JSON") from None

    def shown(self, access: Access) -> str:
        """What was answered, in a few words for people."""
        text = " ".join(access.scrub(self.body[: 4 * SHOWN].decode("utf-8", "replace")).split())
        return f"{self.status}: {text[:SHOWN]}" if text else str(self.status)


def origin_of(url: str) -> str:
    """`https://host:port` of a URL, with the port always said. ValueError where it is none that we talk to."""
    from yarl import URL

    parsed = URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"{url} is not a URL of http or https")
    if parsed.user is not None or parsed.password is not None:
        raise ValueError("a URL has no user and password in it: use `auth`")
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    return f"{parsed.scheme}://{host}:{parsed.port}"


class Exchange:
    """Talks to servers. Connections are kept for each authority that is trusted; redirects are followed for GET, to the same
    server alone; a server that asks to be left alone is."""

    def __init__(self, hosts: Hosts, limit: int = ANSWER_LIMIT) -> None:
        self._hosts = hosts
        self._limit = limit
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._not_before: dict[str, float] = {}

    async def close(self) -> None:
        """Ends the connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
        await asyncio.sleep(0)  # a turn of the loop in which connections go

    async def send(
        self, access: Access, method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Sends a request and reads its answer, whatever its status. `Failed` where none came, `Forbidden` where it may not go."""
        sent = {**access.headers, **(headers or {}), **access.proof}
        data = None if body is None else orjson.dumps(body)
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        for _ in range(REDIRECTS + 1):
            if origin_of(url) != access.origin:
                raise Forbidden(f"{access.scrub(url)} is another server than {access.origin}: nothing was sent to it")
            await self._turn(access.origin)
            answer = await self._once(access, method, url, data, sent)
            self._note(access.origin, answer)
            if not (300 <= answer.status < 400 and answer.status != 304 and method == "GET"):
                return answer
            url = _join(url, answer.headers.get("location", ""))
        raise Failed(f"{access.origin} redirects again and again")

    async def _once(
        self, access: Access, method: str, url: str, data: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        import aiohttp
        from yarl import URL

        parsed = URL(url)
        self._hosts.check(str(parsed.host), parsed.port or 0)
        session = self._session(access.authority)
        try:
            async with (
                asyncio.timeout(access.timeout),
                session.request(method, parsed, headers=headers, data=data, allow_redirects=False) as response,
            ):
                received = bytearray()
                async for piece in response.content.iter_any():
                    received += piece
                    if len(received) > self._limit:
                        raise Failed(f"the answer of {access.origin} is longer than {self._limit} bytes")
                found = {name.lower(): value for name, value in response.headers.items()}
                return Answer(response.status, found, bytes(received), url)
        except TimeoutError:
            raise Failed(f"{access.origin} did not answer within {access.timeout:g} s") from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise Failed(f"{access.origin} is not trusted: {error.certificate_error}", sent=False) from None
        except aiohttp.ClientConnectorError as error:
            raise Failed(f"cannot reach {access.origin}: {_plain(error.os_error)}", sent=False) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Failed(f"the connection to {access.origin} broke: {access.scrub(_plain(error))}") from None
        except ValueError as error:  # a header with a line break in it, say
            raise Failed(f"the request cannot be made: {access.scrub(str(error))}", sent=False) from None

    async def _turn(self, origin: str) -> None:
        """Waits a little where the server asked for it; refuses where it is for longer."""
        left = self._not_before.get(origin, 0.0) - asyncio.get_running_loop().time()
        if left > PATIENCE:
            raise Failed(f"{origin} asked to be left alone for {left:.0f} s more", sent=False)
        if left > 0:
            await asyncio.sleep(left)

    def _note(self, origin: str, answer: Answer) -> None:
        if answer.status in (429, 503) and (pause := retry_after(answer.headers.get("retry-after", ""))) > 0:
            self._not_before[origin] = asyncio.get_running_loop().time() + pause
        elif answer.status < 400:
            self._not_before.pop(origin, None)

    def _session(self, authority: bytes) -> aiohttp.ClientSession:
        import aiohttp

        name = hashlib.sha256(authority).hexdigest() if authority else ""
        session = self._sessions.get(name)
        if session is None:
            resolver = cast("AbstractResolver", self._hosts.resolver())
            connector = aiohttp.TCPConnector(ssl=_tls(authority), resolver=resolver, keepalive_timeout=15)
            session = self._sessions[name] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"User-Agent": "homeostat", "Accept": "application/json"},
            )
        return session


def retry_after(text: str, now: float | None = None) -> float:
    """Seconds that a Retry-After asks for, given as seconds or as a date; 0 where it says nothing that makes sense."""
    text = text.strip()
    if text.isdigit():
        return min(float(text), LONGEST_WAIT)
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError):
        return 0.0
    return min(max(0.0, moment - (time.time() if now is None else now)), LONGEST_WAIT)


def _tls(authority: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not authority:
        context.load_default_certs()
        return context
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        raise Failed("the certificate of the authority cannot be read", sent=False) from None
    return context


def _join(url: str, location: str) -> str:
    from yarl import URL

    if not location:
        raise Failed("it redirects, and does not say where to")
    return str(URL(url).join(URL(location)))


def _plain(error: Any) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
