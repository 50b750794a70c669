"""`homeostat release`: a Sync that is held at an earlier commit goes on with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from homeostat.cli.connection import Connection, server_options

if TYPE_CHECKING:
    from homeostat.client import Client


@click.command()
@click.argument("name", metavar="SYNC")
@server_options()
def command(server: Connection, name: str) -> None:
    """Release a SYNC that `homeostat rollback sync`, or an automatic return, holds at an earlier commit.

    It goes to what its source has now, as a change set under the guards. A newer commit releases it too.

    \b
    Examples:
      homeostat release shop

    Exits with 0 when nothing holds it any more, 1 when that failed.
    """
    from homeostat.cli.syncs import API, KIND, SHORT

    async def write(client: Client) -> str:
        syncs = client.kind(API, KIND)
        sync = await syncs.get(name, namespace=client.namespace)
        hold = (sync.get("spec") or {}).get("hold")
        if not hold:
            return f"Sync {name} is not held."
        patch = {"metadata": {"resourceVersion": sync["metadata"]["resourceVersion"]}, "spec": {"hold": None}}
        await syncs.patch(name, patch, namespace=client.namespace, field_manager="homeostat-rollback")
        return f"Sync {name} is not held at {hold['commit'][:SHORT]} any more."

    click.echo(server.run(write))
