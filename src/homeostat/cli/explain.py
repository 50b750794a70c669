"""`homeostat explain`: the whole chain of a decision, for one thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli import completing
from homeostat.cli.connection import Connection, server_options
from homeostat.cli.kindname import KindName
from homeostat.cli.show import ago, count, echo_lines, emit, output_option, painted

if TYPE_CHECKING:
    from homeostat.cli.kinds import Kind
    from homeostat.client import Client
    from homeostat.insight.chain import Chain
    from homeostat.insight.fleets import View
    from homeostat.loop.fleet import Ref

_SHOWN = 5


@click.command(cls=KindName)
@click.argument("kind", shell_complete=completing.kinds)
@click.argument("name", shell_complete=completing.names)
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

    async def read(client: Client) -> list[tuple[View, Ref]]:
        from homeostat.cli.kinds import kind_named
        from homeostat.insight.fleets import look, ref_of
        from homeostat.model.errors import ApiError

        found = await kind_named(client, kind)
        if not found.kept:
            return [await _declared(client, found, name)]
        try:
            obj = await found.on(client).get(name)
        except ApiError as error:
            if error.code != 404:
                raise
            return [await _declared(client, found, name)]
        view = await look(client, [found])
        ref = next((ref for ref in view.objects if ref == ref_of(found, obj)), ref_of(found, obj))
        above = await _open(client, found, name) if _keeper(obj) else None
        return [(view, ref), *([above] if above else ())]

    (view, ref), *above = server.run(read)
    if ref not in view.objects and ref not in view.children:
        raise click.ClickException(f"{ref} went away just now")
    from homeostat.insight.chain import Chain

    chain, wished = Chain(view, ref), [Chain(*one) for one in above]
    if output == "text":
        echo_lines(_lines(chain))
        for one in wished:
            echo_lines(("", *_lines(one)))
    else:
        emit(chain.data() | ({"composed": wished[0].data()} if wished else {}), output)


async def _declared(client: Client, kind: Kind, name: str) -> tuple[View, Ref]:
    """An object that a Sync or another composer declares: of a kind that the loop does not keep, or not made yet."""
    if (found := await _open(client, kind, name)) is not None:
        return found
    obj = await kind.on(client).get(name)
    keeper = _keeper(obj) or f"is no thing that the loop keeps: no {obj.get('kind', 'such object')} is, and no Sync declares it"
    raise click.ClickException(f"{kind.kind} {name} {keeper}")


async def _open(client: Client, kind: Kind, name: str) -> tuple[View, Ref] | None:
    """What is open between an object and the Sync or composer that declares it; None where nothing is."""
    from homeostat.cli.kinds import served_kinds
    from homeostat.insight.fleets import look

    namespace = client.namespace if kind.namespaced else ""
    policies = await look(client, [])
    view = await look(client, [one for one in await served_kinds(client) if one.kept and policies.composes(one.name)])
    for ref in view.children:
        if (ref.name, ref.namespace) == (f"{kind.name}/{name}", namespace):
            return view, ref
    return None


def _keeper(obj: dict[str, Any]) -> str:
    """Who answers for an object about which nothing is open; empty where it was declared by itself."""
    from homeostat.sources.kinds import SYNC_NAME

    metadata = obj["metadata"]
    if sync := (metadata.get("annotations") or {}).get(SYNC_NAME):
        space, _, called = sync.partition("/")
        return f"is declared by Sync {sync}, and nothing about it is open: homeostat explain sync {called} -n {space}"
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return f"is made by {owner['kind']} {owner['name']}: homeostat explain {owner['kind'].lower()} {owner['name']}"
    return ""


def _lines(chain: Chain) -> Iterator[str]:
    """For people, from what was seen to what comes next."""
    from homeostat.cli.openplan import title_of

    yield click.style(title_of(chain.view, chain.ref), bold=True)
    if chain.view.composes(chain.ref.kind):
        yield "  guarded    not itself: each object that it declares, as one of its own kind"
    else:
        yield f"  fleet      {chain.fleet.name}: {chain.fleet.size} in it, {len(chain.fleet.drifts)} differ, mode {chain.policy.mode}"
    if chain.policies:
        yield f"  policy     {', '.join(chain.policies)}"
    yield f"  declared   {chain.declared}"
    yield f"  observed   {chain.observed}"
    yield from _difference(chain)
    yield from _below(chain)
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


def _below(chain: Chain) -> Iterator[str]:
    """Of a Sync: what of its objects is open, and how to ask about one."""
    from homeostat.cli.openplan import title_of
    from homeostat.guards.runbook import look_at

    ours = sorted(ref for ref in chain.view.children if ref.uid == chain.ref.uid and ref != chain.ref)
    for ref in ours[:_SHOWN] if chain.ref in chain.view.objects else ():
        yield f"  object     {title_of(chain.view, ref)}: {look_at(ref)}"
    if len(ours) > _SHOWN and chain.ref in chain.view.objects:
        yield f"             and {len(ours) - _SHOWN} more: homeostat drift"


def _difference(chain: Chain) -> Iterator[str]:
    if chain.drift is None:
        why = chain.view.uncomposed.get(chain.ref) or chain.fleet.unknown.get(chain.ref, "no loop has looked" if chain.unseen else None)
        yield f"  differs    {'unknown: ' + why if why is not None else 'no'}"
        return
    drift = chain.drift
    yield f"  differs    to {drift.op}, for {ago(chain.view.now - drift.since)}"
    yield f"  cause      {chain.cause}"
    for line in drift.changes or drift.paths:
        yield "    " + painted(line)
    if drift.attempts:
        yield f"  tried      {count(drift.attempts, 'time')}, {drift.failures} failed in a row"
