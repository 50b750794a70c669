"""Health: what the policies of a fleet ask of each thing, beside its provider. All has to be true for it to count as healthy."""

from __future__ import annotations

from homeostat.guards.expressions import RESOURCE, program
from homeostat.guards.policy import Health
from homeostat.loop.fleet import Health as Check
from homeostat.loop.fleet import State

COST_LIMIT = 100_000
"""What one expression may cost for one thing: about a hundredth of a second, for a whole fleet is asked."""


def check_of(health: Health) -> Check:
    """The expression as a question: why a thing is not healthy, or nothing. One that cannot be evaluated is no yes."""
    from homeostat.model.cel.expression import CelError

    asked = program(health.expression, RESOURCE)

    def check(obj: State, state: State) -> str:
        try:
            if asked.evaluate(COST_LIMIT, object=obj, state=state):
                return ""
        except CelError as error:
            return f"{health.name} cannot be evaluated: {error}"
        return f"{health.name}: {health.message or health.expression}"

    return check
