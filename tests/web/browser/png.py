"""PNG with a palette instead of full colours: pictures of pages have few, and are a third of the size."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

HEAD = b"\x89PNG\r\n\x1a\n"
Bytes = NDArray[np.uint8]


def few_colours(png: bytes) -> bytes:
    """The same picture with the 256 colours that it has most of; each other becomes the nearest of them."""
    pixels = _read(png)
    height, width = pixels.shape[:2]
    packed = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    colours, where, counts = np.unique(packed, return_inverse=True, return_counts=True)
    kept = colours[np.sort(np.argsort(-counts)[:256])]
    split = np.array([16, 8, 0], np.uint32)
    palette = (kept[:, None] >> split & 255).astype(np.int32)
    all_of_them = (colours[:, None] >> split & 255).astype(np.int32)
    nearest = np.array([np.abs(palette - colour).sum(1).argmin() for colour in all_of_them], np.uint8)
    lines = np.zeros((height, width + 1), np.uint8)  # each begins with its filter: none
    lines[:, 1:] = nearest[where.reshape(height, width)]
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    data = zlib.compress(lines.tobytes(), 9)
    return HEAD + _chunk(b"IHDR", header) + _chunk(b"PLTE", palette.astype(np.uint8).tobytes()) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _read(png: bytes) -> Bytes:
    """Red, green and blue of each pixel, of a picture with 8 bits a channel that is not interlaced."""
    assert png.startswith(HEAD)
    at, data, width, height, channels = 8, b"", 0, 0, 3
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        name, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        at += 12 + size
        if name == b"IHDR":
            width, height, depth, kind, *_, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8
            assert not interlaced
            channels = {2: 3, 6: 4}[kind]
        elif name == b"IDAT":
            data += body
    raw = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * channels)
    above = np.zeros(width * channels, np.uint8)
    lines = []
    for line in raw:
        above = _unfiltered(int(line[0]), line[1:], above, channels)
        lines.append(above)
    return np.stack(lines).reshape(height, width, channels)[:, :, :3]


def _unfiltered(kind: int, line: Bytes, above: Bytes, channels: int) -> Bytes:
    if kind == 0:
        return line
    if kind == 2:
        return line + above
    if kind == 1:
        return np.cumsum(line.reshape(-1, channels), axis=0, dtype=np.uint8).reshape(-1)
    found, up = bytearray(line.tobytes()), above.tobytes()
    for index in range(len(found)):
        left = found[index - channels] if index >= channels else 0
        corner = up[index - channels] if index >= channels else 0
        guess = (left + up[index]) // 2 if kind == 3 else _paeth(left, up[index], corner)
        found[index] = (found[index] + guess) & 255
    return np.frombuffer(bytes(found), np.uint8)


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))
