"""From what Terraform prints to a plan, and from its diagnostics to words for people. All of it is pure.

Terraform marks what is sensitive beside each value (`before_sensitive`, `after_sensitive`); that is masked here. Values of Secrets that a
module does not mark are blotted out by who calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from homeostat.loop.fleet import Cause
from homeostat.loop.observation import ABSENT
from homeostat.providers.dryrun.plan import MASK, Action, Plan, Step, changed_values, digest_of

LATER = "(known after apply)"
STALE = "Saved plan is stale"
LOCKED = "Error acquiring the state lock"
_OTHERS_LOCK = re.compile(r"already locked: ID=(\S+)")
_ACTIONS: dict[tuple[str, ...], tuple[Action, str]] = {
    ("create",): ("create", "create"),
    ("update",): ("update", "update in place"),
    ("delete",): ("delete", "destroy"),
    ("delete", "create"): ("replace", "destroy, then create anew"),
    ("create", "delete"): ("replace", "create anew, then destroy"),
    ("forget",): ("none", "forget, and leave it as it is"),
}

Clean = Callable[[Any], Any]


def read_plan(shown: Mapping[str, Any], key: bytes, clean: Clean) -> Plan:
    """What `terraform show -json` says of a saved plan. `clean` takes further secrets out of what is shown."""
    drifted = {entry["address"]: entry["change"] for entry in shown.get("resource_drift") or ()}
    steps = [*_resources(shown, drifted, key, clean), *_outputs(shown, key, clean)]
    prior = ((shown.get("prior_state") or {}).get("values") or {}).get("root_module") or {}
    return Plan(
        tuple(steps),
        _managed(prior),
        {address: _drift_words(change, clean) for address, change in drifted.items()},
        _known_outputs(shown, clean),
        unhealthy="; ".join(_failing(shown)),
    )


def _resources(shown: Mapping[str, Any], drifted: Mapping[str, Any], key: bytes, clean: Clean) -> Iterator[Step]:
    for entry in shown.get("resource_changes") or ():
        if entry.get("mode", "managed") != "managed":
            continue  # what is only read follows from what is done
        change, address = entry["change"], entry["address"]
        if "deposed" in entry:
            address += f" (deposed {entry['deposed']})"
        action, said = _ACTIONS.get(tuple(change["actions"]), ("none", ""))
        if not said and entry.get("previous_address"):
            said = f"rename from {entry['previous_address']}"
        elif not said and change.get("importing"):
            said = "import"
        elif action == "replace" and (paths := [".".join(map(str, p)) for p in change.get("replace_paths") or ()]):
            said += f", for {', '.join(paths)} cannot be changed in place"
        if said:
            yield Step(address, action, said, _values(change, clean), _cause(change, drifted.get(entry["address"])), _digest(change, key))


def _outputs(shown: Mapping[str, Any], key: bytes, clean: Clean) -> Iterator[Step]:
    for name, change in (shown.get("output_changes") or {}).items():
        if change["actions"] != ["no-op"]:
            yield Step(f"output.{name}", "none", f"{change['actions'][-1]} the output", _values(change, clean), None, _digest(change, key))


def _digest(change: Mapping[str, Any], key: bytes) -> bytes:
    return digest_of(key, *(change.get(name) for name in ("actions", "before", "after", "after_unknown")))


def _cause(change: Mapping[str, Any], drift: Mapping[str, Any] | None) -> Cause | None:
    """Whether a step undoes what others did: then it leads back to what Terraform had made. None where it does not tell."""
    if drift is None:
        return None
    return Cause.DRIFT if drift["before"] == change["after"] or drift["after"] is None else Cause.BOTH


def _values(change: Mapping[str, Any], clean: Clean) -> tuple[tuple[tuple[str, ...], Any, Any], ...]:
    before = mask(change.get("before"), change.get("before_sensitive"))
    after = mask(later(change.get("after"), change.get("after_unknown")), change.get("after_sensitive"))
    found = changed_values(_map(before), _map(after))
    raw = changed_values(_map(change.get("before")), _map(later(change.get("after"), change.get("after_unknown"))))
    hidden = [(way, MASK, MASK) for way in dict.fromkeys(_above(way, before, after) for way, *_ in raw)]
    ways = {way for way, *_ in found}
    found += [one for one in hidden if one[0] and one[0] not in ways]
    return tuple((way, clean(old), clean(new)) for way, old, new in found)


def _map(value: Any) -> Any:
    return ABSENT if value is None else value if isinstance(value, Mapping) else {"value": value}


def _above(way: tuple[str, ...], before: Any, after: Any) -> tuple[str, ...]:
    """The way to the mask that hides a change; empty where none does."""
    for document in (before, after):
        for depth, name in enumerate(way):
            document = document.get(name) if isinstance(document, Mapping) else document
            if document == MASK:
                return way[: depth + 1]
    return ()


def mask(value: Any, marks: Any) -> Any:
    """A value with all that is marked as sensitive masked: `true` marks the whole, a document its parts."""
    if marks is True:
        return MASK if value is not None else None
    if isinstance(value, Mapping) and isinstance(marks, Mapping):
        return {name: mask(below, marks.get(name)) for name, below in value.items()}
    if isinstance(value, list) and isinstance(marks, list):
        return [mask(below, marks[at] if at < len(marks) else None) for at, below in enumerate(value)]
    return value


def later(value: Any, marks: Any) -> Any:
    """A value with a word in the place of all that is known only afterwards."""
    if marks is True:
        return LATER
    if isinstance(marks, Mapping) and isinstance(value, Mapping | None):
        known = dict(value or {})
        unknown = {name: later(known.get(name), below) for name, below in marks.items() if below not in (False, {}, [])}
        return {**known, **unknown} if known or unknown else value
    if isinstance(marks, list) and isinstance(value, list):
        return [later(below, marks[at] if at < len(marks) else None) for at, below in enumerate(value)]
    return value


def _drift_words(change: Mapping[str, Any], clean: Clean) -> str:
    if change.get("after") is None:
        return "destroyed by others"
    ways = [".".join(way) for way, *_ in changed_values(_map(change.get("before")), _map(change.get("after")))]
    return clean(f"changed by others: {', '.join(ways) or 'what is hidden'}")  # type: ignore[no-any-return]


def _managed(module: Mapping[str, Any]) -> int:
    own = sum(1 for one in module.get("resources") or () if one.get("mode") == "managed")
    return own + sum(_managed(child) for child in module.get("child_modules") or ())


def _known_outputs(shown: Mapping[str, Any], clean: Clean) -> dict[str, Any]:
    outputs = (shown.get("planned_values") or {}).get("outputs") or {}
    return {
        name: MASK if one.get("sensitive") else clean(one.get("value", LATER)) for name, one in sorted(outputs.items())
    }


def _failing(shown: Mapping[str, Any]) -> Iterator[str]:
    for check in shown.get("checks") or ():
        if check.get("status") in ("fail", "error"):
            said = [p["message"] for i in check.get("instances") or () for p in i.get("problems") or () if p.get("message")]
            yield f"{check['address']['to_display']} fails" + (f": {'; '.join(said)}" if said else "")


# Diagnostics


def errors_of(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The errors among the lines that a command with `-json` printed."""
    found = (line["diagnostic"] for line in lines if line.get("type") == "diagnostic" and "diagnostic" in line)
    return [one for one in found if one.get("severity") == "error"]


def words(diagnostic: Mapping[str, Any]) -> str:
    """A diagnostic in a line: what, why, in which file and line."""
    where = ""
    if span := diagnostic.get("range"):
        inside = (diagnostic.get("snippet") or {}).get("context")
        where = f" ({span['filename']}:{span['start']['line']}" + (f", in {inside})" if inside else ")")
    address = f"{diagnostic['address']}: " if diagnostic.get("address") else ""
    detail = " ".join((diagnostic.get("detail") or "").split())
    return f"{address}{diagnostic.get('summary', 'an error')}{where}" + (f": {detail}" if detail else "")


def lock_of(diagnostic: Mapping[str, Any]) -> dict[str, str]:
    """Who holds the lock of a state, as Terraform's message has it: ID, Who, Operation, Created.

    Some backends give the ID alone; what stands below it then is about the run that found it locked.
    """
    if (other := _OTHERS_LOCK.search(diagnostic.get("detail") or "")) is not None:
        return {"ID": other[1]}
    pairs = (line.strip().partition(":") for line in (diagnostic.get("detail") or "").splitlines())
    return {name: value.strip() for name, _, value in pairs if name in ("ID", "Path", "Operation", "Who", "Created")}
