"""What is legal in a pod, and in a template of pods, and yet probably not meant; worded as kube-apiserver words it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from homeostat.api.builtin.declare import SpecAndStatus
from homeostat.api.resource import Object, at
from homeostat.api.wording import json_text
from homeostat.model.names import dns_label_problems
from homeostat.model.quantity import parse_quantity

_NANOS = 10**9
_RENAMED = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
}
"""Labels of nodes that have another name now, and since when."""


class Templated(SpecAndStatus):
    """Rules of the kinds that make pods after a template."""

    pod_spec: tuple[str, ...] = ("spec", "template", "spec")
    names_pods = False
    """Whether pods are called by the name of the object."""

    def warnings(self, obj: Object, old: Object | None) -> Sequence[str]:
        if old is not None and old["metadata"].get("generation") == obj["metadata"].get("generation"):
            return ()
        named = name_warnings(obj, "Pod names and hostnames") if self.names_pods and old is None else []
        return named + pod_warnings(at(obj, *self.pod_spec) or {}, ".".join(self.pod_spec))


def name_warnings(obj: Object, use: str) -> list[str]:
    """A name that is a hostname too should be one."""
    problems = dns_label_problems(obj["metadata"].get("name") or "")
    if not problems:
        return []
    why = "which can result in surprising behavior; a DNS label is recommended"
    return [f"metadata.name: this is used in {use}, {why}: [{' '.join(problems)}]"]


def pod_warnings(spec: Mapping[str, Any], path: str) -> list[str]:
    """Of a pod spec that stands at `path`."""
    found = [
        f'{path}.nodeSelector[{label}]: deprecated since {_RENAMED[label][0]}; use "{_RENAMED[label][1]}" instead'
        for label in sorted(spec.get("nodeSelector") or ())
        if label in _RENAMED
    ]
    found += _doubles(spec, "hostAliases", "ip", path)
    found += _doubles(spec, "imagePullSecrets", "name", path)
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            found.append(f'{path}.imagePullSecrets[{index}].name: invalid empty name ""')
    found += _fractions(spec.get("overhead"), f"{path}.overhead")
    for container, where in _containers(spec, path):
        resources = container.get("resources") or {}
        for part in ("limits", "requests"):
            found += _fractions(resources.get(part), f"{where}.resources.{part}")
        found += _hidden(container.get("env") or (), f"{where}.env")
    found += _ports(spec, path)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        why = "must be >= 0; negative values are invalid and will be treated as 1"
        found.append(f"{path}.terminationGracePeriodSeconds: {why}")
    return found


def _containers(spec: Mapping[str, Any], path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield container, f"{path}.{group}[{index}]"


def _doubles(spec: Mapping[str, Any], group: str, field: str, path: str) -> list[str]:
    seen: set[str] = set()
    found = []
    for index, item in enumerate(spec.get(group) or ()):
        value = item.get(field) or ""
        if value in seen:
            found.append(f"{path}.{group}[{index}].{field}: duplicate {field} {json_text(value)}")
        seen.add(value)
    return found


def _fractions(amounts: Mapping[str, Any] | None, path: str) -> list[str]:
    """Bytes come whole."""
    found = []
    for name in ("memory", "ephemeral-storage"):
        amount = parse_quantity(amounts[name]) if amounts and name in amounts else None
        if amount is not None and amount.nanos % _NANOS:
            found.append(f'{path}[{name}]: fractional byte value "{amount}" is invalid, must be an integer')
    return found


def _hidden(env: Sequence[Mapping[str, Any]], path: str) -> list[str]:
    """A variable that is set again hides what was there before, unless its new value is made of the old one."""
    seen: set[str] = set()
    found = []
    for index, variable in enumerate(env):
        name, value = variable.get("name") or "", variable.get("value") or ""
        old = f"$({name})"
        if name in seen and (variable.get("valueFrom") is not None or value == old or old not in value):
            why = f"hides previous definition of {json_text(name)}, which may be dropped when using apply"
            found.append(f"{path}[{index}]: {why}")
        seen.add(name)
    return found


def _ports(spec: Mapping[str, Any], path: str) -> list[str]:
    """Ports that several containers, or one of them several times, want for themselves."""
    seen: dict[tuple[Any, Any], list[tuple[str, str, int]]] = {}
    found = []
    for container, where in _containers(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            here, ip, number = f"{where}.ports[{index}]", port.get("hostIP") or "", port.get("hostPort") or 0
            others = seen.setdefault((port.get("containerPort"), port.get("protocol")), [])
            for there, other_ip, other in others:
                if (ip, number) == (other_ip, other):
                    found.append(f"{here}: duplicate port definition with {there}")
                elif not number or not other:
                    found.append(f"{here}: overlapping port definition with {there}")
                elif number == other and bool(ip) != bool(other_ip):
                    found.append(f"{here}: dangerously ambiguous port definition with {there}")
            others.append((here, ip, number))
    return found
