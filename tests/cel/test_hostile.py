"""Expressions and data made to hurt: each ends soon, with an error for whoever sent it, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from homeostat.api.cel import compile_rules
from homeostat.model.cel.expression import compile_expression
from homeostat.model.cel.syntax import InvalidExpression
from homeostat.model.cel.values import CelError
from homeostat.model.schema import Schema

SOON = 2.0
"""Seconds; the aim is under one, a busy machine gets some more."""


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("l.all(a, l.all(b, l.all(c, l.all(d, a == b || c == d || true))))", {"l": list(range(300))}),
        ("l.map(a, l.map(b, l.map(c, [a, b, c]))).size() > 0", {"l": list(range(500))}),
        ("l.all(a, a in l)", {"l": list(range(20_000))}),
        ("sets.equivalent(l, l)", {"l": list(range(20_000))}),
        ("l.all(a, l == l)", {"l": [list(range(100))] * 1000}),
        ("l.distinct().size() > 0 && l.sort().size() > 0", {"l": list(range(20_000))}),
        ("[[1]]" + ".map(a, a + a)" * 25, {"l": []}),
        ("['aaaaaaaaaa']" + ".map(a, a + a)" * 25, {"l": []}),
        ("s.replace('', s).size()", {"s": "a" * 1_000_000}),
        ("l.map(i, s).join(',').size()", {"l": [1] * 10_000, "s": "a" * 1_000_000}),
        ("'" + "%s" * 500 + "'.format([" + "s, " * 499 + "s]).size()", {"s": "a" * 100_000}),
        ("s.findAll('.').size()", {"s": "é" * 3_000_000}),
        ("lists.range(9223372036854775807).size()", {}),
        ("d == [d]", {"d": deep(900)}),
        ("'%s'.format([d])", {"d": deep(900)}),
        ("int(s)", {"s": "9" * 100_000}),
        ("duration(s)", {"s": "9" * 100_000 + "s"}),
        ("semver(s)", {"s": "9" * 100_000 + ".0.0"}),
        ("quantity(s)", {"s": "9" * 100_000}),
        ("s.matches(s)", {"s": "(" * 100_000}),
        ("s.matches(s)", {"s": "((a{100}){100}){100}"}),
    ],
)
def test_an_expression_that_explodes_is_stopped(text: str, data: dict[str, Any]) -> None:
    program = compile_expression(text, dict.fromkeys(data, "dyn"))
    began = time.perf_counter()
    with pytest.raises(CelError):
        program.evaluate(**data)
    assert time.perf_counter() - began < SOON


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+$b", "(.*){20}x", "a?" * 50 + "a" * 50 + "b"])
def test_a_pattern_that_would_explode_elsewhere_runs_in_linear_time(pattern: str) -> None:
    program = compile_expression("s.matches(p)", {"s": "string", "p": "string"})
    began = time.perf_counter()
    assert program.evaluate(s="a" * 10_000, p=pattern) is False
    assert time.perf_counter() - began < SOON


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "[" * 5000 + "]" * 5000,
        "a" + ".b" * 5000,
        "x.map(y, " * 200 + "x" + ")" * 200,
        "'" + "a" * 1_000_000 + "'",
        "1 +" * 5000 + "1",
        "\x00",
        "a" * 3_000_000,
        "'\\ud800'",
    ],
)
def test_a_text_that_is_too_deep_or_too_long_is_refused_soon(text: str) -> None:
    began = time.perf_counter()
    with pytest.raises(InvalidExpression):
        compile_expression(text, {"x": "dyn"})
    assert time.perf_counter() - began < SOON


def test_a_rule_that_runs_out_of_budget_refuses_the_object_and_leaves_others_alone() -> None:
    items = {"type": "array", "items": {"type": "string"}}
    rule = "self.all(x, self.all(y, self.all(z, x == y || y == z || true)))"
    schema = {
        "type": "object",
        "properties": {"l": {**items, "x-kubernetes-validations": [{"rule": rule}, {"rule": "false"}]}},
    }
    ruleset = compile_rules(Schema(schema))
    assert ruleset is not None
    [problem] = ruleset.validate({"l": ["a"] * 500})
    assert str(problem) == (
        "l: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be "
        f"run due to call cost exceeds limit for rule: {rule}"
    )
    assert [e.detail for e in ruleset.validate({"l": ["a"]})] == ["Invalid value: failed rule: false"]


def test_many_dear_rules_together_run_out_of_the_budget_of_the_object() -> None:
    rule = {"rule": "self.all(x, self.all(y, x == y || true))"}
    schema = {
        "type": "object",
        "properties": {"l": {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [rule] * 20}},
    }
    ruleset = compile_rules(Schema(schema))
    assert ruleset is not None
    [problem] = ruleset.validate({"l": ["a"] * 280})
    words = "validation failed due to running out of cost budget, no further validation rules will be run"
    assert problem.detail == f'Invalid value: "array": {words}'


def test_a_schema_without_rules_loads_no_cel() -> None:
    code = (
        "import sys; from homeostat.api.cel import check_rules, compile_rules; from homeostat.model.schema import Schema; "
        "s = Schema({'type': 'object'}); assert compile_rules(s) is None and check_rules(s, 'x') == []; "
        "print([m for m in sys.modules if 'cel_expr' in m or 're2' in m or m.endswith('cel.rules')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


def test_a_loop_whose_policies_ask_nothing_loads_no_cel() -> None:
    code = (
        "import sys, homeostat.loop.engine, homeostat.guards.keeper; from homeostat.guards import parse_policy; "
        "parse_policy({'spec': {'mode': 'Enforce'}}); "
        "print([m for m in sys.modules if 'cel_expr' in m or m.startswith('homeostat.model.cel')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"
