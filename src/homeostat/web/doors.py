"""Who may come in: headers that keep a page to itself, a check of where requests come from, and links that are good once.

There are no cookies. A page holds a bearer token and says it with each request, so no other site can ride on somebody's session; a
certificate that a browser may show by itself counts for nothing here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from homeostat.api.auth.user import User
from homeostat.api.request import Request
from homeostat.model.errors import ApiError, unauthorized

CODE_SECONDS = 300.0
"""How long a link waits to be used."""
CODES_LIMIT = 100
"""Links that wait at a time; the oldest makes room."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


def check_origin(request: Request, hosts: frozenset[str]) -> None:
    """403 where a request was sent by another site's page, or to a name that is not ours (a name that was bent to our address)."""
    host = request.header(b"host")
    if _name(host) not in hosts:
        raise ApiError(403, "Forbidden", f"this server is not called {_name(host)!r}: use one of {', '.join(sorted(hosts))}")
    origin = request.header(b"origin")
    if origin and origin != f"https://{host}":
        raise ApiError(403, "Forbidden", f"requests from pages of {origin} are refused")
    if request.header(b"sec-fetch-site") not in ("", "same-origin", "none"):
        raise ApiError(403, "Forbidden", "requests from pages of other sites are refused")


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


class Waiting(NamedTuple):
    user: User
    until: float


class Codes:
    """Links that sign somebody in, once. Kept in memory: a restart forgets them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._waiting: dict[str, Waiting] = {}

    def make(self, user: User) -> str:
        """A code for this user."""
        while len(self._waiting) >= CODES_LIMIT:
            del self._waiting[next(iter(self._waiting))]
        code = secrets.token_urlsafe(32)
        self._waiting[code] = Waiting(user, self._now() + CODE_SECONDS)
        return code

    def use(self, code: str) -> User:
        """Whose it is; from now on it is nobody's. 401 where it is none, was used, or came too late."""
        found = self._waiting.pop(code, None)
        if found is None or self._now() > found.until:
            raise unauthorized()
        return found.user
