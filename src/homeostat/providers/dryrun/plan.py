"""A dry run as data: what a tool would do, what that counts for, and the same as a state and a difference that the loop understands.

All of it is pure. Values in it are already fit to be shown: who reads a tool's output masks what is secret first.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
import orjson

from homeostat.loop.diff import Change, Diff, Path, whole_cause
from homeostat.loop.fleet import Cause, Parts
from homeostat.loop.observation import ABSENT
from homeostat.model.kinds import Column, Spec

MASK = "(sensitive)"
SHOWN_MOST = 200
"""Steps, drifted things and outputs that a status shows. The plan's digest is over all of them."""

Action = Literal["create", "update", "replace", "delete", "none"]
"""What a step does to a thing. `none`: only the tool's own books change, as when an output does or a thing is renamed."""


class Step(msgspec.Struct, frozen=True):
    """One thing that a tool would touch."""

    name: str
    """As the tool names it: an address, a resource, a task on a host."""
    action: Action
    said: str
    """What would be done, in a few words."""
    values: tuple[tuple[tuple[str, ...], Any, Any], ...] = ()
    """What becomes what: the way to a value, the old and the new one, ABSENT where there is none."""
    cause: Cause | None = None
    """Where the tool tells why; else it is told by whether the code or its variables are other than when all was well last."""
    digest: bytes = b""
    """Of everything that makes this step what it is, secrets included."""


class Plan(msgspec.Struct, frozen=True):
    """What one dry run said."""

    steps: tuple[Step, ...] = ()
    size: int = 0
    """How many things there are now, as the tool counts them: limits are a share of it."""
    drifted: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What was found changed by others since the tool ran last, whether or not something is done about it."""
    outputs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    unchecked: int = 0
    """Steps that the tool cannot try without doing them."""
    unhealthy: str = ""
    """Why what is as declared does not do its work, where the tool checks that."""

    def count(self, *actions: Action) -> int:
        return sum(1 for step in self.steps if step.action in actions)

    @property
    def parts(self) -> Parts:
        """What guards count. What is replaced is destroyed first, and so it counts."""
        changes, deletions = self.count("update"), self.count("delete", "replace")
        return Parts(max(self.size, changes + deletions), self.count("create"), changes, deletions)

    def lost(self, had: int) -> int:
        """How many of what it would make it had when all was well last, and does not know to have been taken away."""
        unexplained = sum(1 for step in self.steps if step.action == "create" and step.name not in self.drifted)
        return max(0, min(had - self.size, unexplained))

    def digest(self, key: bytes, inputs: str) -> str:
        """The name of exactly this plan, made of these inputs; empty where there is nothing to do."""
        if not self.steps:
            return ""
        made = hmac.new(key, inputs.encode(), hashlib.sha256)
        for step in sorted(self.steps, key=lambda one: one.name):
            made.update(f"\0{step.name}\0{step.action}\0".encode() + step.digest)
        return made.hexdigest()[:32]


class PlanState(Spec):
    """What is seen of a module: what is left to do."""

    pending: dict[str, str]
    """By the name of each thing that is not as declared, what would be done."""
    plan: str | None = None
    """The name of exactly this plan."""
    add: int | None = None
    change: int | None = None
    destroy: int | None = None
    size: int | None = None
    """Things that there are now."""
    had: int | None = None
    """Things that there were when nothing was left to do last."""
    drifted: dict[str, str] | None = None
    """What others changed since the last run."""
    outputs: dict[str, Any] | None = None
    unchecked: int | None = None


SHOWN = ("pending", "plan", "add", "change", "destroy", "size", "had", "drifted", "outputs", "unchecked")
"""Fields of the state that a status shows."""
COLUMNS = tuple(Column(name.capitalize(), f".status.{name}", "integer") for name in ("add", "change", "destroy"))
"""What `get` prints of a module."""


def state_of(plan: Plan, digest: str, had: int = 0) -> PlanState:
    """A plan as the loop compares and shows it. `had`: things that there were when nothing was left to do last."""
    parts = plan.parts
    return PlanState(
        pending=_few({step.name: step.said for step in plan.steps}),
        plan=digest,
        add=plan.count("create", "replace"),
        change=parts.changes,
        destroy=parts.deletions,
        size=plan.size,
        had=had if plan.steps else plan.size,
        drifted=_few(plan.drifted) or None,
        outputs=dict(list(plan.outputs.items())[:SHOWN_MOST]) or None,
        unchecked=plan.unchecked or None,
    )


def wanted_of(state: PlanState) -> PlanState:
    """What will be seen once a plan is carried out: nothing is left of it."""
    return PlanState(pending=dict.fromkeys(state.pending, ""))


def difference(plan: Plan, diff: Diff, settled: bool) -> Diff:
    """The loop's difference with a plan's own changes in it. `settled`: with the same code and variables all was well before."""
    causes = [step.cause or (Cause.DRIFT if settled else Cause.INTENT) for step in plan.steps]
    changes = (c for step, cause in zip(plan.steps, causes, strict=True) for c in _changes(step, cause))
    found = tuple(change for change, _ in zip(changes, range(SHOWN_MOST), strict=False))
    return Diff(diff.op, found, whole_cause(causes)) if plan.steps else diff


def _changes(step: Step, cause: Cause) -> Iterator[Change]:
    path: Path = ("resources", step.name)
    if step.action == "create":
        yield Change(path, ABSENT, _document(step.values, new=True) or step.said, cause)
    elif step.action == "delete":
        yield Change(path, _document(step.values, new=False) or step.said, ABSENT, cause)
    elif step.action == "replace" or not step.values:
        yield Change(path, "as it is", step.said, cause)
    if step.action in ("update", "replace", "none"):
        for way, old, new in step.values:
            yield Change((*path, *way), old, new, cause)


def _document(values: Sequence[tuple[tuple[str, ...], Any, Any]], *, new: bool) -> Any:
    """What there is of a thing on one side, as one value; empty where nothing is known of it."""
    found = {".".join(way): value for way, *both in values if (value := both[new]) is not ABSENT}
    whole = found.get("", found)
    return {name: value for name, value in whole.items() if value is not None} if isinstance(whole, Mapping) else whole


def _few(found: Mapping[str, str]) -> dict[str, str]:
    few = dict(sorted(found.items())[:SHOWN_MOST])
    if len(found) > SHOWN_MOST:
        few["…"] = f"and {len(found) - SHOWN_MOST} more"
    return few


def changed_values(old: Any, new: Any, way: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any, Any]]:
    """Where two documents differ, map by map; lists are one value each."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        names = {**old, **new}
        return [c for n in names for c in changed_values(old.get(n, ABSENT), new.get(n, ABSENT), (*way, str(n)))]
    old, new = (ABSENT if old is None else old), (ABSENT if new is None else new)
    return [] if old is new or old == new else [(way, old, new)]


def digest_of(key: bytes, *things: Any) -> bytes:
    """A digest that tells nothing of short secrets to who has not the key."""
    return hmac.new(key, orjson.dumps(things, option=orjson.OPT_SORT_KEYS, default=str), hashlib.sha256).digest()
