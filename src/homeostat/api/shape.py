"""The form in which objects are asked for: as they are, as table rows, or as their metadata alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import orjson

from homeostat.api.accept import JSON_TYPES, choices, prefers_yaml
from homeostat.api.codec import Codec
from homeostat.api.resource import Object, Resource
from homeostat.api.table import META_V1, META_V1BETA1, Printer, include_object, partial_metadata
from homeostat.model.encoding import kept
from homeostat.model.errors import not_acceptable
from homeostat.model.protocol import JSON, YAML, YAML_TYPES
from homeostat.store import Entry

ACCEPTED = f"{JSON}, {YAML}"
ACCEPTED_STREAM = f"{JSON};stream=watch"
_STREAM_TYPES = JSON_TYPES | {"", "text/*"}
_PLAIN_TYPES = _STREAM_TYPES | YAML_TYPES


class Shape:
    """Objects as they are: the stored bytes, never decoded."""

    content_type = JSON
    close = b"]}"

    def __init__(self, resource: Resource, codec: Codec) -> None:
        self.codec = codec
        self.resource = resource

    def single(self, entry: Entry) -> bytes:
        """The answer to a get, or the object of a watch event."""
        return self.codec.serve(entry.value, entry.revision)

    def show(self, obj: Object) -> bytes:
        """An object that is not stored as it is shown."""
        return orjson.dumps(obj)

    def items(self, entries: Sequence[Entry]) -> list[bytes]:
        """The items of a list."""
        item = self.codec.item
        return [item(e.value, e.revision) for e in entries]

    def open_list(self, revision: int, token: str = "", remaining: int = 0) -> bytes:
        """Everything of a list before its items."""
        meta = self._list_meta(revision, token, remaining)
        return b'{"apiVersion":"%b","kind":"%b","metadata":%b,"items":[' % (
            self.codec.api_version.encode(),
            self.resource.list_kind.encode(),
            meta,
        )

    def _list_meta(self, revision: int, token: str, remaining: int) -> bytes:
        meta: dict[str, str | int] = {"resourceVersion": str(revision)}
        if token or (type(self) is Shape and self.resource.custom):  # lists of custom kinds say so where nothing follows
            meta["continue"] = token
        if token and remaining:
            meta["remainingItemCount"] = remaining
        return orjson.dumps(meta)

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        """The object of a bookmark event: nothing but a revision."""
        return orjson.dumps(_marked(self.codec.kind, self.codec.api_version, revision, annotations))


def _marked(kind: str, api_version: str, revision: int, annotations: dict[str, str] | None) -> Object:
    """An object of which nothing is told but a revision."""
    metadata: Object = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = annotations
    return {"kind": kind, "apiVersion": api_version, "metadata": metadata}


class PartialShape(Shape):
    """Objects cut down to their metadata."""

    def __init__(self, resource: Resource, codec: Codec, api_version: str) -> None:
        super().__init__(resource, codec)
        self._api_version = api_version

    def single(self, entry: Entry) -> bytes:
        return self.show(self.codec.load_entry(entry))

    def show(self, obj: Object) -> bytes:
        return kept(partial_metadata(obj, self._api_version))

    def items(self, entries: Sequence[Entry]) -> list[bytes]:
        return [self.single(e) for e in entries]

    def open_list(self, revision: int, token: str = "", remaining: int = 0) -> bytes:
        meta = self._list_meta(revision, token, remaining)
        return b'{"kind":"PartialObjectMetadataList","apiVersion":"%b","metadata":%b,"items":[' % (
            self._api_version.encode(),
            meta,
        )

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        return orjson.dumps(_marked("PartialObjectMetadata", self._api_version, revision, annotations))


class TableShape(Shape):
    """Objects as rows, as `kubectl get` shows them."""

    def __init__(
        self, resource: Resource, codec: Codec, api_version: str, include: str, now: Callable[[], float]
    ) -> None:
        super().__init__(resource, codec)
        self.printer = _printer(resource, codec)
        self._api_version = api_version
        self._include = include
        self._now = now
        self._headers = True

    def _row(self, entry: Entry, now: float) -> Object:
        return self.printer.row(self.codec.load_entry(entry), now, self._include, self._api_version)

    def single(self, entry: Entry) -> bytes:
        return self.show(self.codec.load_entry(entry))

    def show(self, obj: Object) -> bytes:
        table = self.printer.table(
            [obj],
            self._now(),
            metadata={"resourceVersion": obj["metadata"]["resourceVersion"]},
            include=self._include,
            api_version=self._api_version,
            headers=self._headers,
        )
        self._headers = False  # the events of a watch name the columns once
        return orjson.dumps(table)

    def items(self, entries: Sequence[Entry]) -> list[bytes]:
        now = self._now()
        return [kept(self._row(e, now)) for e in entries]

    def open_list(self, revision: int, token: str = "", remaining: int = 0) -> bytes:
        return b'{"kind":"Table","apiVersion":"%b","metadata":%b,"columnDefinitions":%b,"rows":[' % (
            self._api_version.encode(),
            self._list_meta(revision, token, remaining),
            orjson.dumps(self.printer.definitions),
        )

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        partial = _marked("PartialObjectMetadata", self._api_version, revision, annotations)
        table = self.printer.table(
            (), 0, metadata={"resourceVersion": str(revision)}, api_version=self._api_version, headers=False
        )
        table["rows"] = [{"cells": [], "object": partial}]
        return orjson.dumps(table)


def _printer(resource: Resource, codec: Codec) -> Printer:
    printer: Printer | None = codec.printer
    if printer is None:
        printer = codec.printer = Printer(codec.version.columns, custom=resource.custom)
    return printer


def shape_for(
    accept: str,
    resource: Resource,
    codec: Codec,
    *,
    listing: bool,
    streaming: bool = False,
    include: str = "",
    now: Callable[[], float] = time.time,
) -> Shape:
    """The first form in an `Accept` header that we can give; 406 where there is none.

    Every form is made as JSON here; who asked for YAML gets it made from that. Events of a watch (`streaming`) are
    never YAML.
    """
    if accept == JSON or not accept:
        return Shape(resource, codec)
    if streaming and prefers_yaml(accept):
        raise not_acceptable(ACCEPTED_STREAM)
    types = _STREAM_TYPES if streaming else _PLAIN_TYPES
    for media, options in choices(accept):
        if media not in types:
            continue
        form = options.get("as", "")
        if not form:
            return Shape(resource, codec)
        if "get" not in resource.verbs:
            continue  # what is answered and not stored has neither rows nor metadata
        api_version = f"{options.get('g', '')}/{options.get('v', '')}"
        if api_version not in (META_V1, META_V1BETA1):
            continue
        if form == "Table":
            return TableShape(resource, codec, api_version, include_object(include), now)
        if form == ("PartialObjectMetadataList" if listing else "PartialObjectMetadata"):
            return PartialShape(resource, codec, api_version)
    raise not_acceptable(ACCEPTED_STREAM if streaming else ACCEPTED)
