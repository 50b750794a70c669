"""What expressions mean, by example. Values are those that the real API server gives."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.model.cel.authorizers import AUTHORIZER, Asked, Authorizer, Decision
from homeostat.model.cel.check import checked
from homeostat.model.cel.evaluate import compile_tree
from homeostat.model.cel.expression import NUMBER, compile_expression
from homeostat.model.cel.syntax import InvalidExpression
from homeostat.model.cel.values import CelError

OBJECT: dict[str, Any] = {
    "metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}},
    "spec": {
        "replicas": 3,
        "ratio": 0.5,
        "tags": ["a", "b", "c"],
        "ports": [{"name": "http", "port": 80}],
        "none": None,
    },
}


def value_of(text: str) -> Any:
    return compile_expression(text, {"object": "dyn"}).evaluate(object=OBJECT)


@pytest.mark.parametrize(
    "text",
    [
        "object.spec.replicas > 1 && object.metadata.name == 'web'",
        "object.spec.replicas == 3.0 && object.spec.ratio < 1",
        "has(object.spec.tags) && !has(object.spec.missing)",
        "'app' in object.metadata.labels && 'b' in object.spec.tags && !('z' in object.spec.tags)",
        "object.spec.tags.all(t, t.size() == 1) && object.spec.tags.exists(t, t == 'c')",
        "object.spec.tags.exists_one(t, t == 'a') && !object.spec.tags.exists_one(t, t != 'a')",
        "object.spec.tags.map(t, t + t) == ['aa', 'bb', 'cc']",
        "object.spec.tags.map(t, t != 'b', t + t) == ['aa', 'cc']",
        "object.spec.tags.filter(t, t > 'a') == ['b', 'c']",
        "object.metadata.labels.all(k, k == 'app' || k == 'tier')",
        "object.metadata.labels.exists(k, v, k == 'tier' && v == 'front')",
        "object.spec.tags.transformList(i, t, t + string(i)) == ['a0', 'b1', 'c2']",
        "object.metadata.labels.transformMap(k, v, v == 'web', k + v) == {'app': 'appweb'}",
        "object.spec.ports[0].port == 80 && object.spec.ports[0]['name'] == 'http'",
        "object.spec.none == null && type(object.spec.replicas) == int && type('') == string",
        "object.?spec.?missing.orValue('x') == 'x' && object.spec.?replicas.value() == 3",
        "object.spec.tags[?1].orValue('') == 'b' && !object.spec.tags[?9].hasValue()",
        "optional.of(2).optMap(x, x * 2).value() == 4 && [?optional.none(), 1] == [1]",
        "(1 / 0 == 1 || true) && !(1 / 0 == 1 && false)",
        "[1, 2].all(x, x > 0) ? true : 1 / 0 == 1",
        "-7 / 2 == -3 && -7 % 2 == -1 && 7u % 4u == 3u",
        "1 < 2u && 2.5 > 2 && dyn(1) == 1.0 && dyn(1) != '1' && dyn(1) != true",
        "size('héé') == 3 && bytes('héé').size() == 5 && b'abc' + b'd' == b'abcd'",
        "int('12') == 12 && string(1.5) == '1.5' && double('1e3') == 1000.0 && uint('3') == 3u && bool('true')",
        "duration('90m') == duration('1h30m') && duration('1h').getMinutes() == 60",
        "timestamp('2024-02-29T12:30:05.25Z').getDate() == 29 && timestamp('2024-03-03T00:00:00Z').getDayOfWeek() == 0",
        "timestamp('2024-01-01T00:00:00+02:00') == timestamp('2023-12-31T22:00:00Z')",
        "timestamp('2024-01-01T00:00:00Z').getHours('America/New_York') == 19",
        "timestamp('2024-01-01T01:00:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('1h')",
        "'a-b-c'.split('-') == ['a', 'b', 'c'] && 'a-b-c'.split('-', 2) == ['a', 'b-c'] && 'ab'.split('') == ['a', 'b']",
        "['a', 'b'].join('/') == 'a/b' && 'Ab'.lowerAscii() == 'ab' && ' x '.trim() == 'x'",
        "'banana'.indexOf('an', 2) == 3 && 'banana'.lastIndexOf('an') == 3 && 'banana'.replace('an', 'x', 1) == 'bxana'",
        "'tacocat'.substring(4) == 'cat' && 'tacocat'.charAt(3) == 'o' && 'x'.charAt(1) == ''",
        "'%s has %d of %.2f: %x'.format(['a', 3, 1.5, 255]) == 'a has 3 of 1.50: ff'",
        "'%s'.format([[1, 2]]) == '[1, 2]' && '%s'.format([{'a': 1.5}]) == '{\"a\":1.500000}' && '%%'.format([]) == '%'",
        "'%s %.2f'.format([1e7, 1e4]) == '1e+07 10,000.00' && '%e'.format([0.00012]) == '1.200000×10⁻⁰⁴'",
        "string(1.0) == '1' && string(123456.5) == '123456.5' && string(-1234567.5) == '-1.2345675e+06' && string(1e-7) == '1e-07'",
        "'abc 123'.find('[0-9]+') == '123' && 'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'aXb'.matches('[A-Z]')",
        "[1, 2, 3].isSorted() && [1, 2, 3].sum() == 6 && ['b', 'a'].min() == 'a' && [1, 3, 2].max() == 3",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [3, 1, 2].sort() == [1, 2, 3]",
        "[1, 2, 1].distinct() == [1, 2] && [1, 2].reverse() == [2, 1] && [1, 2, 3].slice(1, 3) == [2, 3]",
        "[[1], [2, 3]].flatten() == [1, 2, 3] && lists.range(3) == [0, 1, 2]",
        "['bb', 'a'].sortBy(x, x.size()) == ['a', 'bb']",
        "sets.contains([1, 2, 3], [1, 3]) && sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1], [1, 2])",
        "quantity('1500m').add(quantity('500m')).compareTo(quantity('2')) == 0 && quantity('1Ki').asInteger() == 1024",
        "quantity('50k').isGreaterThan(quantity('49999')) && isQuantity('1.5Gi') && !isQuantity('1.5 Gi')",
        "ip('192.168.0.1').family() == 4 && ip('::1').isLoopback() && isIP('::1') && !isIP('1.2.3')",
        "!ip.isCanonical('2001:DB8::1') && string(ip('2001:DB8::1')) == '2001:db8::1'",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')",
        "url('https://u@example.com:8080/a%20b?x=1&x=2').getHost() == 'example.com:8080' && isURL('/path') && !isURL('x')",
        "url('https://[::1]:80/').getHostname() == '::1' && url('https://a/?x=1&x=2').getQuery()['x'] == ['1', '2']",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
        "isSemver('v1.0', true) && !isSemver('v1.0') && semver('1.2.3').minor() == 2",
        "format.dns1123Label().validate('A').hasValue() && format.named('uuid').value().validate('x').value().size() == 1",
        "!format.dns1123Subdomain().validate('a.b').hasValue() && !format.named('nothing').hasValue()",
    ],
)  # fmt: skip
def test_a_true_expression_is_true(text: str) -> None:
    assert value_of(text) is True


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("object.spec.missing == 1", "no such key: missing"),
        ("object.metadata.labels['zz'] == ''", "no such key: zz"),
        ("object.spec.tags[3] == 'a'", "index out of bounds: 3"),
        ("1 / (object.spec.replicas - 3) == 1", "division by zero"),
        ("object.spec.replicas + 9223372036854775807 > 0", "integer overflow"),
        ("object.spec.replicas + 'a' == ''", "no such overload"),
        ("int('x' + 'y') == 1", "type conversion error from 'string' to 'int'"),
        ("timestamp('' + 'x') == timestamp(0)", 'invalid RFC 3339 timestamp "x"'),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("object.metadata.name.matches('[' + '')", "error parsing regexp: missing closing ]: `[`"),
        ("object.spec.tags.map(t, t.size()).filter(n, n > 9).min() == 1", "min called on empty list"),
        ("object.spec.tags.all(t, object.spec.missing == t)", "no such key: missing"),
    ],
)
def test_data_that_does_not_fit_is_an_error_that_says_why(text: str, problem: str) -> None:
    with pytest.raises(CelError) as caught:
        value_of(text)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("object.a >", "ERROR: <input>:1:11: Syntax error: mismatched input '<EOF>'"),
        (
            "nothing == 1",
            "ERROR: <input>:1:1: undeclared reference to 'nothing' (in container '')\n | nothing == 1\n | ^",
        ),
        ("1 + 'a' == 2", "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'"),
        ("'é' == 'é' &&\n  1", "ERROR: <input>:2:3: expected type 'bool' but found 'int'\n |   1\n | ..^"),
        ("[1, 'a'] == []", "ERROR: <input>:1:5: expected type 'int' but found 'string'"),
        ("''.matches('(')", "ERROR: <input>:1:12: invalid matches argument"),
    ],
)
def test_a_wrong_expression_is_shown_with_its_place(text: str, shown: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        compile_expression(text, {"object": "dyn"})
    assert str(caught.value).startswith(shown)


def test_a_program_knows_what_it_has_to_give() -> None:
    assert compile_expression("size(names)", {"names": "list(string)"}, "int").evaluate(names=["a"]) == 1
    with pytest.raises(InvalidExpression):
        compile_expression("size(names)", {"names": "list(string)"}, "bool")


def test_a_variable_that_was_not_given_is_named() -> None:
    with pytest.raises(CelError, match="object"):
        compile_expression("object.x == 1", {"object": "dyn"}).evaluate()


def test_variables_may_be_given_by_name_alone() -> None:
    assert compile_expression("a.x + b", ("a", "b")).evaluate(a={"x": 1}, b=2) == 3


@pytest.mark.parametrize(("text", "value"), [("x.n", 2), ("x.r * 2.0", 1.0), ("size(x)", 3)])
def test_a_number_is_a_number_whichever_it_is(text: str, value: float) -> None:
    assert compile_expression(text, ["x"], NUMBER).evaluate(x={"n": 2, "r": 0.5, "s": "two"}) == value


@pytest.mark.parametrize(("text", "result"), [("x.s", NUMBER), ("x.n", "bool"), ("x.b", NUMBER)])
def test_what_gives_something_else_than_was_asked_for_is_an_error(text: str, result: str) -> None:
    with pytest.raises(CelError, match=f"has to give {result}, and gave"):
        compile_expression(text, ["x"], result).evaluate(x={"n": 2, "s": "two", "b": True})


def test_a_number_cannot_be_a_text() -> None:
    with pytest.raises(InvalidExpression, match="has to give number, but gives string"):
        compile_expression("'two'", (), NUMBER)


def test_a_mistake_is_told_in_a_line_with_its_place() -> None:
    with pytest.raises(InvalidExpression) as refused:
        compile_expression("nope > 1 &&\n size(1) > 2", ())
    assert refused.value.brief == (
        "line 1, column 1: undeclared reference to 'nope' (in container ''); "
        "line 2, column 6: found no matching overload for 'size' applied to '(int)'"
    )


def asked(text: str) -> Any:
    """The value of an expression for somebody who may get, and nothing else."""
    by = Authorizer(lambda asked: Decision(asked.verb == "get", repr(asked)), Asked(group="apps", resource="deployments", name="web"))
    tree, _ = checked(text, {"authorizer": AUTHORIZER})
    return compile_tree(tree, ("authorizer",)).evaluate((by,), 10_000)[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("authorizer.group('').resource('pods').check('get').allowed()", True),
        ("authorizer.group('').resource('pods').subresource('log').namespace('n').name('p').check('list').allowed()", False),
        ("authorizer.path('/healthz').check('get').errored()", False),
        ("authorizer.requestResource.check('get').reason().contains('deployments')", True),
        ("authorizer.serviceAccount('n', 'a').path('/x').check('get').reason().contains(\"('n', 'a')\")", True),
    ],
)
def test_an_authorizer_answers_questions_of_permission(text: str, value: bool) -> None:
    assert asked(text) is value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("authorizer.path(' ')", "path must not be empty"),
        ("authorizer.group('').resource('')", "resource must not be empty"),
        ("authorizer.serviceAccount('A!', 'a')", "Invalid service account namespace"),
        ("authorizer.serviceAccount('a', 'A!')", "Invalid service account name"),
    ],
)
def test_a_question_of_permission_must_make_sense(text: str, why: str) -> None:
    with pytest.raises(CelError, match=why):
        asked(text)


def test_an_authorizer_has_no_other_fields() -> None:
    with pytest.raises(InvalidExpression, match="undefined field 'user'"):
        asked("authorizer.user")
