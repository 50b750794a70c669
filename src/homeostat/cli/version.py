"""`homeostat version`."""

from __future__ import annotations

import click


@click.command()
def command() -> None:
    """Show the version, and the Kubernetes API it speaks."""
    from homeostat import __version__
    from homeostat.api.documents import KUBERNETES

    click.echo(f"homeostat {__version__} (Kubernetes API {'.'.join(KUBERNETES)})")
