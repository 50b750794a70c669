"""`homeostat gpu queue`: who waits, for what, and until when."""

from __future__ import annotations

from typing import Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import ago, echo_lines, emit, output_option, table

SHOWN = 40
"""How many are shown to people who do not ask for more."""


@click.command()
@click.option("--tenant", default="", help="Only those of this tenant; the positions stay those of the whole queue.")
@click.option("--limit", type=click.IntRange(min=1), help=f"Show so many. Default: {SHOWN} to people, all as data.")
@output_option("table", "json", "yaml")
@server_options()
def command(server: Connection, tenant: str, limit: int | None, output: str) -> None:
    """Show the workloads that wait, first come first: how long they have, what binds them, and when they will likely start.

    Of all namespaces, unless --namespace names one. `homeostat gpu explain WORKLOAD` says more of one of them.

    \b
    Examples:
      homeostat gpu queue
      homeostat gpu queue --tenant vision
      homeostat gpu queue -o json

    Exits with 0, also where nobody waits.
    """
    from homeostat.cli.gpu.facts import gather, warn
    from homeostat.cli.gpu.quota import known_tenant

    facts = server.run(gather)
    from homeostat.insight.gpu_view import waiting

    if tenant:
        known_tenant(facts, tenant)
    found = [
        row for row in waiting(facts) if tenant in ("", row["tenant"]) and server.namespace in ("", row["namespace"])
    ]
    warn(facts)
    if output != "table":
        emit(found[:limit], output)
        return
    if not found:
        click.echo("nobody waits", err=True)
        return
    shown = found[: limit or SHOWN]
    head = ["#", "WORKLOAD", "TENANT", "GPUS", "WAITS", "LIKELY", "FOR", "WHY"]
    echo_lines(table([head, *(_cells(row) for row in shown)]))
    if len(found) > len(shown):
        click.echo(f"… and {len(found) - len(shown)} more: --limit {len(found)} shows all", err=True)


def _cells(row: dict[str, Any]) -> list[str]:
    starts = row["startsInSeconds"]
    likely = "not known" if starts is None else f"in {ago(starts)}" if starts else "now"
    held = "" if row["phase"] == "Pending" else f" ({row['phase'].lower()})"
    return [
        str(row["position"] or "-"),
        f"{row['namespace']}/{row['name']}{held}",
        row["tenant"],
        f"{row['gpus']:g}",
        ago(row["waitsSeconds"]),
        likely,
        row["constraint"] if row["constraint"] != "none" else "-",
        row["reason"],
    ]
