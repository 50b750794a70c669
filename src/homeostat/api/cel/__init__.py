"""CEL: the language of validation rules in CRDs, and of guards, health and invariants.

Parsing is Google's cel-cpp (through cel-expr-python); types, cost and evaluation are here, because a schema's types, an
exact count of cost and an end to hostile expressions are what that library does not offer, and because evaluating
straight on decoded JSON takes a microsecond a rule. Nothing heavy is imported before the first rule is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from homeostat.api.cel.declare import has_rules
from homeostat.model.errors import FieldError
from homeostat.model.schema import Schema

if TYPE_CHECKING:
    from homeostat.api.cel.expression import Program
    from homeostat.api.cel.rules import RuleSet

__all__ = ["check_rules", "compile_expression", "compile_rules"]


def check_rules(schema: Schema, path: str) -> list[FieldError]:
    """What is wrong with the `x-kubernetes-validations` of a CRD's root schema, which stands at `path` of the CRD.

    To be called once the schema itself was found to be structural; `path` is such as
    `spec.versions[0].schema.openAPIV3Schema`.
    """
    if not has_rules(schema.raw):
        return []
    from homeostat.api.cel.crd import check

    return check(schema, path)


def compile_rules(schema: Schema) -> RuleSet | None:
    """The rules of one version of a kind, from its root schema; None where there are none. Keep them with the schema.

    `RuleSet.validate(obj, old)` then gives what the rules have against an object. The object must have passed the
    schema's own validation: rules trust the types that it promises.
    """
    if not has_rules(schema.raw):
        return None
    from homeostat.api.cel.rules import build

    return build(schema)


def compile_expression(text: str, variables: Mapping[str, str], result: str = "dyn") -> Program:
    """Compiles an expression over plain JSON: `compile_expression("object.x > 1", {"object": "dyn"}, "bool")`.

    Raises `syntax.InvalidExpression` where the text is no such expression; `Program.evaluate(object=…)` gives its
    value.
    """
    from homeostat.api.cel.expression import compile_expression as compile_

    return compile_(text, variables, result)
