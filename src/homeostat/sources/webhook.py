"""Takes note of pushes: a small listener of its own, on plain HTTP, to stand behind whatever ends TLS. It can only hasten a look.

    POST /hooks/git/NAMESPACE/NAME

The sender proves that it knows the key `token` of the Secret that `GitSource.spec.webhook` names: GitHub, Gitea and the generic form
sign the body with it (HMAC-SHA-256), GitLab sends it along. What is in the body is not believed: the repository is asked.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import Mapping

from aiohttp import web

from homeostat.client import Client, Key
from homeostat.model.errors import ApiError
from homeostat.sources.fetching import Sources

log = logging.getLogger("homeostat.sources")

PATH = "/hooks/git/{namespace}/{name}"
BODY_LIMIT = 5 * 1024 * 1024
AT_ONCE = 16
"""Requests; what is more is turned away."""
BODY_SECONDS = 10.0
KEY = "token"

_SIGNED = {
    "X-Hub-Signature-256": "sha256=",
    "Homeostat-Signature": "sha256=",
    "X-Gitea-Signature": "",
    "X-Gogs-Signature": "",
}


def proves(headers: Mapping[str, str], body: bytes, token: bytes) -> bool:
    """Whether the sender knows the token. An empty one proves nothing."""
    if not token:
        return False
    wanted = hmac.new(token, body, hashlib.sha256).hexdigest()
    for name, prefix in _SIGNED.items():
        said = headers.get(name, "")
        if said and said.startswith(prefix):
            return hmac.compare_digest(said.removeprefix(prefix).encode(errors="replace"), wanted.encode())
    sent = headers.get("X-Gitlab-Token", "")
    return bool(sent) and hmac.compare_digest(sent.encode(errors="replace"), token)


class Webhooks:
    """The listener. `start` it with a host and a port; 0 takes a free one. It is of use while a loop keeps Syncs."""

    def __init__(self, client: Client, sources: Sources) -> None:
        self._secrets = client.kind("v1", "Secret")
        self._sources = sources
        self._busy = 0
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Begins to listen; gives the port. OSError where it cannot."""
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_post(PATH, self._take)
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=10.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        if self._busy >= AT_ONCE:
            return web.Response(status=503, text="too many at once; try again\n", headers={"Retry-After": "1"})
        self._busy += 1
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await request.read()
            return await self._heard(
                Key(request.match_info["namespace"], request.match_info["name"]), request.headers, body
            )
        except TimeoutError:
            return web.Response(status=408, text="the body did not come\n")
        finally:
            self._busy -= 1

    async def _heard(self, key: Key, headers: Mapping[str, str], body: bytes) -> web.Response:
        spec = self._sources.state(key).spec
        token = b""
        if spec is not None and spec.webhook is not None:
            token = await self._token(key, spec.webhook.secret)
        if not proves(headers, body, token):  # the same for a source that is not there: nobody learns what is
            return web.Response(status=403, text="there is no such source, or its webhook's secret was not proven\n")
        if headers.get("X-GitHub-Event", "push") == "ping":
            return web.Response(text="pong\n")
        self._sources.poke(key)
        return web.Response(status=202, text="the repository is looked at\n")

    async def _token(self, key: Key, name: str) -> bytes:
        try:
            secret = await self._secrets.get(name, namespace=key.namespace)
            return base64.b64decode((secret.get("data") or {}).get(KEY, "")).strip()
        except ApiError as error:
            log.warning("the webhook of GitSource %s: Secret %s cannot be read: %s", key, name, error.message)
            return b""
