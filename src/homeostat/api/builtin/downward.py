"""What a container is told: its variables, where they come from, and what it may learn of the pod that it is part of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.affinity import qualified_name
from homeostat.api.builtin.checks import config_key_problems
from homeostat.model.errors import FieldError
from homeostat.model.quantity import parse_quantity

_ENV_NAME_WORDS = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_OF_ENV = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
OF_FILES = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
"""The fields of a pod that can be shown in a file."""
_KNOWN = frozenset((*_OF_ENV, *OF_FILES, "spec.host", "spec.restartPolicy", "spec.schedulerName", "status.phase"))
_MAPS = ("metadata.annotations", "metadata.labels")
_AMOUNTS = tuple(f"{part}.{name}" for part in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory"))
_SIZES = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVISORS = {
    "cpu": (("1m", "1"), "1m and 1 are supported with the cpu resource"),
    "memory": (_SIZES, f"{', '.join(_SIZES)} are supported with the memory resource"),
    "ephemeral-storage": (_SIZES, f"{', '.join(_SIZES)} are supported with the local ephemeral storage resource"),
}


def field_errors(reference: Mapping[str, Any], allowed: Sequence[str], path: str) -> list[FieldError]:
    """What is wrong with a reference to a field of the pod."""
    field = reference.get("fieldPath") or ""
    if not field:
        return [FieldError.required(f"{path}.fieldPath")]
    name, bracket, key = field.partition("['")
    if bracket and key.endswith("']"):
        if name not in _MAPS:
            return [FieldError.invalid(f"{path}.fieldPath", field, f"error converting fieldPath: {_unknown(field)}")]
        key = key[:-2]
        return qualified_name(key.lower() if name == _MAPS[0] else key, path)
    if field not in _KNOWN:
        return [FieldError.invalid(f"{path}.fieldPath", field, f"error converting fieldPath: {_unknown(field)}")]
    return [] if field in (*allowed, "spec.host") else [FieldError.not_supported(f"{path}.fieldPath", field, allowed)]


def _unknown(field: str) -> str:
    return f"field label not supported: {field}"


def resource_field_errors(reference: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with a reference to what a container asks for or may use."""
    name = reference.get("resource") or ""
    if not name:
        return [FieldError.required(f"{path}.resource")]
    if name not in _AMOUNTS:
        if name.partition(".")[2].startswith("hugepages-"):
            return []
        return [FieldError.not_supported(f"{path}.resource", name, _AMOUNTS)]
    divisor = parse_quantity(reference.get("divisor") or "0")
    allowed, words = _DIVISORS[name.partition(".")[2]]
    if not divisor or any(divisor == parse_quantity(one) for one in allowed):
        return []
    return [FieldError.invalid(f"{path}.divisor", name, f"only divisor's values {words}")]


def env_name_problems(name: str) -> list[str]:
    """Why this is no name of an environment variable."""
    return [] if all(" " <= c <= "~" and c != "=" for c in name) else [_ENV_NAME_WORDS]


def env_errors(variables: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    """What is wrong with the variables of a container."""
    errors: list[FieldError] = []
    for index, variable in enumerate(variables):
        where = f"{path}[{index}]"
        name = variable.get("name") or ""
        if not name:
            errors.append(FieldError.required(f"{where}.name"))
        errors += [FieldError.invalid(f"{where}.name", name, p) for p in env_name_problems(name)]
        if (source := variable.get("valueFrom")) is not None:
            errors += _env_source_errors(source, variable.get("value"), f"{where}.valueFrom")
    return errors


def _env_source_errors(source: Mapping[str, Any], value: Any, path: str) -> list[FieldError]:
    given = [field for field in source if source[field] is not None]
    if not given:
        listed = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        return [FieldError.invalid(path, "", f"must specify one of: {listed}")]
    errors: list[FieldError] = []
    for field in ("configMapKeyRef", "secretKeyRef"):
        if (reference := source.get(field)) is not None:
            key = reference.get("key") or ""
            if not reference.get("name"):
                errors.append(FieldError.required(f"{path}.{field}.name"))
            if not key:
                errors.append(FieldError.required(f"{path}.{field}.key"))
            else:
                errors += [FieldError.invalid(f"{path}.{field}.key", key, p) for p in config_key_problems(key)]
    if (reference := source.get("fieldRef")) is not None:
        errors += field_errors(reference, _OF_ENV, f"{path}.fieldRef")
    if (reference := source.get("resourceFieldRef")) is not None:
        errors += resource_field_errors(reference, f"{path}.resourceFieldRef")
    if value:
        errors.append(FieldError.invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        errors.append(FieldError.invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def env_from_errors(sources: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    """What is wrong with the places that a container takes variables from."""
    errors: list[FieldError] = []
    for index, source in enumerate(sources):
        where = f"{path}[{index}]"
        prefix = source.get("prefix") or ""
        errors += [FieldError.invalid(f"{where}.prefix", prefix, problem) for problem in env_name_problems(prefix)]
        given = [field for field in ("configMapRef", "secretRef") if source.get(field) is not None]
        for field in given:
            if not source[field].get("name"):
                errors.append(FieldError.required(f"{where}.{field}.name"))
        if not given:
            errors.append(FieldError.invalid(where, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(given) > 1:
            errors.append(FieldError.invalid(where, "", "may not have more than one field specified at a time"))
    return errors
