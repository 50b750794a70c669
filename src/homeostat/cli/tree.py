"""`homeostat tree`: a thing and all that is made for it, each with how it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli import completing
from homeostat.cli.connection import Connection, server_options
from homeostat.cli.kindname import KindName
from homeostat.cli.show import echo_lines, emit, output_option

if TYPE_CHECKING:
    from homeostat.client import Client

_COLOURS = {"Current": "green", "InProgress": "blue", "Failed": "red", "Terminating": "yellow"}

Object = dict[str, Any]


@click.command(cls=KindName)
@click.argument("kind", shell_complete=completing.kinds)
@click.argument("name", shell_complete=completing.names)
@output_option("tree", "json", "yaml")
@server_options()
def command(server: Connection, kind: str, name: str, output: str) -> None:
    """Show a thing and, below it, what it owns, by owner references, down to the last.

    \b
    Examples:
      homeostat tree shop corner
      homeostat tree deployment web -n shop -o json

    Exits with 0, or 1 where the kind or the object is not there.
    """

    async def grow(client: Client) -> Object:
        from homeostat.cli.kinds import kind_named
        from homeostat.insight.family import family

        return await family(client, await kind_named(client, kind), name)

    root = server.run(grow)
    if output == "tree":
        echo_lines(_lines(root))
    else:
        emit(root, output)


def _lines(node: Object, trunk: str = "", branch: str = "") -> Iterator[str]:
    said = f"  {node['message']}" if node["message"] else ""
    yield f"{branch}{node['kind']}/{node['name']}  {click.style(node['status'], fg=_COLOURS.get(node['status']))}{said}"
    for number, child in enumerate(node["children"]):
        last = number == len(node["children"]) - 1
        yield from _lines(child, trunk + ("   " if last else "│  "), trunk + ("└─ " if last else "├─ "))
