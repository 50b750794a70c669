"""From what our callback writes to a plan. All of it is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from homeostat.loop.observation import ABSENT
from homeostat.providers.dryrun.plan import Action, Plan, Step, changed_values, digest_of

_NO_THINGS = frozenset({"gather_facts", "setup", "meta", "debug", "set_fact", "assert", "include_tasks", "import_tasks", "include_role"})
"""Actions that are about nothing in the world."""
_UNTRIED = "if not in check mode"

Line = Mapping[str, Any]
Clean = Callable[[Any], Any]


def read_plan(lines: Sequence[Line], root: str, key: bytes, clean: Clean) -> Plan:
    """What a check said. Each task on each host is a thing; those that are skipped are none."""
    tried = [line for line in lines if line["how"] in ("ok", "ignored") and _plain(line["action"]) not in _NO_THINGS]
    names = Counter(_name(line) for line in tried)
    steps = []
    for line in tried:
        if line["changed"]:
            name = _name(line)
            if names[name] > 1:
                name += f" ({where(line, root)})"
            steps.append(_step(clean(name), line, root, key, clean))
    untried = sum(1 for line in lines if line["how"] == "skipped" and _UNTRIED in line["message"])
    return Plan(tuple(_apart(steps)), len(tried), unchecked=untried)


def failures(lines: Iterable[Line], root: str) -> list[str]:
    """What went wrong, by host and task, with file and line."""
    found = [line for line in lines if line["how"] in ("failed", "unreachable")]
    return [f"{line['host']}: {line['task']} ({where(line, root)}): {line['message'] or line['how']}" for line in found]


def where(line: Line, root: str) -> str:
    """File and line of a task, inside of its source."""
    return str(line["where"]).removeprefix(root.rstrip("/") + "/")


def _name(line: Line) -> str:
    return f"{line['host']}: {line['task']}"


def _apart(steps: Iterable[Step]) -> list[Step]:
    """Steps that a loop or an include names alike get numbers."""
    seen: Counter[str] = Counter()
    found = []
    for step in steps:
        seen[step.name] += 1
        name = step.name if seen[step.name] == 1 else f"{step.name} #{seen[step.name]}"
        found.append(Step(name, step.action, step.said, step.values, step.cause, step.digest))
    return found


def _plain(action: str) -> str:
    return action.rpartition(".")[2]


def _step(name: str, line: Line, root: str, key: bytes, clean: Clean) -> Step:
    diffs = [diff for diff in line["diff"] or () if isinstance(diff, Mapping)]
    both = [(diff.get("before"), diff.get("after")) for diff in diffs]
    values = [change for before, after in both for change in _values(before, after)]
    action = _action(line, diffs)
    said = f"{'change' if action == 'update' else action} by {_plain(line['action'])} ({where(line, root)})"
    told = tuple((way, clean(old), clean(new)) for way, old, new in values)
    return Step(name, action, said, told, None, digest_of(key, line["action"], line["arguments"], both))


def _values(before: Any, after: Any) -> list[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return changed_values(before, after)
    old, new = (ABSENT if value in (None, "") else value for value in (before, after))
    return [] if old == new else [(("content",), old, new)]


def _action(line: Line, diffs: Sequence[Mapping[str, Any]]) -> Action:
    """As a change, unless it is sure that something is made that was not there, or taken away."""
    if line["arguments"].get("state") == "absent" or any(_state(diff, "after") == "absent" for diff in diffs):
        return "delete"
    fresh = [_state(diff, "before") == "absent" or _new_file(diff) for diff in diffs]
    return "create" if fresh and all(fresh) else "update"


def _state(diff: Mapping[str, Any], side: str) -> Any:
    found = diff.get(side)
    return found.get("state") if isinstance(found, Mapping) else None


def _new_file(diff: Mapping[str, Any]) -> bool:
    return "after_header" in diff and "before_header" not in diff and diff.get("before") in ("", None)
