"""`homeostat rollback`: an object, or all of a change set, goes back to what it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from homeostat.cli import completing
from homeostat.cli.connection import Connection, server_options
from homeostat.cli.kindname import KindName
from homeostat.cli.show import output_option

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.insight.returning import Target

    Find = Callable[[Client, str, str, bool], Awaitable[Sequence[Target]]]

Object = dict[str, Any]


@click.command(cls=KindName)
@click.argument("what", metavar="KIND|changeset|sync", shell_complete=completing.kinds)
@click.argument("name", shell_complete=completing.names)
@click.option("--to", default="", metavar="REV|TIME|COMMIT", help="To which revision, time or (of a sync) commit. Default: to what was before.")
@click.option("--force", is_flag=True, help="Of a change set: also undo what was declared on its objects since.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and do nothing.")
@click.option("--approve", is_flag=True, help="Approve all of it at once, where the guards would stop it for its size.")
@click.option("--reason", default="", help="Why it is approved, for whoever reads it later.")
@output_option("text", "json", "yaml")
@server_options()
def command(
    server: Connection,
    what: str,
    name: str,
    to: str,
    force: bool,
    yes: bool,
    dry_run: bool,
    approve: bool,
    reason: str,
    output: str,
) -> None:
    """Take an object, everything of a change set, or a Sync, back to what was declared before.

    It is a change set of its own: shown as a plan, judged by the guards, written, and made true by the loop. What was deleted is
    declared anew (with a new uid), what did not exist before the change set is deleted. What you take back holds: a later
    `homeostat apply` of the same fields with other values is refused as a conflict, until it says --force-conflicts.

    What a Sync applies goes back with the Sync: a commit, which is a change set, by holding every Sync that applied it at the commit
    before. One object of it alone cannot be taken back, for the Sync would put it right at once; that is said, and nothing done.

    \b
    Examples:
      homeostat rollback file motd
      homeostat rollback file motd --to 2026-01-31T12:00:00Z
      homeostat rollback changeset apply-20260131-120000-x7k2p
      homeostat rollback changeset apply-20260131-120000-x7k2p --dry-run -o json
      homeostat rollback sync shop --to 1a2b3c4d5e6f
      homeostat rollback changeset default/shop@1a2b3c4d5e6f

    Exits with 0 when it is declared, 1 when something is refused or not known any more, 3 when you said no.
    """
    from homeostat.cli.returning import go_back

    find = WAYS.get(what.lower())

    async def targets(client: Client) -> Sequence[Target]:
        if find is not None:
            return await find(client, name, to, force)
        return [await _object(client, what, name, to)]

    go_back(
        server,
        targets,
        command="rollback",
        yes=yes,
        approve=approve,
        reason=reason,
        dry_run=dry_run,
        output=output,
    )


async def _object(client: Client, word: str, name: str, to: str) -> Target:
    from homeostat.cli.kinds import kind_named
    from homeostat.cli.past import get_at, revision_of
    from homeostat.insight.returning import Target

    kind = await kind_named(client, word)
    namespace = client.namespace if kind.namespaced else ""
    if to:
        revision = await revision_of(client, to)
        wanted = await get_at(client, kind, namespace, name, revision)
        if wanted is None:
            raise click.ClickException(f"{kind.kind} {name} was not there at revision {revision}; to remove it, delete it")
        return Target(kind.api_version, kind.kind, namespace, name, wanted, f"revision {revision}")
    revision, wanted = await _before(client, kind, namespace, name)
    return Target(kind.api_version, kind.kind, namespace, name, wanted, f"revision {revision}")


async def _before(client: Client, kind: Any, namespace: str, name: str) -> tuple[int, Object]:
    """The last declaration that is not the present one."""
    from homeostat.cli.past import revisions
    from homeostat.loop.returned import declared_of

    items = await revisions(client, kind, namespace, name, 1000, declared=True)
    if not items:
        raise click.ClickException(f"{kind.kind} {name} is not known: there is none, and none is kept from before")
    now = items[0].get("object")
    if now is not None and "deletionTimestamp" in now["metadata"]:
        raise click.ClickException(f"{kind.kind} {name} is being deleted: wait until it is gone, and do this again")
    present = declared_of(now) if now is not None else None
    for item in items[1:]:
        then = item.get("object")
        if then is not None and "deletionTimestamp" not in then["metadata"] and declared_of(then) != present:
            return item["revision"], then
    raise click.ClickException(f"of {kind.kind} {name} no other declaration is kept: there is nothing to go back to")


async def _change_set(client: Client, name: str, to: str, force: bool) -> list[Target]:
    from homeostat.cli.past import known_here
    from homeostat.cli.syncs import commit_back
    from homeostat.insight.changesets import targets_before

    if to:
        raise click.UsageError("--to: a change set goes back to what was before it; leave it out")
    if commit := await commit_back(client, name, force):
        return commit
    reply = await known_here(client, f"/homeostat/changesets/{quote(name)}")
    items = reply["items"]
    if not items:
        raise click.ClickException(
            f"nothing is known of a change set {name}: `homeostat history KIND NAME` shows the change sets of an object"
        )
    moved = [f"{item['kind']} {item['name']}" for item in items if item["changedSince"]]
    if moved and not force:
        raise click.ClickException(
            f"declared otherwise since by somebody else: {', '.join(moved)}. That would be undone as well: "
            f"roll the others back one by one, or say --force"
        )
    return targets_before(name, items)


async def _sync(client: Client, name: str, to: str, force: bool) -> Sequence[Target]:
    from homeostat.cli.syncs import sync_back

    return await sync_back(client, name, to, force)


WAYS: dict[str, Find] = {"changeset": _change_set, "sync": _sync, "syncs": _sync}
"""What can be taken back as a whole, by the word for it: a function of the client, the name, --to and --force."""
