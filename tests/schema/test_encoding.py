"""Bodies in JSON and YAML: read strictly, doubles found, traps refused."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schema.generated import json_values

from homeostat.model.encoding import MAX_DEPTH, Malformed, decode_json, decode_yaml, kept, load_all_yaml


class TestJson:
    def test_what_is_kept_takes_no_more_memory_than_its_bytes(self) -> None:
        value = {"metadata": {"name": "web"}}
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            held = [kept(value) for _ in range(100)]
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert set(held) == {orjson.dumps(value)}
        assert (after - before) / len(held) < len(held[0]) + 100

    @pytest.mark.parametrize("indent", [None, 2])
    def test_a_body_without_doubles_has_none_however_it_is_written(self, indent: int | None) -> None:
        value = {"a": "é <&>\n", "b": [1.0, {"c d": None}], "e": {"f": 10**15}}
        assert decode_json(json.dumps(value, indent=indent).encode()) == (value, [])
        assert decode_json(json.dumps(value, ensure_ascii=False).encode()) == (value, [])

    def test_doubles_are_named_by_their_path_and_the_last_counts(self) -> None:
        body = b'{"spec":{"replicas":1,"replicas":2,"l":[{"a":1,"a":1}]},"x":1,"x":2,"x":3}'
        assert decode_json(body) == (
            {"spec": {"replicas": 2, "l": [{"a": 1}]}, "x": 3},
            ['duplicate field "spec.replicas"', 'duplicate field "spec.l[0].a"', 'duplicate field "x"'],
        )

    def test_doubles_are_found_under_escapes_too(self) -> None:
        assert decode_json(b'{"a":1,"\\u0061":2}') == ({"a": 2}, ['duplicate field "a"'])

    @pytest.mark.parametrize(
        "body",
        [b"", b"{", b"NaN", b"[1e999]", b'{"a":Infinity}', b"\xff", b'"\\ud800"', b"{}{}", b"{'a':1}", b'{"a":1,}'],
    )
    def test_what_is_no_json_is_refused(self, body: bytes) -> None:
        with pytest.raises(Malformed):
            decode_json(body)

    def test_nesting_has_an_end(self) -> None:
        assert decode_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)[1] == []
        for depth in (MAX_DEPTH + 1, 300, 2000, 1_000_000):
            with pytest.raises(Malformed):
                decode_json(b"[" * depth + b"]" * depth)

    def test_many_brackets_are_not_deep_nesting(self) -> None:
        wide = [[]] * 1000
        assert decode_json(orjson.dumps(wide)) == (wide, [])

    @given(json_values())
    def test_every_value_comes_back(self, value: Any) -> None:
        body = json.dumps(value).encode()
        assert decode_json(body) == (orjson.loads(body), [])

    @given(st.lists(st.tuples(st.sampled_from(["a", "b", "a b", "\t"]), st.integers(0, 3)), max_size=5))
    def test_doubles_are_found_exactly_where_they_are(self, members: list[tuple[str, int]]) -> None:
        body = "{" + ", ".join(f"{json.dumps(k)}: {v}" for k, v in members) + "}"
        value, doubled = decode_json(body.encode())
        assert value == dict(members)
        names = [k for k, _ in members]
        assert sorted(doubled) == sorted({f'duplicate field "{n}"' for n in names if names.count(n) > 1})


class TestYaml:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("yes", True),
            ("On", True),
            ("n", False),
            ("off", False),
            ("~", None),
            ("", None),
            ("'yes'", "yes"),
            ("!!str yes", "yes"),
            ("0777", 511),
            ("0o17", 15),
            ("0x1F", 31),
            ("0b11", 3),
            ("1_000", 1000),
            ("-3", -3),
            ("1.5", 1.5),
            ("1e3", 1000.0),
            (".5", 0.5),
            ("1.2.3", "1.2.3"),
            ("12:30", "12:30"),
            ("2001-01-01", "2001-01-01"),
            ("2001-01-01T00:00:00Z", "2001-01-01T00:00:00Z"),
            ("18446744073709551615", 18446744073709551615),
            ("99999999999999999999", 1e20),
            ("nothing", "nothing"),
            ("-", [None]),
            ("a: [1, {b: c}]", {"a": [1, {"b": "c"}]}),
            ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ],
    )
    def test_scalars_are_read_as_upstream_reads_them(self, text: str, value: Any) -> None:
        assert decode_yaml(text.encode()) == (value, [])

    def test_keys_become_text(self) -> None:
        assert decode_yaml(b"1: a\ntrue: b\n1.5: c\nyes: d\n")[0] == {"1": "a", "true": "d", "1.5": "c"}

    def test_json_is_yaml_and_names_doubles_as_json_does(self) -> None:
        assert decode_yaml(b' {"a": 1, "a": 2}') == ({"a": 2}, ['duplicate field "a"'])

    def test_doubled_keys_are_named_by_line(self) -> None:
        assert decode_yaml(b"a: 1\nb: 2\na: 3\n") == (
            {"a": 3, "b": 2},
            ['yaml: unmarshal errors:\n  line 3: key "a" already set in map'],
        )

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("a: &x 1\nb: *x\n", "anchors and aliases are not allowed"),
            ("a: 1\n---\nb: 1\n", "expected a single document"),
            ("<<: {a: 1}\n", "merge keys are not allowed"),
            ("a: !!python/object:os.system x\n", "unknown tag"),
            ("a: !!binary aGk=\n", "unknown tag"),
            ("a: !!int x\n", "cannot decode `x` as a !!int"),
            ("? [a]\n: b\n", "a key must be a scalar"),
            ("~: b\n", "null is no key"),
            ("a: .inf\n", "is no JSON number"),
            ("a: [1\n", "line 2"),
            ("a: b: c\n", "line 1"),
            ("\x00", "not allowed"),
            ("- " * 500, "nested deeper"),
            ("[" * 500 + "]" * 500, "nested deeper"),
        ],
    )
    def test_traps_are_refused_with_the_line(self, text: str, why: str) -> None:
        with pytest.raises(Malformed, match=why.replace("[", r"\[")):
            decode_yaml(text.encode())

    def test_bytes_that_are_no_text_are_refused(self) -> None:
        with pytest.raises(Malformed, match="invalid UTF-8 at byte 3"):
            decode_yaml(b"a: \xff")

    @given(json_values())
    def test_what_json_says_yaml_says_too(self, value: Any) -> None:
        body = b"--- \n" + json.dumps(value).encode()
        read, doubled = decode_yaml(body)
        assert read == json.loads(json.dumps(value))
        assert doubled == []

    def test_a_file_may_hold_many_documents(self) -> None:
        assert load_all_yaml("a: 1\n---\n---\n{b: 2}\n") == [{"a": 1}, {"b": 2}]
        assert load_all_yaml("") == []

    def test_in_a_file_a_doubled_key_is_a_mistake(self) -> None:
        with pytest.raises(Malformed, match='line 2: key "a" is already set'):
            load_all_yaml("a: 1\na: 2\n")
