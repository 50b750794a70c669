"""`homeostat ui`: the dashboard, signed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from homeostat.cli.connection import Connection, server_options

if TYPE_CHECKING:
    from homeostat.client import Client


@click.command()
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@server_options(namespace=False)
def command(server: Connection, no_browser: bool) -> None:
    """Print a link to the dashboard that signs you in, and open it.

    It is good once, for five minutes; who opens it is you for twelve hours. The server's certificate is signed by an authority of its
    own: your browser asks about it until you trust pki/ca.crt of the data directory.

    \b
    Examples:
      homeostat ui
      homeostat ui --no-browser

    Exits with 0, or 1 where the server does not answer or has no dashboard.
    """
    from homeostat.model.errors import ApiError

    async def ask(client: Client) -> str:
        try:
            return str((await client.request("POST", "/ui/codes", idempotent=False)).json()["link"])
        except ApiError as error:
            if error.code == 404:
                raise click.ClickException("that server has no dashboard: it is not Homeostat, or of an older version") from None
            raise

    link = server.run(ask)
    click.echo(link)
    if not no_browser:
        import webbrowser

        webbrowser.open(link)
