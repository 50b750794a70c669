"""Syncs as commands see them: the commit that one goes back to, and the pairs of two environments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from homeostat.insight.returning import Target
from homeostat.model.errors import ApiError

if TYPE_CHECKING:
    from homeostat.client import Client

API, KIND, SOURCE = "homeostat.dev/v1alpha1", "Sync", "GitSource"
SHORT = 12

Object = dict[str, Any]


async def sync_back(client: Client, name: str, to: str, force: bool) -> list[Target]:
    """What `homeostat rollback sync NAME --to COMMIT` writes: the Sync, held at that commit."""
    sync = await client.kind(API, KIND).get(name, namespace=client.namespace)
    source = await client.kind(API, SOURCE).get(sync["spec"]["source"]["name"], namespace=client.namespace)
    now = (source.get("status") or {}).get("commit", "")
    if not now:
        raise click.ClickException(
            f"GitSource {source['metadata']['name']} has no commit yet: there is nothing to go back from"
        )
    return [_held(sync, _chosen(name, sync.get("status") or {}, to, now), now)]


def _held(sync: Object, commit: str, now: str) -> Target:
    hold = {"commit": commit, "notPast": now, "reason": "homeostat rollback"}
    metadata, wanted = sync["metadata"], {**sync, "spec": {**sync["spec"], "hold": hold}}
    return Target(API, KIND, metadata["namespace"], metadata["name"], wanted, f"commit {commit[:SHORT]}")


async def commit_back(client: Client, name: str, force: bool) -> list[Target]:
    """What takes the change set of a commit back (`NAMESPACE/SOURCE@COMMIT`): every Sync that applies it, held at the commit before.

    Nothing where it is no such name, or no Sync applied it.
    """
    named = re.fullmatch(r"([^/@]+)/([^/@]+)@([0-9a-f]{12})", name)
    if named is None:
        return []
    namespace, source, short = named.groups()
    try:
        syncs = await client.kind(API, KIND).list(namespace=namespace)
    except ApiError as error:
        if error.code == 404:
            return []
        raise
    ours = [sync for sync in syncs if sync["spec"]["source"]["name"] == source]
    found = [(sync, before) for sync in ours if (before := _before(sync, short, force)) is not None]
    if not found:
        return []
    now = ((await client.kind(API, SOURCE).get(source, namespace=namespace)).get("status") or {}).get("commit", "")
    return [_held(sync, before, now or before) for sync, before in found]


def _before(sync: Object, short: str, force: bool) -> str | None:
    """The commit that a Sync applied before this one; None where this is none of its commits."""
    status, name = sync.get("status") or {}, sync["metadata"]["name"]
    history = [one for one in status.get("history") or () if one.get("outcome") == "Applied"]
    applied = [one["commit"] for one in history]
    goal = str(status.get("goal") or "")
    if goal.startswith(short) and goal not in applied:  # it is under way, or the guards hold it
        if not status.get("commit"):
            raise click.ClickException(f"Sync {name} has applied no other commit: there is nothing to go back to")
        return str(status["commit"])
    at = next((number for number, commit in enumerate(applied) if commit.startswith(short)), None)
    if at is None or not any(history[at].get(word) for word in ("create", "change", "delete")):
        return None  # it changed nothing here
    if at > 0 and not force:
        since = ", ".join(commit[:SHORT] for commit in applied[:at])
        raise click.ClickException(f"Sync {name} has applied {since} since. That would be undone as well: say --force")
    before = [commit for commit in applied[at + 1 :] if not commit.startswith(short)]
    if not before:
        raise click.ClickException(f"of Sync {name} no commit before {short} is known: `homeostat rollback sync {name} --to COMMIT` takes any")
    return str(before[0])


def _chosen(name: str, status: Object, to: str, now: str) -> str:
    """The commit that is meant: by its first digits among those that were applied, by all of them any."""
    applied = [one["commit"] for one in status.get("history") or () if one.get("outcome") == "Applied"]
    if not to:
        before = [commit for commit in applied if commit not in (now, status.get("commit"))]
        if not before:
            raise click.ClickException(f"Sync {name} has applied no other commit: say which, with --to COMMIT")
        return str(before[0])
    found = sorted({commit for commit in applied if commit.startswith(to.lower())})
    if len(found) == 1:
        return str(found[0])
    if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", to):
        return to
    shown = ", ".join(commit[:SHORT] for commit in applied) or "none"
    why = "several commits begin so" if found else "no commit that it applied begins so"
    raise click.ClickException(f"--to {to}: {why} (it applied: {shown}); write the whole of another commit")


class Pair(NamedTuple):
    """The same thing in two environments."""

    name: str
    before: Object
    after: Object


async def pairs(client: Client, first: str, second: str) -> list[Pair]:
    """The Syncs of two environments that belong together: those whose names differ by that of the environment alone.

    ClickException where there are none, or where one of them has no partner.
    """
    found: dict[str, dict[str, Object]] = {first: {}, second: {}}
    for sync in await client.kind(API, KIND).list(namespace=client.namespace):
        environment = (sync.get("spec") or {}).get("environment", "")
        if environment in found:
            found[environment][_without(sync["metadata"]["name"], environment)] = sync
    for environment, syncs in found.items():
        if not syncs:
            raise click.ClickException(f"no Sync of namespace {client.namespace} has `environment: {environment}`")
    alone = sorted(found[first].keys() ^ found[second].keys())
    if alone:
        raise click.ClickException(
            f"these Syncs are in one of the environments only: {', '.join(alone)}. Those that belong together have names that differ "
            f"by the environment alone, such as shop-{first} and shop-{second}"
        )
    return [Pair(name, found[first][name], found[second][name]) for name in sorted(found[first])]


def _without(name: str, environment: str) -> str:
    parts = [part for part in name.split("-") if part]
    return "-".join(part for part in parts if part != environment) or name
