"""JSON documents to try patches on, and a guard that a patch leaves its inputs as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from hypothesis import strategies as st

FIELDS = st.sampled_from(["a", "b", "c", "d/e", "f~g", ""])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.5, "x", "y"]))


def values(scalars: st.SearchStrategy[Any] = SCALARS) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(FIELDS, inner, max_size=4)),
        max_leaves=12,
    )


def objects(scalars: st.SearchStrategy[Any] = SCALARS) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(FIELDS, values(scalars), max_size=4)


def unharmed(patch: Callable[..., Any], document: Any, *more: Any) -> Any:
    """Applies a patch and sees to it that its inputs stay as they were."""
    before = orjson.dumps([document, more[0]])
    result = patch(document, *more)
    assert orjson.dumps([document, more[0]]) == before
    return result
