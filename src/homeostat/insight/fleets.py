"""The ledger and the guards, rebuilt from what the API shows: guards are pure functions, so their decisions can be replayed here.

What only the engine knows (waves under way, breakers) is not in it; what the engine said on each object is, and is what counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from homeostat.client.kinds import Kind, served_kinds
from homeostat.guards.gate import DEFAULT, PolicyGate
from homeostat.guards.keeper import is_built_in, readable_policy
from homeostat.guards.policy import GROUP, KIND, VERSION
from homeostat.guards.returns import kept_returns, taken
from homeostat.insight.loops import NOBODY, Keeping, loops_of
from homeostat.insight.stock import companions, needs_companions, take_stock
from homeostat.loop.changesets import last_write
from homeostat.loop.children import CHILDREN
from homeostat.loop.election import NAMESPACE
from homeostat.loop.fleet import Cause, Drift, Fleet, Halt, Hold, Op, Parts, Phase, Ref
from homeostat.model.clock import parse_time
from homeostat.model.conditions import find_condition
from homeostat.model.errors import ApiError

if TYPE_CHECKING:
    from homeostat.client import Client

Object = dict[str, Any]

_PHASES = {"Acting": Phase.ACTING, "Retrying": Phase.FAILED}


class View(msgspec.Struct):
    """Fleets, their policies and their resources at one moment (`now`, wall seconds)."""

    gate: PolicyGate
    now: float
    policies: dict[str, Object] = msgspec.field(default_factory=dict)
    fleets: dict[str, Fleet] = msgspec.field(default_factory=dict)
    objects: dict[Ref, Object] = msgspec.field(default_factory=dict)
    children: dict[Ref, Object] = msgspec.field(default_factory=dict)  # what Syncs say is open of the objects that they declare
    uncomposed: dict[Ref, str] = msgspec.field(default_factory=dict)  # of what only declares others: where nobody can tell what, or that is refused, and why
    kinds: dict[str, Kind] = msgspec.field(default_factory=dict)
    loops: dict[str, Keeping] = msgspec.field(default_factory=dict)  # by kind: who keeps it, as far as that may be read

    def fleet(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Fleet:
        """The fleet of a resource."""
        name = self.gate.fleet_of(kind, namespace, labels)
        if name not in self.fleets:
            self.fleets[name] = Fleet(name, 0, passes_begun=1, passes_done=1, returned=self.gate.returned.get(name, {}))
            self.gate.know(self.fleets[name])
        return self.fleets[name]

    def fleet_of(self, ref: Ref) -> Fleet:
        """The fleet of a resource that is there."""
        obj = self.at(ref)
        return self.fleet(obj.get("guardedAs") or self.guarded_as(ref.kind), ref.namespace, obj["metadata"].get("labels") or {})

    def guarded_as(self, kind: str) -> str:
        """As what the guards know a kind: one that only declares others is not judged itself, but what it declares."""
        return CHILDREN + kind if self.composes(kind) else kind

    def composes(self, kind: str) -> bool:
        """Whether things of this kind only declare others, which are guarded each as one of its own kind."""
        return CHILDREN + kind in self.gate.built_in

    def at(self, ref: Ref) -> Object:
        """A resource, or what a Sync says of one of its objects."""
        return self.objects[ref] if ref in self.objects else self.children[ref]

    def names(self, ref: Ref) -> tuple[str, str]:
        """Kind and name for people."""
        obj = self.children.get(ref)
        return (self.kinds[ref.kind].kind, ref.name) if obj is None else (obj["kind"], obj["metadata"]["name"])

    def loop(self, kind: str) -> Keeping:
        """What is known of the loop that keeps a kind."""
        return self.loops.get(kind, NOBODY)

    @property
    def unkept(self) -> dict[str, Keeping]:
        """The kinds of what is there that a loop kept, and none does at present."""
        kinds = sorted({ref.kind for ref in self.objects})
        return {kind: keeping for kind in kinds if (keeping := self.loop(kind)) is not NOBODY and not keeping.there}

    def policies_of(self, fleet: Fleet) -> list[Object]:
        """The policies that guard a fleet, as objects; the default of its kind where no other does."""
        names = self.gate.names(fleet) or tuple(fleet.name.removeprefix(DEFAULT).split("+"))
        return [self.policies[name] for name in names if name in self.policies]

    def halts(self, fleet: Fleet) -> list[Halt]:
        """What the engine says halts a fleet now."""
        found = {}
        for policy in self.policies_of(fleet):
            for said in (policy.get("status") or {}).get("halts") or ():
                if said.get("fleet") not in (None, "", fleet.name):
                    continue  # the policy guards others, too
                halt = Halt(
                    said["guard"],
                    said["reason"],
                    parse_time(said["since"]),
                    said.get("plan", ""),
                    said.get("whatToDo", ""),
                    said.get("changeSet", ""),
                )
                found[halt.guard, halt.plan, halt.change_set] = halt
        return list(found.values())

    def asks(self, fleet: Fleet) -> dict[Hold, int]:
        """What the engine says waits for a person's word beside what is halted, and how many each."""
        said = [one for policy in self.policies_of(fleet) for one in (policy.get("status") or {}).get("asks") or ()]
        return {Hold(one["guard"], one["reason"], plan=one["plan"]): one["count"] for one in said if one.get("fleet") in ("", fleet.name)}

    def open(self) -> list[tuple[Ref, Drift]]:
        """Every open difference, by kind and name."""
        return sorted((ref, drift) for fleet in self.fleets.values() for ref, drift in fleet.drifts.items())


async def look(client: Client, kinds: Iterable[Kind]) -> View:
    """Reads policies and the resources of these kinds."""
    policies = await _policies(client)
    view = View(PolicyGate(), client.now(), {policy["metadata"]["name"]: policy for policy in policies})
    for name, policy in view.policies.items():
        known = view.gate.built_in if is_built_in(policy) else view.gate.policies
        known[name] = readable_policy(policy)
        for one in kept_returns(policy):
            view.gate.returned.setdefault(one.fleet, {})[one.change_set] = taken(one)
    chosen = list(kinds)
    if needs_companions(view, chosen):
        chosen += companions(view, chosen, await served_kinds(client))
    listed = await asyncio.gather(*(kind.on(client).list() for kind in chosen))
    view.loops = await _loops(client, view.now)
    for kind, objects in zip(chosen, listed, strict=True):
        view.kinds[kind.name] = kind
        for obj in objects:
            _enter(view, kind, obj)
    for fleet in view.fleets.values():
        take_stock(view, fleet)
    return view


def _enter_children(view: View, kind: Kind, parent: Object) -> None:
    """What a Sync says is open of what it declares, as the engine names it: so plans have the names that approvals are for."""
    for line in ((parent.get("status") or {}).get("open") or {}).get("objects") or ():
        namespace, resource = line.get("namespace", ""), line["resource"]
        ref = Ref(CHILDREN + kind.name, namespace, f"{resource}/{line['name']}", parent["metadata"]["uid"])
        named = {"namespace": namespace, "name": line["name"], "labels": line.get("labels") or {}}
        view.children[ref] = obj = {
            "apiVersion": line["apiVersion"],
            "kind": line["kind"],
            "metadata": named,
            "status": {name: line[name] for name in ("drift", "conditions") if name in line},
            "guardedAs": CHILDREN + kind.name if line.get("kept") else resource,
            "declaredBy": f"{kind.kind} {parent['metadata'].get('namespace', '')}/{parent['metadata']['name']}",
        }
        fleet = view.fleet_of(ref)
        told = [(policy.get("status") or {}).get("fleetSize", 0) for policy in view.policies_of(fleet)]
        fleet.size = max([fleet.size, *told])
        _enter_standing(fleet, ref, obj)


def halted_elsewhere(view: View) -> None:
    """Enters fleets that the engine says are halted, or ask for a word, and of which no resource was looked at: what composers declare is
    only there."""
    for policy in view.policies.values():
        status = policy.get("status") or {}
        for said in (*(status.get("halts") or ()), *(status.get("asks") or ())):
            name = said.get("fleet") or DEFAULT + policy["metadata"]["name"]
            if name not in view.fleets:
                view.fleets[name] = Fleet(name, status.get("fleetSize", 0), passes_begun=1, passes_done=1)


async def _loops(client: Client, now: float) -> dict[str, Keeping]:
    try:
        return loops_of(await client.kind("coordination.k8s.io/v1", "Lease").list(namespace=NAMESPACE), now)
    except ApiError:
        return {}


async def _policies(client: Client) -> Sequence[Object]:
    try:
        return await client.kind(f"{GROUP}/{VERSION}", KIND).list()
    except ApiError as error:
        if error.code == 404:  # no loop has ever run on this server
            return []
        raise


def ref_of(kind: Kind, obj: Object) -> Ref:
    """A resource as the ledger names it."""
    metadata = obj["metadata"]
    return Ref(kind.name, metadata.get("namespace", ""), metadata["name"], metadata.get("uid", ""))


def _enter(view: View, kind: Kind, obj: Object) -> None:
    ref = ref_of(kind, obj)
    view.objects[ref] = obj
    fleet, composes = view.fleet_of(ref), view.composes(kind.name)
    fleet.size += not composes  # in the fleet of a composer is what its parents declare
    _enter_standing(fleet, ref, obj)
    if composes:
        _enter_children(view, kind, obj)
        if (why := _stuck(obj)) is not None:
            view.uncomposed[ref] = why


def _stuck(parent: Object) -> str | None:
    """Why what a thing declares now is not even tried: it cannot be composed, its source cannot be read, its commit is refused. None where it
    is: what is the matter with its children has reasons of its own."""
    ready, degraded = find_condition(parent, "Ready") or {}, find_condition(parent, "Degraded") or {}
    stuck = degraded.get("status") == "True" and degraded.get("reason") == ready.get("reason")
    return str(ready.get("message", "")) if stuck else None


def _enter_standing(fleet: Fleet, ref: Ref, obj: Object) -> None:
    ready = find_condition(obj, "Ready")
    if ready is not None and ready.get("reason") == "Unreadable":
        fleet.unknown[ref] = ready.get("message", "")
    elif ready is not None and ready.get("reason") == "Unhealthy":
        fleet.unhealthy[ref] = last_write(obj["metadata"]).name
    drift = drift_of(ref, obj)
    if drift is not None:
        fleet.drifts[ref] = drift


def drift_of(ref: Ref, obj: Object) -> Drift | None:
    """The ledger's line of a resource, as its status has it."""
    status = obj.get("status") or {}
    line = status.get("drift")
    if not line:
        return None
    hold = hold_of(obj)
    reconciling = find_condition(obj, "Reconciling") or {}
    return Drift(
        ref=ref,
        op=Op(line["op"]),
        cause=Cause(line["cause"]),
        since=parse_time(line["since"]),
        made_from=line.get("madeFrom", ""),
        generation=obj["metadata"].get("generation", 0),
        paths=tuple(line.get("paths") or ()),
        changes=tuple(line.get("changes") or ()),
        owned=hold is None or hold.guard != "ownership",
        change_set=line.get("changeSet", ""),
        by=tuple(line.get("by") or ()),
        phase=_PHASES.get(reconciling.get("reason", ""), Phase.OPEN),
        attempts=line.get("attempts", 0),
        failures=line.get("failures", 0),
        reversals=tuple(parse_time(t) for t in status.get("reversals") or ()),
        approved=line.get("approved", ""),
        parts=Parts(**line["parts"]) if line.get("parts") else None,
    )


def hold_of(obj: Object) -> Hold | None:
    """Which guard holds a resource, and why, as its conditions say it."""
    condition = find_condition(obj, "Reconciling")
    if condition is None or condition.get("reason") != "Held":
        return None
    guard, _, reason = condition.get("message", "").removeprefix("held by ").partition(": ")
    return Hold(guard, reason)
