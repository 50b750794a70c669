"""What the server says of GPUs, for commands: see `insight.gpu`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.insight.gpu import Facts


async def gather(client: Client) -> Facts:
    """Reads everything once and decides on it. Says what is the matter where the server knows nothing of GPUs."""
    needs_numpy()
    from homeostat.insight import gpu

    try:
        return await gpu.gather(client)
    except gpu.NoGpus as error:
        raise click.ClickException(str(error)) from None


def warn(facts: Facts) -> None:
    """Says the notes."""
    for note in facts.notes:
        click.echo(f"note: {note}", err=True)


def needs_numpy() -> None:
    """Says what to install where the part for GPUs is not."""
    from importlib.util import find_spec

    if find_spec("numpy") is None:
        raise click.ClickException("this needs numpy: pip install 'homeostat[gpu]'")
