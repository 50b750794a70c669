"""CEL for everything beside CRDs: guards, health and invariants, over plain Python values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from homeostat.api.cel.check import checked
from homeostat.api.cel.evaluate import Code, compile_tree
from homeostat.api.cel.syntax import InvalidExpression
from homeostat.api.cel.types import Type, parse_type
from homeostat.api.cel.values import BudgetExceeded, CelError

COST_LIMIT = 1_000_000
"""What one evaluation may cost; about a fifth of a second at the worst."""


class Program:
    """A compiled expression. Evaluating it needs no lock and changes nothing."""

    __slots__ = ("_code", "_variables", "text", "type")

    def __init__(self, text: str, type_: Type, code: Code, variables: tuple[str, ...]) -> None:
        self.text = text
        self.type = type_
        self._code = code
        self._variables = variables

    def evaluate(self, limit: int = COST_LIMIT, /, **bindings: Any) -> Any:
        """The value for these variables (plain JSON values).

        Raises CelError where the data does not fit the expression. An expression that costs more than `limit` raises
        CelError too; at the default limit that is within half a second.
        """
        missing = [v for v in self._variables if v not in bindings]
        if missing:
            raise CelError(f"no such attribute(s): {', '.join(missing)}")
        try:
            return self._code.evaluate([bindings[v] for v in self._variables], limit)[0]
        except BudgetExceeded:
            raise CelError("operation cancelled: actual cost limit exceeded") from None


def compile_expression(text: str, variables: Mapping[str, str], result: str = "dyn") -> Program:
    """Compiles an expression over the named variables.

    Types are written as CEL writes them: `dyn` (anything JSON can say, looked at when evaluated), `string`, `int`,
    `list(string)`, `map(string, dyn)`, … `result` is what the expression has to give; `dyn` accepts everything. Raises
    InvalidExpression with the place of the mistake.
    """
    declared = {name: parse_type(t) for name, t in variables.items()}
    tree, _ = checked(text, declared)
    wanted = parse_type(result)
    if "dyn" not in (wanted.kind, tree.type.kind) and tree.type != wanted:
        raise InvalidExpression(f"the expression has to give {wanted.text}, but gives {tree.type.text}")
    return Program(text, tree.type, compile_tree(tree, declared, declared), tuple(declared))
