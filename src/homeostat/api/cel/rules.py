"""Validation rules of a custom kind: compiled once a schema, evaluated on every write.

A `RuleSet` mirrors the schema, but only where there are rules, so that an object is walked no further than it must be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.cel.declare import declare, has_rules
from homeostat.api.cel.fieldpath import normalized_path
from homeostat.api.schema.correlate import Correlated, item_key
from homeostat.model.cel.check import checked
from homeostat.model.cel.evaluate import Code, compile_tree
from homeostat.model.cel.syntax import InvalidExpression
from homeostat.model.cel.typed import Convert, converter
from homeostat.model.cel.types import BOOL, STRING, Type, optional_of
from homeostat.model.cel.values import NONE, BudgetExceeded, CelError, Optional
from homeostat.model.errors import FieldError
from homeostat.model.schema import Schema

RULE_LIMIT = 1_000_000
"""What one evaluation of one rule may cost; a unit is about 0.2 µs, so the worst rule stops after a fifth of a second."""
OBJECT_LIMIT = 2_000_000
"""What all rules may cost on one object. The real server allows 10 million of a unit that is five times faster there."""
LONGEST_MESSAGE = 5 * 1024

VARIABLES = ("self", "oldSelf")


class Rule:
    """One entry of `x-kubernetes-validations`, compiled for the type it stands on."""

    __slots__ = (
        "code", "convert_old", "error", "field_path", "kind", "message", "message_code", "message_text",
        "optional_old", "reason", "text", "uses_old",
    )  # fmt: skip

    def __init__(self, raw: Mapping[str, Any], schema: Schema, type_: Type) -> None:
        self.text: str = raw.get("rule", "")
        self.message: str = raw.get("message", "")
        self.message_text: str = raw.get("messageExpression", "")
        self.reason: str = raw.get("reason", "")
        self.optional_old: bool = raw.get("optionalOldSelf", False) is True
        self.field_path = normalized_path(raw.get("fieldPath", ""), schema)
        self.kind = schema.type
        self.convert_old: Convert | None = converter(type_) if self.optional_old else None
        self.error = ""
        self.uses_old = False
        self.code: Code | None = None
        self.message_code: Code | None = None
        try:
            self.code, self.uses_old = self._compile(self.text, type_, BOOL)
            if self.message_text:
                self.message_code = self._compile(self.message_text, type_, STRING)[0]
        except InvalidExpression as error:
            self.error = str(error)

    def _compile(self, text: str, type_: Type, gives: Type) -> tuple[Code | None, bool]:
        if not text.strip():
            return None, False
        tree, used = compile_checked(text, type_, self.optional_old, gives)
        raw = ("self",) if self.optional_old else VARIABLES
        return compile_tree(tree, VARIABLES, raw), "oldSelf" in used

    def label(self) -> str:
        """How messages call the rule: by its message where it has one."""
        return (self.message or self.text).strip()

    def old_value(self, old: Any) -> Any:
        if not self.optional_old:
            return old
        if old is None:
            return NONE
        return Optional(True, self.convert_old(old) if self.convert_old is not None else old)


def compile_checked(text: str, type_: Type, optional_old: bool, gives: Type) -> tuple[Any, set[str]]:
    """The tree of a rule or message, and the variables in it; raises InvalidExpression for the CRD's author to read."""
    try:
        tree, used = checked(text, {"self": type_, "oldSelf": optional_of(type_) if optional_old else type_})
    except InvalidExpression as error:
        what = "compilation" if gives is BOOL else "messageExpression compilation"
        raise InvalidExpression(f"{what} failed: {error}") from None
    if tree.type != gives:
        wanted = (
            "cel expression must evaluate to a bool" if gives is BOOL else "messageExpression must evaluate to a string"
        )
        raise InvalidExpression(wanted)
    return tree, used


class _Node:
    """The rules of one place in the schema and of the places below it."""

    __slots__ = ("additional", "all_of", "by_key", "items", "lasting", "properties", "rules", "schema")

    def __init__(self, schema: Schema, rules: Sequence[Rule]) -> None:
        self.schema = schema
        self.rules = rules
        self.properties: dict[str, _Node] = {}
        self.items: _Node | None = None
        self.additional: _Node | None = None
        self.all_of: list[_Node] = []
        self.by_key = schema.list_type == "map"
        self.lasting = False  # whether what held of a value holds as long as it stays: no rule here or below looks at the old one

    def empty(self) -> bool:
        return not (self.rules or self.properties or self.items or self.additional or self.all_of)


class RuleSet:
    """All rules of one version of a kind."""

    __slots__ = ("_root",)

    def __init__(self, root: _Node) -> None:
        self._root = root

    def validate(
        self, obj: Any, old: Any = None, *, path: str = "", forgiven: list[str] | None = None, current: bool = False
    ) -> list[FieldError]:
        """What the rules have against the object, or against going from `old` to it.

        Rules with `oldSelf` run only where an old value exists (or where they ask for it to be optional). On an update,
        what a rule without `oldSelf` has against an unchanged value is forgiven, and added to `forgiven` as a warning.
        `path` is where the object sits; empty for a whole one. `current`: `old` was judged by these very rules, so what is the very same
        in both is not judged again.
        """
        run = _Run(current)
        run.visit(self._root, path, obj, old, None, None)
        if not run.errors or old is None:
            return run.errors
        # Only now, with something to forgive, is it worth pairing every value with its old one.
        run = _Run()
        run.visit(self._root, path, obj, old, Correlated(self._root.schema, obj, old), None)
        if forgiven is not None:
            forgiven.extend(map(str, run.forgiven))
        return run.errors


def build(schema: Schema, resource: bool = True) -> RuleSet:
    """Compiles the rules of a root schema, or of a part that is no `resource` with metadata of its own."""
    return RuleSet(_build(schema.raw, schema, resource))


def _build(raw: Mapping[str, Any], schema: Schema, root: bool) -> _Node:
    """`raw` holds the rules; it is the schema's own, or that of an `allOf` branch over it."""
    type_ = declare(schema, root) if raw.get("x-kubernetes-validations") else None
    rules = [Rule(r, schema, type_) for r in raw.get("x-kubernetes-validations", ())] if type_ is not None else []
    node = _Node(schema, rules)
    for name, child_raw in raw.get("properties", {}).items():
        child = schema.properties.get(name)
        if child is None or not has_rules(child_raw):
            continue
        child_node = _build(child_raw, child, child.embedded)
        if not child_node.empty():
            node.properties[name] = child_node
    if isinstance(raw.get("items"), Mapping) and schema.items is not None and has_rules(raw["items"]):
        node.items = _build(raw["items"], schema.items, schema.items.embedded)
    additional = raw.get("additionalProperties")
    if isinstance(additional, Mapping) and schema.additional is not None and has_rules(additional):
        node.additional = _build(additional, schema.additional, schema.additional.embedded)
    node.all_of = [_build(branch, schema, root) for branch in raw.get("allOf", ()) if has_rules(branch)]
    below = [*node.properties.values(), *node.all_of, *filter(None, (node.items, node.additional))]
    node.lasting = not any(rule.uses_old or rule.error for rule in rules) and all(one.lasting for one in below)
    return node


class _Run:
    """One validation of one object: the errors so far, those that are forgiven, and the budget that is left."""

    __slots__ = ("budget", "current", "errors", "forgiven")

    def __init__(self, current: bool = False) -> None:
        self.current = current
        self.budget = OBJECT_LIMIT
        self.errors: list[FieldError] = []
        self.forgiven: list[FieldError] = []

    def visit(
        self, node: _Node, path: str, obj: Any, old: Any, here: Correlated | None, above: Correlated | None
    ) -> None:
        """`here` pairs the value with its old one, `above` is the nearest ancestor that could be paired."""
        if obj is None or self.budget < 0 or (self.current and obj is old and node.lasting):
            return
        if node.rules:
            self.evaluate(node, path, obj, old, here or above)
        for branch in node.all_of:
            self.visit(branch, path, obj, old, None, above)
        if obj.__class__ is dict:
            self.visit_fields(node, path, obj, old if old.__class__ is dict else {}, here, above)
        elif obj.__class__ is list and node.items is not None:
            self.visit_items(node, node.items, path, obj, old, here, above)

    def visit_fields(
        self,
        node: _Node,
        path: str,
        obj: dict[str, Any],
        old: Any,
        here: Correlated | None,
        above: Correlated | None,
    ) -> None:
        if node.additional is not None:
            for key, value in obj.items():
                self.visit(node.additional, f"{path}[{key}]", value, old.get(key), *_below(here, above, key))
        for name, child in node.properties.items():
            value = obj.get(name)
            if value is not None:
                self.visit(child, f"{path}.{name}" if path else name, value, old.get(name), *_below(here, above, name))

    def visit_items(
        self, node: _Node, items: _Node, path: str, obj: list[Any], old: Any, here: Correlated | None,
        above: Correlated | None,
    ) -> None:  # fmt: skip
        keyed = _by_key(node.schema, old) if node.by_key else {}
        for i, item in enumerate(obj):
            before = keyed.get(item_key(node.schema, item)) if keyed else None
            pair = (here.item(i), here) if here is not None else (None, above)
            self.visit(items, f"{path}[{i}]", item, before, *pair)

    def evaluate(self, node: _Node, path: str, obj: Any, old: Any, correlation: Correlated | None) -> None:
        for rule in node.rules:
            if rule.error:
                self.fail(path, rule, f"rule compile error: {rule.error}")
                continue
            if rule.code is None or (rule.uses_old and old is None and not rule.optional_old):
                continue
            if self.budget <= 0:
                return self.exhausted(path, rule)
            values = (obj, rule.old_value(old))
            try:
                passed = self.spend(rule.code, values)
            except CelError as error:
                self.fail(path, rule, _evaluation_problem(str(error), rule))
                continue
            except BudgetExceeded:
                if self.budget < RULE_LIMIT:
                    return self.exhausted(path, rule)
                cancelled = "operation cancelled: actual cost limit exceeded"
                stop = "no further validation rules will be run due to call cost exceeds limit for rule"
                self.fail(path, rule, f"'{cancelled}': {stop}: {rule.label()}")
                self.budget = -1
                return None
            if passed is not True:
                self.report(path, rule, values, correlation)
                if self.budget < 0:
                    return None
        return None

    def spend(self, code: Code, values: tuple[Any, Any]) -> Any:
        value, cost = code.evaluate(values, min(RULE_LIMIT, self.budget))
        self.budget -= cost
        return value

    def exhausted(self, path: str, rule: Rule) -> None:
        problem = "validation failed due to running out of cost budget"
        self.fail(path, rule, f"{problem}, no further validation rules will be run")
        self.budget = -1

    def report(self, path: str, rule: Rule, values: tuple[Any, Any], correlation: Correlated | None) -> None:
        """The rule said no: finds the words for it, and forgives it where the value is as it always was."""
        place = path if not rule.field_path else f"{path}.{rule.field_path}" if path else rule.field_path
        detail = f"failed rule: {rule.label()}" if not rule.message else rule.label()
        if rule.message_code is not None:
            try:
                detail = _usable_message(self.spend(rule.message_code, values)) or detail
            except CelError:
                pass  # the plain message is what is left for this case
            except BudgetExceeded:
                text = "no further validation rules will be run due to call cost exceeds limit for messageExpression"
                if self.budget < RULE_LIMIT:
                    text = "messageExpression evaluation failed due to running out of cost budget"
                    detail = f"{text}, no further validation rules will be run"
                else:
                    detail = f'{text}: "{rule.message_text}"'
                self.budget = -1
        kept = not rule.uses_old and correlation is not None and correlation.unchanged()
        (self.forgiven if kept else self.errors).append(_error(place or "<nil>", rule, values[0], detail))

    def fail(self, path: str, rule: Rule, detail: str) -> None:
        self.errors.append(FieldError.invalid(path or "<nil>", rule.kind, detail))


def _by_key(schema: Schema, items: Any) -> dict[tuple[Any, ...] | None, Any]:
    """The items of a keyed list by their keys; what has none is left out."""
    found = {item_key(schema, item): item for item in items} if isinstance(items, list) else {}
    found.pop(None, None)
    return found


def _below(
    here: Correlated | None, above: Correlated | None, name: str
) -> tuple[Correlated | None, Correlated | None]:
    return (here.field(name), here) if here is not None else (None, above)


def _evaluation_problem(problem: str, rule: Rule) -> str:
    if problem.startswith("no such overload"):
        hint = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{problem}': {hint}: {rule.label()}"
    return f"{problem} evaluating rule: {rule.label()}"


def _usable_message(message: Any) -> str:
    """A message that an expression made, or nothing where it made none that can be shown."""
    text = message.strip() if isinstance(message, str) else ""
    return "" if "\n" in text or len(text.encode()) > LONGEST_MESSAGE else text


def _error(path: str, rule: Rule, value: Any, detail: str) -> FieldError:
    """The refusal of a value: small values are shown, objects and lists are not."""
    if rule.reason == "FieldValueForbidden":
        return FieldError.forbidden(path, detail)
    if rule.reason == "FieldValueRequired":
        return FieldError.required(path, detail)
    omitted = rule.kind in ("object", "array")
    if rule.reason == "FieldValueDuplicate":
        return FieldError(rule.reason, path, "Duplicate value") if omitted else FieldError.duplicate(path, value)
    if omitted:
        return FieldError("FieldValueInvalid", path, f"Invalid value: {detail}")
    return FieldError.invalid(path, value, detail)
