"""Node: a machine, as somebody reports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from homeostat.api.builtin.cells import text_at
from homeostat.api.builtin.checks import NOT_NEGATIVE, TAINT_EFFECTS
from homeostat.api.builtin.declare import fill, kind, section
from homeostat.api.resource import Column, Object, Resource, Rules, at
from homeostat.api.table import AGE, NAME, NONE, UNKNOWN
from homeostat.model.conditions import find_condition
from homeostat.model.errors import FieldError
from homeostat.model.names import label_value_problems, qualified_name_problems
from homeostat.model.quantity import parse_quantity

_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_INFO = (
    "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion",
    "machineID", "operatingSystem", "osImage", "systemUUID",
)  # fmt: skip
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"


class NodeRules(Rules):
    """Taints make sense; a new node begins as not ready."""

    def default(self, obj: Object) -> None:
        status = section(obj, "status")
        _agree_on_range(section(obj, "spec"))
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])
        fill(status, daemonEndpoints={"kubeletEndpoint": {"Port": 0}}, nodeInfo=dict.fromkeys(_INFO, ""))

    def prepare_create(self, obj: Object) -> None:
        # A node takes no work before somebody says that it is ready.
        taints = section(obj, "spec").setdefault("taints", [])
        if not any(t.get("key") == _NOT_READY["key"] and t.get("effect") == _NOT_READY["effect"] for t in taints):
            taints.append(dict(_NOT_READY))

    def prepare_update(self, obj: Object, old: Object) -> None:
        obj["status"] = old.get("status") or {}

    def validate(self, obj: Object) -> Sequence[FieldError]:
        errors: list[FieldError] = []
        seen: set[tuple[str, str]] = set()
        for index, taint in enumerate(at(obj, "spec", "taints") or ()):
            path = f"metadata.taints[{index}]"  # upstream names them so
            key, value, effect = taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
            errors += [FieldError.invalid(f"{path}.key", key, p) for p in qualified_name_problems(key)]
            if problems := label_value_problems(value):
                errors.append(FieldError.invalid(f"{path}.value", value, ";".join(problems)))
            if not effect:
                errors.append(FieldError.required(f"{path}.effect"))
            elif effect not in TAINT_EFFECTS:
                errors.append(FieldError.not_supported(f"{path}.effect", effect, TAINT_EFFECTS))
            if (key, effect) in seen:
                errors.append(FieldError.duplicate(path, taint))
            seen.add((key, effect))
        return errors

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        errors = [
            FieldError.invalid(f"status.capacity.{name}", amount, NOT_NEGATIVE)
            for name, amount in (at(obj, "status", "capacity") or {}).items()
            if parse_quantity(amount).nanos < 0
        ]
        for field, named in (("podCIDRs", "podCIDR"), ("providerID", "providerID")):
            before = at(old, "spec", field)
            if before and at(obj, "spec", field) != before:
                detail = f'node updates may not change {named} except from "" to valid'
                errors.append(FieldError.forbidden(f"spec.{field}", detail))
        return errors

    def fields(self, obj: Object) -> Mapping[str, str]:
        return {"spec.unschedulable": "true" if at(obj, "spec", "unschedulable") else "false"}


def _agree_on_range(spec: Object) -> None:
    """The one range of a node's pods and the first of its ranges are the same; where they are not, the one counts."""
    one, ranges = spec.get("podCIDR") or "", spec.get("podCIDRs") or []
    if one and (not ranges or ranges[0] != one):
        spec["podCIDRs"] = [one]
    elif ranges and not one:
        spec["podCIDR"] = ranges[0]


def _status(node: Object) -> str:
    ready = find_condition(node, "Ready")
    word = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if at(node, "spec", "unschedulable") else word


def _roles(node: Object) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key[len(_ROLE_PREFIX) :] for key in labels if key.startswith(_ROLE_PREFIX)} | {labels.get(_ROLE, "")}
    return ",".join(sorted(roles - {""})) or NONE


def _address(kind_of_address: str) -> Callable[[Object], str]:
    def cell(node: Object) -> str:
        for address in at(node, "status", "addresses") or ():
            if address.get("type") == kind_of_address:
                return str(address.get("address", NONE))
        return NONE

    return cell


def _info(field: str, missing: str = UNKNOWN) -> Callable[[Object], str]:
    return text_at("status", "nodeInfo", field, missing=missing)


def resources() -> list[Resource]:
    """Node. A client may report its status when creating it."""
    return [
        kind(
            "v1",
            "Node",
            "nodes",
            namespaced=False,
            short=("no",),
            rules=NodeRules(),
            status=True,
            columns=(
                NAME,
                Column("Status", _status, description="Whether it takes work."),
                Column("Roles", _roles, description="What it is for."),
                AGE,
                Column("Version", _info("kubeletVersion", ""), description="Of its agent."),
                Column("Internal-IP", _address("InternalIP"), priority=1, description="Its address inside."),
                Column("External-IP", _address("ExternalIP"), priority=1, description="Its address outside."),
                Column("OS-Image", _info("osImage"), priority=1, description="Its operating system."),
                Column("Kernel-Version", _info("kernelVersion"), priority=1, description="Its kernel."),
                Column(
                    "Container-Runtime",
                    _info("containerRuntimeVersion"),
                    priority=1,
                    description="What runs containers.",
                ),
            ),
        )
    ]
