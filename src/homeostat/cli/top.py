"""`homeostat top`: how the fleets stand, what is being done, and what waits for a person; live."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.number import Number
from homeostat.cli.show import ago, echo_lines, emit, output_option, table

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.insight.fleets import View

COLOURS = {"converged": "green", "progressing": "blue", "held": "yellow", "degraded": "red", "unknown": "magenta"}
WORST_FIRST = ("degraded", "held", "unknown", "progressing", "converged")
"""As columns: a narrow terminal cuts off what matters least."""
SHOWN = 200
"""How many resources that are not as declared are listed; a terminal shows those that fit."""


@click.command()
@click.argument("scope", required=False)
@click.option("--once", is_flag=True, help="Print it once. So it is also where the output is no terminal.")
@click.option("--every", type=Number(min=0.2), default=1.0, show_default=True, help="Seconds between two looks.")
@output_option("table", "json", "yaml")
@server_options(namespace=False)
def command(server: Connection, scope: str | None, once: bool, every: float, output: str) -> None:
    """Show how every fleet stands and what is not as declared, the worst first; in a terminal it goes on until Ctrl-C.

    SCOPE is a kind, a policy or a fleet; without it, all that the loop keeps.

    \b
    Examples:
      homeostat top
      homeostat top files --every 5
      homeostat top --once -o json

    Exits with 0, also by Ctrl-C.
    """

    async def look(client: Client) -> dict[str, Any]:
        from homeostat.cli.openplan import view_of

        return facts(await view_of(client, scope))

    if output == "table" and not once and sys.stdout.isatty():
        from homeostat.cli.live import draw_live

        async def go_on(client: Client) -> None:
            async def draw() -> list[str]:
                return _lines(await look(client))

            await draw_live(draw, every)

        with contextlib.suppress(KeyboardInterrupt):  # the way to end it
            server.run(go_on)
        return
    found = server.run(look)
    if output == "table":
        echo_lines(_lines(found))
    else:
        emit(found, output)


def facts(view: View) -> dict[str, Any]:
    """Fleets with how many stand how, and the resources that are not as declared, the worst first."""
    from homeostat.loop.standing import URGENCY, standing

    fleets: dict[str, Counter[str]] = {name: Counter() for name in view.fleets}
    late = []
    for ref, obj in view.objects.items():
        how, why = standing(obj)
        name = view.fleet_of(ref).name
        if name not in fleets:
            continue
        fleets[name][how] += 1
        if how != "converged":
            since = view.fleets[name].drifts[ref].since if ref in view.fleets[name].drifts else 0.0
            late.append(
                {
                    "kind": view.kinds[ref.kind].kind,
                    "namespace": ref.namespace,
                    "name": ref.name,
                    "standing": str(how),
                    "seconds": round(view.now - since) if since else None,
                    "why": why.get("message", ""),
                }
            )
    late.sort(key=lambda one: (URGENCY[one["standing"]], one["kind"], one["namespace"], one["name"]))
    return {"fleets": [_fleet(view, name, counts) for name, counts in sorted(fleets.items())], "resources": late[:SHOWN], "more": max(0, len(late) - SHOWN)}


def _fleet(view: View, name: str, counts: Counter[str]) -> dict[str, Any]:
    from homeostat.guards.freeze import standing as frozen

    fleet = view.fleets[name]
    policy = view.gate.policy(fleet)
    return {
        "fleet": name,
        "mode": str(policy.mode),
        "size": fleet.size,
        **{word: counts[word] for word in COLOURS},
        "frozen": [f"{one.author}: {one.reason}" for one in frozen(policy, view.now)],
        "halts": [{"guard": halt.guard, "reason": halt.reason, "plan": halt.plan} for halt in view.halts(fleet)],
    }


def _lines(found: dict[str, Any]) -> list[str]:
    if not found["fleets"]:
        return ["the loop keeps nothing yet: `homeostat up --allow file:/tmp/example --enforce`, and declare something"]
    rows = [["FLEET", "SIZE", *(word.upper() for word in WORST_FIRST), "MODE"]]
    rows += [[one["fleet"], *(str(one[word]) for word in ("size", *WORST_FIRST)), one["mode"]] for one in found["fleets"]]
    plain = table(rows)
    lines = [click.style(plain[0], bold=True)]
    for one, row in zip(found["fleets"], plain[1:], strict=True):
        worst = next((word for word in WORST_FIRST if one[word]), "converged")
        lines.append(click.style(row, fg=COLOURS[worst]))
        lines += [click.style(f"  ❄ frozen by {words}", fg="cyan") for words in one["frozen"]]
        for halt in one["halts"]:
            lines.append(click.style(f"  ■ halted by {halt['guard']}: {halt['reason']}; `homeostat runbook` shows the ways out", fg="red", bold=True))
    if found["resources"]:
        lines.append("")
        rows = [["STANDING", "KIND", "NAME", "FOR", "WHY"]]
        for one in found["resources"]:
            name = f"{one['namespace']}/{one['name']}" if one["namespace"] else one["name"]
            rows.append([one["standing"], one["kind"], name, "-" if one["seconds"] is None else ago(one["seconds"]), one["why"]])
        head, *rest = table(rows)
        lines.append(click.style(head, bold=True))
        lines += [click.style(row, fg=COLOURS[one["standing"]]) for one, row in zip(found["resources"], rest, strict=True)]
        if found["more"]:
            lines.append(f"and {found['more']} more")
    else:
        lines += ["", click.style("all is as declared", fg="green")]
    return lines
