"""ConfigMap and Secret: maps of small files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from homeostat.api.auth.serviceaccounts import ACCOUNT_NAME, SECRET_TYPE
from homeostat.api.builtin.checks import cannot_decode, config_key_problems, unchanged
from homeostat.api.builtin.declare import kind
from homeostat.api.resource import Column, Object, Resource, Rules
from homeostat.api.table import AGE, NAME
from homeostat.model.errors import FieldError

MAX_SIZE = 1024 * 1024
"""Bytes of all values of one ConfigMap or Secret together."""

_LOCKED = "field is immutable when `immutable` is set"
_REDACTED = "<secret contents redacted>"

_REQUIRED_KEYS: dict[str, tuple[str, ...]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_JSON_KEYS = frozenset((".dockercfg", ".dockerconfigjson"))


def _decoded(value: Any, kind_name: str) -> bytes:
    """The bytes behind base64 text; what is no base64 cannot be decoded upstream either: a 400."""
    text = value if isinstance(value, str) else ""
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        raise cannot_decode(kind_name, "v1", f"illegal base64 data at input byte {_illegal_at(text)}") from None


_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def _illegal_at(text: str) -> int:
    """Where decoding stops: the first character that is none of base64's, or the end of what is too short."""
    for position, character in enumerate(text):
        if character not in _BASE64:
            return position
    return len(text) // 4 * 4


def _text_size(values: Mapping[str, str]) -> int:
    return sum(len(v) if v.isascii() else len(v.encode()) for v in values.values())


def _bytes_size(values: Mapping[str, str]) -> int:
    """The size behind base64 text, without decoding it again."""
    return sum(len(v) // 4 * 3 - v.count("=") for v in values.values())


def _changed_though_locked(obj: Object, old: Object, fields: Sequence[str]) -> list[FieldError]:
    if old.get("immutable") is not True:
        return []
    errors = []
    if obj.get("immutable") is not True:
        errors.append(FieldError.forbidden("immutable", _LOCKED))
    for field in fields:
        if (obj.get(field) or {}) != (old.get(field) or {}):
            errors.append(FieldError.forbidden(field, _LOCKED))
    return errors


def _json_problem(content: bytes) -> str:
    """Upstream's words for text that is no JSON, without giving more of a secret away than they do."""
    text = content.decode(errors="replace").strip()
    if text[:1] in ("", "{", "["):
        return "unexpected end of JSON input"
    return f"invalid character '{text[0]}' looking for beginning of value"


class ConfigMapRules(Rules):
    """Keys are file names, all of it fits into a mebibyte, and what is immutable stays."""

    def default(self, obj: Object) -> None:
        for value in (obj.get("binaryData") or {}).values():
            _decoded(value, "ConfigMap")

    def validate(self, obj: Object) -> Sequence[FieldError]:
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        errors: list[FieldError] = []
        for key in data:
            errors.extend(FieldError.invalid(f"data[{key}]", key, p) for p in config_key_problems(key))
            if key in binary:
                errors.append(FieldError.invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        for key in binary:
            errors.extend(FieldError.invalid(f"binaryData[{key}]", key, p) for p in config_key_problems(key))
        if _text_size(data) + _bytes_size(binary) > MAX_SIZE:
            errors.append(FieldError.too_long("[]", MAX_SIZE))
        return errors

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        return _changed_though_locked(obj, old, ("data", "binaryData"))


class SecretRules(Rules):
    """As a ConfigMap, with the keys that its type requires; `stringData` goes into `data`."""

    def default(self, obj: Object) -> None:
        if not obj.get("type"):
            obj["type"] = "Opaque"
        if plain := obj.pop("stringData", None):
            data = obj["data"] = dict(obj.get("data") or {})
            for key, value in plain.items():
                data[key] = base64.b64encode((value or "").encode()).decode()
        for key, value in (obj.get("data") or {}).items():
            if value:
                _decoded(value, "Secret")
            else:
                obj["data"][key] = ""

    def validate(self, obj: Object) -> Sequence[FieldError]:
        data = obj.get("data") or {}
        errors = [
            FieldError.invalid(f"data[{key}]", key, problem) for key in data for problem in config_key_problems(key)
        ]
        if _bytes_size(data) > MAX_SIZE:
            errors.append(FieldError.too_long("data", MAX_SIZE))
        secret_type = obj.get("type")
        if secret_type == SECRET_TYPE:
            if not ((obj.get("metadata") or {}).get("annotations") or {}).get(ACCOUNT_NAME):
                errors.append(FieldError.required(f"metadata.annotations[{ACCOUNT_NAME}]"))
        elif secret_type == "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                errors.append(FieldError.required("data[%s][username]"))  # upstream's own slip, kept
                errors.append(FieldError.required("data[%s][password]"))
        else:
            for key in _REQUIRED_KEYS.get(secret_type or "", ()):
                errors.extend(self._required_key(key, data))
        return errors

    @staticmethod
    def _required_key(key: str, data: Mapping[str, str]) -> list[FieldError]:
        if key == "ssh-privatekey":
            return [] if data.get(key) else [FieldError.required(f"data[%s][{key}]")]  # the same slip
        if key not in data:
            return [FieldError.required(f"data[{key}]")]
        if key in _JSON_KEYS:
            content = base64.b64decode(data[key])
            try:
                orjson.loads(content)
            except orjson.JSONDecodeError:
                return [FieldError.invalid(f"data[{key}]", _REDACTED, _json_problem(content))]
        return []

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        errors = unchanged(obj.get("type"), old.get("type"), "type")
        return errors + _changed_though_locked(obj, old, ("data",))

    def fields(self, obj: Object) -> Mapping[str, str]:
        return {"type": obj.get("type") or ""}


def resources() -> list[Resource]:
    """ConfigMap and Secret. Neither counts generations: they have no spec."""
    return [
        kind(
            "v1",
            "ConfigMap",
            "configmaps",
            short=("cm",),
            rules=ConfigMapRules(),
            columns=(
                NAME,
                Column(
                    "Data",
                    lambda o: len(o.get("data") or ()) + len(o.get("binaryData") or ()),
                    description="How many keys there are.",
                ),
                AGE,
            ),
        ),
        kind(
            "v1",
            "Secret",
            "secrets",
            rules=SecretRules(),
            columns=(
                NAME,
                Column("Type", lambda o: o.get("type", ""), description="What the secret is for."),
                Column("Data", lambda o: len(o.get("data") or ()), description="How many keys there are."),
                AGE,
            ),
        ),
    ]
