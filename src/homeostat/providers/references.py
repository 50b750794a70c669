"""Values from ConfigMaps and Secrets of a resource's own namespace, fresh at every look.

Who may declare a resource in a namespace can have every Secret of that namespace read for it, as with pods.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from homeostat.client import Client
from homeostat.model.errors import ApiError
from homeostat.model.kinds import Rule, Spec


class MissingValue(ValueError):
    """A value that is referred to cannot be had. Nothing can be said of the resource until it can."""


class Source(Spec):
    """A ConfigMap or a Secret of the same namespace, and the name that its values go by here."""

    name: Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_-]*$", max_length=63)]
    config_map: Annotated[str, Meta(max_length=253)] = ""
    secret: Annotated[str, Meta(max_length=253)] = ""

    rules = [
        Rule("(self.configMap == '') != (self.secret == '')", message="name a configMap or a secret, one of the two")
    ]

    @property
    def kind(self) -> str:
        """`ConfigMap` or `Secret`."""
        return "Secret" if self.secret else "ConfigMap"

    @property
    def object(self) -> str:
        """The name of the object."""
        return self.secret or self.config_map


@dataclass(frozen=True, slots=True)
class Values:
    """What the sources hold, by source and key. Not for showing: `repr` leaves it out."""

    by_source: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict, repr=False)
    seal: bytes = field(default=b"", repr=False)
    """A key for digests of what these values are part of; empty where none is secret.

    A plain digest of a short secret gives it away to who tries all. The seal is made of the Secrets' uids: those who may not
    read the Secrets do not know them, and after a restart they are the same.
    """
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    """Every value that comes from a Secret."""
    objects: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By source, what it stands for: `Secret shop/dns`."""

    def get(self, source: str, key: str) -> bytes:
        """One value. Raises `MissingValue`."""
        if source not in self.by_source:
            known = ", ".join(self.by_source) or "none"
            raise MissingValue(f"{source}.{key} is used, but `values` has no {source!r} (there is: {known})")
        try:
            return self.by_source[source][key]
        except KeyError:
            raise MissingValue(f"{source}.{key} is used, but {self.objects.get(source, source)} has no key {key!r}") from None


NO_VALUES = Values()


async def read_values(client: Client | None, namespace: str, sources: Sequence[Source]) -> Values:
    """Reads all sources from the API server. Raises `MissingValue` where one is not there, and whatever the client raises."""
    found: dict[str, dict[str, bytes]] = {}
    uids: list[str] = []
    for source in sources:
        if client is None:
            raise MissingValue("values cannot be read: there is no API server at hand")
        if bool(source.secret) == bool(source.config_map):
            raise MissingValue(f"values.{source.name} has to name a configMap or a secret, one of the two")
        try:
            obj = await client.kind("v1", source.kind).get(source.object, namespace=namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            raise MissingValue(f"{source.kind} {namespace}/{source.object} is not there") from None
        data = {key: value.encode() for key, value in (obj.get("data") or {}).items()}
        if source.secret:
            uids.append(obj["metadata"]["uid"])
            data = {key: base64.b64decode(value) for key, value in data.items()}
        data.update({key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()})
        found[source.name] = data
    hidden = {source.name for source in sources if source.secret}
    secrets = tuple(value for name in hidden for value in found[name].values())
    objects = {source.name: f"{source.kind} {namespace}/{source.object}" for source in sources}
    return Values(found, "\n".join(sorted(uids)).encode(), secrets, objects)


def blotter(values: Values) -> Callable[[str], str]:
    """Takes secrets out of a text, as they are and in base64, line by line too."""
    hidden: set[str] = set()
    for secret in values.secrets:
        lines = secret.decode(errors="replace").splitlines()
        whole = [secret.decode(errors="replace"), base64.b64encode(secret).decode(), *lines]
        hidden.update(text.strip() for text in whole)
    hidden.discard("")
    if not hidden:
        return lambda text: text
    pattern = re.compile("|".join(re.escape(text) for text in sorted(hidden, key=len, reverse=True)))
    return lambda text: pattern.sub("(secret)", text)
