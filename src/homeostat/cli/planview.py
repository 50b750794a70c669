"""Plans as `homeostat plan`, `apply` and `diff` print them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.planning import SIGNS, Plan, make_plan
from homeostat.cli.show import count, painted
from homeostat.cli.verdicts import FleetVerdict, judge_plan, verdict_lines

if TYPE_CHECKING:
    from homeostat.cli.manifests import Document
    from homeostat.client import Client


async def plan_and_verdict(
    client: Client, documents: Sequence[Document], *, force: bool = False, prune: str = ""
) -> tuple[Plan, list[FleetVerdict]]:
    """Asks the server, then the guards."""
    from homeostat.cli.fleets import look
    from homeostat.cli.kinds import served_kinds

    plan = await make_plan(client, documents, force=force, prune=prune)
    types = {(step.document.api_version, step.document.kind) for step in plan.changes}
    kept = [k for k in await served_kinds(client) if k.kept and (k.api_version, k.kind) in types]
    for step in plan.changes:
        step.kept = any((k.api_version, k.kind) == (step.document.api_version, step.document.kind) for k in kept)
    return plan, judge_plan(await look(client, kept), plan)


def plan_lines(plan: Plan, verdicts: Sequence[FleetVerdict]) -> Iterator[str]:
    """`+ ~ -` for each object, its changes below it; then the sum, and the guards' verdict."""
    for step in plan.changes:
        assert step.op is not None
        yield painted(f"{SIGNS[step.op]} {step.title}")
        for line in step.lines():
            yield "    " + painted(line)
    still = len(plan.steps) - len(plan.changes) - len(plan.errors)
    if still:
        yield f"  {count(still, 'object')} as declared already"
    if plan.changes or still:
        yield ""
    yield click.style(plan.closing, bold=True)
    yield from verdict_lines(verdicts)


def refuse_errors(plan: Plan, failure: type[click.ClickException] = click.ClickException) -> None:
    """Where the server refuses something, nothing at all is done, and everything that is wrong is said."""
    if plan.errors:
        lines = [f"{step.document.source}: {step.title}: {step.error}" for step in plan.errors]
        if any("conflict" in step.error.lower() for step in plan.errors):
            lines.append("Others own these fields: leave them out, or take them over with --force-conflicts.")
        raise failure("the server refuses it, so nothing was done:\n  " + "\n  ".join(lines))


def plan_data(plan: Plan, verdicts: Sequence[FleetVerdict]) -> dict[str, Any]:
    """The plan for programs."""
    from homeostat.loop.fleet import Op

    return {
        "changeSet": plan.change_set,
        "actions": [
            {
                "op": str(step.op),
                "apiVersion": step.document.api_version,
                "kind": step.document.kind,
                "namespace": step.namespace,
                "name": step.document.name,
                "changes": step.lines(),
            }
            for step in plan.changes
        ],
        "add": plan.count(Op.CREATE),
        "change": plan.count(Op.UPDATE),
        "destroy": plan.count(Op.DELETE),
        "guards": [verdict.data() for verdict in verdicts],
    }
