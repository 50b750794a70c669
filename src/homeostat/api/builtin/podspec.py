"""What a pod is made of: the defaults and checks that pods and all templates of pods share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.affinity import affinity_errors, gate_errors, qualified_name
from homeostat.api.builtin.checks import (
    INT32_MAX,
    TAINT_EFFECTS,
    ip_address,
    label_name,
    one_of,
    subdomain_name,
)
from homeostat.api.builtin.containers import container_errors, default_container
from homeostat.api.builtin.declare import fill, section
from homeostat.api.builtin.podhost import host_errors
from homeostat.api.builtin.volumes import default_volume, volume_errors
from homeostat.model.errors import FieldError
from homeostat.model.names import annotation_errors, label_errors, label_value_problems, qualified_name_problems

Spec = dict[str, Any]

_RESTART = ("Always", "OnFailure", "Never")
CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
_NOT_OF_EPHEMERAL = (
    "lifecycle", "livenessProbe", "ports", "readinessProbe", "resizePolicy", "resources", "restartPolicy", "startupProbe",
)
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")


def default_pod_spec(spec: Spec) -> None:
    """Fills in what upstream fills in for any pod spec."""
    fill(
        spec,
        restartPolicy="Always",
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        terminationGracePeriodSeconds=30,
    )
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in spec.get("volumes") or ():
        default_volume(volume)
    for group in CONTAINER_LISTS:
        for container in spec.get(group) or ():
            default_container(container)
            if spec.get("hostNetwork"):
                for port in container.get("ports") or ():
                    fill(port, hostPort=port.get("containerPort", 0))


def pod_spec_errors(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with a pod spec."""
    volumes, errors = volume_errors(spec.get("volumes") or (), f"{path}.volumes")
    containers = spec.get("containers") or ()
    if not containers:
        errors.append(FieldError.required(f"{path}.containers"))
    names: set[str] = set()
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            init = group == "initContainers"
            errors += container_errors(container, f"{path}.{group}[{index}]", names, volumes, init=init)
    errors += _ephemeral_errors(spec.get("ephemeralContainers") or (), f"{path}.ephemeralContainers", names, volumes)
    errors += one_of(spec.get("restartPolicy"), _RESTART, f"{path}.restartPolicy")
    errors += one_of(spec.get("dnsPolicy"), _DNS, f"{path}.dnsPolicy")
    errors += label_errors(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    errors += _name_errors(spec, path)
    errors += host_errors(spec, path)
    errors += affinity_errors(spec.get("affinity") or {}, f"{path}.affinity")
    errors += gate_errors(spec.get("schedulingGates") or (), f"{path}.schedulingGates")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        errors += qualified_name(gate.get("conditionType") or "", f"{path}.readinessGates[{index}].conditionType")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= INT32_MAX:
        detail = f"must be between 1 and {INT32_MAX}, inclusive"
        errors.append(FieldError.invalid(f"{path}.activeDeadlineSeconds", deadline, detail))
    errors += toleration_errors(spec.get("tolerations") or (), f"{path}.tolerations")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        errors += ip_address(alias.get("ip", ""), f"{path}.hostAliases[{index}].ip")
        for number, name in enumerate(alias.get("hostnames") or ()):
            errors += subdomain_name(name, f"{path}.hostAliases[{index}].hostnames[{number}]")
    errors += _spread_errors(spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints")
    return errors


def _ephemeral_errors(
    containers: Sequence[Mapping[str, Any]], path: str, names: set[str], volumes: frozenset[str]
) -> list[FieldError]:
    """What is wrong with the containers that were added to look into the others, whose names are given."""
    errors: list[FieldError] = []
    others, detail = frozenset(names), "cannot be set for an Ephemeral Container"
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        errors += container_errors(container, where, names, volumes, init=False)
        target = container.get("targetContainerName")
        if target and target not in others:
            errors.append(FieldError.not_found(f"{where}.targetContainerName", target))
        errors += [FieldError.forbidden(f"{where}.{field}", detail) for field in _NOT_OF_EPHEMERAL if container.get(field)]
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            errors += [
                FieldError.forbidden(f"{where}.volumeMounts[{number}].{field}", detail)
                for field in ("subPath", "subPathExpr")
                if mount.get(field)
            ]
    return errors


def _name_errors(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        if value := spec.get(field):
            errors += subdomain_name(value, f"{path}.{field}")
    for field in ("hostname", "subdomain"):
        if value := spec.get(field):
            errors += label_name(value, f"{path}.{field}")
    return errors


def toleration_errors(tolerations: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    """What is wrong with a list of tolerations."""
    errors: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        where = f"{path}[{index}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            errors += [FieldError.invalid(f"{where}.key", key, p) for p in qualified_name_problems(key)]
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.append(FieldError.invalid(f"{where}.operator", operator, detail))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(FieldError.invalid(f"{where}.effect", effect, detail))
        if operator in ("Equal", ""):
            if problems := label_value_problems(value):
                errors.append(FieldError.invalid(f"{where}.operator", value, ";".join(problems)))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                errors.append(FieldError.invalid(f"{where}.operator", toleration, detail))
        else:
            errors.append(FieldError.not_supported(f"{where}.operator", operator, ("Equal", "Exists")))
        if effect and effect not in TAINT_EFFECTS:
            errors.append(FieldError.not_supported(f"{where}.effect", effect, TAINT_EFFECTS))
    return errors


def _spread_errors(constraints: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        skew = constraint.get("maxSkew") or 0
        if skew <= 0:
            errors.append(FieldError.invalid(f"{where}.maxSkew", skew, "must be greater than zero"))
        if not constraint.get("topologyKey"):
            errors.append(FieldError.required(f"{where}.topologyKey", "can not be empty"))
        action = constraint.get("whenUnsatisfiable") or ""
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            allowed = ("DoNotSchedule", "ScheduleAnyway")
            errors.append(FieldError.not_supported(f"{where}.whenUnsatisfiable", action, allowed))
        pair = f"{{{constraint.get('topologyKey', '')}, {action}}}"
        if pair in seen:
            errors.append(FieldError.duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", pair))
        seen.add(pair)
        domains = constraint.get("minDomains")
        if domains is not None and domains <= 0:
            errors.append(FieldError.invalid(f"{where}.minDomains", domains, "must be greater than zero"))
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if (policy := constraint.get(field)) and policy not in ("Honor", "Ignore"):
                errors.append(FieldError.not_supported(f"{where}.{field}", policy, ("Honor", "Ignore")))
    return errors


def default_template(owner: Spec) -> None:
    """Fills in the pod template of a workload's spec."""
    default_pod_spec(section(section(owner, "template"), "spec"))


def template_errors(template: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with a pod template by itself."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    errors = [
        *label_errors(metadata.get("labels") or {}, f"{path}.labels"),
        *annotation_errors(metadata.get("annotations") or {}, f"{path}.annotations"),
        *pod_spec_errors(spec, f"{path}.spec"),
    ]
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errors.append(FieldError.forbidden(f"{path}.spec.ephemeralContainers", detail))
    return errors
