"""The validation rules of kinds (`x-kubernetes-validations`), which are CEL over the types of their schema.

The language itself is `model.cel`. Here a schema becomes types (`declare`), a definition's rules are checked and their
worst cost is estimated (`crd`, `estimate`), and objects are validated by them (`rules`). Nothing heavy is imported before
the first rule is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from homeostat.api.cel.declare import has_rules
from homeostat.model.errors import FieldError
from homeostat.model.schema import Schema

if TYPE_CHECKING:
    from homeostat.api.cel.rules import RuleSet

__all__ = ["check_rules", "compile_rules"]


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
