"""Label and field selectors, read once and compiled to predicates.

Both come as text in a query (`app=web,tier in (a,b)`); label selectors also come as objects (`matchLabels`,
`matchExpressions`). Refusals are worded as kube-apiserver words them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from homeostat.model.errors import ApiError, FieldError, bad_request, show
from homeostat.model.names import label_errors, label_value_problems, qualified_name_problems

Labels = Mapping[str, str]

EQUALS, DOUBLE_EQUALS, NOT_EQUALS = "=", "==", "!="
IN, NOT_IN, EXISTS, ABSENT = "in", "notin", "exists", "!"
GREATER, LESS = "gt", "lt"

_OPERATORS = {
    "=": EQUALS, "==": DOUBLE_EQUALS, "!=": NOT_EQUALS, "in": IN, "notin": NOT_IN, ">": GREATER, "<": LESS,
}  # fmt: skip
_OPERATORS_LISTED = "in, notin, =, ==, !=, gt, lt"
_WRITTEN = {EQUALS: "=", DOUBLE_EQUALS: "==", NOT_EQUALS: "!=", GREATER: ">", LESS: "<"}
_FROM_EXPRESSION = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": ABSENT}

_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+)?")
_SYMBOLS = frozenset(("==", "!=", "=", "!", "(", ")", ",", "<", ">"))
_END = ""
_INTEGER = re.compile(r"[+-]?[0-9]+").fullmatch


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label or field. `values` is sorted; empty for `exists` and `!`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator == EXISTS:
            return self.key
        if self.operator == ABSENT:
            return "!" + self.key
        if self.operator in (IN, NOT_IN):
            return f"{self.key} {self.operator} ({','.join(self.values)})"
        return f"{self.key}{_WRITTEN[self.operator]}{self.values[0]}"


class LabelSelector:
    """A conjunction of requirements; with none it matches everything. `matches` takes labels, or None for none."""

    __slots__ = ("matches", "requirements")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        self.requirements: tuple[Requirement, ...] = tuple(sorted(requirements, key=lambda r: r.key))
        self.matches: Callable[[Labels | None], bool] = _compile(self.requirements)

    @property
    def empty(self) -> bool:
        """True where everything is selected."""
        return not self.requirements

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def _compile(requirements: Sequence[Requirement]) -> Callable[[Labels | None], bool]:
    if not requirements:
        return lambda labels: True
    tests = [_test(r) for r in requirements]
    if len(tests) == 1:
        only = tests[0]
        return lambda labels: only(labels or _NO_LABELS)

    def matches(labels: Labels | None) -> bool:
        present = labels or _NO_LABELS
        return all(test(present) for test in tests)

    return matches


_NO_LABELS: Labels = {}


def _test(requirement: Requirement) -> Callable[[Labels], bool]:
    key, operator, values = requirement.key, requirement.operator, frozenset(requirement.values)
    if operator in (EQUALS, DOUBLE_EQUALS, IN):
        if len(values) == 1:
            (value,) = values
            return lambda labels: labels.get(key) == value
        return lambda labels: labels.get(key) in values
    if operator in (NOT_EQUALS, NOT_IN):
        return lambda labels: labels.get(key) not in values
    if operator == EXISTS:
        return lambda labels: key in labels
    if operator == ABSENT:
        return lambda labels: key not in labels
    bound, greater = int(requirement.values[0]), operator == GREATER

    def compares(labels: Labels) -> bool:
        text = labels.get(key)
        if text is None or not _INTEGER(text):
            return False
        number = int(text)
        return -(2**63) <= number < 2**63 and (number > bound if greater else number < bound)

    return compares


def parse_label_selector(text: str) -> LabelSelector:
    """Reads `a=b,c!=d,e in (x,y),f notin (z),!g,h,i>5,j<3`; the empty text selects everything. Raises a 400."""
    return LabelSelector(_LabelParser(text).parse())


class _LabelParser:
    def __init__(self, text: str) -> None:
        self.tokens = [match[1] for match in _TOKEN.finditer(text) if match[1]]
        self.tokens.append(_END)
        self.at = 0

    def next(self) -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else _END
        self.at += 1
        return token

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else _END

    def parse(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while True:
            token = self.peek()
            if token == _END:
                return requirements
            if not (token == "!" or _is_word(token)):
                raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
            try:
                requirements.append(self.requirement())
            except ApiError as error:
                raise bad_request(f"unable to parse requirement: {error.message}") from None
            token = self.next()
            if token == _END:
                return requirements
            if token != ",":
                raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
            after = self.peek()
            if not (after == "!" or _is_word(after)):
                raise bad_request(f"found '{after}', expected: identifier after ','")

    def requirement(self) -> Requirement:
        key = self.next()
        negated = key == "!"
        if negated:
            key = self.next()
        if not _is_word(key):
            raise bad_request(f"found '{key}', expected: identifier")
        if problems := qualified_name_problems(key):
            raise bad_request(f"<nil>: Invalid value: {show(key)}: {'; '.join(problems)}")
        if negated:
            return Requirement(key, ABSENT)
        if self.peek() in (_END, ","):
            return Requirement(key, EXISTS)
        word = self.next()
        operator = _OPERATORS.get(word)
        if operator is None:
            raise bad_request(f"found '{word}', expected: {_OPERATORS_LISTED}")
        values = self.value_set() if operator in (IN, NOT_IN) else self.exact_value()
        _refuse_bad_values(key, operator, values)
        return Requirement(key, operator, tuple(values))

    def exact_value(self) -> list[str]:
        if self.peek() in (_END, ","):
            return [""]
        token = self.next()
        if not _is_word(token):
            raise bad_request(f"found '{token}', expected: identifier")
        return [token]

    def value_set(self) -> list[str]:
        token = self.next()
        if token != "(":
            raise bad_request(f"found '{token}' expected: '('")
        first = self.peek()
        if first == ")":
            self.next()
            return [""]
        if not (first == "," or _is_word(first)):
            raise bad_request(f"found '{first}', expected: ',', ')' or identifier")
        values: set[str] = set()
        pending = True  # a value may follow; where none does, it is the empty one
        while True:
            token = self.next()
            if _is_word(token):
                values.add(token)
                pending = False
                after = self.peek()
                if after not in (",", ")"):
                    raise bad_request(f"found '{after}', expected: ',' or ')'")
            elif token in (",", ")"):
                if pending:
                    values.add("")
                if token == ")":
                    return sorted(values)
                pending = True
            else:
                raise bad_request(f"found '{token}', expected: ',', or identifier")


def _is_word(token: str) -> bool:
    return token != _END and token not in _SYMBOLS


def _refuse_bad_values(key: str, operator: str, values: Sequence[str]) -> None:
    errors: list[FieldError] = []
    if operator in (GREATER, LESS) and not (_INTEGER(values[0]) and -(2**63) <= int(values[0]) < 2**63):
        detail = "for 'Gt', 'Lt' operators, the value must be an integer"
        errors.append(FieldError.invalid("values[0]", values[0], detail))
    for index, value in enumerate(values):
        if problems := label_value_problems(value):
            errors.append(FieldError.invalid(f"values[{index}][{key}]", value, "; ".join(problems)))
    if errors:
        text = str(errors[0]) if len(errors) == 1 else "[" + ", ".join(map(str, errors)) + "]"
        raise bad_request(text)


def label_selector_from(selector: Mapping[str, Any] | None) -> LabelSelector | None:
    """Compiles the structured form. An empty one matches everything, as upstream; None stays None: it matches nothing.

    Expects what `label_selector_errors` found nothing wrong with.
    """
    if selector is None:
        return None
    requirements = [Requirement(k, EQUALS, (v,)) for k, v in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        operator = _FROM_EXPRESSION[expression["operator"]]
        requirements.append(Requirement(expression["key"], operator, tuple(sorted(expression.get("values") or ()))))
    return LabelSelector(requirements)


def label_selector_errors(selector: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    """What is wrong with a structured label selector."""
    if not selector:
        return []
    errors = list(label_errors(selector.get("matchLabels") or {}, f"{path}.matchLabels"))
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        errors.extend(_expression_errors(expression, f"{path}.matchExpressions[{index}]"))
    return errors


def _expression_errors(expression: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = expression.get("operator", ""), expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(FieldError.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(FieldError.forbidden(f"{path}.values", detail))
    else:
        errors.append(FieldError.invalid(f"{path}.operator", operator, "not a valid selector operator"))
    key = expression.get("key", "")
    errors.extend(FieldError.invalid(f"{path}.key", key, problem) for problem in qualified_name_problems(key))
    for index, value in enumerate(values):
        problems = label_value_problems(value)
        errors.extend(FieldError.invalid(f"{path}.values[{index}]", value, problem) for problem in problems)
    return errors


class FieldSelector:
    """A conjunction of `=` and `!=` over fields. `matches` takes them by name; a missing one counts as empty."""

    __slots__ = ("matches", "requirements")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        self.requirements: tuple[Requirement, ...] = tuple(requirements)
        tests = [(r.key, r.values[0], r.operator != NOT_EQUALS) for r in self.requirements]
        self.matches: Callable[[Mapping[str, str]], bool] = lambda fields: all(
            (fields.get(name, "") == value) is wanted for name, value, wanted in tests
        )

    @property
    def empty(self) -> bool:
        """True where everything is selected."""
        return not self.requirements

    @property
    def names(self) -> frozenset[str]:
        """The fields that are asked about; who serves the kind decides which it knows."""
        return frozenset(r.key for r in self.requirements)

    def exact(self, name: str) -> str | None:
        """The one value a field must have (`metadata.name=x`), or None where the selector leaves it open."""
        for requirement in self.requirements:
            if requirement.key == name and requirement.operator != NOT_EQUALS:
                return requirement.values[0]
        return None

    def __str__(self) -> str:
        return ",".join(f"{r.key}{r.operator}{_escaped(r.values[0])}" for r in self.requirements)


_TERM = re.compile(r"(?:[^,\\]|\\.|\\$)+", re.DOTALL)
_FIELD_OPERATOR = re.compile(r"((?:[^!=]|!(?!=))*)(!=|==|=)(.*)", re.DOTALL).fullmatch
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_ESCAPABLE = frozenset(",=\\")


def parse_field_selector(text: str) -> FieldSelector:
    r"""Reads `metadata.name=x,spec.foo!=y`; in a value `\,` `\=` and `\\` stand for themselves. Raises a 400."""
    requirements = []
    for term in _TERM.findall(text):
        parts = _FIELD_OPERATOR(term)
        if parts is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        requirements.append(Requirement(parts[1], NOT_EQUALS if parts[2] == "!=" else EQUALS, (_unescaped(parts[3]),)))
    return FieldSelector(requirements)


def _unescaped(value: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPABLE:
            raise bad_request(f"invalid field selector: invalid escape sequence: {match[0]}")
        return match[1]

    bare = _ESCAPE.sub("", value)
    if "=" in bare:
        raise bad_request(f"invalid field selector: unescaped character in value: {ord('=')}")
    return _ESCAPE.sub(plain, value) if "\\" in value else value


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace(",", r"\,").replace("=", r"\=")


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """A selector as one line, as `status.selector` of a scale shows it. Plain label maps are selectors too."""
    if not selector:
        return ""
    if not any(isinstance(value, str) for value in selector.values()):
        try:
            return str(label_selector_from(selector))
        except KeyError:
            return "<error>"
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
