"""`homeostat gpu top`: nodes and GPUs, who holds them, and tenants against their quota."""

from __future__ import annotations

import contextlib
import string
import sys
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.number import Number
from homeostat.cli.show import ago, echo_lines, emit, output_option, table

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.insight.gpu import Facts

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red")
"""Of tenants, in turn; letters tell them apart where there are no colours."""
LETTERS = string.ascii_uppercase
BAR = 24


@click.command()
@click.option("--once", is_flag=True, help="Print it once. So it is also where the output is no terminal.")
@click.option(
    "--every", type=Number(min=0.2), default=1.0, show_default=True, help="Seconds between two looks."
)
@click.option("--gpus", "each", is_flag=True, help="A line for each GPU: memory, power, temperature, and who holds it.")
@output_option("table", "json", "yaml")
@server_options(namespace=False)
def command(server: Connection, once: bool, every: float, each: bool, output: str) -> None:
    """Show every node and its GPUs, and every tenant against its quota; in a terminal it goes on until Ctrl-C.

    A cell is a GPU: the letter of its tenant and how busy it is, in percent. `·` is free, `?` is held by nobody known, `x` has failed.

    \b
    Examples:
      homeostat gpu top
      homeostat gpu top --gpus --once
      homeostat gpu top -o json

    Exits with 0, also by Ctrl-C.
    """
    from homeostat.cli.gpu.facts import gather, warn

    if output == "table" and not once and sys.stdout.isatty():
        with contextlib.suppress(KeyboardInterrupt):  # the way to end it
            server.run(lambda client: _live(client, every, each))
        return
    facts = server.run(gather)
    warn(facts)
    if output == "table":
        echo_lines(_lines(facts, each))
    else:
        from homeostat.insight.gpu_view import nodes, tenants

        emit(
            {
                "nodes": nodes(facts),
                "tenants": tenants(facts),
                "halts": facts.halts,
                "waiting": len(facts.plan.pending),
            },
            output,
        )


async def _live(client: Client, every: float, each: bool) -> None:
    """Draws it again and again until Ctrl-C."""
    from homeostat.cli.gpu.facts import gather
    from homeostat.cli.live import draw_live

    async def draw() -> list[str]:
        facts = await gather(client)
        return [*_lines(facts, each), *(click.style(f"note: {note}", fg="yellow") for note in facts.notes)]

    await draw_live(draw, every)


# For people


def _lines(facts: Facts, each: bool) -> list[str]:
    from homeostat.insight.gpu_view import nodes, tenants

    fleet, people = nodes(facts), tenants(facts)
    letters = {name: LETTERS[at % len(LETTERS)] for at, name in enumerate(sorted(facts.tenants))}
    lines = [*(_gpu_lines(fleet) if each else _node_lines(fleet, letters)), "", *_tenant_lines(people, letters)]
    for halt in facts.halts:
        lines += [
            "",
            click.style(
                f"HALTED by {halt['guard']}: {halt['reason']}. `homeostat runbook` shows the ways out.",
                fg="red",
                bold=True,
            ),
        ]
    first = next(iter(facts.plan.pending), None)
    if first is not None:
        lines += [
            "",
            f"{len(facts.plan.pending)} wait{'s' if len(facts.plan.pending) == 1 else ''}; first {first.name}: {first.reason}",
        ]
    return lines


def _node_lines(fleet: list[dict[str, Any]], letters: dict[str, str]) -> list[str]:
    if not fleet:
        return ["no node has joined: `homeostat agent` on a machine with GPUs, or `homeostat agent --simulate 8xH100`"]
    widest = max(len(node["gpus"]) for node in fleet)
    head = ["NODE", "TYPE", "HELD", "MEMORY", "POWER", "HEARD"]
    plain = [head]
    for node in fleet:
        held = sum(min(sum(one["share"] for one in gpu["holders"]), 1.0) for gpu in node["gpus"])
        memory = sum(gpu["memoryUsedMib"] or 0 for gpu in node["gpus"]) / 1024
        power = sum(gpu["powerWatts"] or 0 for gpu in node["gpus"])
        heard = "never" if node["heardSecondsAgo"] is None else f"{ago(node['heardSecondsAgo'])} ago"
        shut = node["cordoned"] or node["stage"] != "Open"  # by people, or by the governor
        state = "LOST " if node["lost"] else "draining " if node["draining"] else "cordoned " if shut else "disk! " if node["trouble"] else ""
        plain.append(
            [
                node["node"],
                node["model"],
                f"{held:g}/{len(node['gpus'])}",
                f"{memory:.1f} GiB",
                f"{power:.0f} W",
                state + heard,
            ]
        )
    rows = table(plain)
    width = max(map(len, rows)) + 3
    found = [click.style(rows[0].ljust(width) + f"GPUS 0–{widest - 1}, busy in %", bold=True)]
    for node, row in zip(fleet, rows[1:], strict=True):
        found.append(row.ljust(width) + " ".join(_cell(gpu, letters) for gpu in node["gpus"]))
    return found


def _cell(gpu: dict[str, Any], letters: dict[str, str]) -> str:
    """Four characters: whose, and how busy."""
    if gpu["health"] == "Failed":
        return click.style(" x  ", fg="red")
    if not gpu["holders"]:
        return " ?  " if gpu["unknownProcesses"] else " !  " if gpu["health"] == "Suspect" else click.style(" ·  ", dim=True)
    letter = letters.get(gpu["holders"][0]["tenant"], "?")
    mark = "+" if len({one["tenant"] for one in gpu["holders"]}) > 1 else letter
    busy = "  " if gpu["utilisation"] is None else f"{min(round(gpu['utilisation'] * 100), 99):2}"
    leaving = all(one["phase"] == "Suspending" for one in gpu["holders"])
    return click.style(f"{mark}{busy} ", fg=_colour(letter), dim=leaving)


def _colour(letter: str) -> str:
    return COLOURS[LETTERS.index(letter) % len(COLOURS)] if letter in LETTERS else "white"


def _gpu_lines(fleet: list[dict[str, Any]]) -> list[str]:
    rows = [["NODE", "GPU", "TYPE", "BUSY", "MEMORY", "POWER", "TEMP", "HEALTH", "HELD BY"]]
    for node in fleet:
        for gpu in node["gpus"]:
            holders = ", ".join(f"{one['workload']} ({one['tenant']}{_part(one['share'])})" for one in gpu["holders"])
            used = (
                None
                if gpu["memoryUsedMib"] is None
                else f"{gpu['memoryUsedMib'] / 1024:.1f} of {gpu['memoryMib'] / 1024:.0f} GiB"
            )
            rows.append(
                [
                    node["node"],
                    str(gpu["index"]),
                    node["model"],
                    "-" if gpu["utilisation"] is None else f"{gpu['utilisation'] * 100:.0f}%",
                    used or "-",
                    "-" if gpu["powerWatts"] is None else f"{gpu['powerWatts']:.0f} W",
                    "-" if gpu["temperature"] is None else f"{gpu['temperature']:.0f} °C",
                    f"{gpu['health']}{': ' if gpu['reason'] else ''}{gpu['reason']}",
                    holders or ("processes of nobody known" if gpu["unknownProcesses"] else "-"),
                ]
            )
    return table(rows)


def _part(share: float) -> str:
    return "" if share == 1 else f", {share:g} of it"


def _tenant_lines(people: list[dict[str, Any]], letters: dict[str, str]) -> list[str]:
    if not people:
        return ["there are no tenants: a Tenant says who may use how many GPUs"]
    from homeostat.cli.gpu.quota import titled

    head = ["", "TENANT", "TYPE", "USED", "QUOTA", "BORROWED", "RUNNING", "WAITING", "SUSPENDED", "SHARE"]
    names = ("used", "nominal", "borrowed", "running", "pending", "suspended")
    plain = [
        [
            letters.get(one["tenant"], "?"),
            titled(one),
            one["model"],
            *(f"{one[name]:g}" for name in names),
            f"{one['dominantShare']:.2f}",
        ]
        for one in people
    ]
    rows = table([head, *plain])
    most = max(max(one["nominal"], one["used"]) for one in people) or 1.0
    width = max(map(len, rows)) + 3
    found = [click.style(rows[0], bold=True)]
    for one, row in zip(people, rows[1:], strict=True):
        full, quota = round(one["used"] / most * BAR), round(one["nominal"] / most * BAR)
        over = max(full - quota, 0)
        colour = _colour(letters.get(one["tenant"], "?"))
        bar = (
            click.style("█" * (full - over), fg=colour)
            + click.style("█" * over, fg="red")
            + click.style("░" * max(quota - full, 0), fg=colour)
        )
        found.append(f"{row.ljust(width)}{bar}")
    return found
