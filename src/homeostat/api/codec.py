"""How an object lies in the store, and how it leaves it: bytes in, bytes out.

An object is stored as JSON without its apiVersion, kind and resourceVersion, with `metadata` first. What was left out
is the same for all objects of a kind, or is the store's own revision; so an object is served in any version by putting
a short head before the stored bytes, and nobody decodes what nobody looks into.
"""

from __future__ import annotations

import re
from typing import Any, cast

import orjson

from homeostat.api.resource import Object, Resource, Version
from homeostat.api.schema import default, prune
from homeostat.model.encoding import kept, whole_numbers
from homeostat.store import Entry

_OPEN = b'{"metadata":{'
_SKIP = len(_OPEN)
_POINTED = re.compile(rb"\.0[,}\]]").search
"""How a whole number ends that is written with a point."""


def encode(obj: Object) -> bytes:
    """The stored form of an object. Leaves `obj` as it is."""
    metadata = obj["metadata"]
    if "resourceVersion" in metadata:
        metadata = metadata.copy()
        del metadata["resourceVersion"]
    stored = {"metadata": metadata, **obj}  # it comes first
    stored["metadata"] = metadata
    stored.pop("apiVersion", None)
    stored.pop("kind", None)
    return _plain(kept(stored))


def shown(obj: Object) -> bytes:
    """An object that is not stored as it would be served from the store."""
    return _plain(orjson.dumps(obj))


def _plain(value: bytes) -> bytes:
    """The same JSON with whole numbers as such."""
    return kept(whole_numbers(orjson.loads(value))) if b".0" in value and _POINTED(value) else value


class Codec:
    """Turns stored bytes of one kind into one served version, with as little work as the case allows.

    Versions of custom kinds differ in their apiVersion alone (conversion `None`), so any of them is the same bytes
    under another head; only where their schemas differ is a version cut to what it knows, both ways. `since` is the
    store revision after which stored bytes are known to fit the present schema of the kind: they were pruned and
    defaulted when written. Older ones are brought up to date as they are read.
    """

    __slots__ = ("_bare", "_head", "_rework", "_stored", "api_version", "kind", "narrows", "printer", "since", "version")

    def __init__(self, resource: Resource, version: Version, since: int = 0) -> None:
        self.version = version
        self.kind = resource.kind
        self.api_version = resource.api_version(version.name)
        self.since = since
        self.printer: Any = None  # memo of the table form
        self._head = b'{"apiVersion":"%b","kind":"%b","metadata":{"resourceVersion":"' % (
            self.api_version.encode(),
            resource.kind.encode(),
        )
        # Items of built-in lists do not repeat the kind of the list, as upstream has it; custom ones do.
        self._bare = not resource.custom
        self._stored = resource.versions[resource.storage].schema
        self.narrows = resource.custom and version.schema.raw != self._stored.raw
        self._rework = self.narrows or version.encode is not None

    def serve(self, value: bytes, revision: int) -> bytes:
        """The object as JSON in this version."""
        if self._rework or revision <= self.since:
            return orjson.dumps(self.load(value, revision))
        return b'%b%d",%b' % (self._head, revision, value[_SKIP:])

    def item(self, value: bytes, revision: int) -> bytes:
        """The object as an item of a list."""
        if self._bare and not self._rework and revision > self.since:
            return b'{"metadata":{"resourceVersion":"%d",%b' % (revision, value[_SKIP:])
        return self.serve(value, revision)

    def load(self, value: bytes, revision: int) -> Object:
        """The object decoded, in this version."""
        stored = cast(Object, orjson.loads(value))
        if self.version.encode is not None:
            stored = self.version.encode(stored)
        stored["metadata"]["resourceVersion"] = str(revision)
        obj: Object = {"apiVersion": self.api_version, "kind": self.kind, **stored}
        if revision <= self.since:
            prune(self._stored, obj)
            default(self._stored, obj)
        if self.narrows:
            prune(self.version.schema, obj)
        return obj

    def is_current(self, obj: Object | None) -> bool:
        """Whether an object was last written under the definition that is in force. (Built-in kinds may come anew with a release.)"""
        return obj is not None and 0 < self.since < int(obj["metadata"]["resourceVersion"])

    def encode(self, obj: Object) -> bytes:
        """The stored form of an object of this version, with no more than the stored version knows."""
        value = encode(obj)
        if not self.narrows:
            return value
        stored = orjson.loads(value)
        prune(self._stored, stored)
        default(self._stored, stored)
        return kept(stored)

    def load_entry(self, entry: Entry) -> Object:
        """`load`, for what the store gave."""
        return self.load(entry.value, entry.revision)


def metadata_of(value: bytes) -> dict[str, Any]:
    """Only the metadata of stored bytes."""
    return cast(dict[str, Any], orjson.loads(value)["metadata"])
