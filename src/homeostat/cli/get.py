"""`homeostat get`: objects as the server prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from homeostat.cli import completing
from homeostat.cli.connection import Connection, server_options
from homeostat.cli.kindname import KindName
from homeostat.cli.show import echo_lines, emit, output_option, table

if TYPE_CHECKING:
    from homeostat.client import Client

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@click.command(cls=KindName)
@click.argument("kind", shell_complete=completing.kinds)
@click.argument("name", required=False, shell_complete=completing.names)
@click.option("-l", "--selector", default="", help="Only what has these labels: app=web,tier!=cache.")
@click.option("--at", default="", metavar="TIME|REV", help="As it was then: 2026-01-31T12:00:00Z, or a revision.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In every namespace.")
@output_option("table", "wide", "json", "yaml", "name")
@server_options()
def command(
    server: Connection, kind: str, name: str | None, selector: str, at: str, everywhere: bool, output: str
) -> None:
    """Show objects of a KIND, or the one that is called NAME.

    A kind goes by its plural, singular, short name or kind, in any case.

    \b
    Examples:
      homeostat get guardpolicies
      homeostat get files -A -l app=site
      homeostat get file motd -o yaml
      homeostat get file motd --at 2026-01-31T12:00:00Z -o yaml

    Exits with 0, or 1 where the kind or the object is not there.
    """

    async def read(client: Client) -> Any:
        from homeostat.cli.kinds import kind_named

        found = await kind_named(client, kind)
        served = await found.on(client).served()
        where = client.namespace if found.namespaced and (name or not everywhere) else ""
        params = {"labelSelector": selector} if selector else {}
        if at:
            from homeostat.cli.past import revision_of

            params["at"] = str(await revision_of(client, at))
        accept = _TABLE if output in ("table", "wide") else "application/json"
        reply = await client.request("GET", served.path(where, name or ""), params, accept=accept)
        return found, reply.json()

    found, answer = server.run(read)
    if answer.get("kind") == "Table":
        rows = _rows(answer, output == "wide", everywhere and found.namespaced)
        if len(rows) > 1:
            echo_lines(table(rows))
        else:
            click.echo("nothing found", err=True)
    elif output == "name" or output in ("table", "wide"):
        echo_lines(f"{found.name}/{item['metadata']['name']}" for item in answer.get("items", [answer]))
    else:
        emit(answer, output)


def _rows(answer: dict[str, Any], wide: bool, namespaces: bool) -> list[list[str]]:
    columns = [i for i, column in enumerate(answer["columnDefinitions"]) if wide or not column.get("priority")]
    head = [answer["columnDefinitions"][i]["name"].upper() for i in columns]
    rows = [["NAMESPACE", *head] if namespaces else head]
    for row in answer.get("rows") or ():
        cells = [_cell(row["cells"][i]) for i in columns]
        rows.append([row["object"]["metadata"].get("namespace", ""), *cells] if namespaces else cells)
    return rows


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
