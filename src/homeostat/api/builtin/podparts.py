"""Writes of a part of a pod: its status, the containers added to look into it, and how much its containers may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.checks import subdomain_name, unchanged
from homeostat.api.builtin.podrules import PodRules, qos_class
from homeostat.api.resource import Object, Rules, at
from homeostat.model.errors import FieldError

_MIRROR = "kubernetes.io/config.mirror"
_RESIZED = ("resources", "resizePolicy")
_ANY_RESIZED: dict[str, Any] = {"*": {f"f:{field}": {} for field in _RESIZED}}
_AMOUNTS = ("cpu", "memory")


class _StatusRules(PodRules):
    """What has ended does not begin again, and how well the pod's needs are known was settled when it was created."""

    def prepare_update(self, obj: Object, old: Object) -> None:
        known = at(old, "status", "qosClass")
        if known and not at(obj, "status", "qosClass"):
            obj["status"] = {**(obj.get("status") or {}), "qosClass": known}

    def validate(self, obj: Object) -> Sequence[FieldError]:
        return ()

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        status, before = obj.get("status") or {}, old.get("status") or {}
        errors = unchanged(status.get("qosClass"), before.get("qosClass"), "status.qosClass")
        nominated = status.get("nominatedNodeName") or ""
        if nominated and nominated != before.get("nominatedNodeName"):
            errors += subdomain_name(nominated, "status.nominatedNodeName")
        restarts = at(old, "spec", "restartPolicy") or "Always"
        sidecars = {c.get("name") for c in at(old, "spec", "initContainers") or () if c.get("restartPolicy") == "Always"}
        for field, policy, free in (
            ("containerStatuses", restarts, frozenset[str]()),
            ("initContainerStatuses", restarts, sidecars),
            ("ephemeralContainerStatuses", "Never", frozenset[str]()),
        ):
            errors += _revived(status.get(field) or (), before.get(field) or (), f"status.{field}", policy, free)
        return errors


def _revived(
    new: Sequence[Mapping[str, Any]], old: Sequence[Mapping[str, Any]], path: str, policy: str, free: Any
) -> list[FieldError]:
    if policy == "Always":
        return []
    errors: list[FieldError] = []
    for index, before in enumerate(old):
        ended = at(before, "state", "terminated")
        if ended is None or before.get("name") in free or (ended.get("exitCode") and policy == "OnFailure"):
            continue
        if any(s.get("name") == before.get("name") and at(s, "state", "terminated") is None for s in new):
            errors.append(FieldError.forbidden(f"{path}[{index}].state", "may not be transitioned to non-terminated state"))
    return errors


class _EphemeralContainerRules(PodRules):
    """Containers are added to a pod that is there; those that were added stay as they are."""

    changes = {"f:spec": {"f:ephemeralContainers": {}}}

    def prepare_update(self, obj: Object, old: Object) -> None:
        wanted = at(obj, "spec", "ephemeralContainers")
        obj["spec"] = {field: value for field, value in old["spec"].items() if field != "ephemeralContainers"}
        if wanted:
            obj["spec"]["ephemeralContainers"] = wanted
        obj["status"] = old.get("status") or {}

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        if _mirrors(old):
            return [FieldError.forbidden("", "static pods do not support ephemeral containers")]
        present = {c.get("name"): c for c in at(obj, "spec", "ephemeralContainers") or ()}
        return [
            FieldError.forbidden(
                "spec.ephemeralContainers",
                f'existing ephemeral containers "{name}" may not be {"changed" if name in present else "removed"}\n',
            )
            for before in at(old, "spec", "ephemeralContainers") or ()
            if present.get(name := before.get("name")) != before
        ]


class _ResizeRules(PodRules):
    """What containers ask for and may use of processors and memory changes while they run; all else stays."""

    changes = {"f:spec": {"f:containers": _ANY_RESIZED, "f:initContainers": _ANY_RESIZED}}

    def prepare_update(self, obj: Object, old: Object) -> None:
        wanted, spec = obj.get("spec") or {}, dict(old["spec"])
        for group in ("containers", "initContainers"):
            if group in wanted or group in spec:
                spec[group] = _resized(wanted.get(group) or [], spec.get(group) or [])
        obj["spec"] = spec
        obj["status"] = old.get("status") or {}

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        spec, before = obj["spec"], old["spec"]
        for refused, what in (
            (at(before, "resources", "requests") or at(before, "resources", "limits"), "pods with pod-level resources"),
            (_mirrors(old), "static pods"),
            (at(before, "os", "name") == "windows", "windows pods"),
        ):
            if refused:
                return [FieldError.forbidden("", f"{what} cannot be resized")]
        errors: list[FieldError] = []
        known = at(old, "status", "qosClass") or qos_class(before)
        if known != qos_class(spec):
            errors.append(FieldError.invalid("spec", known, "Pod QOS Class may not change as a result of resizing"))
        running = [c for c in at(old, "status", "containerStatuses") or () if at(c, "state", "running") is not None]
        if running and running[0].get("resources") is None:
            errors.append(FieldError.forbidden("spec", "Pod running on node without support for resize"))
        for group in ("containers", "initContainers"):
            errors += _resize_errors(spec.get(group) or [], before.get(group) or [], group)
        return errors


def _mirrors(pod: Object) -> bool:
    return _MIRROR in (pod["metadata"].get("annotations") or {})


def _resized(wanted: list[Object], old: list[Object]) -> list[Object]:
    """The old containers with the resources that are wanted; where they are others, what is wanted, to be refused."""
    if [c.get("name") for c in wanted] != [c.get("name") for c in old]:
        return wanted
    return [
        {**{f: v for f, v in before.items() if f not in _RESIZED}, **{f: now[f] for f in _RESIZED if f in now}}
        for now, before in zip(wanted, old, strict=True)
    ]


def _resize_errors(new: list[Object], old: list[Object], group: str) -> list[FieldError]:
    path = f"spec.{group}"
    if len(new) != len(old):
        return [FieldError.forbidden(path, f"{group} may not be added or removed on resize")]
    errors: list[FieldError] = []
    for index, (now, before) in enumerate(zip(new, old, strict=True)):
        where = f"{path}[{index}]"
        sidecar = before.get("restartPolicy") == "Always"
        if now.get("name") != before.get("name"):
            errors.append(FieldError.forbidden(f"{where}.name", f"{group} may not be renamed or reordered on resize"))
        elif group == "initContainers" and not sidecar:
            if now != before:
                detail = "resources for non-sidecar init containers are immutable"
                errors.append(FieldError.forbidden("spec", detail))
        else:
            errors += [
                FieldError.forbidden(f"{where}.resources.{kind}", f"resource {kind} cannot be removed")
                for kind in ("requests", "limits")
                if (at(before, "resources", kind) or {}).keys() - (at(now, "resources", kind) or {}).keys()
            ]
            if _fixed(now, before) != _fixed(before, before):
                which = "resources for sidecar containers" if group == "initContainers" else "resources"
                errors.append(FieldError.forbidden("spec", f"only cpu and memory {which} are mutable"))
    return errors


def _fixed(container: Object, before: Object) -> Object:
    """The container without what a resize may change of it."""
    resources = dict(container.get("resources") or {})
    for kind in ("requests", "limits"):
        amounts = resources.pop(kind, None)
        if amounts and at(before, "resources", kind):
            resources[kind] = {name: amount for name, amount in amounts.items() if name not in _AMOUNTS}
    return {**container, "resources": resources}


PARTS: Mapping[str, Rules] = {
    "status": _StatusRules(),
    "ephemeralcontainers": _EphemeralContainerRules(),
    "resize": _ResizeRules(),
}
