"""Makes a commit ready to be applied: rendered, completed, claimed, and validated as a whole. All of it, or none."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from homeostat.client import Client, Key
from homeostat.loop.applied import fields_of, view
from homeostat.loop.compose import Child
from homeostat.loop.live import unmarked
from homeostat.model.errors import ApiError
from homeostat.sources.files import RenderError
from homeostat.sources.goals import SHORT
from homeostat.sources.holdings import Holdings, Kind, NotYet
from homeostat.sources.kinds import SYNC_LABEL, SyncSpec
from homeostat.sources.manifests import Manifest
from homeostat.sources.preparing import Home, Memo, Prepared, complete, defined_kinds, is_mine, may_go, order_of
from homeostat.sources.rendering import Options, Parsed, Rendered, locate, render
from homeostat.sources.repository import Repository
from homeostat.sources.sops import Keys, NoKeys, keys_of
from homeostat.sources.status import plan_of
from homeostat.sources.validating import Asked, validate

Object = dict[str, Any]


class Mark(NamedTuple):
    """What a commit was made ready for: another mark, another result."""

    commit: str
    generation: int
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    files: int = 50_000
    adopt: bool = False
    """Whether what exists and is not ours is taken over."""


class Readied(msgspec.Struct):
    """What is known of the last commit that was made ready: the next has to look only at what differs."""

    prepared: Prepared | None = None
    memo: Memo = msgspec.field(default_factory=dict)


Claimed = Callable[[Child, Kind], Key | None]
"""The Sync that has an object already, and wants it, or may."""


class Readying:
    """Makes commits ready. `manager` is the field manager that objects are applied as."""

    def __init__(self, client: Client, holdings: Holdings, manager: str) -> None:
        self._client = client
        self._holdings = holdings
        self._manager = manager
        self.parsed = Parsed()

    async def ready(
        self,
        spec: SyncSpec,
        home: Home,
        repository: Repository,
        mark: Mark,
        change_set: str,
        last: Readied,
        ever: set[Kind],
        claimed: Claimed,
    ) -> Readied:
        """Raises RenderError, with file, line and field, where any of it is wrong; `NotYet` where that cannot be told now."""
        options = Options(
            spec.path,
            spec.recurse,
            spec.render,
            spec.environment,
            dict(spec.variables),
            mark.include,
            mark.exclude,
            mark.files,
            await self._keys(spec, home),
        )
        facts = await asyncio.to_thread(repository.commit, mark.commit)
        rendered = await asyncio.to_thread(render, repository, facts.tree, options, self.parsed)
        scopes, unserved = await self._scopes(rendered)
        before = last.prepared
        alike = before is not None and before.mark.generation == mark.generation
        wanted, places, memo = complete(rendered.manifests, scopes, home, last.memo if alike else {})
        order = order_of(wanted, places)
        await self._holdings.read({kind for kind in scopes if kind not in unserved} | ever)
        proven = before.wanted if before is not None else {}
        foreign = before.foreign if before is not None else set()
        fresh = [child for child in wanted if proven.get(child) is not wanted[child] or child in foreign]
        self._check_claims(home, fresh, wanted, places, claimed)
        later = {child for child in fresh if (wanted[child]["apiVersion"], child.kind) in unserved}
        found = await self.ask(
            wanted,
            places,
            [c for c in fresh if c not in later],
            lambda m, f: locate(repository, facts.tree, rendered, m, f),
        )
        unproven = later | found.later | (before.unproven & wanted.keys() if before is not None else set())
        made = Prepared(mark, facts, change_set, wanted, places, order, set(scopes), unproven=unproven)
        there = found.there - (proven.keys() - foreign)  # what the commit before had is ours, though it may not be heard of yet
        made.plan = self._plan(home.uid, made, spec, fresh, there)
        return Readied(made, memo)

    async def _keys(self, spec: SyncSpec, home: Home) -> Keys | None:
        if spec.decryption is None:
            return None
        name = f"{home.namespace}/{spec.decryption.secret}"
        try:
            secret = await self._client.kind("v1", "Secret").get(spec.decryption.secret, namespace=home.namespace)
            data = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
            return keys_of(data, name)
        except ApiError as error:
            raise NotYet(f"Secret {name}, which `decryption` names, cannot be read: {error.message}") from None
        except NoKeys as error:
            raise NotYet(f"decryption: {error}") from None

    async def ask(
        self,
        wanted: dict[Child, Object],
        places: dict[Child, Manifest],
        which: list[Child],
        where: Callable[[Manifest, str], int],
    ) -> Asked:
        """Asks the server about these. Raises as `ready` does."""
        try:
            return await validate(self._client, wanted, places, which, self._manager, where)
        except ApiError as error:
            raise NotYet(f"the server cannot be asked what it would take: {error.message}") from None

    async def _scopes(self, rendered: Rendered) -> tuple[dict[Kind, bool], set[Kind]]:
        """Of each kind whether it is in a namespace; and the kinds that come with the commit, and are not served yet."""
        kinds: dict[Kind, Manifest] = {}
        for manifest in rendered.manifests:
            kinds.setdefault((manifest.obj["apiVersion"], manifest.obj["kind"]), manifest)
        scopes: dict[Kind, bool] = {}
        unserved: set[Kind] = set()
        own: dict[Kind, tuple[str, bool]] | None = None
        for kind, manifest in kinds.items():
            if await self._holdings.is_served(kind):
                scopes[kind] = (await self._client.kind(*kind).served()).namespaced
                continue
            own = defined_kinds(rendered.manifests) if own is None else own
            if kind not in own:
                raise manifest.refused(f"this server has no kind {kind[1]} in {kind[0]}", "kind")
            scopes[kind] = own[kind][1]
            unserved.add(kind)
        return scopes, unserved

    def _check_claims(
        self,
        home: Home,
        fresh: list[Child],
        wanted: dict[Child, Object],
        places: dict[Child, Manifest],
        claimed: Claimed,
    ) -> None:
        mine = Key(home.namespace, home.name)
        for child in fresh:
            other = claimed(child, (wanted[child]["apiVersion"], child.kind))
            if other is not None and other != mine:
                raise claimed_twice(places[child], child, other, mine)

    def _plan(self, uid: str, made: Prepared, spec: SyncSpec, fresh: list[Child], there: set[Child]) -> Object:
        """What would be done. What exists and is not this Sync's is noted: it has not our label, or, where that was copied, not our fields."""
        existing = self._holdings.of(uid)
        create = [child for child in fresh if child not in existing and child not in there]
        change = [child for child in fresh if child not in existing and child in there]
        made.foreign.update(change)
        for child in fresh:
            if child in existing and not self.is_so(live := existing[child].load(), made.wanted[child]):
                change.append(child)
                if not is_mine(live, uid, self._manager):
                    made.foreign.add(child)
        refused = [] if made.mark.adopt else [child for child in change if child in made.foreign]
        if refused:
            change = [child for child in change if child not in made.foreign]
        delete = (
            [child for child in existing.keys() - made.wanted.keys() if may_go(existing[child].load(), child)]
            if spec.prune
            else []
        )
        return plan_of(create, change, delete, refused, made.facts.id, made.facts.subject)

    def is_so(self, live: Object, manifest: Object) -> bool:
        """Whether an object is as wanted already, by all that was heard of it."""
        if not is_mine(live, manifest["metadata"]["labels"][SYNC_LABEL], self._manager):
            return False
        return bool(unmarked(view(manifest, live, fields_of(live), fields_of(live, self._manager)), manifest) == manifest)


def claimed_twice(manifest: Manifest, child: Child, other: Key, mine: Key) -> RenderError:
    """Two Syncs declare the same object: the second is refused, and both are named."""
    return manifest.refused(
        f"{child} belongs to Sync {other} already, and Sync {mine} declares it too: take it out of one of them"
    )


def refusal(commit: str, error: Exception) -> tuple[str, str]:
    """Reason and message of a commit that is refused."""
    return "Refused", f"commit {commit[:SHORT]} is refused: {error}"
