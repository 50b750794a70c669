"""What a person means by a scope: a fleet, a policy, a kind, or one thing; and the policies that guard it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from homeostat.cli.kinds import Kind, find_kind, served_kinds
from homeostat.guards.gate import DEFAULT
from homeostat.guards.keeper import built_in_policy, is_built_in
from homeostat.guards.policy import GROUP, KIND, VERSION
from homeostat.loop.children import CHILDREN
from homeostat.loop.compose import read_kinds
from homeostat.model.errors import ApiError
from homeostat.model.protocol import CHILD_KINDS

if TYPE_CHECKING:
    from homeostat.client import Client

Object = dict[str, Any]

TRIES = 10
"""How often a change is tried again that somebody else's write overtook: the loop reports on policies all the time."""


class Scope(msgspec.Struct):
    """Policies, as objects; the kind and name where it is not all that they guard."""

    text: str
    policies: list[Object]
    kind: Kind | None = None
    name: str = ""
    kinds: list[Kind] = msgspec.field(default_factory=list)  # all that the loop keeps
    all: Iterable[Object] = ()  # every policy there is

    def guarded(self) -> list[Kind]:
        """The kinds that it is about."""
        if self.kind is not None:
            return [self.kind]
        named = {name for policy in self.policies for name in policy["spec"].get("fleet", {}).get("kinds") or ()}
        return [kind for kind in self.kinds if kind.name in named]

    def composers(self) -> list[Kind]:
        """Kinds that only declare others: what is guarded may be theirs."""
        names = {policy["metadata"]["name"] for policy in self.all}
        return [kind for kind in self.kinds if CHILDREN + kind.name in names]

    @property
    def guarded_as(self) -> str:
        """As what the guards know the kind: of one that only declares others, what it declares."""
        assert self.kind is not None
        return CHILDREN + self.kind.name if self.kind in self.composers() else self.kind.name

    def elsewhere(self) -> list[Object]:
        """Defaults of its kinds beside its own policies: where those step aside, their freezes do not."""
        mine = {policy["metadata"]["name"] for policy in self.policies}
        kinds = {name for policy in self.policies for name in policy["spec"].get("fleet", {}).get("kinds") or ()}
        return [policy for policy in self.all if is_built_in(policy) and policy["metadata"]["name"] in kinds - mine]


async def find_scope(client: Client, text: str) -> Scope:
    """`default/files.homeostat.dev` and `web+prod` as fleets are called, `web` a policy, `files` a kind, `files/motd` a thing.

    A kind that the loop keeps has at least the default policy, which is made here where nothing has made it yet. One that only declares
    others is guarded by what guards those.
    """
    policies = {policy["metadata"]["name"]: policy for policy in await _policies(client)}
    kinds = [kind for kind in await served_kinds(client) if kind.kept]
    names = text.removeprefix(DEFAULT).split("+")
    if all(name in policies for name in names):
        return Scope(text, [policies[name] for name in names], kinds=kinds, all=policies.values())
    word, _, name = text.removeprefix(DEFAULT).partition("/")
    kind = find_kind(kinds, word)
    if kind is None:
        raise click.ClickException(_unknown(text, word, [*policies, *(w for k in kinds for w in k.words)]))
    found = Scope(text, [], kind, name, kinds, policies.values())
    found.policies = _guarding(found.guarded_as, found.all)
    return found


def _guarding(kind: str, policies: Iterable[Object]) -> list[Object]:
    found = [policy for policy in policies if kind in (policy["spec"].get("fleet", {}).get("kinds") or ())]
    return found if any(policy["metadata"]["name"] == kind for policy in policies) else [*found, built_in_policy(kind)]


async def guarding_children(client: Client, scope: Scope) -> list[Object]:
    """Where a scope is a kind that only declares others: the policies of those that no loop keeps, which guard them as what they are."""
    if scope.kind is None or scope.guarded_as == scope.kind.name:
        return []
    definition = await client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").get(scope.kind.name)
    ever = (definition["metadata"].get("annotations") or {}).get(CHILD_KINDS, "").split(",")
    for parent in await scope.kind.on(client).list():
        ever += ((parent.get("status") or {}).get("inventory") or {}).get("kinds") or ()
    named = read_kinds(ever)
    kinds = [kind.name for kind in await served_kinds(client) if (kind.api_version, kind.kind) in named and not kind.kept]
    mine = {policy["metadata"]["name"] for policy in scope.policies}
    found = {policy["metadata"]["name"]: policy for kind in kinds for policy in _guarding(kind, scope.all)}
    return [policy for name, policy in found.items() if name not in mine]


async def _policies(client: Client) -> list[Object]:
    try:
        return await client.kind(f"{GROUP}/{VERSION}", KIND).list()
    except ApiError as error:
        if error.code == 404:
            raise click.ClickException(
                "no loop has run on this server yet, so there is nothing to guard: start `homeostat controllers`"
            ) from None
        raise


def _unknown(text: str, word: str, words: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word.lower(), words, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else " `homeostat get guardpolicies` shows the policies there are."
    return f"'{text}' is no policy, and no kind that the loop keeps.{hint}"


async def change_policy(client: Client, policy: Object, change: Callable[[Object], Object]) -> Object:
    """Changes fields of a policy's spec, by what is there now; makes the policy where it is not there yet."""
    from homeostat.insight.planning import MANAGER

    handle = client.kind(f"{GROUP}/{VERSION}", KIND)
    name = policy["metadata"]["name"]
    if "uid" not in policy["metadata"]:
        made = {**policy, "spec": {**policy["spec"], **change(policy["spec"])}}
        return await handle.create(made, field_manager=MANAGER)
    for _ in range(TRIES):
        metadata = {"resourceVersion": policy["metadata"]["resourceVersion"]}
        try:
            return await handle.patch(
                name, {"metadata": metadata, "spec": change(policy["spec"])}, field_manager=MANAGER
            )
        except ApiError as error:
            if error.reason != "Conflict":
                raise
        policy = await handle.get(name)
    raise click.ClickException(f"GuardPolicy {name} keeps changing under our hands: try again")
