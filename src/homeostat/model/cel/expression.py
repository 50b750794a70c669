"""CEL for everything beside CRDs: guards, health, invariants, metrics. Compile once, evaluate on plain JSON as often as you like.

    enough = compile_expression("size(after) >= 3", ("before", "after"), "bool")
    enough.evaluate(before=[...], after=[...])

Nothing is converted beforehand: a variable costs what the expression reads of it, and a list of ten thousand small objects
is filtered in some 25 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from homeostat.model.cel.check import checked
from homeostat.model.cel.evaluate import Code, compile_tree
from homeostat.model.cel.syntax import InvalidExpression
from homeostat.model.cel.types import Type, parse_type
from homeostat.model.cel.values import BudgetExceeded, CelError

__all__ = ["COST_LIMIT", "NUMBER", "CelError", "InvalidExpression", "Program", "compile_expression"]

COST_LIMIT = 1_000_000
"""What one evaluation may cost; about a fifth of a second at the worst."""
NUMBER = "number"
"""As a result: an int, a uint or a double, whichever it is."""
_NUMBERS = ("int", "uint", "double")


class Program:
    """A compiled expression. Evaluating it needs no lock and changes nothing."""

    __slots__ = ("_code", "_result", "_variables", "text", "type")

    def __init__(self, text: str, type_: Type, code: Code, variables: tuple[str, ...], result: str) -> None:
        self.text = text
        self.type = type_
        self._code = code
        self._variables = variables
        self._result = result

    def evaluate(self, limit: int = COST_LIMIT, /, **bindings: Any) -> Any:
        """The value for these variables (plain JSON values: objects are `dict`, lists `list`).

        Raises CelError where the data does not fit the expression, or where it gives something else than was asked for. An
        expression that costs more than `limit` raises CelError too; at the default limit that is within half a second.
        """
        missing = [v for v in self._variables if v not in bindings]
        if missing:
            raise CelError(f"no such attribute(s): {', '.join(missing)}")
        try:
            value = self._code.evaluate([bindings[v] for v in self._variables], limit)[0]
        except BudgetExceeded:
            raise CelError("operation cancelled: actual cost limit exceeded") from None
        if self.type.kind == "dyn" and not self._fits(value):
            raise CelError(f"the expression has to give {self._result}, and gave a {type(value).__name__}")
        return value

    def _fits(self, value: Any) -> bool:
        if self._result == "bool":
            return isinstance(value, bool)
        return self._result != NUMBER or (isinstance(value, int | float) and not isinstance(value, bool))


def compile_expression(text: str, variables: Mapping[str, str] | Iterable[str], result: str = "dyn") -> Program:
    """Compiles an expression over the named variables.

    Types are written as CEL writes them: `dyn` (anything JSON can say, looked at when evaluated), `string`, `int`,
    `list(string)`, `map(string, dyn)`, …; variables given by their names alone are `dyn`. `result` is what the expression
    has to give: a type, `NUMBER`, or `dyn`, which accepts everything. Raises InvalidExpression with the place of the
    mistake; its `brief` says it in a line.
    """
    typed = variables if isinstance(variables, Mapping) else dict.fromkeys(variables, "dyn")
    declared = {name: parse_type(t) for name, t in typed.items()}
    tree, _ = checked(text, declared)
    wanted = _NUMBERS if result == NUMBER else (parse_type(result).text,)
    if "dyn" not in (tree.type.kind, *wanted) and tree.type.text not in wanted:
        raise InvalidExpression(f"the expression has to give {result}, but gives {tree.type.text}")
    return Program(text, tree.type, compile_tree(tree, declared, declared), tuple(declared), result)
