"""Files that SOPS encrypted for age keys: opened only where all of it checks, and only in `data` and `stringData` of Secrets.

A data key, encrypted for each recipient, encrypts each value by itself, with its path as associated data. A MAC over all values says that
none was changed, moved or taken out. What is opened is nowhere shown, for Secrets are compared and told of by digests; other kinds are
not, so there nothing may be encrypted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from homeostat.sources.files import RenderError

SUFFIX = ".agekey"
"""How the keys of a Secret end that hold age identities, one to a line."""
FIELDS = ("data", "stringData")
_IDENTITY = "AGE-SECRET-KEY-"
_BEGIN = "ENC[AES256_GCM,"
_VALUE = re.compile(
    r"ENC\[AES256_GCM,data:([^,\]]*),iv:([^,\]]+),tag:([^,\]]+),type:(str|int|float|bool)\]", re.ASCII
).fullmatch
_KEY_BYTES = 32
_ONLY_ENCRYPTED = bytes.fromhex("8a3fd2ad54ce66527b1034f3d147be0b0b975b3bf44f72c6fdadec8176f27d69")
"""What the MAC begins with where it is of encrypted values alone."""

Refused = Callable[[str, str], RenderError]
"""The error for a problem with a field."""


class Keys(NamedTuple):
    """Age identities. `name` is that of their Secret, `digest` tells them from others."""

    name: str
    identities: tuple[Any, ...]
    digest: str

    def __repr__(self) -> str:
        return f"Keys({self.name})"


class NoKeys(Exception):
    """A Secret has no age identity, or what is none. Says which."""


def keys_of(values: Mapping[str, bytes], name: str) -> Keys:
    """The identities in the data of a Secret. `NoKeys` where there is none, or one cannot be read."""
    import pyrage

    found: list[Any] = []
    digest = hashlib.sha256()
    for key in sorted(key for key in values if key.endswith(SUFFIX)):
        for line in values[key].decode(errors="replace").split():
            if not line.startswith(_IDENTITY):
                continue
            try:
                found.append(pyrage.x25519.Identity.from_str(line))
            except pyrage.IdentityError:
                raise NoKeys(f"Secret {name}: {key} has an age identity that is none") from None
            digest.update(line.encode())
    if not found:
        raise NoKeys(f"Secret {name} has no age identity: it stands in a key that ends in {SUFFIX}")
    return Keys(name, tuple(found), digest.hexdigest())


def is_sealed(value: Any) -> bool:
    """Whether a document says that SOPS encrypted it."""
    return isinstance(value, dict) and isinstance(value.get("sops"), dict) and "mac" in value["sops"]


def unseal(documents: Sequence[Any], keys: Keys, refused: Callable[[int, str, str], RenderError]) -> list[Any]:
    """The documents of one file, opened. `refused` makes the error of a document, by its number, from problem and field."""
    for number, one in enumerate(documents):
        if not is_sealed(one):
            raise refused(number, "it is not encrypted, and others in its file are: the MAC is of all of them", "")
        _check_places(one, partial(refused, number))
    metadata = documents[0]["sops"]
    key = _data_key(metadata, keys, partial(refused, 0))
    only = metadata.get("mac_only_encrypted") is True
    total = hashlib.sha512(_ONLY_ENCRYPTED if only else b"")
    opened = []
    for number, one in enumerate(documents):
        opener = _Opener(key, total, only, partial(refused, number))
        opened.append({name: opener.opened(value, (name,)) for name, value in one.items() if name != "sops"})
    opener = _Opener(key, total, only, partial(refused, 0))
    said = opener.text(metadata["mac"], str(metadata.get("lastmodified", "")), "sops.mac")[0]
    if not hmac.compare_digest(said.decode(errors="replace").upper(), total.hexdigest().upper()):
        raise refused(0, "its MAC does not check: a value was changed, moved or taken out since it was encrypted", "sops.mac")
    return opened


def _check_places(document: Mapping[str, Any], refused: Refused) -> None:
    secret = document.get("apiVersion") == "v1" and document.get("kind") == "Secret"
    for path in _encrypted(document, ()):
        if not secret or path[0] not in FIELDS:
            raise refused(
                "only `data` and `stringData` of a Secret may be encrypted, for elsewhere values are shown in plans and "
                "events: encrypt with --encrypted-regex '^(data|stringData)$'",
                ".".join(path),
            )


def _encrypted(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if path or name != "sops":
                yield from _encrypted(inner, (*path, name))
    elif isinstance(value, list):
        for inner in value:
            yield from _encrypted(inner, path)
    elif isinstance(value, str) and value.startswith(_BEGIN):
        yield path


def _data_key(metadata: Mapping[str, Any], keys: Keys, refused: Refused) -> bytes:
    import pyrage

    if metadata.get("key_groups") or metadata.get("shamir_threshold"):
        raise refused("its data key is split into parts, which cannot be put together here", "sops.key_groups")
    entries = [one for one in metadata.get("age") or () if isinstance(one, dict) and isinstance(one.get("enc"), str)]
    if not entries:
        raise refused("it is not encrypted for any age recipient, and others are not served here", "sops.age")
    for entry in entries:
        try:
            key = pyrage.decrypt(entry["enc"].encode(), list(keys.identities))
        except pyrage.DecryptError:
            continue
        if len(key) == _KEY_BYTES:
            return bytes(key)
    names = ", ".join(str(one.get("recipient")) for one in entries[:5])
    raise refused(f"no identity in Secret {keys.name} is one of its recipients ({names})", "sops.age")


class _Opener:
    """Opens values of a document, and adds each to what the MAC is of."""

    def __init__(self, key: bytes, total: Any, only_encrypted: bool, refused: Refused) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)
        self._total = total
        self._only = only_encrypted
        self._refused = refused

    def opened(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {name: self.opened(inner, (*path, name)) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.opened(inner, path) for inner in value]  # the place in a list is no part of the path
        if not isinstance(value, str) or not value.startswith(_BEGIN):
            if not self._only:
                self._total.update(_written(value))
            return value
        field = ".".join(path)
        plain, kind = self.text(value, ":".join(path) + ":", field)
        self._total.update(plain)
        try:
            text = plain.decode()
        except UnicodeDecodeError:
            raise self._refused("what it holds is no text: keep bytes as base64, in `data`", field) from None
        return text.lower() if kind == "bool" else text  # a Secret holds texts, also where a number was encrypted

    def text(self, value: Any, about: str, field: str) -> tuple[bytes, str]:
        """What a value holds, and of which type that is. `about` is what it was tied to when it was encrypted."""
        from cryptography.exceptions import InvalidTag

        found = _VALUE(value) if isinstance(value, str) else None
        if found is None:
            raise self._refused("it is not encrypted in a way that is known here", field)
        try:
            data, nonce, tag = (base64.b64decode(found[n], validate=True) for n in (1, 2, 3))
            return self._cipher.decrypt(nonce, data + tag, about.encode()), found[4]
        except (InvalidTag, binascii.Error, ValueError):
            raise self._refused("it cannot be decrypted: it was changed, or stood elsewhere when encrypted", field) from None


def _written(value: Any) -> bytes:
    """A plain value as SOPS counts it into the MAC."""
    if value is None:
        return b""
    if isinstance(value, float):
        text = format(Decimal(repr(value)), "f")
        return (text.rstrip("0").rstrip(".") if "." in text else text).encode()
    return str(value).encode()  # also True and False: it writes them so
