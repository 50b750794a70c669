"""Plans as `homeostat plan`, `apply` and `diff` print them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.show import count, painted
from homeostat.cli.verdicts import verdict_lines
from homeostat.insight.planned import guards_on
from homeostat.insight.planning import SIGNS, Plan, make_plan
from homeostat.insight.verdicts import FleetVerdict

if TYPE_CHECKING:
    from homeostat.cli.connection import Connection
    from homeostat.client import Client
    from homeostat.insight.below import Below, Foresight
    from homeostat.insight.planning import Document, Step


async def plan_and_verdict(
    client: Client, documents: Sequence[Document], *, force: bool = False, prune: str = "", own: Sequence[str] = ()
) -> tuple[Plan, list[FleetVerdict]]:
    """Asks the server, then the guards. `own` are values of --provider."""
    from homeostat.cli.progress import progress

    foresight = _foresight(client, own) if own else None

    with progress(len(documents), "asking the server") as bar:
        plan = await make_plan(client, documents, force=force, prune=prune, done=bar.step)
    return plan, await guards_on(client, plan, foresight)


def write_plan(
    server: Connection, plan: Plan, label: str, total: int, work: Callable[[Client, Callable[[], None]], Coroutine[Any, Any, list[Step]]], **options: Any
) -> list[Step]:
    """Has `work` write it, and gives the steps that failed. Where that ends in the middle, how far it came is said: what is declared stays."""
    from homeostat.cli.progress import progress
    from homeostat.model.protocol import CHANGE_SET_HEADER

    with progress(total, label) as bar:
        try:
            return server.run(lambda client: work(client, bar.step), headers={CHANGE_SET_HEADER: plan.change_set}, **options)
        except (KeyboardInterrupt, click.ClickException) as error:
            why = error.message if isinstance(error, click.ClickException) else "interrupted"
            raise click.ClickException(
                f"{why}\n{bar.done} of {count(total, 'object')} are written as change set {plan.change_set}, and more may be that were under way. "
                f"Do the same again for the rest, or take it back: homeostat rollback changeset {plan.change_set}"
            ) from None


def _foresight(client: Client, own: Sequence[str]) -> Foresight:
    from homeostat.cli.allow import load_own
    from homeostat.insight.below import Foresight
    from homeostat.loop.compose import Composer

    return Foresight(client, [one for text in own for one in load_own(text) if isinstance(one, Composer)])


def plan_lines(plan: Plan, verdicts: Sequence[FleetVerdict]) -> Iterator[str]:
    """`+ ~ -` for each object, its changes below it; then the sum, and the guards' verdict."""
    for step in plan.changes:
        assert step.op is not None
        yield painted(f"{SIGNS[step.op]} {step.title}")
        for line in step.lines():
            yield "    " + painted(line)
    for one in plan.below:
        yield from _below_lines(one)
    still = len(plan.steps) - len(plan.changes) - len(plan.errors)
    if still:
        yield f"  {count(still, 'object')} as declared already"
    if plan.changes or still:
        yield ""
    yield click.style(plan.closing, bold=True)
    yield from verdict_lines(verdicts)
    for note in plan.notes:
        yield f"Note: {note}"


def _below_lines(one: Below) -> Iterator[str]:
    """What a composer makes of it."""
    yield painted(f"{SIGNS[one.op]} {one.title}") + f"   by {one.declared_by}"
    if one.problem:
        yield f"    the server refuses it: {one.problem}"
    for line in one.changes:
        yield "    " + painted(line)


def refuse_errors(plan: Plan, failure: type[click.ClickException] = click.ClickException) -> None:
    """Where the server refuses something, nothing at all is done, and everything that is wrong is said."""
    if plan.errors:
        lines = [f"{step.document.source}: {step.title}: {step.error}" for step in plan.errors]
        if any("conflict" in step.error.lower() for step in plan.errors):
            lines.append("Others own these fields: leave them out, or take them over with --force-conflicts.")
        raise failure("the server refuses it, so nothing was done:\n  " + "\n  ".join(lines))
