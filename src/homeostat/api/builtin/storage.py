"""Storage: PersistentVolume, PersistentVolumeClaim, StorageClass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.affinity import node_selector_errors
from homeostat.api.builtin.cells import text_at
from homeostat.api.builtin.checks import subdomain_name, unchanged
from homeostat.api.builtin.declare import SpecAndStatus, fill, kind, section
from homeostat.api.resource import Column, Object, Resource, Rules, at
from homeostat.api.table import AGE, NAME
from homeostat.model.errors import FieldError
from homeostat.model.names import qualified_name_problems
from homeostat.model.quantity import Quantity, parse_quantity
from homeostat.model.selectors import label_selector_errors

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SHORT_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_VOLUME_MODES = ("Block", "Filesystem")
_RECLAIM = ("Delete", "Recycle", "Retain")
_BINDING = ("Immediate", "WaitForFirstConsumer")
_UNSET = "<unset>"
_CLAIM_FIXED = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_NOT_SOURCES = frozenset(
    (
        "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
        "storageClassName", "volumeAttributesClassName", "volumeMode",
    )
)  # fmt: skip
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def default_claim(claim: Object) -> None:
    """Fills in a claim, or the template of one."""
    spec = section(claim, "spec")
    fill(spec, volumeMode="Filesystem")
    section(spec, "resources")
    fill(section(claim, "status"), phase="Pending")


def _mode_errors(modes: Sequence[str], path: str) -> list[FieldError]:
    errors = [FieldError.not_supported(path, mode, _MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        errors.append(FieldError.forbidden(path, detail))
    return errors


def _positive_amount(value: Any, path: str) -> list[FieldError]:
    return [] if parse_quantity(value).nanos > 0 else [FieldError.invalid(path, value, "must be greater than zero")]


def claim_spec_errors(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with the spec of a claim."""
    modes = spec.get("accessModes") or ()
    errors: list[FieldError] = []
    if not modes:
        errors.append(FieldError.required(f"{path}.accessModes", "at least 1 access mode is required"))
    errors += label_selector_errors(spec.get("selector"), f"{path}.selector")
    errors += _mode_errors(modes, f"{path}.accessModes")
    wanted = at(spec, "resources", "requests", "storage")
    if wanted is None:
        errors.append(FieldError.required(f"{path}.resources[storage]"))
    else:
        errors += _positive_amount(wanted, f"{path}.resources[storage]")
    if spec.get("storageClassName"):
        errors += subdomain_name(spec["storageClassName"], f"{path}.storageClassName")
    if spec.get("volumeMode") not in (None, *_VOLUME_MODES):
        errors.append(FieldError.not_supported(f"{path}.volumeMode", spec["volumeMode"], _VOLUME_MODES))
    return errors


class ClaimRules(SpecAndStatus):
    """What a claim asks for stays, but for its size once it is bound, which may only grow."""

    def default(self, obj: Object) -> None:
        default_claim(obj)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        return claim_spec_errors(obj.get("spec") or {}, "spec")

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        errors: list[FieldError] = []
        size, size_before = _requested(spec), _requested(before)
        bound = at(obj, "status", "phase") == "Bound"
        if _fixed_part(spec, before, resizable=bound) != _fixed_part(before, before, resizable=bound):
            errors.append(FieldError.forbidden("spec", _CLAIM_FIXED))
        if size < size_before:
            detail = "field can not be less than status.capacity"
            errors.append(FieldError.forbidden("spec.resources.requests.storage", detail))
        return errors


def _requested(spec: Mapping[str, Any]) -> Quantity:
    return parse_quantity(at(spec, "resources", "requests", "storage") or "0")


def _fixed_part(spec: Mapping[str, Any], before: Mapping[str, Any], *, resizable: bool) -> dict[str, Any]:
    """The spec without what may change: the volume once found, and the size and class of a bound claim."""
    loose = {"volumeAttributesClassName"} if resizable else set()
    if not before.get("volumeName"):
        loose.add("volumeName")
    if before.get("storageClassName") is None:
        loose.add("storageClassName")
    fixed = {field: value for field, value in spec.items() if field not in loose}
    if resizable and (requests := at(fixed, "resources", "requests")):
        others = {name: amount for name, amount in requests.items() if name != "storage"}
        fixed["resources"] = {**fixed["resources"], "requests": others}
    return fixed


class VolumeRules(SpecAndStatus):
    """Exactly one source, which stays."""

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        fill(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
        if (path := spec.get("hostPath")) is not None and path.get("type") is None:
            path["type"] = ""

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        capacity = spec.get("capacity") or {}
        errors = [] if spec.get("accessModes") else [FieldError.required("spec.accessModes")]
        errors += _mode_errors(spec.get("accessModes") or (), "spec.accessModes")
        if not capacity:
            errors.append(FieldError.required("spec.capacity"))
        if capacity.keys() != {"storage"}:
            errors.append(FieldError.not_supported("spec.capacity", capacity, ("storage",)))
        for name, amount in capacity.items():
            errors += _positive_amount(amount, f"spec.capacity[{name}]")
        policy = spec.get("persistentVolumeReclaimPolicy")
        if policy not in _RECLAIM:
            errors.append(FieldError.not_supported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM))
        sources = [field for field, value in spec.items() if field not in _NOT_SOURCES and value is not None]
        if not sources:
            errors.append(FieldError.required("spec", "must specify a volume type"))
        detail = "may not specify more than 1 volume type"
        errors += [FieldError.forbidden(f"spec.{field}", detail) for field in sources[1:]]
        if spec.get("volumeMode") not in _VOLUME_MODES:
            errors.append(FieldError.not_supported("spec.volumeMode", spec.get("volumeMode"), _VOLUME_MODES))
        nodes = at(spec, "nodeAffinity", "required")
        if nodes is not None:
            errors += node_selector_errors(nodes, "spec.nodeAffinity.required")
        elif spec.get("nodeAffinity") is not None:
            errors.append(FieldError.required("spec.nodeAffinity.required", "must specify required node constraints"))
        elif spec.get("local") is not None:
            errors.append(FieldError.required("metadata.annotations", "Local volume requires node affinity"))
        if policy == "Recycle" and at(spec, "hostPath", "path") == "/":
            detail = "may not be 'recycle' for a hostPath mount of '/'"
            errors.append(FieldError.forbidden("spec.persistentVolumeReclaimPolicy", detail))
        return errors

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        source, before = ({k: v for k, v in (o.get("spec") or {}).items() if k not in _NOT_SOURCES} for o in (obj, old))
        errors = []
        if source != before:
            detail = "spec.persistentvolumesource is immutable after creation"
            errors.append(FieldError.forbidden("spec.persistentvolumesource", detail))
        return errors + unchanged(at(obj, "spec", "volumeMode"), at(old, "spec", "volumeMode"), "volumeMode")


class StorageClassRules(Rules):
    """Who provisions, and how; nothing of that changes later."""

    def default(self, obj: Object) -> None:
        fill(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")

    def validate(self, obj: Object) -> Sequence[FieldError]:
        provisioner = obj.get("provisioner") or ""
        if not provisioner:
            errors = [FieldError.required("provisioner")]
        else:
            problems = qualified_name_problems(provisioner.lower())
            errors = [FieldError.invalid("provisioner", provisioner, p) for p in problems]
        if obj.get("reclaimPolicy") not in ("Delete", "Retain"):
            errors.append(FieldError.not_supported("reclaimPolicy", obj.get("reclaimPolicy"), ("Delete", "Retain")))
        if obj.get("volumeBindingMode") not in _BINDING:
            errors.append(FieldError.not_supported("volumeBindingMode", obj.get("volumeBindingMode"), _BINDING))
        return errors

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        errors = [
            FieldError.forbidden(field, f"updates to {field} are forbidden.")
            for field in ("parameters", "provisioner", "reclaimPolicy")
            if (obj.get(field) or None) != (old.get(field) or None)
        ]
        return errors + unchanged(obj.get("volumeBindingMode"), old.get("volumeBindingMode"), "volumeBindingMode")


def _short_modes(modes: Sequence[str] | None) -> str:
    given = modes or ()
    return ",".join(short for mode, short in _SHORT_MODES.items() if mode in given)


def _phase(obj: Object) -> str:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return at(obj, "status", "phase") or ""


def _claim_ref(obj: Object) -> str:
    claim = at(obj, "spec", "claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _class_name(obj: Object) -> str:
    name = obj["metadata"].get("name", "")
    annotations = obj["metadata"].get("annotations") or {}
    return f"{name} (default)" if any(annotations.get(key) == "true" for key in _DEFAULT_CLASS) else name


def _claimed(field: str) -> Any:
    """A cell that stays empty until the claim has its volume."""

    def cell(obj: Object) -> str:
        if not at(obj, "spec", "volumeName"):
            return ""
        if field == "accessModes":
            return _short_modes(at(obj, "status", "accessModes"))
        return at(obj, "status", "capacity", "storage") or "0"

    return cell


_CLASS = Column("StorageClass", text_at("spec", "storageClassName"), description="What kind of storage it is.")
_ATTRIBUTES = Column(
    "VolumeAttributesClass",
    text_at("spec", "volumeAttributesClassName", missing=_UNSET),
    description="Which attributes it has.",
)
_MODE = Column(
    "VolumeMode", text_at("spec", "volumeMode", missing=_UNSET), priority=1, description="Files or a raw device."
)
_VOLUME_COLUMNS = (
    NAME,
    Column("Capacity", text_at("spec", "capacity", "storage", missing="0"), description="How large it is."),
    Column(
        "Access Modes",
        lambda o: _short_modes(at(o, "spec", "accessModes")),
        description="Who may mount it.",
    ),
    Column(
        "Reclaim Policy",
        text_at("spec", "persistentVolumeReclaimPolicy"),
        description="What happens to it after its claim.",
    ),
    Column("Status", _phase, description="How far it is."),
    Column("Claim", _claim_ref, description="Who claims it."),
    _CLASS,
    _ATTRIBUTES,
    Column("Reason", text_at("status", "reason"), description="Why it is so."),
    AGE,
    _MODE,
)
_CLAIM_COLUMNS = (
    NAME,
    Column("Status", _phase, description="How far it is."),
    Column("Volume", text_at("spec", "volumeName"), description="What it got."),
    Column("Capacity", _claimed("capacity"), description="How large that is."),
    Column("Access Modes", _claimed("accessModes"), description="Who may mount it."),
    _CLASS,
    _ATTRIBUTES,
    AGE,
    _MODE,
)


def resources() -> list[Resource]:
    """PersistentVolume, PersistentVolumeClaim and StorageClass."""
    return [
        kind(
            "v1",
            "PersistentVolume",
            "persistentvolumes",
            namespaced=False,
            short=("pv",),
            rules=VolumeRules(phase="Pending"),
            status=True,
            columns=_VOLUME_COLUMNS,
        ),
        kind(
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            short=("pvc",),
            rules=ClaimRules(phase="Pending"),
            status=True,
            columns=_CLAIM_COLUMNS,
        ),
        kind(
            "storage.k8s.io/v1",
            "StorageClass",
            "storageclasses",
            namespaced=False,
            short=("sc",),
            rules=StorageClassRules(),
            columns=(
                Column("Name", _class_name, format="name", description=NAME.description),
                Column("Provisioner", text_at("provisioner"), description="Who makes the volumes."),
                Column(
                    "ReclaimPolicy", text_at("reclaimPolicy", missing="Delete"), description="What happens to them."
                ),
                Column("VolumeBindingMode", text_at("volumeBindingMode", missing="Immediate"), description="When."),
                Column(
                    "AllowVolumeExpansion",
                    lambda o: bool(o.get("allowVolumeExpansion")),
                    description="Whether they may grow.",
                ),
                AGE,
            ),
        ),
    ]
