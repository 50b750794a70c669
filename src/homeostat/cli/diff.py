"""`homeostat diff`: what differs between files and the server, or between two moments, with exit codes for scripts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli import completing
from homeostat.cli.connection import Connection, Trouble, server_options
from homeostat.cli.kindname import KindName
from homeostat.cli.manifests import manifest_options
from homeostat.cli.show import echo_lines, emit, output_option, painted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homeostat.cli.kinds import Kind
    from homeostat.client import Client
    from homeostat.insight.planning import Step

_NOT_DECLARED = frozenset({"events", "events.events.k8s.io", "leases.coordination.k8s.io"})
"""Kinds that are left out of a comparison of everything: nobody declares them."""


@click.command(cls=KindName)
@click.argument("kind", required=False, shell_complete=completing.kinds)
@click.argument("name", required=False, shell_complete=completing.names)
@click.option("--rev", metavar="A..B", default="", help="Between two revisions or times; without B: until now.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="With --rev: in every namespace.")
@manifest_options(required=False)
@output_option("text", "json", "yaml")
@server_options()
def command(
    server: Connection,
    kind: str | None,
    name: str | None,
    rev: str,
    everywhere: bool,
    files: tuple[str, ...],
    recursive: bool,
    prune: str,
    force: bool,
    output: str,
) -> None:
    """Show what differs between what files declare and what the server has; or, with --rev, between two moments on the server.

    With --rev it is about one object (KIND NAME), the objects of a KIND, or everything there is, in all namespaces.

    \b
    Examples:
      homeostat diff -f site/
      homeostat diff -f site/ || homeostat apply -f site/
      homeostat diff file motd --rev 120..180
      homeostat diff files -A --rev 2026-01-31T12:00:00Z..
      homeostat diff --rev 2026-01-31T12:00:00Z..2026-01-31T13:00:00Z -o json

    Exits with 0 when nothing differs, 1 when something does, and more than 1 when that cannot be told.
    """
    if bool(rev) == bool(files) or (kind and not rev):
        raise click.UsageError("say what to compare: files with -f, or two moments with --rev A..B")
    if files:
        steps = _of_files(server, files, recursive, prune, force)
    else:
        steps = server.run(lambda client: between(client, rev, kind, name, everywhere), failure=Trouble, timeout=None)
    if output != "text":
        emit([_data(step) for step in steps], output)
    else:
        for step in steps:
            _print(step)
    if steps:
        raise click.exceptions.Exit(1)


def _of_files(server: Connection, files: tuple[str, ...], recursive: bool, prune: str, force: bool) -> list[Step]:
    from homeostat.cli.manifests import read
    from homeostat.cli.planview import refuse_errors
    from homeostat.insight.planning import make_plan

    try:
        documents = read(files, recursive)
    except click.ClickException as error:
        raise Trouble(error.message) from None
    plan = server.run(lambda client: make_plan(client, documents, force=force, prune=prune), failure=Trouble)
    refuse_errors(plan, Trouble)
    return plan.changes


async def between(client: Client, rev: str, word: str | None, name: str | None, everywhere: bool) -> list[Step]:
    """What was declared otherwise at two moments, as steps from the one to the other."""
    from homeostat.cli.kinds import resolve, served_kinds
    from homeostat.cli.past import revision_of
    from homeostat.insight.planning import sensitive_of

    before, dots, after = rev.partition("..")
    if not dots or not before:
        raise click.ClickException(f"--rev {rev}: write A..B, two revisions or times; B may be left out")
    first, last = await revision_of(client, before.strip()), await revision_of(client, after.strip())
    kinds = await served_kinds(client)
    if word:
        chosen = [resolve(kinds, word)]
    else:
        chosen = [k for k in kinds if {"get", "list"} <= k.verbs and k.name not in _NOT_DECLARED]
    everywhere = everywhere or not word
    found = await asyncio.gather(*(_of_kind(client, k, name or "", first, last, everywhere, not word) for k in chosen))
    steps = [step for some in found for step in some]
    known: dict[str, Any] = {}
    for step in steps:
        step.sensitive = await sensitive_of(client, step, known)
    return steps


async def _of_kind(
    client: Client, kind: Kind, name: str, first: int, last: int, everywhere: bool, forgiving: bool
) -> list[Step]:
    from homeostat.cli.past import get_at, list_at
    from homeostat.model.errors import ApiError

    where = client.namespace if kind.namespaced and (name or not everywhere) else ""

    async def state(revision: int) -> list[dict[str, Any]]:
        if not name:
            return await list_at(client, kind, where, revision)
        found = await get_at(client, kind, where, name, revision)
        return [] if found is None else [found]

    try:
        old, new = await asyncio.gather(state(first), state(last))
    except ApiError as error:
        if not forgiving or error.code not in (403, 404, 410):
            raise
        click.echo(f"{kind.name} is left out: {error.message}", err=True)
        return []
    return _steps(old, new, await kind.on(client).served())


def _steps(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]], served: Any) -> list[Step]:
    from homeostat.insight.planning import Document, Step, creation, difference
    from homeostat.loop.diff import Diff
    from homeostat.loop.fleet import Cause, Op

    before = {_place(obj): obj for obj in old}
    after = {_place(obj): obj for obj in new}
    steps = []
    for place in sorted({*before, *after}):
        was, now = before.get(place), after.get(place)
        if was is None:
            assert now is not None
            diff = creation(now)
        elif now is None:
            diff = Diff(Op.DELETE, (), Cause.INTENT)
        else:
            diff = difference(was, now)
        if diff.op is not None:
            steps.append(Step(Document(now or was or {}, ""), place[0], served, was, diff))
    return steps


def _place(obj: dict[str, Any]) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _print(step: Step) -> None:
    from homeostat.insight.planning import SIGNS

    assert step.op is not None
    echo_lines([painted(f"{SIGNS[step.op]} {step.title}"), *("    " + painted(line) for line in step.lines())])


def _data(step: Step) -> dict[str, Any]:
    document = step.document
    return {
        "op": str(step.op),
        "apiVersion": document.api_version,
        "kind": document.kind,
        "namespace": step.namespace,
        "name": document.name,
        "changes": step.lines(),
    }
