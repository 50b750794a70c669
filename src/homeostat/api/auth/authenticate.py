"""Who calls: from a client certificate or a bearer token to a user, or to nobody.

A certificate wins over a token, as upstream. Tokens of service accounts are verified once and remembered for a few
seconds; tokens of users are looked up by digest each time. Either way a request pays about a microsecond.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from homeostat.api.auth.serviceaccounts import ServiceAccountTokens
from homeostat.api.auth.user import AUTHENTICATED, CREDENTIAL, User, Verified
from homeostat.api.auth.usertokens import PREFIX, UserTokens

REMEMBER_SECONDS = 10.0
"""How long a verified service account token is taken on trust where nobody calls `forget`."""
REMEMBER_LIMIT = 4096


class Peer(msgspec.Struct, frozen=True):
    """Whom a connection's client certificate stands for, and until when (seconds since 1970)."""

    user: User
    expires: float


def identify(certificate: Mapping[str, Any], der: bytes | None = None) -> Peer | None:
    """From a verified peer certificate, as `SSLSocket.getpeercert()` gives it: CN is the user, each O a group.

    None where it names nobody, or more than one: which of them is meant would be a guess.
    """
    names: list[str] = []
    groups: list[str] = []
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                names.append(value)
            elif key == "organizationName":
                groups.append(value)
    if len(names) != 1 or not names[0]:
        return None
    extra = {CREDENTIAL: (f"X509SHA256={sha256(der).hexdigest()}",)} if der else {}
    user = User(names[0], "", tuple(dict.fromkeys([*groups, AUTHENTICATED])), extra)
    return Peer(user, ssl.cert_time_to_seconds(certificate["notAfter"]))


class Authenticator:
    """Finds the user of a request."""

    def __init__(
        self, user_tokens: UserTokens, service_accounts: ServiceAccountTokens, clock: Callable[[], float]
    ) -> None:
        self.user_tokens = user_tokens
        self.service_accounts = service_accounts
        self._clock = clock
        self._remembered: dict[str, tuple[Verified, float]] = {}
        self._generation = 0

    async def authenticate(self, headers: Iterable[tuple[bytes, bytes]], peer: Peer | None = None) -> User | None:
        """The user, or None: then only what anybody may see (health) is answered.

        A connection outlives the certificate it began with, so its expiry is looked at here again.
        """
        user = self.connected(peer)
        if user is not None:
            return user
        token = bearer_token(headers)
        if not token:
            return None
        verified = await self.verify(token)
        return verified.user if verified else None

    def connected(self, peer: Peer | None) -> User | None:
        """Whom the connection itself proves; None where that proves nobody, or nobody any more."""
        return peer.user if peer is not None and self._clock() < peer.expires else None

    async def verify(self, token: str, audiences: Iterable[str] = ()) -> Verified | None:
        """What a bearer token stands for now, for this server or, in a TokenReview, for the audiences asked about."""
        now = self._clock()
        wanted = tuple(audiences)
        if token.startswith(PREFIX):
            found = self.user_tokens.verify(token, now)
            ours = self.service_accounts.audiences
            shared = tuple(a for a in wanted if a in ours) if wanted else ours
            return Verified(found[0], shared, found[1]) if found and shared else None
        if wanted:
            return await self.service_accounts.verify(token, wanted)
        known = self._remembered.get(token)
        if known is not None and now < known[1]:
            return known[0]
        generation = self._generation
        verified = await self.service_accounts.verify(token)
        # What was verified while an account was being deleted must not be remembered after it.
        if verified is not None and generation == self._generation:
            if len(self._remembered) >= REMEMBER_LIMIT:
                self._remembered.clear()
            self._remembered[token] = (verified, min(verified.expires, now + REMEMBER_SECONDS))
        return verified

    def forget(self) -> None:
        """Call when a service account, or a pod, node or secret, is changed or deleted: tokens are verified anew."""
        self._generation += 1
        self._remembered.clear()


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The token of an `Authorization: Bearer` header; empty where there is none, or more than one header."""
    found = [value for name, value in headers if name == b"authorization"]
    if len(found) != 1:
        return ""
    scheme, _, token = found[0].strip().partition(b" ")
    token = token.strip(b" ")
    if scheme.lower() != b"bearer" or b" " in token or not token.isascii():
        return ""
    return token.decode()
