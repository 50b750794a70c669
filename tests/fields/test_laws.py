"""Laws of ownership, checked against a plain model: sets of explicit paths instead of tries, no sharing, no shortcuts."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homeostat.api.fields import compare, sets
from homeostat.api.fields.apply import _Apply, apply
from homeostat.api.fields.managed import Ledger
from homeostat.api.fields.types import type_of
from homeostat.model.errors import ApiError
from homeostat.model.schema import Schema

from .world import API, SCHEMA, World, thing

Path = tuple[str, ...]

# --- the model -------------------------------------------------------------------------------------------------------

STRUCTS = {(): {"spec"}, ("f:spec",): {"replicas", "image", "args", "zones", "ports", "selector", "env", "nested"}}
ATOMIC = {("f:spec", "f:args"), ("f:spec", "f:selector")}


def key_of(path: Path, item: Any) -> str:
    if path == ("f:spec", "f:ports"):
        return f'k:{{"port":{item["port"]},"protocol":"{item.get("protocol", "TCP")}"}}'
    return f'v:"{item}"'


def every(value: Any, path: Path = ()) -> dict[Path, Any]:
    """Every path of a value with what is there: the value of a leaf, `...` for something with parts."""
    out: dict[Path, Any] = {}
    parts: list[tuple[str, Any]] = []
    if path not in ATOMIC and isinstance(value, dict):
        parts = [("f:" + name, item) for name, item in value.items()]
    elif path not in ATOMIC and isinstance(value, list):
        parts = [(key_of(path, item), item) for item in value]
    if path:
        out[path] = ... if parts else value
    for key, item in parts:
        out |= every(item, (*path, key))
    return out


def body(obj: Any) -> dict[str, Any]:
    return {"spec": obj["spec"]} if "spec" in obj else {}


def claims(config: Any) -> set[Path]:
    """What an applied configuration owns: all but the declared structures and lists that only lead somewhere."""
    out = set()
    for path, value in every(body(config)).items():
        leads = value is ... or (value == [] and path not in ATOMIC)
        declared = path[-1][0] == "f" and (len(path) <= 2 or path[1] in ("f:nested", "f:ports"))
        if not (leads and declared):
            out.add(path)
    return out


def changed(old: Any, new: Any) -> tuple[set[Path], set[Path]]:
    before, after = every(body(old)), every(body(new))
    more = {
        path
        for path, value in after.items()
        if path not in before or (before[path] != value and ... not in (before[path], value))
    }
    return more, before.keys() - after.keys()


def members(fields: Any) -> set[Path]:
    return set(sets.paths(fields))


# --- what is generated -----------------------------------------------------------------------------------------------

words = st.sampled_from(["a", "b", "c"])
ports = st.lists(
    st.fixed_dictionaries(
        {"port": st.sampled_from([80, 443]), "protocol": st.sampled_from(["TCP", "UDP"])},
        optional={"name": words, "note": words},
    ),
    unique_by=lambda item: (item["port"], item["protocol"]),
    max_size=3,
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 2),
        "image": words,
        "args": st.lists(words, max_size=2),
        "zones": st.lists(words, unique=True, max_size=3),
        "ports": ports,
        "selector": st.dictionaries(words, words, max_size=2),
        "env": st.dictionaries(words, words, max_size=2),
        "nested": st.fixed_dictionaries({}, optional={"a": words, "b": words}),
    },
)


def without_empty(spec: dict[str, Any]) -> dict[str, Any]:
    """Declaring something empty that had content leaves a null for the defaulter: no part of the laws of apply."""
    return {key: value for key, value in spec.items() if value not in ({}, [])}


filled = specs.map(without_empty).filter(bool)
managers = st.sampled_from(["m1", "m2", "m3"])

paths_st = st.sets(
    st.lists(st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"']), min_size=1, max_size=3).map(tuple), max_size=8
)


def trie(paths: set[Path]) -> Any:
    out: Any = {}
    for path in sorted(paths, key=len):
        out = sets.union(out, sets.single(path))
    return out


# --- sets ------------------------------------------------------------------------------------------------------------


@given(paths_st, paths_st)
def test_sets_of_fields_behave_as_sets_of_paths(a: set[Path], b: set[Path]) -> None:
    x, y = trie(a), trie(b)
    before = copy.deepcopy((x, y))
    assert members(sets.union(x, y)) == a | b
    assert members(sets.intersection(x, y)) == a & b
    assert members(sets.difference(x, y)) == a - b
    below = {path for path in a if any(path[: len(other)] == other for other in b)}
    assert members(sets.recursive_difference(x, y)) == a - below
    assert all(sets.has(x, path) == (path in a) for path in a | b)
    assert (x, y) == before


@given(paths_st, paths_st)
def test_equal_sets_have_one_form(a: set[Path], b: set[Path]) -> None:
    assert sets.union(trie(a), trie(b)) == trie(a | b) == sets.sanitize(trie(a | b))
    assert list(sets.union(trie(a), trie(b))) == sorted(trie(a | b))
    assert sets.difference(trie(a), trie(b)) == trie(a - b)
    assert (sets.difference(trie(a), trie(b)) == {}) == (a <= b)


# --- plain writes ----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(managers, specs), min_size=1, max_size=6))
def test_every_field_has_exactly_one_plain_owner_the_last_who_changed_it(writes: list[Any]) -> None:
    world = World()
    owner: dict[Path, str] = {}
    for manager, spec in writes:
        old, new = world.live, thing(spec)
        if old is not None:
            new["metadata"]["managedFields"] = world.entries()
            if not world.entries():
                return
        more, less = changed(old or {}, new)
        world.update(manager, new)
        owner = {path: name for path, name in owner.items() if path not in less} | dict.fromkeys(more, manager)
        for entry in world.entries():
            assert members(entry["fieldsV1"]) == {path for path, name in owner.items() if name == entry["manager"]}
        assert set(world.owners()) == set(owner.values())
        assert owner.keys() == every(body(new)).keys()


# --- apply -----------------------------------------------------------------------------------------------------------


@given(specs, filled, filled)
def test_applying_twice_is_applying_once(a: Any, b: Any, c: Any) -> None:
    world = World()
    world.update("writer", thing(a))
    world.apply("m1", thing(b), force=True)
    world.apply("m1", thing(c), force=True)
    once = world.live
    assert world.apply("m1", thing(c)) is once


@given(specs, specs)
def test_what_is_applied_is_there_and_owned(a: Any, b: Any) -> None:
    world = World()
    world.update("writer", thing(a))
    world.apply("m1", thing(b), force=True)
    there = every(body(world.live))
    for path, value in every(body(thing(b))).items():
        assert there[path] == value or value in ({}, []), path
    owned = {path for entry in world.entries() if entry["manager"] == "m1" for path in members(entry["fieldsV1"])}
    assert owned == claims(thing(b))


@given(specs, specs)
def test_there_is_a_conflict_exactly_where_another_owner_would_see_a_change(a: Any, b: Any) -> None:
    world = World()
    world.update("writer", thing(a))
    if not world.entries():
        return
    forced = World()
    forced.live = world.live
    forced.apply("m1", thing(b), force=True)
    more, _ = changed(world.live, forced.live)
    expected = more & members(world.owned("writer"))
    if not expected:
        assert body(world.apply("m1", thing(b))) == body(forced.live)
        return
    with pytest.raises(ApiError) as caught:
        world.apply("m1", thing(b))
    assert {cause["field"] for cause in caught.value.causes} == {sets.show(path) for path in expected}
    assert not expected & members(forced.entry("writer")["fieldsV1"] if "writer" in forced.owners() else {})


@given(filled, filled)
def test_giving_all_up_takes_away_exactly_what_nobody_else_applied(a: Any, b: Any) -> None:
    world = World()
    world.apply("m1", thing(a))
    try:
        world.apply("m2", thing(b))
    except ApiError:
        return
    world.apply("m1", thing())
    assert world.owners() in (["m2"], [])
    alone = World()
    alone.apply("m2", thing(b))
    left = every(body(world.live)) if world.live and world.live.get("spec") is not None else {}
    for path in claims(thing(a)) - claims(thing(b)):
        covered = any(other[: len(path)] == path for other in claims(thing(b)))
        assert path not in left or covered, path
    for path in claims(thing(b)):
        assert path in left or every(body(thing(b)))[path] in ({}, []), path


@settings(max_examples=60)
@given(st.lists(st.tuples(managers, specs, st.booleans(), st.booleans()), min_size=2, max_size=6))
def test_an_owner_always_owns_what_is_there(writes: list[Any]) -> None:
    world = World()
    for manager, spec, applied, force in writes:
        try:
            if applied or world.live is None:
                world.apply(manager, thing(spec), force=force)
            else:
                world.edit(manager, lambda o, spec=spec: o.update(spec=spec))
        except ApiError:
            continue
        if world.live is None or world.live.get("spec") is None:
            return
        there = every(body(world.live)).keys()
        for entry in world.entries():
            for path in members(entry["fieldsV1"]):
                assert path in there or entry["operation"] == "Apply"


CONDITIONS = Schema(
    {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "properties": {"type": {"type": "string"}, "status": {"type": "string"}, "more": {"type": "object"}},
        },
    }
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": words},
            optional={
                "status": words | st.none() | st.just({"a": 1}),
                "more": st.just({"a": {"b": 1}}),
                "unknown": st.just({"a": 1}) | words,
            },
        )
    )
)
def test_what_is_remembered_of_a_list_is_what_a_walk_finds(items: list[Any]) -> None:
    t = compare.Type(CONDITIONS)
    found = compare.whole(t, items)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "_FLAT_MOST", -1)
        assert found == compare.whole(t, items)
        assert list(found) == list(compare.whole(t, items))


@given(specs)
def test_an_apply_that_creates_gives_what_the_merge_into_nothing_gives(spec: Any) -> None:
    config = thing(spec)
    base = {"apiVersion": API, "kind": config["kind"], "metadata": {}}
    t, schemas = type_of(SCHEMA), {API: SCHEMA}
    merged = _Apply(t, base, config, "a", API, "", "now").run(Ledger([], schemas.get, API, t, None), False)
    created = apply(SCHEMA, None, config, manager="a", api_version=API, now="now", schema_for_version=schemas.get)
    assert (created, list(created)) == (merged, list(merged))
