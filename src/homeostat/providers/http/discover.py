"""Things beside those that were declared, in the lists that declarations name (`find`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from homeostat.loop.provider import Declared, Task, Undeclared, Working
from homeostat.providers.http.spec import ID, HttpResourceSpec

List = Callable[[HttpResourceSpec], Coroutine[Any, Any, Mapping[str, Any]]]
"""Reads the list that a declaration names: things by URL."""


async def undeclared(read: List, declared: Sequence[Declared[HttpResourceSpec]]) -> list[Undeclared]:
    """What is in such a list, and is neither the thing of a declaration nor matches one. Nothing is known of where no list is named."""
    ours = {one.identity or one.spec.url for one in declared}
    lists: dict[str, Declared[HttpResourceSpec]] = {}
    for one in declared:
        if one.spec.find is not None and ID in one.spec.url:
            lists.setdefault(one.spec.find.url, one)
    found: list[Undeclared] = []
    for url, one in sorted(lists.items()):
        matches = [o.spec.find.match for o in declared if o.spec.find is not None and o.spec.find.url == url]
        try:
            with Working(Task(one.ref, {}, {})):
                things = await read(one.spec)
        except Exception as error:
            found.append(Undeclared(url, f"cannot be told: {error}"))
            continue
        for place, thing in things.items():
            if place not in ours and not any(_fits(thing, match) for match in matches):
                found.append(Undeclared(place, f"in {url}"))
    return found


def _fits(thing: Any, match: Mapping[str, Any]) -> bool:
    return isinstance(thing, dict) and all(thing.get(name) == value for name, value in match.items())
