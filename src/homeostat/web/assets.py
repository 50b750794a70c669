"""The files of the page, read once, with a fingerprint each: a browser asks whether one changed, and mostly it has not."""

from __future__ import annotations

import gzip
import mimetypes
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest

from homeostat.api.request import Request, Response

ROOT = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
_WORTH_PACKING = 1024


class Asset(NamedTuple):
    body: bytes
    packed: bytes
    """The same by gzip; empty where that is not worth it."""
    content_type: str
    tag: str


class Assets:
    """What lies under `root`, by path. Nothing else can be asked for, whatever a path says."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._known: dict[str, Asset] = {}
        self._paths = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

    def answer(self, request: Request, path: str) -> Response | None:
        """A file, or that it has not changed; None where there is none."""
        if path not in self._paths:
            return None
        asset = self._known.get(path)
        if asset is None:
            asset = self._known[path] = _read(self._root / path)
        headers = [(b"etag", asset.tag.encode()), (b"cache-control", b"no-cache"), (b"vary", b"accept-encoding")]
        if request.header(b"if-none-match") == asset.tag:
            return Response(304, b"", asset.content_type, headers=headers)
        if asset.packed and "gzip" in request.header(b"accept-encoding"):
            headers.append((b"content-encoding", b"gzip"))
            return Response(200, asset.packed, asset.content_type, headers=headers)
        return Response(200, asset.body, asset.content_type, headers=headers)


def _read(path: Path) -> Asset:
    body = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
    text = kind.startswith("text/") or kind == "image/svg+xml"
    packed = gzip.compress(body, 6, mtime=0) if text and len(body) > _WORTH_PACKING else b""
    return Asset(body, packed, f"{kind}; charset=utf-8" if text else kind, f'"{xxh3_64_hexdigest(body)}"')
