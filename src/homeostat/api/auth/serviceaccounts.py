"""Service account tokens: JWTs signed with ES256, bound to an account (and maybe a pod, node or secret) by uid.

Those that lie in Secrets are of the older form: they have no end of their own, and hold as long as their Secret holds them.

The signature is checked with the one algorithm and the one key that are ours; what a token's header says about either
is compared, never followed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from homeostat.api.auth.user import (
    AUTHENTICATED,
    AUTHENTICATION,
    CREDENTIAL,
    EXTRA,
    User,
    Verified,
    service_account_groups,
    service_account_name,
)
from homeostat.model.clock import format_time, parse_time
from homeostat.model.errors import FieldError, bad_request, conflict, invalid, not_found

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ISSUER = "https://kubernetes.default.svc.cluster.local"
ALGORITHM = "ES256"
DEFAULT_SECONDS = 3600
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
TOKEN_LIMIT = 16 * 1024
"""Bytes; longer ones are not looked at."""
DELETION_GRACE = 60.0
"""Seconds for which the tokens of an account or object that is being deleted still work, as upstream."""

CLAIMS = "kubernetes.io"
SECRET_TYPE = "kubernetes.io/service-account-token"
ACCOUNT_NAME, ACCOUNT_UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
"""The annotations by which such a Secret says whose token it holds."""
_SECRET_ISSUER = "kubernetes/serviceaccount"
_SECRET_CLAIMS = "kubernetes.io/serviceaccount/"

Lookup = Callable[[str, str, str], Awaitable[Mapping[str, Any] | None]]
"""The present object of a core resource (`serviceaccounts`, `pods`, …) by plural, namespace and name."""

_BOUND = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class SigningKey:
    """The key under `directory`, which `pki.ensure_signing_key` made. Nothing is imported before it is used."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "sa.key"
        self.jwk: dict[str, str] = orjson.loads((directory / "sa.jwk").read_bytes())
        self.kid = self.jwk["kid"]
        self._loaded: EllipticCurvePrivateKey | None = None

    @property
    def _key(self) -> EllipticCurvePrivateKey:
        if self._loaded is None:
            from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key

            key = load_pem_private_key(self._path.read_bytes(), None)
            assert isinstance(key, EllipticCurvePrivateKey), f"{self._path} does not hold an EC key"
            self._loaded = key
        return self._loaded

    def sign(self, message: bytes) -> bytes:
        """The signature of a message, as JWS has it: both numbers of ECDSA, one after the other."""
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        r, s = decode_dss_signature(self._key.sign(message, ECDSA(SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def holds(self, message: bytes, signature: bytes) -> bool:
        """Whether a signature is ours, and of this message."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        if len(signature) != 64:
            return False
        der = encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))
        try:
            self._key.public_key().verify(der, message, ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


class ServiceAccountTokens:
    """Issues and verifies. `audiences` are those of this server; a token for anybody else does not open it."""

    def __init__(
        self,
        key: SigningKey,
        lookup: Lookup,
        clock: Callable[[], float],
        *,
        issuer: str = ISSUER,
        audiences: Sequence[str] = (),
    ) -> None:
        self._key = key
        self._lookup = lookup
        self._clock = clock
        self.issuer = issuer
        self.audiences = tuple(audiences) or (issuer,)

    def jwks(self) -> dict[str, Any]:
        """`/openid/v1/jwks`, served as `application/jwk-set+json`."""
        return {"keys": [self._key.jwk]}

    def openid_configuration(self, server: str) -> dict[str, Any]:
        """`/.well-known/openid-configuration`; `server` is the URL that clients reach us by."""
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{server.rstrip('/')}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }

    async def request(self, body: Mapping[str, Any], account: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a TokenRequest for an account that exists. Raises what upstream answers to a bad one."""
        meta = account["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        asked, spec = body.get("metadata") or {}, body.get("spec") or {}
        if not isinstance(asked, dict) or not isinstance(spec, dict):
            raise bad_request("metadata and spec must be objects")
        for field, expected in (("name", name), ("namespace", namespace)):
            if asked.get(field) and asked[field] != expected:
                detail = f"must match the service account {field} if specified"
                error = FieldError.invalid(f"metadata.{field}", asked[field], detail)
                raise invalid(AUTHENTICATION, "TokenRequest", name, [error])
        seconds, audiences = _wanted(spec)
        audiences = audiences or list(self.audiences)
        bound = await self._bound(spec.get("boundObjectRef"), namespace, name)
        now = int(self._clock())
        token = self._sign(namespace, name, meta["uid"], bound, audiences, now, now + seconds)
        kept = {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": spec.get("boundObjectRef")}
        return {
            "kind": "TokenRequest",
            "apiVersion": f"{AUTHENTICATION}/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": format_time(now)},
            "spec": kept,
            "status": {"token": token, "expirationTimestamp": format_time(now + seconds)},
        }

    async def _bound(self, ref: Any, namespace: str, account: str) -> dict[str, dict[str, str]]:
        """The claims that tie a token to an object's life."""
        if ref is None:
            return {}
        if not isinstance(ref, dict):
            raise bad_request("spec.boundObjectRef must be an object")
        kind, name = str(ref.get("kind", "")), str(ref.get("name", ""))
        plural = _BOUND.get(kind)
        version = ref.get("apiVersion", "v1")
        if plural is None or version != "v1":
            group = version if "/" in version else f"/{version}"
            raise bad_request(f"cannot bind token to object of type {group}, Kind={kind}")
        found = await self._lookup(plural, "" if kind == "Node" else namespace, name)
        if found is None:
            raise not_found("", plural, name)
        if kind == "Pod" and (found.get("spec") or {}).get("serviceAccountName") != account:
            why = f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            raise bad_request(why)
        uid = found["metadata"]["uid"]
        if ref.get("uid") and ref["uid"] != uid:
            why = (
                f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise conflict("", kind, name, why)
        return {kind.lower(): {"name": name, "uid": uid}}

    def _sign(
        self,
        namespace: str,
        name: str,
        uid: str,
        bound: Mapping[str, Any],
        audiences: list[str],
        now: int,
        expires: int,
    ) -> str:
        claims = {
            "aud": audiences,
            "exp": expires,
            "iat": now,
            "iss": self.issuer,
            "jti": str(uuid.uuid4()),
            CLAIMS: {"namespace": namespace, **bound, "serviceaccount": {"name": name, "uid": uid}},
            "nbf": now,
            "sub": service_account_name(namespace, name),
        }
        return self._signed(claims)

    def of_secret(self, namespace: str, account: str, uid: str, secret: str) -> str:
        """The token of an account for a Secret that holds it."""
        claims = {"namespace": namespace, "secret.name": secret, "service-account.name": account, "service-account.uid": uid}
        named = {_SECRET_CLAIMS + name: value for name, value in claims.items()}
        return self._signed({"iss": _SECRET_ISSUER, **named, "sub": service_account_name(namespace, account)})

    def _signed(self, claims: Mapping[str, Any]) -> str:
        header = {"alg": ALGORITHM, "kid": self._key.kid}
        message = _encode(orjson.dumps(header)) + b"." + _encode(orjson.dumps(claims))
        return (message + b"." + _encode(self._key.sign(message))).decode()

    async def verify(self, token: str, audiences: Sequence[str] = ()) -> Verified | None:
        """Whose token this is, for one of `audiences` at least (default: this server's); None where it is not valid."""
        claims = self._authentic(token)
        if claims is None:
            return None
        if claims["iss"] == _SECRET_ISSUER:
            shared = tuple(a for a in (audiences or self.audiences) if a in self.audiences)
            user = await self._user_of_secret(claims, token) if shared else None
            return Verified(user, shared, float("inf")) if user else None
        given = claims.get("aud")
        given = [given] if isinstance(given, str) else given or []
        shared = tuple(a for a in (audiences or self.audiences) if a in given)
        expires, begins = claims.get("exp"), claims.get("nbf", 0)
        if not shared or type(expires) is not int or type(begins) is not int:
            return None
        now = self._clock()
        if not begins - 60 <= now < expires:
            return None
        user = await self._user(claims, now)
        return Verified(user, shared, expires) if user else None

    def _authentic(self, token: str) -> dict[str, Any] | None:
        """The claims of a token that this server signed, whatever they say; None for anything else."""
        if len(token) > TOKEN_LIMIT or not token.isascii():
            return None
        parts = token.encode().split(b".")
        if len(parts) != 3:
            return None
        try:
            header = orjson.loads(_decode(parts[0]))
            signature = _decode(parts[2])
            if not isinstance(header, dict) or header.get("alg") != ALGORITHM or header.get("kid") != self._key.kid:
                return None
            # "crit" names extensions that must be understood; we know none.
            if "crit" in header or not self._key.holds(parts[0] + b"." + parts[1], signature):
                return None
            claims = orjson.loads(_decode(parts[1]))
        except ValueError:
            return None
        return claims if isinstance(claims, dict) and claims.get("iss") in (self.issuer, _SECRET_ISSUER) else None

    async def _user_of_secret(self, claims: Mapping[str, Any], token: str) -> User | None:
        """Whose token a Secret holds; None where it holds this one no more, or either of them is going."""
        said = ("namespace", "secret.name", "service-account.name", "service-account.uid")
        namespace, secret, name, uid = (claims.get(_SECRET_CLAIMS + claim) for claim in said)
        if not (namespace and secret and name and uid) or claims.get("sub") != service_account_name(namespace, name):
            return None
        holder = await self._lookup("secrets", namespace, secret)
        account = await self._lookup("serviceaccounts", namespace, name)
        if holder is None or account is None or account["metadata"]["uid"] != uid:
            return None
        if any(obj["metadata"].get("deletionTimestamp") for obj in (holder, account)):
            return None
        if (holder.get("data") or {}).get("token") != base64.b64encode(token.encode()).decode():
            return None
        return User(service_account_name(namespace, name), uid, (*service_account_groups(namespace), AUTHENTICATED))

    async def _user(self, claims: Mapping[str, Any], now: float) -> User | None:
        private = claims.get(CLAIMS) or {}
        account = private.get("serviceaccount") or {}
        namespace, name, uid = private.get("namespace"), account.get("name"), account.get("uid")
        if not (namespace and name and uid) or claims.get("sub") != service_account_name(namespace, name):
            return None
        if not await self._alive("serviceaccounts", namespace, name, uid, now):
            return None
        extra = {CREDENTIAL: (f"JTI={claims.get('jti', '')}",)}
        for kind, plural in _BOUND.items():
            ref = private.get(kind.lower())
            if ref is None:
                continue
            scope = "" if kind == "Node" else namespace
            if not await self._alive(plural, scope, ref.get("name"), ref.get("uid"), now):
                return None
            if kind != "Secret":
                extra[f"{EXTRA}{kind.lower()}-name"] = (ref["name"],)
                extra[f"{EXTRA}{kind.lower()}-uid"] = (ref["uid"],)
        groups = (*service_account_groups(namespace), AUTHENTICATED)
        return User(service_account_name(namespace, name), uid, groups, extra)

    async def _alive(self, plural: str, namespace: str, name: str, uid: str, now: float) -> bool:
        found = await self._lookup(plural, namespace, name)
        if found is None or found["metadata"].get("uid") != uid:
            return False
        deleted = found["metadata"].get("deletionTimestamp")
        return not deleted or now < parse_time(deleted) + DELETION_GRACE


def _wanted(spec: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Seconds and audiences as asked for; an empty list where none was."""
    seconds = spec.get("expirationSeconds")
    seconds = DEFAULT_SECONDS if seconds is None else seconds
    audiences = spec.get("audiences") or []
    if type(seconds) is not int:
        raise bad_request("spec.expirationSeconds must be an integer")
    if not isinstance(audiences, list) or not all(isinstance(a, str) for a in audiences):
        raise bad_request("spec.audiences must be a list of strings")
    path = "spec.expirationSeconds"
    error = None
    if seconds < MIN_SECONDS:
        error = FieldError.invalid(path, seconds, "may not specify a duration less than 10 minutes")
    elif seconds > MAX_SECONDS:
        error = FieldError.invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")
    if error:
        raise invalid(AUTHENTICATION, "TokenRequest", "", [error])
    return seconds, audiences


def public_jwk(x: int, y: int, der: bytes) -> dict[str, str]:
    """The public half of a P-256 key as JWK. Its id is the digest of its DER form, as upstream makes it."""
    return {
        "use": "sig",
        "kty": "EC",
        "kid": _encode(hashlib.sha256(der).digest()).decode(),
        "crv": "P-256",
        "alg": ALGORITHM,
        "x": _encode(x.to_bytes(32, "big")).decode(),
        "y": _encode(y.to_bytes(32, "big")).decode(),
    }


def _encode(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def _decode(text: bytes) -> bytes:
    """Strict: one spelling per value, so that a token cannot be altered and still hold."""
    try:
        raw = base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    if _encode(raw) != text:
        raise ValueError("not canonical base64url")
    return raw
