"""Whether a list is only a part of what there is: who is not in it may then be in another part, and is not known to be absent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from homeostat.providers.projection import steps

MORE = frozenset(
    ("next", "nextpage", "nextpagetoken", "nextlink", "nexttoken", "nextcursor", "@odata.nextlink", "continue", "hasmore", "istruncated")
)
"""Fields by which APIs say that there is more of a list, in lower case and without underscores."""
BESIDE = frozenset(("metadata", "meta", "links", "paging", "pagination", "pageinfo"))
"""Where they stand, if not beside the list itself."""
_LINK = re.compile(r""";\s*rel\s*=\s*["']?[^"',;]*\bnext\b""", re.IGNORECASE)


def has_more(document: Any, items: str, link: str = "") -> bool:
    """Whether the answer that has a list at `items`, or its header `Link`, speaks of a next page."""
    return bool(_LINK.search(link)) or any(_is_more(value) for name, value in _beside(document, items) if _plain(name) in MORE)


def _beside(document: Any, items: str) -> Iterator[tuple[str, Any]]:
    """All fields on the way to the list, and those of what stands there for such things."""
    for step in (*steps(items), ""):
        if not isinstance(document, Mapping):
            return
        for name, value in document.items():
            yield name, value
            if _plain(name) in BESIDE and isinstance(value, Mapping):
                yield from value.items()
        document = document.get(step)


def _is_more(value: Any) -> bool:
    """`null`, `false` and nothing say that this was all; so does a link that leads nowhere."""
    return any(map(bool, value.values())) if isinstance(value, Mapping) else bool(value)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
