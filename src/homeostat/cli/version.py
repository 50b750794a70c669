"""`homeostat version`."""

from __future__ import annotations

import click

from homeostat.cli.show import output_option


@click.command()
@output_option("text", "json", "yaml")
def command(output: str = "text") -> None:
    """Show the version, and the Kubernetes API it speaks.

    \b
    Examples:
      homeostat version
      homeostat version -o json

    Exits with 0.
    """
    from homeostat import __version__
    from homeostat.model.protocol import KUBERNETES

    if output != "text":
        from homeostat.cli.show import emit

        emit({"version": __version__, "kubernetes": ".".join(KUBERNETES)}, output)
        return
    click.echo(f"homeostat {__version__} (Kubernetes API {'.'.join(KUBERNETES)})")
