"""From Puppet's report to a plan. All of it is pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import yaml

from homeostat.loop.fleet import Cause
from homeostat.loop.observation import ABSENT
from homeostat.providers.dryrun.plan import MASK, Action, Plan, Step, digest_of

_NO_THINGS = frozenset({"Schedule", "Filebucket", "Stage", "Class", "Whit"})
"""Types of resources that are about nothing on the host."""
_NOTHING = ("absent", "purged", None)

Clean = Callable[[Any], Any]


class _Loader(yaml.CSafeLoader):
    """Reads Ruby's objects as the maps that they are, and its symbols as words."""


def _map(loader: Any, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


_Loader.add_multi_constructor("!ruby/", _map)


def read_report(data: bytes) -> dict[str, Any]:
    """A report. ValueError where it is none."""
    try:
        found = yaml.load(data, Loader=_Loader)  # a safe loader, with two more tags
    except yaml.YAMLError as error:
        raise ValueError(f"the report cannot be read: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("resource_statuses"), dict):
        raise ValueError("the report is none")
    return found


def read_plan(report: Mapping[str, Any], root: str, key: bytes, clean: Clean) -> Plan:
    """What `--noop` said."""
    things = _things(report)
    steps = [_step(name, one, root, key, clean) for name, one in things if one.get("out_of_sync") and one.get("events")]
    drifted = {step.name: f"changed by others: {step.said}" for step in steps if step.cause is Cause.DRIFT}
    return Plan(tuple(steps), len([one for _, one in things if not one.get("skipped") and not _missing(one)]), drifted)


def failures(report: Mapping[str, Any], root: str) -> list[str]:
    """Resources that failed, each with its error, file and line."""
    failed = {name: one for name, one in _things(report) if one.get("failed") or one.get("failed_to_restart")}
    found = []
    for name, one in failed.items():
        said = [e["message"] for e in one.get("events") or () if e.get("status") == "failure"]
        found.append(f"{name} ({_where(one, root)}): {'; '.join(said) or 'it failed'}")
    return found


def complaints(lines: Iterable[Mapping[str, Any]], root: str) -> list[str]:
    """The errors of a log, for a run that came to no report. Those of fact gathering are about the host, not the manifest."""
    found = [one for one in lines if one.get("level") in ("err", "crit", "alert", "emerg") and one.get("source") != "Facter"]
    said = ((str(one.get("message", "")), _where(one, root) if one.get("file") else "") for one in found)
    return [f"{text} ({where})".replace(root.rstrip("/") + "/", "") if where else text.replace(root.rstrip("/") + "/", "") for text, where in said]


def _things(report: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(n, one) for n, one in report["resource_statuses"].items() if one.get("resource_type") not in _NO_THINGS]


def _missing(one: Mapping[str, Any]) -> bool:
    events = one.get("events") or ()
    return any(e.get("property") == "ensure" and e.get("previous_value") in _NOTHING for e in events)


def _where(one: Mapping[str, Any], root: str) -> str:
    file = str(one.get("file") or "").removeprefix(root.rstrip("/") + "/")
    return f"{file}:{one.get('line')}" if file else "the catalog"


def _step(name: str, one: Mapping[str, Any], root: str, key: bytes, clean: Clean) -> Step:
    values = tuple(_values(one, clean))
    action = _action(one)
    words = ", ".join(".".join(way) for way, *_ in values)
    said = f"{'change' if action == 'update' else action} {words} ({_where(one, root)})"
    events = [(e.get("property"), e.get("previous_value"), e.get("desired_value")) for e in one["events"]]
    cause = Cause.DRIFT if one.get("corrective_change") else None
    return Step(clean(name), action, said, values, cause, digest_of(key, events))


def _action(one: Mapping[str, Any]) -> Action:
    for event in one["events"]:
        if event.get("property") == "ensure":
            if event.get("previous_value") in _NOTHING:
                return "create"
            if event.get("desired_value") in _NOTHING:
                return "delete"
    return "update"


def _values(one: Mapping[str, Any], clean: Clean) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    for event in one["events"]:
        old, new = (_plain(event.get(name)) for name in ("previous_value", "desired_value"))
        if event.get("redacted") or "[redacted]" in (str(old), str(new)):
            old = new = MASK
        yield (str(event.get("property") or "it"),), clean(old), clean(new)


def _plain(value: Any) -> Any:
    """A value as people know it: digests of contents come in base64, some of them, and nothing as `absent`."""
    if value in _NOTHING:
        return ABSENT
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str) and value.startswith("e3"):
        try:
            text = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return value
        return text if text.startswith("{") else value
    return value
