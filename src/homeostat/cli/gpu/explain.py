"""`homeostat gpu explain`: why a workload waits, runs or was suspended, and what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import emit, output_option

if TYPE_CHECKING:
    from homeostat.insight.gpu import Facts


@click.command()
@click.argument("workload")
@output_option("text", "json", "yaml")
@server_options()
def command(server: Connection, workload: str, output: str) -> None:
    """Explain how a WORKLOAD stands: what holds it back, who is ahead with how much, when it will likely start; or what it holds, why it
    was suspended, by which decision, and what brings it back.

    It is computed now, by the functions that decide, from what the server says now. A workload is NAME or NAMESPACE/NAME.

    \b
    Examples:
      homeostat gpu explain train-7
      homeostat gpu explain research/train-7 -o json

    Exits with 0, or 1 where there is no such workload.
    """
    from homeostat.cli.gpu.facts import gather, warn

    async def read(client: Any) -> tuple[Facts, str]:
        return await gather(client), client.namespace

    facts, namespace = server.run(read)
    from homeostat.insight.gpu_story import Story, find

    try:
        story = Story(facts, find(facts, workload if "/" in workload else f"{namespace}/{workload}"))
    except LookupError as error:
        raise click.ClickException(error.args[0]) from None
    warn(facts)
    if output != "text":
        emit(story.data(), output)
        return
    click.secho(story.headline, bold=True)
    for about, what in story.lines():
        click.echo(f"  {about:10} {what}")
