"""What a Sync that would be so leads to, for plans: its commit is made ready as ever, and nothing of it is declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from homeostat.client import Key
from homeostat.loop.compose import Child, ComposeError, Foreseen, read_kinds
from homeostat.loop.declarations import ADOPT
from homeostat.model.kinds import decode
from homeostat.sources.files import RenderError
from homeostat.sources.holdings import NotYet
from homeostat.sources.kinds import SyncSpec
from homeostat.sources.preparing import Home, Prepared, is_mine, may_go
from homeostat.sources.readying import Mark, Readied, refusal
from homeostat.sources.repository import GitFailure

if TYPE_CHECKING:
    from homeostat.sources.synced import Synced

Object = dict[str, Any]


async def foresee(synced: Synced, manager: str, parent: Mapping[str, Any], *, gone: bool) -> Foreseen:
    """Raises `ComposeError` where the commit cannot be had, or is refused."""
    spec, uid = decode(SyncSpec, parent.get("spec") or {}), str(parent["metadata"]["uid"])
    ever = read_kinds(((parent.get("status") or {}).get("inventory") or {}).get("kinds") or ())
    wanted: dict[Child, Object] = {}
    change_set, goes = "", spec.on_delete == "Prune" if gone else spec.prune
    try:
        if gone:
            await synced.holdings.read(ever)
        else:
            prepared = await _ready(synced, parent, spec, ever)
            wanted, change_set = prepared.wanted, prepared.change_set
        existing = synced.holdings.of(uid)
    except NotYet as error:
        raise ComposeError(str(error)) from None
    left = {child: one.load() for child, one in sorted(existing.items()) if goes and child not in wanted}
    unwanted = [live for child, live in left.items() if is_mine(live, uid, manager) and may_go(live, child)]
    return Foreseen(wanted, unwanted, lambda live: is_mine(live, uid, manager), change_set)


async def _ready(synced: Synced, parent: Mapping[str, Any], spec: SyncSpec, ever: set[tuple[str, str]]) -> Prepared:
    metadata = parent["metadata"]
    key = Key(metadata.get("namespace", ""), metadata["name"])
    state, goal = synced.goal(key, spec, (parent.get("status") or {}).get("commit", ""))
    if not goal.commit or state.repository is None or state.spec is None:
        raise NotYet(goal.message or f"GitSource {spec.source.name} was not read yet")
    adopt = (metadata.get("annotations") or {}).get(ADOPT) == "true"
    mark = Mark(goal.commit, metadata.get("generation", 0), *state.spec.seen, adopt)
    home = Home(metadata["uid"], key.namespace, key.name, spec.target_namespace)
    try:
        readied = await synced.readying.ready(spec, home, state.repository, mark, goal.change_set, Readied(), ever, synced.claimed)
    except (RenderError, GitFailure) as error:
        raise ComposeError(refusal(goal.commit, error)[1]) from None
    assert readied.prepared is not None
    return readied.prepared
