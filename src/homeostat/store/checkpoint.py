"""A checkpoint: everything a store holds at one revision, in one file that can be streamed and checked.

    homeostat checkpoint 1\\n
    blocks, each: length of the payload (4 bytes, big-endian), xxh3-64 of the payload (8 bytes), payload (zlib)

The first byte of an unpacked payload says what it is: `H`, the head, JSON (`revision`, `time`, `version`); `E`, entries, each of them the
lengths of key and value (4 bytes each), the revisions that wrote and created it (8 bytes each), key, value; `T`, the tail, JSON
(`objects`, `bytes`, `sha256` over everything unpacked before it). A file without a tail was cut off. Entries come in the order of keys.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import orjson
from xxhash import xxh3_64_digest

from homeostat.store.base import Entry, Store, StoreError

MAGIC = b"homeostat checkpoint 1\n"
SUFFIX = ".checkpoint"
BLOCK_BYTES = 1 << 20
"""A block is closed when it holds this much, unpacked."""
_PAGE = 1000
_LEVEL = 1
_MOST = 1 << 30  # no block of ours is ever as large: a length beyond it is damage

_FRAME = struct.Struct(">I8s")
_ENTRY = struct.Struct(">IIQQ")


class Damaged(StoreError):
    """A checkpoint is not what was written. The message names the file and the place."""


class Summary(msgspec.Struct, frozen=True):
    """What a checkpoint says of itself, once it is read to its end."""

    revision: int
    time: str
    version: str
    objects: int
    bytes: int
    sha256: str


class Packer:
    """Makes the pieces of a file, one after the other: `head`, any number of `entries`, `tail`."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()
        self._objects = 0
        self._bytes = 0

    def head(self, revision: int, time: str, version: str) -> bytes:
        return MAGIC + self._block(b"H" + orjson.dumps({"revision": revision, "time": time, "version": version}))

    def entries(self, entries: list[Entry]) -> bytes:
        parts = [b"E"]
        for entry in entries:
            name, value = entry.key.encode(), entry.value
            parts += (_ENTRY.pack(len(name), len(value), entry.revision, entry.created), name, value)
            self._bytes += len(value)
        self._objects += len(entries)
        return self._block(b"".join(parts))

    def tail(self) -> bytes:
        told = {"objects": self._objects, "bytes": self._bytes, "sha256": self._sum.hexdigest()}
        return self._block(b"T" + orjson.dumps(told))

    def _block(self, raw: bytes) -> bytes:
        self._sum.update(raw)
        packed = zlib.compress(raw, _LEVEL)
        return _FRAME.pack(len(packed), xxh3_64_digest(packed)) + packed


async def pack(
    store: Store, revision: int, time: str, version: str, apart: Callable[..., Any]
) -> AsyncIterator[bytes]:
    """The file of a store at a revision, piece by piece. `apart` runs blocking work (`asyncio.to_thread`).

    The revision must stay readable meanwhile: hold the compaction back.
    """
    packer = Packer()
    yield packer.head(revision, time, version)
    waiting: list[Entry] = []
    size, after, more = 0, "", True
    while more:
        page = await store.range("", after=after, revision=revision, limit=_PAGE)
        for entry in page.entries:
            waiting.append(entry)
            size += len(entry.value)
            if size >= BLOCK_BYTES:
                yield await apart(packer.entries, waiting)
                waiting, size = [], 0
        more = page.more
        after = page.entries[-1].key if page.entries else ""
    if waiting:
        yield await apart(packer.entries, waiting)
    yield packer.tail()


class Unpacker:
    """Reads a file from its beginning to its end. `head` is there at once, `summary` when `entries` has ended."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        """Raises `Damaged` where it is no checkpoint."""
        self._file = file
        self._name = name
        self._place = len(MAGIC)
        self._sum = hashlib.sha256()
        self.summary: Summary | None = None
        begin = file.read(len(MAGIC))
        if begin != MAGIC:
            newer = begin.startswith(MAGIC[:-2]) and begin[-2:-1].isdigit() and begin.endswith(b"\n")
            raise Damaged(f"{name} is a checkpoint of a newer Homeostat" if newer else f"{name} is no checkpoint")
        self.head: dict[str, Any] = self._json(self._block(b"H"))
        if not isinstance(self.head.get("revision"), int):
            raise self._damage("its head names no revision")

    def entries(self) -> Iterator[Entry]:
        """Every object, in order; raises `Damaged` at the first block that is not what was written."""
        objects = size = 0
        last = ""
        while True:
            before = self._sum.hexdigest()
            raw = self._block(b"ET")
            if raw[:1] == b"T":
                break
            for entry in self._unpacked(raw):
                if entry.key <= last:
                    raise self._damage(f"{entry.key!r} is out of order")
                last = entry.key
                objects += 1
                size += len(entry.value)
                yield entry
        tail = self._json(raw)
        if (tail.get("objects"), tail.get("bytes"), tail.get("sha256")) != (objects, size, before):
            raise self._damage("its sum is another one than its tail says")
        if self._file.read(1):
            raise self._damage("something follows its tail")
        head = self.head
        self.summary = Summary(head["revision"], head.get("time", ""), head.get("version", ""), objects, size, before)

    def _block(self, expected: bytes) -> bytes:
        self._start = self._place
        frame = self._file.read(_FRAME.size)
        if len(frame) < _FRAME.size:
            raise self._damage("it ends here, and its tail is missing: it was cut off")
        length, digest = _FRAME.unpack(frame)
        packed = self._file.read(length) if length <= _MOST else b""
        if len(packed) < length:
            raise self._damage("it ends within this block: it was cut off, or the block's length is damaged")
        if xxh3_64_digest(packed) != digest:
            raise self._damage("the checksum of this block does not fit")
        try:
            raw = zlib.decompress(packed)
        except zlib.error as error:
            raise self._damage(str(error)) from None
        if raw[:1] not in (expected[:1], expected[1:]) or not raw:
            raise self._damage("this block does not belong here")
        self._sum.update(raw)
        self._place += _FRAME.size + length
        return raw

    def _unpacked(self, raw: bytes) -> Iterator[Entry]:
        at = 1
        try:
            while at < len(raw):
                names, values, revision, created = _ENTRY.unpack_from(raw, at)
                at += _ENTRY.size
                if at + names + values > len(raw):
                    raise ValueError("an entry ends outside of it")
                yield Entry(raw[at : at + names].decode(), raw[at + names : at + names + values], revision, created)
                at += names + values
        except (struct.error, ValueError) as error:
            raise self._damage(str(error)) from None

    def _json(self, raw: bytes) -> dict[str, Any]:
        try:
            found = orjson.loads(raw[1:])
        except orjson.JSONDecodeError as error:
            raise self._damage(str(error)) from None
        if not isinstance(found, dict):
            raise self._damage("this block is no object")
        return found

    def _damage(self, what: str) -> Damaged:
        return Damaged(f"{self._name} is damaged at byte {getattr(self, '_start', 0)}: {what}")


def verify(path: Path, at: Callable[[int], object] = int) -> Summary:
    """Reads a file to its end, and tells `at` which byte it is at. Raises `Damaged`, or OSError where it cannot be read."""
    with path.open("rb") as file:
        reader = Unpacker(file, str(path))
        for _ in reader.entries():
            at(file.tell())
    assert reader.summary is not None
    return reader.summary


class Draft:
    """A file that appears whole, under its name, when it is finished; for its owner's eyes, as it holds secrets."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._draft = path.with_name(path.name + ".part")
        self._draft.unlink(missing_ok=True)
        self._file = os.fdopen(os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def write(self, piece: bytes) -> None:
        self._file.write(piece)

    def finish(self) -> Summary:
        """Durable, read back, and in its place when it returns."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        try:
            summary = verify(self._draft)
        except StoreError:
            self.give_up()
            raise
        self._draft.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        return summary

    def give_up(self) -> None:
        """Leaves nothing."""
        self._file.close()
        self._draft.unlink(missing_ok=True)
