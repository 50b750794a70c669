"""What limit ranges do to what is written: they fill in what containers leave unsaid, and refuse what is too small or too large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from homeostat.api.builtin.usage import Amounts, pod_amounts
from homeostat.api.resource import Object, at
from homeostat.model.quantity import Quantity, parse_quantity

_FILLED = "kubernetes.io/limit-ranger"
_GROUPS = (("containers", "container"), ("initContainers", "init container"))


def fill_in(pod: Object, ranges: Iterable[Object]) -> None:
    """Gives the containers of a pod the usual limits and requests of a namespace, and says so in an annotation."""
    for each in ranges:
        usual = [limit for limit in at(each, "spec", "limits") or () if limit.get("type") == "Container"]
        said = [
            text
            for group, noun in _GROUPS
            for container in at(pod, "spec", group) or ()
            for limit in usual
            for text in _fill(container, limit, noun)
        ]
        if said:
            annotations = pod["metadata"].get("annotations") or {}
            pod["metadata"]["annotations"] = {**annotations, _FILLED: f"LimitRanger plugin set: {'; '.join(said)}"}


def _fill(container: Object, limit: Mapping[str, Any], noun: str) -> Iterator[str]:
    resources = container["resources"] = dict(container.get("resources") or {})
    for part, source in (("requests", "defaultRequest"), ("limits", "default")):
        present = resources.get(part) or {}
        added = {name: amount for name, amount in (limit.get(source) or {}).items() if name not in present}
        if added:
            resources[part] = {**present, **added}
            yield f"{', '.join(sorted(added))} {part[:-1]} for {noun} {container.get('name', '')}"


def problems(kind: str, obj: Object, ranges: Iterable[Object]) -> str:
    """What the limit ranges of a namespace have against an object; empty where they have nothing."""
    for each in ranges:
        found = [text for limit in at(each, "spec", "limits") or () for text in _judged(kind, obj, limit)]
        if found:
            return found[0] if len(found) == 1 else f"[{', '.join(dict.fromkeys(found))}]"
    return ""


def _judged(kind: str, obj: Object, limit: Mapping[str, Any]) -> Iterator[str]:
    what = limit.get("type", "")
    if kind == "pods" and what == "Container":
        for group, _ in _GROUPS:
            for container in at(obj, "spec", group) or ():
                yield from _compared(what, limit, _read(container, "requests"), _read(container, "limits"))
    elif kind == "pods" and what == "Pod":
        spec = obj.get("spec") or {}
        yield from _compared(what, limit, pod_amounts(spec, "requests"), pod_amounts(spec, "limits"))
    elif kind == "persistentvolumeclaims" and what == "PersistentVolumeClaim":
        requests = _read(obj.get("spec") or {}, "requests")
        yield from _too_small(what, limit, requests, {})
        for name, bound in _bounds(limit, "max"):
            yield from _one_too_large(f"maximum {name} usage per {what} is {bound}", bound, requests.get(name), "request")


def _read(holder: Mapping[str, Any], part: str) -> Amounts:
    return {name: parse_quantity(amount) for name, amount in (at(holder, "resources", part) or {}).items()}


def _bounds(limit: Mapping[str, Any], part: str) -> list[tuple[str, Quantity]]:
    return [(name, parse_quantity(amount)) for name, amount in (limit.get(part) or {}).items()]


def _compared(what: str, limit: Mapping[str, Any], requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _too_small(what, limit, requests, limits)
    for name, bound in _bounds(limit, "max"):
        rule, asked = f"maximum {name} usage per {what} is {bound}", requests.get(name)
        refused = list(_one_too_large(rule, bound, limits.get(name), "limit"))
        if not refused and asked is not None:
            refused = list(_one_too_large(rule, bound, asked, "request"))
        yield from refused
    for name, bound in _bounds(limit, "maxLimitRequestRatio"):
        rule = f"{name} max limit to request ratio per {what} is {bound}"
        asked, most = requests.get(name), limits.get(name)
        if not asked:
            yield f"{rule}, but no request is specified or request is 0"
        elif not most:
            yield f"{rule}, but no limit is specified or limit is 0"
        elif most.nanos * 10**9 > bound.nanos * asked.nanos:
            yield f"{rule}, but provided ratio is {most.nanos / asked.nanos:f}"


def _too_small(what: str, limit: Mapping[str, Any], requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, bound in _bounds(limit, "min"):
        rule, asked, most = f"minimum {name} usage per {what} is {bound}", requests.get(name), limits.get(name)
        if asked is None:
            yield f"{rule}.  No request is specified"
        elif asked < bound:
            yield f"{rule}, but request is {asked}"
        elif most is not None and most < bound:
            yield f"{rule}, but limit is {most}"


def _one_too_large(rule: str, bound: Quantity, amount: Quantity | None, noun: str) -> Iterator[str]:
    if amount is None:
        yield f"{rule}.  No {noun} is specified"
    elif amount > bound:
        yield f"{rule}, but {noun} is {amount}"
