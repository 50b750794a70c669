"""What an object uses of what a quota limits: itself as one of its kind, and for some kinds what it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from homeostat.api.builtin.checks import COUNTED_KINDS
from homeostat.api.builtin.podrules import qos_class
from homeostat.api.resource import Object, at
from homeostat.model.quantity import Quantity, parse_quantity

Amounts = dict[str, Quantity]

NOTHING = Quantity(0)
_ONE = Quantity(10**9)
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_CLASS = ".storageclass.storage.k8s.io/"
_SAID = frozenset(("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"))
"""What every container of a pod must say where a quota limits it."""


def kind_of(name: str) -> str:
    """The kind (`pods`, `leases.coordination.k8s.io`) of the objects that use a resource of a quota."""
    if name.startswith("count/"):
        return name[len("count/") :]
    if name.startswith("services."):
        return "services"
    if name == "requests.storage" or _CLASS in name:
        return "persistentvolumeclaims"
    return name if name in COUNTED_KINDS else "pods"


def measured(kind: str) -> bool:
    """Whether objects of a kind use more than the place of one, so that a change of one may use more or less."""
    return kind in _MEASURES


def usage_of(kind: str, obj: Object) -> Amounts:
    """All that an object of a kind uses, by the names that quotas have for it."""
    used = {f"count/{kind}": _ONE}
    if measure := _MEASURES.get(kind):
        used |= measure(obj)
    elif kind in COUNTED_KINDS:
        used[kind] = _ONE
    return used


def _of_pod(pod: Object) -> Amounts:
    if at(pod, "status", "phase") in ("Succeeded", "Failed") or pod["metadata"].get("deletionTimestamp"):
        return {}
    spec = pod.get("spec") or {}
    return {"pods": _ONE, **_named(pod_amounts(spec, "requests"), pod_amounts(spec, "limits"))}


def _named(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Amounts:
    """What is asked for by the names of quotas: what a name says by itself is what is requested."""
    used: Amounts = {}
    for name, amount in requests.items():
        used[f"requests.{name}"] = amount
        if name in _COMPUTE or name.startswith("hugepages-"):
            used[name] = amount
    return used | {f"limits.{name}": amount for name, amount in limits.items() if name in _COMPUTE}


def pod_amounts(spec: Mapping[str, Any], part: str) -> Amounts:
    """What a pod needs of each resource, of its `requests` or its `limits`: that of its containers together, or of the one that
    prepares the others and needs more than they do."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        total = _sum(total, _amounts(container, part))
    beside: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container, part)
        if container.get("restartPolicy") == "Always":
            total, beside = _sum(total, own), _sum(beside, own)
            own = {}
        for name, amount in _sum(beside, own).items():
            most[name] = max(most.get(name, NOTHING), amount)
    for name, amount in most.items():
        total[name] = max(total.get(name, NOTHING), amount)
    total |= _amounts(spec, part)
    for name, amount in (spec.get("overhead") or {}).items():
        if part == "requests" or name in total:
            total[name] = total.get(name, NOTHING) + parse_quantity(amount)
    return total


def _amounts(holder: Mapping[str, Any], part: str) -> Amounts:
    return {name: parse_quantity(amount) for name, amount in (at(holder, "resources", part) or {}).items()}


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return one | {name: one.get(name, NOTHING) + amount for name, amount in other.items()}


def _of_service(service: Object) -> Amounts:
    spec = service.get("spec") or {}
    ports, balanced = spec.get("ports") or (), spec.get("type") == "LoadBalancer"
    on_nodes = 0
    if spec.get("type") == "NodePort" or (balanced and spec.get("allocateLoadBalancerNodePorts") is not False):
        on_nodes = len(ports)
    elif balanced:
        on_nodes = sum(1 for port in ports if port.get("nodePort"))
    return {
        "services": _ONE,
        "services.nodeports": Quantity(on_nodes * 10**9),
        "services.loadbalancers": _ONE if balanced else NOTHING,
    }


def _of_claim(claim: Object) -> Amounts:
    used = {"persistentvolumeclaims": _ONE}
    asked = at(claim, "spec", "resources", "requests", "storage")
    if asked is not None:
        used["requests.storage"] = parse_quantity(asked)
    name = at(claim, "spec", "storageClassName")
    return used | {f"{name}{_CLASS}{resource}": amount for resource, amount in used.items()} if name else used


_MEASURES: dict[str, Callable[[Object], Amounts]] = {
    "pods": _of_pod,
    "services": _of_service,
    "persistentvolumeclaims": _of_claim,
}


def unsaid(names: Iterable[str], pod: Object) -> str:
    """What the containers of a pod must say and do not, where a quota limits these resources; empty where they say it."""
    wanted = sorted(_SAID & set(names))
    missing: dict[str, list[str]] = {}
    for group in ("containers", "initContainers"):
        for container in at(pod, "spec", group) or ():
            said = _named(_amounts(container, "requests"), _amounts(container, "limits"))
            for name in wanted:
                if name not in said:
                    missing.setdefault(name, []).append(container.get("name", ""))
    listed = "; ".join(f"{name} for: {','.join(sorted(set(holders)))}" for name, holders in sorted(missing.items()))
    return f"must specify {listed}" if listed else ""


def in_scope(quota: Object, kind: str, obj: Object) -> bool:
    """Whether a quota is about an object at all: one with scopes is about the pods that are in all of them."""
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += at(spec, "scopeSelector", "matchExpressions") or []
    return not scopes or (kind == "pods" and all(_in_one(scope, obj) for scope in scopes))


def scoped(quota: Object) -> bool:
    """Whether a quota is about some objects of a kind only."""
    spec = quota.get("spec") or {}
    return bool(spec.get("scopes") or at(spec, "scopeSelector", "matchExpressions"))


def _in_one(scope: Mapping[str, Any], pod: Object) -> bool:
    spec = pod.get("spec") or {}
    match scope.get("scopeName"):
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return qos_class(spec) == "BestEffort"
        case "NotBestEffort":
            return qos_class(spec) != "BestEffort"
        case "PriorityClass":
            name, values = spec.get("priorityClassName") or "", scope.get("values") or ()
            found = {"Exists": bool(name), "DoesNotExist": not name, "In": bool(name) and name in values}
            return found.get(scope.get("operator", ""), name not in values)
        case "CrossNamespacePodAffinity":
            return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(spec))
    return False


def _terms(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the pod says of the pods that it wants near it, or not."""
    terms: list[Mapping[str, Any]] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = at(spec, "affinity", kind) or {}
        terms += affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            terms.append(weighted.get("podAffinityTerm") or {})
    return terms
