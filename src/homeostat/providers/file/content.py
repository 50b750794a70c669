"""What a declaration says that files hold: bytes, and the digest that stands for them. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from homeostat.loop.provider import Refused
from homeostat.providers.file.kind import Content, FileSpec
from homeostat.providers.references import Values

SIZE_MOST = 4 * 1024 * 1024
"""Bytes of one file, unless the provider is told otherwise. A file on disk that is larger is not read: it is not as declared."""

_PLACE = re.compile(r"\{\{\{\{|\{\{(.*?)\}\}|\{\{", re.DOTALL)
_NAME = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_-]*)\.([-._A-Za-z0-9]+)\s*")


class Hasher(Protocol):
    """What takes bytes and gives their digest."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Digest:
    """How content is digested: plainly, or under a seal where secrets are part of it."""

    seal: bytes = field(default=b"", repr=False)

    def of(self, data: bytes) -> str:
        """The digest of content that is at hand."""
        hasher = self.hasher()
        hasher.update(data)
        return self.name(hasher)

    def hasher(self) -> Hasher:
        return hmac.new(self.seal, digestmod=hashlib.sha256) if self.seal else hashlib.sha256()

    def name(self, hasher: Hasher) -> str:
        """As it stands in a state."""
        return ("hmac-sha256:" if self.seal else "sha256:") + hasher.hexdigest()


def substitute(template: str, values: Values) -> bytes:
    """The template with its values, which are not looked into for more. Raises `MissingValue`; `Refused` for what is no place."""

    def pieces() -> Iterator[bytes]:
        at = 0
        for place in _PLACE.finditer(template):
            yield template[at : place.start()].encode()
            at = place.end()
            if place[0] == "{{{{":
                yield b"{{"
                continue
            named = _NAME.fullmatch(place[1] or "")
            if named is None:
                line = template.count("\n", 0, place.start()) + 1
                raise Refused(
                    f"line {line} of the template: {{{{ is followed by name.key and }}}}; two braces are written {{{{{{{{"
                )
            yield values.get(named[1], named[2])
        yield template[at:].encode()

    return b"".join(pieces())


def content_of(declared: Content, values: Values, limit: int = SIZE_MOST) -> bytes:
    """The bytes that a file shall hold. Raises `Refused` for more than `limit` of them."""
    given = [g for g in (declared.content, declared.content_base64, declared.template) if g is not None]
    if len(given) > 1:
        raise Refused("give one of content, contentBase64 and template")
    if declared.template is not None:
        data = substitute(declared.template, values)
    else:
        data = declared.content_base64 or (declared.content or "").encode()
    if len(data) > limit:
        raise Refused(f"the content has {len(data)} bytes; files of more than {limit} are refused")
    return data


def contents_of(spec: FileSpec, values: Values, limit: int = SIZE_MOST) -> Mapping[str, bytes]:
    """The bytes of every file of a declaration by its path below it; under "" for a file that stands by itself."""
    if spec.kind == "file":
        return {"": content_of(spec, values, limit)}
    return {name: content_of(entry, values, limit) for name, entry in spec.files.items()}
