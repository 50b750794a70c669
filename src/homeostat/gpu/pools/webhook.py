"""By a webhook: the question is POSTed, and the answer is the body of a 2xx. See `ways` for both.

`Idempotency-Key` is the key of the node. With a Secret, its key `token` is sent as bearer token, and with its key `hmac` the header
`Homeostat-Signature` is `sha256=` and the HMAC of the body, as for alerts. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from homeostat.gpu.pools.exec import Secrets
from homeostat.gpu.pools.ways import Had, Pool, PoolFailed, listed, obtained, question
from homeostat.guards.messages import SIGNATURE, signature
from homeostat.guards.policy import is_loopback
from homeostat.loop.provider import Refused
from homeostat.providers.addresses import Forbidden, Hosts

if TYPE_CHECKING:
    import aiohttp

ANSWER_MOST = 1024 * 1024
"""Bytes of an answer."""
_SHOWN = 200


class ByWebhook:
    """`hosts` may be connected to; None: none may."""

    def __init__(self, hosts: Hosts | None, secrets: Secrets) -> None:
        self._hosts = hosts
        self._secrets = secrets
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Lets go of its connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def has(self, pool: Pool) -> list[Had]:
        return listed(await self._post("list", pool))

    async def get(self, pool: Pool, key: str) -> str:
        return obtained(await self._post("get", pool, key=key), key)

    async def give_back(self, pool: Pool, had: Had) -> None:
        await self._post("giveBack", pool, key=had.key, node=had.node)

    async def _post(self, action: str, pool: Pool, **more: str) -> bytes:
        import aiohttp
        from yarl import URL

        if self._hosts is None:
            raise Refused("spec.provision.webhook: whoever runs the control plane has to allow its host (--allow http:HOST)")
        body, how = orjson.dumps(question(action, pool, **more)), pool.spec.provision
        url = URL(how.webhook)
        headers = {"Content-Type": "application/json", "User-Agent": "homeostat", **await self._proof(pool, body)}
        if "key" in more:
            headers["Idempotency-Key"] = more["key"]
        try:
            self._hosts.check(url.host or "", url.port or 0)
            async with asyncio.timeout(how.timeout.total_seconds()):
                async with self._open().post(url, data=body, headers=headers, allow_redirects=False) as answer:
                    said = await answer.content.read(ANSWER_MOST + 1)
                    while len(said) <= ANSWER_MOST and (piece := await answer.content.read(ANSWER_MOST + 1)):
                        said += piece
        except Forbidden as error:
            raise Refused(f"spec.provision.webhook: {error}") from None
        except TimeoutError:
            raise PoolFailed(f"{action}: {url.host} did not answer within {how.timeout.total_seconds():g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise PoolFailed(f"{action}: {url.host} cannot be asked: {str(error) or type(error).__name__}") from None
        if not 200 <= answer.status < 300:
            why = said[:_SHOWN].decode(errors="replace").strip()
            raise PoolFailed(f"{action}: {url.host} answered {answer.status}" + (f": {why}" if why else ""))
        if len(said) > ANSWER_MOST:
            raise PoolFailed(f"{action}: {url.host} answered with more than {ANSWER_MOST} bytes")
        return said

    async def _proof(self, pool: Pool, body: bytes) -> dict[str, str]:
        how = pool.spec.provision
        if how.secret is None:
            return {}
        if not how.webhook.startswith("https:") and not is_loopback(how.webhook):
            raise Refused("spec.provision.webhook: with a secret it must be https")
        held, which = await self._secrets(pool), f"{how.secret.namespace}/{how.secret.name}"
        token, key = held.get("token", b"").decode("ascii", errors="replace").strip(), held.get("hmac", b"")
        if not token and not key:
            raise PoolFailed(f"its secret {which} has neither `token` nor `hmac`")
        proof = {"Authorization": f"Bearer {token}"} if token else {}
        return proof | ({SIGNATURE: signature(key, body)} if key else {})

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            assert self._hosts is not None
            resolver: Any = self._hosts.resolver()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=resolver, limit_per_host=8, keepalive_timeout=15.0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session
