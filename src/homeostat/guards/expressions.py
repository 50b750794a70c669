"""The CEL of a policy: compiled once, asked of plain JSON, stopped when it costs too much. CEL itself is loaded with the first one."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homeostat.model.cel.expression import Program

Variables = tuple[tuple[str, str], ...]

FLEET: Variables = (("before", "list(dyn)"), ("after", "list(dyn)"))
"""What an invariant is asked about."""
RESOURCE: Variables = (("object", "dyn"), ("state", "dyn"))
"""What a health expression is asked about."""


@lru_cache(maxsize=1024)
def program(text: str, variables: Variables) -> Program:
    """The expression, which has to give true or false. Raises InvalidExpression; see `problem`."""
    from homeostat.model.cel.expression import compile_expression

    return compile_expression(text, dict(variables), "bool")


def problem(text: str, variables: Variables) -> str | None:
    """What is wrong with an expression and where, in a line; None where it can be used."""
    from homeostat.model.cel.expression import InvalidExpression

    try:
        program(text, variables)
    except InvalidExpression as error:
        return error.brief
    return None
