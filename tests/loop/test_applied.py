"""What of a live object is about a declaration."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from homeostat.loop.applied import shows, view

NAMES = st.sampled_from("abk")
LEAVES = st.sampled_from([0, 1, True, None, "x", {}, []])
VALUES = st.recursive(
    LEAVES,
    lambda below: st.dictionaries(NAMES, below, max_size=3) | st.lists(below, max_size=2) | st.lists(st.fixed_dictionaries({"k": LEAVES, "a": below}), max_size=2),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=3)


def fields_of(value: Any, keyed: bool) -> dict[str, Any]:
    """As somebody owns all of a value; its lists by the key of their items, or by the items themselves."""
    if isinstance(value, dict):
        return {f"f:{name}": fields_of(one, keyed) for name, one in value.items()}
    if isinstance(value, list):
        named = [one for one in value if isinstance(one, dict) and "k" in one]
        if keyed:
            return {f"k:{orjson.dumps({'k': one['k']}).decode()}": fields_of(one, keyed) for one in named}
        return {f"v:{orjson.dumps(one).decode()}": {} for one in value}
    return {}


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    declared, keyed = draw(OBJECTS), draw(st.booleans())
    live = draw(st.just(declared) | OBJECTS | OBJECTS.map(lambda more: {**more, **declared}))
    return declared, live, fields_of(draw(st.sampled_from((declared, live))), keyed), fields_of(draw(st.just(declared) | OBJECTS), keyed)


@given(cases())
@example(({"a": [{"k": 1}]}, {"a": [{"k": 1, "b": 2}]}, {"f:a": {'k:{"k":1}': {"f:b": {}}}}, {"f:a": {'k:{"k":1}': {"f:b": {}}}}))
@example(({"a": [{"b": 1}]}, {"a": [{"b": 1}]}, {"f:a": {'k:{"k":1}': {}}}, {}))
def test_that_a_view_is_what_is_declared_is_told_as_if_it_had_been_made(case: tuple[Any, Any, dict[str, Any], dict[str, Any]]) -> None:
    declared, *rest = case
    assert shows(declared, *rest) == (view(declared, *rest) == declared)
