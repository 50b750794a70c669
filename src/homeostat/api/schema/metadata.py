"""The rules about `metadata` that hold for every kind, in upstream's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from homeostat.model.errors import FieldError
from homeostat.model.names import annotation_errors, dns_label_problems, label_errors, qualified_name_problems

Meta = Mapping[str, Any]

MANAGER_MAX = 128
"""Bytes of a field manager's name."""
SUBRESOURCE_MAX = 256
IMMUTABLE = "field is immutable"
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
"""The finalizers by which a deletion is remembered to be in the foreground, or to orphan its dependents."""
_STRINGS = ("name", "namespace", "uid")
_STAMPS = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def validate_metadata(
    meta: Meta,
    *,
    namespaced: bool,
    name_problems: Callable[[str], Sequence[str]],
    path: str = "metadata",
    old: Meta | None = None,
) -> list[FieldError]:
    """Everything wrong with the metadata of an object, or with the step from `old`.

    Types must have been checked before (`metadata_type_error`). On an update the name was legal when it came and is
    only compared.
    """
    if old is not None and _carried_over(meta, old):
        return _managed_errors(meta.get("managedFields") or (), f"{path}.managedFields")
    errors: list[FieldError] = []
    get = meta.get
    if old is None:
        if (prefix := get("generateName")) and (problems := name_problems(_as_name(prefix))):
            errors.extend(FieldError.invalid(f"{path}.generateName", prefix, p) for p in problems)
        name = get("name")
        if not name:
            errors.append(FieldError.required(f"{path}.name", "name or generateName is required"))
        elif problems := name_problems(name):
            errors.extend(FieldError.invalid(f"{path}.name", name, p) for p in problems)
    namespace = get("namespace")
    if namespaced:
        if not namespace:
            errors.append(FieldError.required(f"{path}.namespace"))
        elif (old is None or namespace != old.get("namespace")) and (problems := dns_label_problems(namespace)):
            errors.extend(FieldError.invalid(f"{path}.namespace", namespace, p) for p in problems)
    elif namespace:
        errors.append(FieldError.forbidden(f"{path}.namespace", "not allowed on this type"))
    if (generation := get("generation")) and generation < 0:
        why = "must be greater than or equal to 0"
        errors.append(FieldError.invalid(f"{path}.generation", generation, why))
    for field, judge in _JUDGES:
        # What was carried over as it is was judged when it came.
        if (given := get(field)) and (old is None or given is not old.get(field)):
            errors.extend(judge(given, f"{path}.{field}"))
    if old is not None:
        errors.extend(_update_errors(meta, old, path))
    return errors


def _carried_over(meta: Meta, old: Meta) -> bool:
    """Is it as it was, but for who manages which fields? So it is after most writes of a status."""
    new = [field for field, value in meta.items() if value is not old.get(field)]
    return new in ([], ["managedFields"]) and old.keys() <= meta.keys()


def _as_name(prefix: str) -> str:
    """A prefix is judged as a name would be; a dash at its end is fine, for more will follow."""
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _update_errors(meta: Meta, old: Meta, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if old.get("deletionTimestamp") is not None:
        before = old.get("finalizers") or ()
        added = sorted({f for f in meta.get("finalizers") or () if f not in before})
        if added:
            listed = ", ".join(f'"{f}"' for f in added)
            why = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            errors.append(FieldError.forbidden(f"{path}.finalizers", why))
    if (meta.get("generation") or 0) < (old.get("generation") or 0):
        errors.append(FieldError.invalid(f"{path}.generation", meta.get("generation") or 0, "must not be decremented"))
    for field in _STRINGS:
        new = meta.get(field) or ""
        if new != (old.get(field) or ""):
            errors.append(FieldError.invalid(f"{path}.{field}", new, IMMUTABLE))
    for field in _STAMPS:
        if meta.get(field) != old.get(field):
            errors.append(FieldError.invalid(f"{path}.{field}", meta.get(field), IMMUTABLE))
    return errors


def _owner_errors(owners: Sequence[Meta], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = ""
    for owner in owners:
        api_version, kind = owner.get("apiVersion") or "", owner.get("kind") or ""
        if not api_version.rpartition("/")[2] or api_version.count("/") > 1:
            errors.append(FieldError.invalid(f"{path}.apiVersion", api_version, "version must not be empty"))
        for field in ("kind", "name", "uid"):
            if not owner.get(field):
                errors.append(FieldError.invalid(f"{path}.{field}", "", "must not be empty"))
        if api_version == "v1" and kind == "Event":
            why = "/v1, Kind=Event is disallowed from being an owner"
            errors.append(FieldError.invalid(path, owner, why))
        if owner.get("controller") is True:
            named = f"{kind}/{owner.get('name') or ''}"
            if controller:
                why = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {named}'
                )
                errors.append(FieldError.invalid(path, owners, why))
            else:
                controller = named
    return errors


def _finalizer_errors(finalizers: Sequence[str], path: str) -> list[FieldError]:
    errors = [FieldError.invalid(path, name, p) for name in finalizers for p in qualified_name_problems(name)]
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        why = f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"
        errors.append(FieldError.invalid(path, finalizers, why))
    return errors


def _managed_errors(entries: Sequence[Meta], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, entry in enumerate(entries):
        if _is_usual(entry):
            continue
        operation = entry.get("operation") or ""
        if operation not in ("Apply", "Update"):
            errors.append(FieldError.invalid(f"{path}[{i}].operation", operation, "must be `Apply` or `Update`"))
        if entry.get("fieldsType") not in (None, "", "FieldsV1"):
            errors.append(FieldError.invalid(f"{path}[{i}].fieldsType", entry["fieldsType"], "must be `FieldsV1`"))
        manager = entry.get("manager") or ""
        if len(manager.encode("utf-8", "surrogatepass")) > MANAGER_MAX:
            errors.append(FieldError.too_long(f"{path}[{i}].manager", MANAGER_MAX))
        if manager and not manager.isprintable():
            why = "should only contain printable characters"
            errors.append(FieldError.invalid(f"{path}[{i}].manager", manager, why))
        if len(entry.get("subresource") or "") > SUBRESOURCE_MAX:
            errors.append(FieldError.too_long(f"{path}[{i}].subresource", SUBRESOURCE_MAX))
    return errors


def _is_usual(entry: Meta) -> bool:
    """Is an entry of managed fields such as we write them?"""
    manager = entry.get("manager") or ""
    return (
        entry.get("operation") in ("Apply", "Update")
        and entry.get("fieldsType") == "FieldsV1"
        and len(manager) <= MANAGER_MAX
        and manager.isascii()
        and manager.isprintable()
        and len(entry.get("subresource") or "") <= SUBRESOURCE_MAX
    )


_JUDGES: tuple[tuple[str, Callable[[Any, str], Sequence[FieldError]]], ...] = (
    ("labels", label_errors),
    ("annotations", annotation_errors),
    ("ownerReferences", _owner_errors),
    ("finalizers", _finalizer_errors),
    ("managedFields", _managed_errors),
)
"""What each part of metadata is judged by, in upstream's order."""
