"""What the Tab key offers for kinds and names: asked of the server, and nothing where that does not answer at once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection

if TYPE_CHECKING:
    from homeostat.client import Client

SECONDS = 2.0
"""How long somebody waits who pressed a key."""
_KINDS = ("kind", "what")
"""What the argument is called that says of which kind a name is."""

Ask = Callable[["Client"], Coroutine[Any, Any, list[str]]]


def _asked(ctx: click.Context, incomplete: str, ask: Ask) -> list[str]:
    said = ctx.params
    server = Connection(said.get("kubeconfig"), said.get("context"), said.get("namespace") or "")
    try:
        found = server.run(ask, timeout=SECONDS)
    except click.ClickException:
        return []  # whoever runs the command is told why
    return sorted({word for word in found if word.startswith(incomplete.lower())})


def kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Kinds of which there can be a list: by their plurals, or as one begins to write them."""

    async def ask(client: Client) -> list[str]:
        from homeostat.cli.kinds import served_kinds

        served = [kind for kind in await served_kinds(client) if "list" in kind.verbs]
        return [next((word for word in kind.words if word.startswith(incomplete.lower())), kind.plural) for kind in served]

    return _asked(ctx, incomplete, ask)


def names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of objects of the kind that was said before."""
    word = next((ctx.params[name] for name in _KINDS if ctx.params.get(name)), "")

    async def ask(client: Client) -> list[str]:
        from homeostat.cli.kinds import kind_named, neighbours

        return await neighbours(client, await kind_named(client, word))

    return _asked(ctx, incomplete, ask) if word else []
