"""`homeostat drift`: everything that is not as declared now."""

from __future__ import annotations

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import ago, echo_lines, emit, output_option, table


@click.command()
@click.argument("scope", required=False)
@output_option("table", "json", "yaml")
@server_options(namespace=False)
def command(server: Connection, scope: str | None, output: str) -> None:
    """Show what is not as declared: since when, why, by whom, and what holds it; and what could not be read.

    SCOPE is a kind, a policy or a fleet; without it, all that the loop keeps. For programs, what could not be read has `unknown` as its
    `op`.

    \b
    Examples:
      homeostat drift
      homeostat drift files -o json

    Exits with 0, also when there is none.
    """
    from homeostat.cli.openplan import unlooked, view_of
    from homeostat.insight.fleets import hold_of
    from homeostat.insight.open import drift_data, unknown_data

    view = server.run(lambda client: view_of(client, scope))
    notes = unlooked(view)
    for line in notes:
        click.echo(line, err=True)
    unknown = [(ref, why) for known in (*(fleet.unknown for fleet in view.fleets.values()), view.uncomposed) for ref, why in sorted(known.items())]
    if output != "table":
        emit([drift_data(view, ref, drift) for ref, drift in view.open()] + [unknown_data(view, ref, why) for ref, why in unknown], output)
        return
    rows = [["KIND", "NAMESPACE", "NAME", "TO", "CAUSE", "BY", "SINCE", "HELD BY", "FIELDS"]]
    for ref, drift in view.open():
        hold = hold_of(view.at(ref))
        rows.append(
            [
                view.names(ref)[0],
                ref.namespace,
                view.names(ref)[1],
                str(drift.op),
                str(drift.cause),
                ",".join(drift.by) or "-",
                ago(view.now - drift.since),
                hold.guard if hold else "-",
                ",".join(drift.paths[:3]) + ("…" if len(drift.paths) > 3 else ""),
            ]
        )
    if len(rows) > 1:
        echo_lines(table(rows))
    echo_lines(f"unknown: {ref}: {why}" for ref, why in unknown)
    if len(rows) == 1 and not unknown:
        unseen = sum((obj.get("status") or {}).get("observedGeneration") is None for obj in view.objects.values())
        known = "nothing is known to differ" if notes or unseen else "all is as declared"
        click.echo(f"{known} ({len(view.objects) - unseen} looked at{f', {unseen} not yet' if unseen else ''})", err=True)
