"""`homeostat plan`: what would be done, by applying files or by the loop as things stand, and what the guards say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.manifests import composer_option, manifest_options
from homeostat.cli.show import echo_lines, emit, output_option

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.insight.fleets import View


@click.command()
@click.argument("scope", required=False)
@manifest_options(required=False)
@composer_option
@output_option("text", "json", "yaml")
@server_options()
def command(
    server: Connection,
    scope: str | None,
    files: tuple[str, ...],
    recursive: bool,
    prune: str,
    force: bool,
    own: tuple[str, ...],
    output: str,
) -> None:
    """Show what would be done, and do nothing.

    With -f: what `homeostat apply` would write, and what composers would make of it. Without: what the loop has open, in a SCOPE (a fleet, policy or kind) or everywhere.

    \b
    Examples:
      homeostat plan -f site/
      homeostat plan files
      homeostat plan -f site/ -o json
      homeostat plan -f shop.yaml --provider shops.py

    Exits with 0 when there is a plan, also an empty one; 1 when something is wrong with it.
    """
    if files:
        _plan_files(server, files, recursive, prune, force, own, output)
    else:
        _plan_open(server, scope, output)


def _plan_files(
    server: Connection,
    files: tuple[str, ...],
    recursive: bool,
    prune: str,
    force: bool,
    own: tuple[str, ...],
    output: str,
) -> None:
    from homeostat.cli.manifests import read
    from homeostat.cli.planview import plan_and_verdict, plan_lines, refuse_errors
    from homeostat.insight.planned import plan_data

    documents = read(files, recursive)
    plan, verdicts = server.run(lambda client: plan_and_verdict(client, documents, force=force, prune=prune, own=own))
    refuse_errors(plan)
    if output == "text":
        echo_lines(plan_lines(plan, verdicts))
    else:
        emit(plan_data(plan, verdicts), output)


def _plan_open(server: Connection, scope: str | None, output: str) -> None:
    from homeostat.cli.openplan import open_data, open_lines, view_of

    async def read(client: Client) -> View:
        return await view_of(client, scope)

    view: Any = server.run(read)
    if output == "text":
        echo_lines(open_lines(view))
    else:
        emit(open_data(view), output)
