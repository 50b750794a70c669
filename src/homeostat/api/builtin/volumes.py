"""Volumes of a pod: their defaults and checks. Cloud vendors' own sources are kept as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.checks import label_name
from homeostat.api.builtin.declare import fill
from homeostat.model.errors import FieldError

_FILE_MODE = 0o644
_FILE_MODE_WORDS = "must be a number between 0 and 0777 (octal), both inclusive"
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
    return errors
