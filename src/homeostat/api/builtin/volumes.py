"""Volumes of a pod: their defaults and checks. Cloud vendors' own sources are kept as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.auth.serviceaccounts import MAX_SECONDS, MIN_SECONDS
from homeostat.api.builtin.checks import label_name, no_way_back, relative_path
from homeostat.api.builtin.declare import fill
from homeostat.api.builtin.downward import OF_FILES, field_errors, resource_field_errors
from homeostat.model.errors import FieldError
from homeostat.model.quantity import parse_quantity

_FILE_MODE = 0o644
_FILE_MODE_WORDS = "must be a number between 0 and 0777 (octal), both inclusive"
_HOST_PATHS = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_REQUIRED = {
    "secret": ("secretName",),
    "configMap": ("name",),
    "persistentVolumeClaim": ("claimName",),
    "nfs": ("server", "path"),
    "hostPath": ("path",),
    "csi": ("driver",),
}


def default_volume(volume: dict[str, Any]) -> None:
    """A volume that says nothing is an empty directory; files are readable to all unless said otherwise."""
    if not any(value is not None for field, value in volume.items() if field != "name"):
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if (part := volume.get(source)) is not None:
            fill(part, defaultMode=_FILE_MODE)
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        if reference := item.get("fieldRef"):
            fill(reference, apiVersion="v1")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if token := source.get("serviceAccountToken"):
            fill(token, expirationSeconds=3600)
    if (path := volume.get("hostPath")) is not None and path.get("type") is None:
        path["type"] = ""


def volume_errors(volumes: Sequence[Mapping[str, Any]], path: str) -> tuple[frozenset[str], list[FieldError]]:
    """The names that containers can mount, and what is wrong with the volumes."""
    names: set[str] = set()
    errors: list[FieldError] = []
    for index, volume in enumerate(volumes):
        where = f"{path}[{index}]"
        found = _source_errors(volume, where)
        name = volume.get("name") or ""
        found += label_name(name, f"{where}.name") if name else [FieldError.required(f"{where}.name")]
        if name in names:
            found.append(FieldError.duplicate(f"{where}.name", name))
        if not found:
            names.add(name)
        errors += found
    return frozenset(names), errors


def _source_errors(volume: Mapping[str, Any], path: str) -> list[FieldError]:
    given = [field for field, value in volume.items() if field != "name" and value is not None]
    if not given:
        return [FieldError.required(path, "must specify a volume type")]
    first, *others = given
    errors = [FieldError.forbidden(f"{path}.{field}", "may not specify more than 1 volume type") for field in others]
    source = volume[first]
    errors += [
        FieldError.required(f"{path}.{first}.{field}") for field in _REQUIRED.get(first, ()) if not source.get(field)
    ]
    mode = source.get("defaultMode")
    if mode is not None and not 0 <= mode <= 0o777:
        errors.append(FieldError.invalid(f"{path}.{first}.defaultMode", mode, _FILE_MODE_WORDS))
    if first in ("secret", "configMap"):
        for index, item in enumerate(source.get("items") or ()):
            for field in ("key", "path"):
                if not item.get(field):
                    errors.append(FieldError.required(f"{path}.{first}.items[{index}].{field}"))
            errors += relative_path(item.get("path") or "", f"{path}.{first}.items[{index}].path")
    return errors + _own_errors(first, source, f"{path}.{first}")


def _own_errors(kind: str, source: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with a source beyond what all of them must have."""
    match kind:
        case "hostPath":
            wanted = source.get("type") or ""
            errors = no_way_back(source.get("path") or "", f"{path}.path")
            return errors if wanted in _HOST_PATHS else [*errors, FieldError.not_supported(f"{path}.type", wanted, _HOST_PATHS)]
        case "emptyDir":
            limit = source.get("sizeLimit")
            if limit is not None and parse_quantity(limit).nanos < 0:
                return [FieldError.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
        case "ephemeral":
            return [] if source.get("volumeClaimTemplate") else [FieldError.required(f"{path}.volumeClaimTemplate")]
        case "downwardAPI":
            return _file_errors(source.get("items") or (), f"{path}.items")
        case "projected":
            return [
                error
                for index, part in enumerate(source.get("sources") or ())
                for error in _projected_errors(part, f"{path}.sources[{index}]")
            ]
    return []


def _projected_errors(part: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = _file_errors((part.get("downwardAPI") or {}).get("items") or (), f"{path}.downwardAPI")
    if (token := part.get("serviceAccountToken")) is not None:
        where, seconds = f"{path}.serviceAccountToken", token.get("expirationSeconds") or 0
        if seconds < MIN_SECONDS:
            detail = "may not specify a duration less than 10 minutes"
            errors.append(FieldError.invalid(f"{where}.expirationSeconds", seconds, detail))
        elif seconds > MAX_SECONDS:
            detail = "may not specify a duration larger than 2^32 seconds"
            errors.append(FieldError.invalid(f"{where}.expirationSeconds", seconds, detail))
        if not token.get("path"):
            errors.append(FieldError.required(f"{where}.path"))
    return errors


def _file_errors(items: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    """What is wrong with what files show of the pod."""
    errors: list[FieldError] = []
    for index, item in enumerate(items):
        where = f"{path}[{index}]"
        if not item.get("path"):
            errors.append(FieldError.required(f"{where}.path"))
        errors += relative_path(item.get("path") or "", f"{where}.path")
        if (field := item.get("fieldRef")) is not None:
            errors += field_errors(field, OF_FILES, f"{where}.fieldRef")
        elif (amount := item.get("resourceFieldRef")) is not None:
            if not amount.get("containerName"):
                errors.append(FieldError.required(f"{where}.resourceFieldRef.containerName"))
            errors += resource_field_errors(amount, f"{where}.resourceFieldRef")
        else:
            errors.append(FieldError.required(where, "one of fieldRef and resourceFieldRef is required"))
    return errors
