"""`homeostat gpu quota`: what each tenant may use, and uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import echo_lines, emit, output_option, table

if TYPE_CHECKING:
    from homeostat.insight.gpu import Facts


@click.command()
@click.argument("tenant", required=False)
@output_option("table", "json", "yaml")
@server_options(namespace=False)
def command(server: Connection, tenant: str | None, output: str) -> None:
    """Show what each TENANT may use of each type of GPU, and how it stands: used, borrowed, lent, share, budget.

    The share is the part of the fleet that it has, past use counted in, over its weight: who has less comes first.

    \b
    Examples:
      homeostat gpu quota
      homeostat gpu quota vision -o json

    Exits with 0, or 1 where there is no such tenant.
    """
    from homeostat.cli.gpu.facts import gather, warn

    facts = server.run(gather)
    from homeostat.insight.gpu_view import quotas

    found = quotas(facts)
    if tenant is not None:
        known_tenant(facts, tenant)
        found = [one for one in found if one["tenant"] == tenant]
    warn(facts)
    if output != "table":
        emit(found, output)
    elif found:
        head = ["TENANT", "COHORT", "TYPE", "QUOTA", "USED", "BORROWED", "LENT", "WAITING", "SHARE", "BUDGET"]
        echo_lines(table([head, *map(_cells, found)]))
    else:
        click.echo("there are no tenants: a Tenant says who may use how many GPUs", err=True)


def known_tenant(facts: Facts, name: str) -> None:
    """Says so where there is no such tenant, and who may have been meant."""
    if name in facts.tenants:
        return
    import difflib

    near = difflib.get_close_matches(name, list(facts.tenants), n=1)
    hint = f" Did you mean '{near[0]}'?" if near else " `homeostat gpu quota` lists them."
    raise click.ClickException(f"there is no tenant '{name}'.{hint}")


def titled(row: dict[str, Any]) -> str:
    """A tenant, and whether it is on its way out."""
    return f"{row['tenant']} (being deleted)" if row["deleting"] else str(row["tenant"])


def _cells(row: dict[str, Any]) -> list[str]:
    budget = row["budget"]
    hours = "" if budget is None else f"{budget['used']:.12g} of {budget['gpuHours']:.12g} GPU h"
    amounts = [f"{row[name]:g}" for name in ("nominal", "used", "borrowed", "lent", "waiting")]
    if row["over"]:
        amounts[1] += f", {row['over']:g} too many"
    return [titled(row), row["cohort"] or "-", row["model"], *amounts, f"{row['dominantShare']:.3f}", hours or "-"]
