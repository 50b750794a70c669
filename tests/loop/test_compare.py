"""The three-way diff: what counts as a difference, whose it is, and the laws that every diff obeys."""

from __future__ import annotations

import copy
import itertools
import pickle
import timeit
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homeostat.loop.compare import Comparer, alike, compare, fingerprint
from homeostat.loop.diff import NOTHING, Change, Diff, Item, after, path_text
from homeostat.loop.fleet import Cause, Op
from homeostat.loop.observation import ABSENT, Absent, Observation, Unknown
from homeostat.loop.render import render, sensitive_paths
from homeostat.loop.writers import Writers, attribute
from homeostat.model.schema import Schema

SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "image": {"type": "string"},
            "replicas": {"type": "integer", "default": 1},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "selector": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "additionalProperties": {"type": "string"},
            },
            "ports": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {
                    "type": "object",
                    "properties": {
                        "port": {"type": "integer"},
                        "protocol": {"type": "string", "default": "TCP"},
                        "name": {"type": "string"},
                    },
                },
            },
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "command": {"type": "array", "items": {"type": "string"}},
            "mounts": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}, "ro": {"type": "boolean", "default": False}},
                },
            },
            "resources": {
                "type": "object",
                "properties": {
                    "cpu": {"type": "number"},
                    "memory": {"type": "string"},
                    "tls": {"type": "object", "properties": {"key": {"type": "string", "format": "password"}}},
                },
            },
            "users": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "password": {"type": "string", "format": "password"}},
                },
            },
        },
    }
)


def changes(diff: Diff) -> dict[str, tuple[Any, Any, str]]:
    return {path_text(c.path): (c.old, c.new, str(c.cause)) for c in diff.changes}


def diff(declared: Any, last: Any, observed: Any, **options: Any) -> dict[str, tuple[Any, Any, str]]:
    return changes(compare(declared, last, observed, SCHEMA, **options))


class TestWhatIsToBeDone:
    def test_nothing_where_the_world_is_as_declared(self) -> None:
        found = compare({"image": "a"}, {"image": "a"}, {"image": "a", "uid": 7}, SCHEMA)
        assert found is NOTHING
        assert not found

    def test_what_is_not_there_is_created(self) -> None:
        found = compare({"image": "a", "labels": {"x": "y"}, "command": None}, None, ABSENT, SCHEMA)
        assert found.op is Op.CREATE
        assert changes(found) == {"image": (ABSENT, "a", "intent"), "labels": (ABSENT, {"x": "y"}, "intent")}

    def test_a_thing_without_fields_is_created_too(self) -> None:
        assert compare({}, None, ABSENT).op is Op.CREATE

    def test_what_is_declared_no_more_is_deleted(self) -> None:
        found = compare(ABSENT, {"image": "a"}, {"image": "b", "uid": 7}, SCHEMA)
        assert found.op is Op.DELETE
        assert changes(found) == {"image": ("b", ABSENT, "intent")}

    def test_what_was_never_ours_is_not_deleted(self) -> None:
        assert compare(ABSENT, None, {"image": "a"}) is NOTHING

    def test_what_is_gone_already_is_not_deleted_again(self) -> None:
        assert compare(ABSENT, {"image": "a"}, ABSENT) is NOTHING

    def test_the_unknown_is_not_compared(self) -> None:
        unknown: Any = Unknown("timed out")
        with pytest.raises(TypeError, match="unknown cannot be compared: timed out"):
            compare({"image": "a"}, None, unknown)
        with pytest.raises(TypeError, match="unknown cannot be compared: timed out"):
            Comparer[str]().compare("k", {"image": "a"}, None, unknown)
        with pytest.raises(TypeError, match="not None"):
            compare({"image": "a"}, None, None)  # type: ignore[arg-type]


class TestOwnedFields:
    def test_fields_of_others_are_left_alone(self) -> None:
        assert diff({"labels": {"a": "1"}}, None, {"labels": {"a": "1", "b": "2"}, "replicas": 9}) == {}

    def test_a_field_declared_no_more_is_taken_back(self) -> None:
        assert diff({}, {"labels": {"a": "1"}}, {"labels": {"a": "1", "b": "2"}}) == {
            "labels.a": ("1", ABSENT, "intent")
        }

    def test_a_field_that_somebody_changed_since_is_theirs(self) -> None:
        assert diff({}, {"image": "a"}, {"image": "b"}) == {}

    def test_a_container_with_nothing_left_in_it_goes_as_a_whole(self) -> None:
        last = {"resources": {"cpu": 1, "tls": {"key": "k"}}}
        assert diff({}, last, last) == {"resources": (last["resources"], ABSENT, "intent")}

    def test_a_null_is_as_good_as_no_declaration(self) -> None:
        assert diff({"image": None}, None, {"image": "b"}) == {}
        assert diff({"image": None}, {"image": "b"}, {"image": "b"}) == {"image": ("b", ABSENT, "intent")}

    def test_a_map_that_is_atomic_is_ours_with_all_that_is_in_it(self) -> None:
        assert diff({"selector": {"a": "1"}}, None, {"selector": {"a": "1", "b": "2"}}) == {
            "selector": ({"a": "1", "b": "2"}, {"a": "1"}, "intent")
        }

    def test_without_a_schema_maps_are_granular_and_lists_atomic(self) -> None:
        found = compare({"a": {"x": 1}, "l": [1, 2]}, None, {"a": {"y": 2}, "l": [2, 1]})
        assert changes(found) == {"a.x": (ABSENT, 1, "intent"), "l": ([2, 1], [1, 2], "intent")}


class TestLists:
    def test_items_are_found_by_their_keys_in_any_order(self) -> None:
        declared = {"ports": [{"port": 80, "name": "http"}, {"port": 443, "protocol": "TCP", "name": "https"}]}
        observed = {"ports": [{"port": 443, "name": "tls"}, {"port": 80, "protocol": "TCP", "name": "http"}]}
        assert diff(declared, None, observed) == {
            'ports[port=443,protocol="TCP"].name': ("tls", "https", "intent"),
        }

    def test_an_item_of_ours_goes_with_what_others_put_into_it(self) -> None:
        observed = {"ports": [{"port": 80, "name": "http"}, {"port": 81}]}
        assert diff({"ports": []}, {"ports": [{"port": 80}]}, observed) == {
            'ports[port=80,protocol="TCP"]': ({"port": 80, "name": "http"}, ABSENT, "intent")
        }

    def test_a_list_of_which_nothing_is_left_goes_as_a_whole(self) -> None:
        last = {"tags": ["a", "b"], "ports": [{"port": 80}]}
        assert diff({}, last, {"tags": ["b", "a"], "ports": [{"port": 80, "name": "x"}]}).keys() == {"tags", "ports"}
        assert diff({}, last, {"tags": ["b", "z"]}).keys() == {'tags[="b"]'}

    def test_a_set_has_members_and_no_order(self) -> None:
        assert diff({"tags": ["a", "b"]}, {"tags": ["a", "c"]}, {"tags": ["c", "d", "a"]}) == {
            'tags[="b"]': (ABSENT, "b", "intent"),
            'tags[="c"]': ("c", ABSENT, "intent"),
        }

    def test_a_list_that_is_atomic_is_replaced(self) -> None:
        assert diff({"command": ["a", "b"]}, {"command": ["a"]}, {"command": ["a"]}) == {
            "command": (["a"], ["a", "b"], "intent")
        }

    def test_items_without_a_key_or_with_the_same_make_the_list_one_value(self) -> None:
        twins = [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]
        assert diff({"ports": [{"port": 1}]}, None, {"ports": twins}) == {"ports": (twins, [{"port": 1}], "intent")}


class TestPhantoms:
    @pytest.mark.parametrize(
        ("declared", "observed"),
        [
            ({"resources": {"cpu": 1}}, {"resources": {"cpu": 1.0}}),
            ({"replicas": 1}, {}),
            ({"replicas": 1}, {"replicas": None}),
            ({"resources": {"cpu": None}}, {"resources": {}}),
            ({"mounts": [{"path": "/a"}]}, {"mounts": [{"path": "/a", "ro": False}]}),
            ({"mounts": [{"path": "/a", "ro": None}]}, {"mounts": [{"path": "/a"}]}),
            ({"ports": [{"port": 80.0}]}, {"ports": [{"port": 80, "protocol": "TCP"}]}),
        ],
    )
    def test_the_same_in_other_words_is_no_drift(self, declared: Any, observed: Any) -> None:
        assert diff(declared, None, observed) == {}
        assert diff(declared, declared, observed) == {}

    def test_true_is_not_one(self) -> None:
        assert diff({"x": True}, None, {"x": 1}) == {"x": (1, True, "intent")}

    @pytest.mark.parametrize("empty", [{}, [], "", 0, False])
    def test_what_was_applied_empty_may_read_back_as_nothing(self, empty: Any) -> None:
        assert diff({"x": empty}, {"x": empty}, {}) == {}

    @pytest.mark.parametrize("empty", [{}, [], "", 0, False])
    def test_what_is_newly_declared_empty_is_applied(self, empty: Any) -> None:
        assert diff({"x": empty}, {}, {}) == {"x": (ABSENT, empty, "intent")}

    def test_a_provider_says_what_else_is_equal(self) -> None:
        memory = {"1Gi": 2**30, "1024Mi": 2**30, "2Gi": 2**31}

        def normalise(path: Any, value: Any) -> Any:
            return memory[value] if path[-1] == "memory" else value

        same = {"resources": {"memory": "1024Mi"}}
        assert diff({"resources": {"memory": "1Gi"}}, None, same, normalise=normalise) == {}
        # The cause is judged in the same terms: the new declaration means what was applied.
        assert diff({"resources": {"memory": "1Gi"}}, same, {"resources": {"memory": "2Gi"}}, normalise=normalise) == {
            "resources.memory": ("2Gi", "1Gi", "drift")
        }


class TestCause:
    @pytest.mark.parametrize(
        ("declared", "last", "observed", "cause"),
        [
            ("b", None, "a", Cause.INTENT),
            ("b", "a", "a", Cause.INTENT),
            ("a", "a", "b", Cause.DRIFT),
            ("c", "a", "b", Cause.BOTH),
        ],
    )
    def test_of_one_field(self, declared: str, last: str | None, observed: str, cause: Cause) -> None:
        before = None if last is None else {"image": last}
        found = compare({"image": declared}, before, {"image": observed}, SCHEMA)
        assert [found.cause, found.changes[0].cause] == [cause, cause]

    def test_of_fields_with_different_causes_is_both(self) -> None:
        found = compare({"image": "b", "replicas": 3}, {"image": "a", "replicas": 3}, {"image": "a", "replicas": 5}, SCHEMA)
        assert found.cause is Cause.BOTH
        assert changes(found) == {"image": ("a", "b", "intent"), "replicas": (5, 3, "drift")}

    def test_a_newly_declared_field_is_intent_whatever_it_was_before(self) -> None:
        assert diff({"image": "b"}, {}, {"image": "x"}) == {"image": ("x", "b", "intent")}

    def test_of_a_thing_that_vanished_is_drift(self) -> None:
        assert compare({"image": "a"}, {"image": "a"}, ABSENT).cause is Cause.DRIFT
        assert compare({"image": "b"}, {"image": "a"}, ABSENT).cause is Cause.BOTH
        assert compare({}, {}, ABSENT).cause is Cause.DRIFT


class TestWho:
    ENTRIES = (
        {
            "manager": "kubectl-edit",
            "operation": "Update",
            "time": "2026-01-02T00:00:00Z",
            "fieldsV1": {
                "f:spec": {
                    "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}}},
                    "f:tags": {'v:"a"': {}},
                    "f:selector": {},
                }
            },
        },
        {
            "manager": "homeostat",
            "operation": "Apply",
            "time": "2026-01-03T00:00:00Z",
            "fieldsV1": {"f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {"f:name": {}}}, "f:image": {}}},
        },
        {"manager": "broken"},
    )

    def test_drift_is_of_who_wrote_the_world_besides_us(self) -> None:
        found = compare(
            {"ports": [{"port": 80, "name": "http"}]},
            {"ports": [{"port": 80, "name": "http"}]},
            {"ports": [{"port": 80, "protocol": "TCP", "name": "web"}]},
            SCHEMA,
        )
        writers = Writers(self.ENTRIES, root=("spec",))
        (change,) = attribute(found, observed_by=writers, besides=("homeostat",)).changes
        assert change.who == ("kubectl-edit", "Update", "2026-01-02T00:00:00Z")

    def test_intent_is_of_who_wrote_the_declaration(self) -> None:
        found = compare({"image": "b", "replicas": 2}, {"image": "a"}, {"image": "a"}, SCHEMA)
        named = attribute(found, declared_by=Writers(self.ENTRIES, root=("spec",)), besides=("homeostat",))
        assert [change.who and change.who.manager for change in named.changes] == ["homeostat", None]

    def test_an_owner_of_the_whole_owns_its_parts_and_the_owner_of_parts_counts_for_the_whole(self) -> None:
        writers = Writers(self.ENTRIES, root=("spec",))
        assert writers.of(("selector", "a")) == writers.of(("tags",)) == writers.of(("tags", Item.member("a")))
        assert writers.of(("tags", Item.member("b"))) is None
        assert Writers([]).of(("x",)) is None


class TestRendering:
    def test_signs_paths_and_values(self) -> None:
        found = compare(
            {"image": "b", "labels": {"app.io/x": "1"}},
            {"image": "a", "tags": ["t"]},
            {"image": "a", "tags": ["t", "u"], "labels": {}},
            SCHEMA,
        )
        assert render(found) == ['~ image: "a" → "b"', '+ labels[app.io/x]: "1"', '- tags[="t"]: "t"']

    def test_cause_and_author(self) -> None:
        found = compare({"image": "a"}, {"image": "a"}, {"image": "b"}, SCHEMA)
        entry = {"manager": "vim", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:image": {}}}
        named = attribute(found, observed_by=Writers([entry]))
        assert render(named) == ['~ image: "b" → "a"  (drift, by vim at 2026-01-02T00:00:00Z)']

    def test_texts_of_several_lines_show_the_lines_that_differ(self) -> None:
        found = compare({"t": "a\nb\nc\nd\n"}, None, {"t": "a\nb\nc\ne\n"})
        assert render(found) == ["~ t:", "    @@ -3,2 +3,2 @@", "     c", "    -e", "    +d"]
        assert render(compare({"t": "a\n"}, None, {"t": "a"})) == ["~ t:", '    "a" → "a\\n"']

    def test_long_values_are_cut(self) -> None:
        (line,) = render(compare({"t": "x" * 5000}, None, {"t": "y"}))
        assert len(line) < 300
        assert line.endswith("… (5002 characters)")

    def test_secrets_are_never_shown(self) -> None:
        secret = sensitive_paths(SCHEMA)
        assert secret == {("users", "*", "password"), ("resources", "tls", "key")}
        declared = {
            "resources": {"tls": {"key": "hunter2"}},
            "users": [{"name": "a", "password": "hunter2"}, {"name": "b", "password": "hunter2"}],
        }
        observed = {"users": [{"name": "a", "password": "hunter1\n"}]}
        for world in (observed, ABSENT):
            text = "\n".join(render(compare(declared, None, world, SCHEMA), secret))
            assert "hunter" not in text
            assert "(sensitive)" in text
        assert render(compare(declared, None, observed, SCHEMA), secret)[1] == (
            '~ users[name="a"].password: (sensitive) → (sensitive)'
        )

    def test_a_secret_that_names_an_item_is_hidden_too(self) -> None:
        found = compare({"tags": ["hunter2"], "ports": [{"port": 4711}]}, None, {"tags": [], "ports": []}, SCHEMA)
        lines = render(found, {("tags", "*"), ("ports", "*", "port")})
        assert lines == ["+ tags[(sensitive)]: (sensitive)", '+ ports[(sensitive)]: {"port":"(sensitive)"}']

    def test_touches_tells_which_fields_change(self) -> None:
        found = compare({"labels": {"a": "1"}}, None, {}, SCHEMA)
        assert found.touches("image", "labels")
        assert not found.touches("image")


class TestObservation:
    def test_absent_is_one(self) -> None:
        assert Absent() is ABSENT is copy.deepcopy(ABSENT) is pickle.loads(pickle.dumps(ABSENT))
        assert not ABSENT

    def test_unknown_is_neither_true_nor_false(self) -> None:
        with pytest.raises(TypeError, match="neither there nor absent"):
            bool(Unknown("no answer"))
        assert not Observation(Unknown("no answer"), at=1.0).known
        assert Observation(ABSENT, at=1.0).known

    def test_its_age_counts_from_before_the_look(self) -> None:
        assert Observation({}, at=10.0, took=2.0).age(13.0) == 5.0
        assert Observation({}, at=10.0).age(9.0) == 0.0


# The laws. Three values of one schema, related as they are in life: each made from the one before by a few edits.

_words = st.sampled_from(["", "a", "b", "c"])
_maybe = st.none()
_ports = st.lists(
    st.fixed_dictionaries(
        {"port": st.integers(0, 3)},
        optional={"protocol": st.sampled_from(["TCP", "UDP", None]), "name": _words | _maybe},
    ),
    max_size=4,
)
_open = st.recursive(
    st.one_of(_maybe, st.booleans(), st.integers(-1, 2), st.sampled_from([0.0, 1.0, 1.5]), _words),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_words, inner, max_size=2),
    max_leaves=5,
)
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "image": _words | _maybe,
    "replicas": st.integers(0, 2) | _maybe,
    "labels": st.dictionaries(_words, _words | _maybe, max_size=3) | _maybe,
    "selector": st.dictionaries(_words, _words, max_size=2) | _maybe,
    "ports": _ports | _maybe,
    "tags": st.lists(_words, max_size=3) | _maybe,
    "command": st.lists(_words, max_size=2) | _maybe,
    "mounts": st.lists(st.fixed_dictionaries({"path": _words}, optional={"ro": st.booleans() | _maybe}), max_size=2),
    "resources": st.fixed_dictionaries(
        {},
        optional={
            "cpu": st.sampled_from([0, 1, 1.0, 2.5, None]),
            "memory": _words,
            "tls": st.fixed_dictionaries({}, optional={"key": _words}) | _maybe,
        },
    ),
    "free": _open,
    "other": _open,
}
_states = st.fixed_dictionaries({}, optional=_FIELDS)


@st.composite
def _edited(draw: st.DrawFn, state: dict[str, Any]) -> dict[str, Any]:
    edited = {**state, **draw(_states)} if draw(st.booleans()) else dict(state)
    for name in draw(st.sets(st.sampled_from(sorted(_FIELDS)), max_size=3)):
        edited.pop(name, None)
    return edited


@st.composite
def _worlds(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any] | Absent]:
    last = draw(_states)
    declared = draw(_edited(last))
    observed = ABSENT if draw(st.integers(0, 9)) == 0 else draw(_edited(draw(st.sampled_from([last, declared]))))
    return declared, (last if draw(st.integers(0, 4)) else None), observed


many = settings(max_examples=300, deadline=None)


@given(_worlds())
@many
def test_after_the_diff_there_is_no_diff(worlds: Any) -> None:
    declared, last, observed = worlds
    untouched = orjson.dumps([declared, last, observed], default=repr)
    world = after(observed, compare(declared, last, observed, SCHEMA), SCHEMA)
    assert compare(declared, declared, world, SCHEMA) is NOTHING
    assert compare(declared, last, world, SCHEMA) is NOTHING
    assert orjson.dumps([declared, last, observed], default=repr) == untouched


@given(_worlds())
@many
def test_every_change_is_needed_and_none_lies_within_another(worlds: Any) -> None:
    declared, last, observed = worlds
    found = compare(declared, last, observed, SCHEMA)
    paths = [change.path for change in found.changes]
    assert not any(a != b and a == b[: len(a)] for a in paths for b in paths)
    assert len(set(paths)) == len(paths)
    for left_out in found.changes if found.op is Op.UPDATE else ():
        rest = Diff(found.op, tuple(change for change in found.changes if change is not left_out), found.cause)
        world = after(observed, rest, SCHEMA)
        assert left_out.path in [change.path for change in compare(declared, last, world, SCHEMA).changes]


@given(_worlds())
@many
def test_nothing_outside_of_owned_fields_changes(worlds: Any) -> None:
    declared, last, observed = worlds
    if isinstance(observed, Absent):
        return
    found = compare(declared, last, observed, SCHEMA)
    world = after(observed, found, SCHEMA)
    assert isinstance(world, dict)
    ours = {name for part in (declared, last or {}) for name, value in part.items() if value is not None}
    for name in observed.keys() - ours:
        assert world[name] == observed[name]
    labels = {key for part in (declared, last or {}) for key, v in (part.get("labels") or {}).items() if v is not None}
    for key, value in (observed.get("labels") or {}).items():
        if key not in labels and value is not None:
            assert world["labels"][key] == value
    tags = {tag for part in (declared, last or {}) for tag in part.get("tags") or ()}
    before = observed.get("tags") or []
    if len(set(before)) == len(before) and len(set(declared.get("tags") or ())) == len(declared.get("tags") or ()):
        assert set(before) - tags <= set(world.get("tags") or ())


@given(_worlds(), st.randoms(use_true_random=False))
@many
def test_the_order_of_keyed_items_and_of_fields_means_nothing(worlds: Any, source: Any) -> None:
    def shuffled(state: Any) -> Any:
        if not isinstance(state, dict):
            return state
        mixed = dict(source.sample(sorted(state.items(), key=lambda kv: kv[0]), len(state)))
        for name in ("ports", "tags"):
            # Lists in which two items have one name are illegal, and compared as a whole.
            names = [(i["port"], i.get("protocol") or "TCP") if isinstance(i, dict) else i for i in mixed.get(name) or ()]
            if names and len(set(names)) == len(names):
                mixed[name] = source.sample(mixed[name], len(names))
        return mixed

    def as_set(found: Diff) -> Any:
        plain = {path_text(c.path): (str(c.cause), c.old is ABSENT, c.new is ABSENT) for c in found.changes}
        return found.op, found.cause, plain

    declared, last, observed = worlds
    first = compare(declared, last, observed, SCHEMA)
    assert as_set(compare(shuffled(declared), shuffled(last), shuffled(observed), SCHEMA)) == as_set(first)


@given(st.lists(_worlds(), min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=12))
@many
def test_what_is_remembered_is_what_would_be_found(cases: Any, visits: list[int]) -> None:
    comparer: Comparer[str] = Comparer(SCHEMA)
    for visit in visits:
        declared, last, observed = cases[visit % len(cases)]
        assert comparer.compare("one", declared, last, observed) == compare(declared, last, observed, SCHEMA)


@given(_open, _open)
@many
def test_alike_is_symmetric_and_agrees_with_equality_of_json(a: Any, b: Any) -> None:
    assert alike(a, b) == alike(b, a)
    assert alike(a, a)
    if orjson.dumps(a, option=orjson.OPT_SORT_KEYS) == orjson.dumps(b, option=orjson.OPT_SORT_KEYS):
        assert alike(a, b)


class TestRemembering:
    def test_the_fingerprint_keeps_nothing_and_empty_apart(self) -> None:
        nothing: list[Any] = [{}, ABSENT]
        last: list[Any] = [None, {}]
        prints = {fingerprint(*three) for three in itertools.product(nothing, last, nothing)}
        assert len(prints) == 8
        assert fingerprint({"a": 1, "b": 2}, None, ABSENT) == fingerprint({"b": 2, "a": 1}, None, ABSENT)

    def test_what_is_forgotten_is_compared_anew(self) -> None:
        comparer: Comparer[str] = Comparer()
        first = comparer.compare("a", {"x": 1}, None, {"x": 2})
        assert comparer.compare("a", {"x": 1}, None, {"x": 2}) is first
        comparer.forget("a")
        assert len(comparer) == 0
        assert comparer.compare("a", {"x": 1}, None, {"x": 2}) == first

    def test_an_unchanged_resource_costs_microseconds(self) -> None:
        state = {
            "image": "registry.example.com/web:1",
            "labels": {f"key{i}": f"value{i}" for i in range(10)},
            "ports": [{"port": i, "name": f"port-{i}"} for i in range(5)],
            "command": ["x" * 300],
        }
        comparer: Comparer[str] = Comparer(SCHEMA)
        comparer.compare("a", state, state, state)
        best = min(timeit.repeat(lambda: comparer.compare("a", state, state, state), number=1000, repeat=20)) / 1000
        assert best < 15e-6  # about 4 µs on a quiet machine; a slow path takes ten times as long


def test_a_path_reads_like_one() -> None:
    path = ("spec", "ports", Item.keyed({"port": 80, "name": "a<b"}), "name")
    assert path[2] == Item('k:{"name":"a\\u003cb","port":80}')  # as Go escapes it
    assert path_text(path) == 'spec.ports[name="a<b",port=80].name'
    assert path_text(("labels", "app.kubernetes.io/name")) == "labels[app.kubernetes.io/name]"
    assert Change(path, 1, 2, Cause.DRIFT).sign == "~"
