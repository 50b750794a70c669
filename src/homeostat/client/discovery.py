"""From apiVersion and kind to a path: what the server serves, asked once and again when something is missing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec

from homeostat.model.errors import ApiError

_plain = re.compile("[A-Za-z0-9._-]*").fullmatch
_NAME_SAFE = ":@!$&'()*+,;="


class Served(msgspec.Struct, frozen=True):
    """A kind as a server serves it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str] = frozenset()
    subresources: frozenset[str] = msgspec.field(default_factory=frozenset)
    categories: frozenset[str] = frozenset()

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of a collection, an object or a subresource of one."""
        path = _collection(self.api_version, self.plural, namespace)
        if name:
            # A name is one segment, whatever it holds; RBAC names have colons, which may stand as they are.
            path = f"{path}/{name if _plain(name) else quote(name, safe=_NAME_SAFE)}"
        return f"{path}/{subresource}" if subresource else path


@lru_cache(1024)
def _collection(api_version: str, plural: str, namespace: str) -> str:
    room = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{group_path(api_version)}{room}/{plural}"


def group_path(api_version: str) -> str:
    """`/api/v1` or `/apis/GROUP/VERSION`."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


class Discovery:
    """Remembers what each group version serves. `fetch` gets a document by its path."""

    def __init__(self, fetch: Callable[[str], Awaitable[Any]]) -> None:
        self._fetch = fetch
        self._known: dict[str, dict[str, Served]] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    def known(self, api_version: str, kind: str) -> Served | None:
        """The kind, where it was found before."""
        kinds = self._known.get(api_version)
        return kinds.get(kind) if kinds is not None else None

    async def find(self, api_version: str, kind: str) -> Served:
        """The kind; a miss asks the server anew, for definitions come and go.

        Raises `ApiError` 404 where there is none.
        """
        found = self.known(api_version, kind)
        if found is not None:
            return found
        before = self._known.get(api_version)
        async with self._asking.setdefault(api_version, asyncio.Lock()):
            if self._known.get(api_version) is before:  # else somebody asked while this one waited
                await self._refresh(api_version, kind)
        found = self.known(api_version, kind)
        if found is None:
            raise no_match(api_version, kind)
        return found

    def forget(self, api_version: str) -> None:
        """What was known of a group version no longer holds."""
        self._known.pop(api_version, None)

    async def _refresh(self, api_version: str, kind: str) -> None:
        try:
            document = await self._fetch(group_path(api_version))
        except ApiError as error:
            if error.code == 404:
                self._known.pop(api_version, None)
                raise no_match(api_version, kind) from None
            raise
        self._known[api_version] = _kinds(api_version, document.get("resources") or ())


def _kinds(api_version: str, resources: Any) -> dict[str, Served]:
    subresources: dict[str, set[str]] = {}
    for item in resources:
        plural, slash, sub = item["name"].partition("/")
        if slash:
            subresources.setdefault(plural, set()).add(sub)
    return {
        item["kind"]: Served(
            api_version,
            item["kind"],
            item["name"],
            bool(item.get("namespaced")),
            frozenset(item.get("verbs") or ()),
            frozenset(subresources.get(item["name"], ())),
            frozenset(item.get("categories") or ()),
        )
        for item in resources
        if "/" not in item["name"]
    }


def no_match(api_version: str, kind: str) -> ApiError:
    """Worded as kubectl words it."""
    return ApiError(404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"')
