"""The wire format of protobuf, as far as it is spoken here: numbered fields that hold a varint or bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

Buffer = TypeVar("Buffer", bytes, memoryview)

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_fields(data: Buffer) -> Iterator[tuple[int, int | Buffer]]:
    """The fields of a message, in the order they came: varints as numbers, everything else as a slice of `data`.

    ValueError or IndexError where the bytes are no message.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = read_varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = read_varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + size > end:
            raise ValueError(f"a field of {size} bytes ends after the message")
        yield number, data[at : at + size]
        at += size


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number that begins at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def varint(number: int) -> bytes:
    """A number that is not negative, encoded."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
