"""Posts JSON to receivers of others: bounded in time, to allowed hosts alone, without redirects, and with a proof that it is us."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from homeostat.client import Client, Unreachable
from homeostat.guards.messages import SIGNATURE, signature
from homeostat.guards.policy import SecretReference
from homeostat.loop.queue import Backoff
from homeostat.model.errors import ApiError

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver

ANSWER_SECONDS = 10.0
"""How long a receiver has to answer."""
AGAIN = Backoff(first=1.0, factor=2.0, most=300.0)
"""Pauses after failures to deliver."""
LONGEST_WAIT = 3600.0
"""Seconds of a receiver's Retry-After that are waited at most."""


class Hosts(Protocol):
    """Where may be connected to."""

    def check(self, host: str, port: int) -> None:
        """Raises where the host is not allowed."""

    def resolver(self) -> Any:
        """Resolves names to allowed addresses only."""


class NotDelivered(Exception):
    """A receiver did not take what it was sent. `wait` is how long it asks to be left alone (seconds)."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


class Poster:
    """Posts. `hosts` says where may be connected to; without, anywhere. `close` it."""

    def __init__(self, client: Client, hosts: Hosts | None = None) -> None:
        self._secrets = client.kind("v1", "Secret")
        self._hosts = hosts
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, address: str, message: Any, secret: SecretReference | None) -> None:
        """Sends a message. NotDelivered unless it was answered with 2xx."""
        import aiohttp
        from yarl import URL

        body = orjson.dumps(message)
        url = URL(address)
        headers = {"Content-Type": "application/json", "User-Agent": "homeostat", **await self._proof(secret, body)}
        try:
            if self._hosts is not None:
                self._hosts.check(url.host or "", url.port or 0)
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._open().post(url, data=body, headers=headers, allow_redirects=False)
                answer.release()
        except TimeoutError:
            raise NotDelivered(f"it did not answer within {ANSWER_SECONDS:g} s") from None
        except aiohttp.ClientConnectorError as error:
            raise NotDelivered(f"it cannot be reached: {error.os_error.strerror or error.os_error}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise NotDelivered(f"the connection broke: {type(error).__name__}") from None
        except Exception as error:  # such as a host that must not be connected to
            raise NotDelivered(str(error)) from None
        if not 200 <= answer.status < 300:
            raise NotDelivered(f"it answered {answer.status}", _wait(answer.headers.get("Retry-After", "")))

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            resolver: AbstractResolver | None = None if self._hosts is None else self._hosts.resolver()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=resolver, limit_per_host=2, keepalive_timeout=15.0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def _proof(self, which: SecretReference | None, body: bytes) -> dict[str, str]:
        """The headers by which a receiver knows that it is us; read anew each time, so that a renewed secret counts at once."""
        if which is None:
            return {}
        try:
            data = (await self._secrets.get(which.name, namespace=which.namespace)).get("data") or {}
            token, key = (base64.b64decode(data.get(name, ""), validate=True) for name in ("token", "hmac"))
            bearer = token.decode("ascii").strip()
        except (ApiError, Unreachable) as error:
            raise NotDelivered(f"its secret {which.namespace}/{which.name} cannot be read: {error}") from None
        except (binascii.Error, UnicodeDecodeError):
            raise NotDelivered(f"the token in {which.namespace}/{which.name} is no text") from None
        if not bearer and not key:
            raise NotDelivered(f"its secret {which.namespace}/{which.name} has neither `token` nor `hmac`")
        proof = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        return proof | ({SIGNATURE: signature(key, body)} if key else {})


def _wait(text: str) -> float:
    return min(float(text), LONGEST_WAIT) if text.isascii() and text.isdigit() else 0.0
