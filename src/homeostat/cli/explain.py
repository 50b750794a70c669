"""`homeostat explain`: the whole chain of a decision, for one thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import ago, echo_lines, emit, output_option, painted

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.insight.chain import Chain
    from homeostat.insight.fleets import View
    from homeostat.loop.fleet import Ref


@click.command()
@click.argument("kind")
@click.argument("name")
@output_option("text", "json", "yaml")
@server_options()
def command(server: Connection, kind: str, name: str, output: str) -> None:
    """Explain why a thing is as it is: when it was observed, what differs, who caused it, what each guard says, what comes next.

    \b
    Examples:
      homeostat explain file motd
      homeostat explain process web -n shop -o json

    Exits with 0, or 1 where the kind or the object is not there.
    """

    async def read(client: Client) -> tuple[View, Ref]:
        from homeostat.cli.kinds import kind_named
        from homeostat.insight.fleets import look, ref_of

        found = await kind_named(client, kind)
        if not found.kept:
            raise click.ClickException(f"{found.kind} is no kind that the loop keeps: nothing decides about it")
        obj = await found.on(client).get(name)
        view = await look(client, [found])
        return view, next((ref for ref in view.objects if ref == ref_of(found, obj)), ref_of(found, obj))

    view, ref = server.run(read)
    if ref not in view.objects:
        raise click.ClickException(f"{ref} went away just now")
    from homeostat.insight.chain import Chain

    chain = Chain(view, ref)
    if output == "text":
        echo_lines(_lines(chain))
    else:
        emit(chain.data(), output)


def _lines(chain: Chain) -> Iterator[str]:
    """For people, from what was seen to what comes next."""
    from homeostat.cli.openplan import title_of

    yield click.style(title_of(chain.view, chain.ref), bold=True)
    yield f"  fleet      {chain.fleet.name}: {chain.fleet.size} in it, {len(chain.fleet.drifts)} differ, mode {chain.policy.mode}"
    if chain.policies:
        yield f"  policy     {', '.join(chain.policies)}"
    yield f"  declared   {chain.declared}"
    yield f"  observed   {chain.observed}"
    yield from _difference(chain)
    yield f"  decision   {chain.decision}"
    for halt in chain.halts:
        yield f"  halt       {halt.guard}: {halt.reason}"
    if chain.guards:
        yield "  guards"
        width = max(map(len, chain.guards))
        for name, hold in chain.guards.items():
            said = "lets it through" if hold is None else f"holds it: {hold.reason}"
            yield f"    {name.ljust(width)}  {said}"
    yield f"  next       {chain.next}"


def _difference(chain: Chain) -> Iterator[str]:
    if chain.drift is None:
        why = chain.fleet.unknown.get(chain.ref)
        yield f"  differs    {'unknown: ' + why if why is not None else 'no'}"
        return
    drift = chain.drift
    yield f"  differs    to {drift.op}, for {ago(chain.view.now - drift.since)}"
    yield f"  cause      {chain.cause}"
    for line in drift.changes or drift.paths:
        yield "    " + painted(line)
    if drift.attempts:
        yield f"  tried      {drift.attempts} times, {drift.failures} failed in a row"
