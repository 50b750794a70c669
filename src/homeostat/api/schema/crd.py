"""Checks a CustomResourceDefinition as upstream's apiextensions server does, field by field, in its words.

Upstream moves what all versions have in common (schema, subresources, columns, selectable fields) to the top of the
spec before it looks; so with one version an error is at `spec.validation.openAPIV3Schema…`, not `spec.versions[0]…`.
"""

from __future__ import annotations

from typing import Any

from homeostat.api.schema.crd_version import (
    column_errors,
    schema_errors,
    selectable_errors,
    shared,
    subresource_errors,
    unrecognized_formats,
)
from homeostat.api.schema.metadata import IMMUTABLE
from homeostat.api.schema.webhook import conversion_errors
from homeostat.model.errors import FieldError
from homeostat.model.names import dns1035_problems, dns_subdomain_problems

Crd = dict[str, Any]

SCOPES = ("Cluster", "Namespaced")
APPROVAL = "api-approved.kubernetes.io"
_WARNING_MAX = 256
_SEE = "see https://github.com/kubernetes/enhancements/pull/1111"


def default_crd(crd: Crd) -> None:
    """Fills in what upstream fills in, in place: names.singular, names.listKind, conversion, the webhook's port."""
    spec = _map(crd, "spec")
    names = _map(spec, "names")
    kind = names.get("kind")
    if type(kind) is str and kind:
        if not names.get("singular"):
            names["singular"] = kind.lower()
        if not names.get("listKind"):
            names["listKind"] = f"{kind}List"
    if spec and spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    service = _map(_map(_map(_map(spec, "conversion"), "webhook"), "clientConfig"), "service")
    if service and service.get("port") is None:
        service["port"] = 443


def check_crd(crd: Crd, old: Crd | None = None) -> list[FieldError]:
    """Everything wrong with a CustomResourceDefinition after `default_crd`, or with the step from `old`.

    The rules about metadata itself are `validate_metadata`'s; only that the name fits the spec is checked here. Of the
    status, what is there is checked: the server writes it.
    """
    errors: list[FieldError] = []
    spec, names = _map(crd, "spec"), _map(_map(crd, "spec"), "names")
    name = _text(_map(crd, "metadata"), "name")
    if old is None and name and name != f"{_text(names, 'plural')}.{_text(spec, 'group')}":
        errors.append(FieldError.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    errors.extend(_spec_errors(spec))
    if old is not None:
        errors.extend(_immutable_errors(crd, old))
    errors.extend(_name_errors(_map(_map(crd, "status"), "acceptedNames"), "status.acceptedNames"))
    errors.extend(_stored_errors(_list(_map(crd, "status"), "storedVersions"), _versions(spec)))
    errors.extend(_approval_errors(crd, old))
    if spec.get("preserveUnknownFields") is True and _map(old or {}, "spec").get("preserveUnknownFields") is not True:
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        errors.append(FieldError.invalid("spec.preserveUnknownFields", True, why))
    return errors


def check_crd_status(crd: Crd) -> list[FieldError]:
    """What is wrong with a status that was written by itself. Which versions are still stored is the writer's word."""
    return _name_errors(_map(_map(crd, "status"), "acceptedNames"), "status.acceptedNames")


def format_warnings(crd: Crd, old: Crd | None = None) -> list[str]:
    """A warning for each string format that nobody knows and that is new in this definition."""
    known = set(_formats(old)) if old is not None else set()
    return [f'unrecognized format "{name}"' for name in _formats(crd) if name not in known]


def _formats(crd: Crd) -> list[str]:
    versions = _versions(_map(crd, "spec"))
    chosen = versions[:1] if shared(versions, "schema") else versions
    return [name for version in chosen for name in unrecognized_formats(_map(version, "schema").get("openAPIV3Schema"))]


def _spec_errors(spec: Crd) -> list[FieldError]:
    errors = _group_errors(_text(spec, "group"))
    scope = _text(spec, "scope")
    if not scope:
        errors.append(FieldError.required("spec.scope"))
    elif scope not in SCOPES:
        errors.append(FieldError.not_supported("spec.scope", scope, SCOPES))
    versions = _versions(spec)
    errors.extend(
        FieldError.required(f"spec.versions[{i}].schema.openAPIV3Schema")
        for i, version in enumerate(versions)
        if _map(version, "schema").get("openAPIV3Schema") is None
    )
    errors.extend(_versions_errors(versions))
    names = _map(spec, "names")
    for field in ("plural", "singular", "kind", "listKind"):
        if not _text(names, field):
            errors.append(FieldError.required(f"spec.names.{field}"))
    errors.extend(_name_errors(names, "spec.names"))
    errors.extend(_parts_errors(versions))
    errors.extend(conversion_errors(spec.get("conversion"), "spec.conversion"))
    return errors


def _group_errors(group: str) -> list[FieldError]:
    if not group:
        return [FieldError.required("spec.group")]
    if problems := dns_subdomain_problems(group):
        return [FieldError.invalid("spec.group", group, ",".join(problems))]
    if "." not in group:
        return [FieldError.invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _versions_errors(versions: list[Crd]) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, version in enumerate(versions):
        at, name = f"spec.versions[{i}]", _text(version, "name")
        if problems := dns1035_problems(name):
            errors.append(FieldError.invalid(f"{at}.name", name, ",".join(problems)))
        errors.extend(_deprecation_errors(version, f"{at}.deprecationWarning"))
    if len({_text(v, "name") for v in versions}) != len(versions):
        errors.append(FieldError.invalid("spec.versions", versions, "must contain unique version names"))
    if sum(v.get("storage") is True for v in versions) != 1:
        why = "must have exactly one version marked as storage version"
        errors.append(FieldError.invalid("spec.versions", versions, why))
    return errors


def _deprecation_errors(version: Crd, path: str) -> list[FieldError]:
    warning = version.get("deprecationWarning")
    if type(warning) is not str:
        return []
    if version.get("deprecated") is not True:
        return [FieldError.invalid(path, warning, "can only be set for deprecated versions")]
    problems = []
    if len(warning.encode("utf-8", "surrogatepass")) > _WARNING_MAX:
        problems.append(f"must be <= {_WARNING_MAX} characters long")
    if not warning:
        problems.append("must not be an empty string")
    for i, char in enumerate(warning):
        if not char.isprintable():
            at = len(warning[:i].encode("utf-8", "surrogatepass"))
            where = f"non-printable character found at index {at}"
            problems.append(f"must only contain printable UTF-8 characters; {where}")
            break
    return [FieldError.invalid(path, warning, p) for p in problems]


def _parts_errors(versions: list[Crd]) -> list[FieldError]:
    """Schemas, subresources, columns, selectable fields: once at the top where all versions agree, else one by one."""
    errors: list[FieldError] = []
    per_version = [(f"spec.versions[{i}]", version) for i, version in enumerate(versions)]
    top = [("spec", versions[0])] if versions else []
    status = any(_map(v, "subresources").get("status") is not None for v in versions)
    for field, shown in (("schema", "validation"), ("subresources", "subresources")):
        together = shared(versions, field)
        for at, version in top if together else per_version:
            if field == "schema":
                if not together:
                    status = _map(version, "subresources").get("status") is not None
                errors.extend(schema_errors(version.get("schema"), f"{at}.{shown if together else 'schema'}", status))
            else:
                errors.extend(subresource_errors(_map(version, "subresources"), f"{at}.subresources"))
    for at, version in top if shared(versions, "additionalPrinterColumns") else per_version:
        errors.extend(column_errors(_list(version, "additionalPrinterColumns"), f"{at}.additionalPrinterColumns"))
    for at, version in top if shared(versions, "selectableFields") else per_version:
        schema = _map(version, "schema").get("openAPIV3Schema")
        errors.extend(selectable_errors(_list(version, "selectableFields"), schema, f"{at}.selectableFields"))
    return errors


def _name_errors(names: Crd, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    mixed = "may have mixed case, but should otherwise match: "
    for field in ("plural", "singular", "kind", "listKind"):
        name = _text(names, field)
        cased = field in ("kind", "listKind")
        if name and (problems := dns1035_problems(name.lower() if cased else name)):
            why = (mixed if cased else "") + ",".join(problems)
            errors.append(FieldError.invalid(f"{path}.{field}", name, why))
    for i, name in enumerate(_list(names, "shortNames")):
        if problems := dns1035_problems(str(name)):
            errors.append(FieldError.invalid(f"{path}.shortNames[{i}]", name, ",".join(problems)))
    if (kind := _text(names, "kind")) and kind == _text(names, "listKind"):
        errors.append(FieldError.invalid(f"{path}.listKind", kind, "kind and listKind may not be the same"))
    for i, name in enumerate(_list(names, "categories")):
        if problems := dns1035_problems(str(name)):
            errors.append(FieldError.invalid(f"{path}.categories[{i}]", name, ",".join(problems)))
    return errors


def _immutable_errors(crd: Crd, old: Crd) -> list[FieldError]:
    new_spec, old_spec = _map(crd, "spec"), _map(old, "spec")
    new_names, old_names = _map(new_spec, "names"), _map(old_spec, "names")
    fields = [
        ("spec.group", _text(new_spec, "group"), _text(old_spec, "group")),
        ("spec.names.plural", _text(new_names, "plural"), _text(old_names, "plural")),
    ]
    if _is_established(old):
        fields[:0] = [
            ("spec.scope", _text(new_spec, "scope"), _text(old_spec, "scope")),
            ("spec.names.kind", _text(new_names, "kind"), _text(old_names, "kind")),
        ]
    return [FieldError.invalid(path, new, IMMUTABLE) for path, new, before in fields if new != before]


def _is_established(crd: Crd) -> bool:
    conditions = _list(_map(crd, "status"), "conditions")
    return any(type(c) is dict and c.get("type") == "Established" and c.get("status") == "True" for c in conditions)


def _stored_errors(stored: list[Any], versions: list[Crd]) -> list[FieldError]:
    if not stored:
        if any(v.get("storage") is True for v in versions):
            return []  # the server is about to write them
        return [FieldError.invalid("status.storedVersions", None, "must have at least one stored version")]
    errors = [
        FieldError.invalid("status.storedVersions", stored, f"must have the storage version {_text(v, 'name')}")
        for v in versions
        if v.get("storage") is True and _text(v, "name") not in stored
    ]
    known = {_text(v, "name") for v in versions}
    for i, name in enumerate(stored):
        if name not in known:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            errors.append(FieldError.invalid(f"status.storedVersions[{i}]", name, why))
    return errors


def _approval_errors(crd: Crd, old: Crd | None) -> list[FieldError]:
    """Groups of the Kubernetes community are not for everyone: they need a sign that somebody approved."""
    group = _text(_map(crd, "spec"), "group")
    if not (group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))):
        return []
    state, detail = _approval(crd)
    if state in ("approved", "bypassed") or (old is not None and _approval(old)[0] == state):
        return []
    path = f"metadata.annotations[{APPROVAL}]"
    if state == "missing":
        return [FieldError.required(path, detail)]
    return [FieldError.invalid(path, _text(_map(_map(crd, "metadata"), "annotations"), APPROVAL), detail)]


def _approval(crd: Crd) -> tuple[str, str]:
    annotation = _text(_map(_map(crd, "metadata"), "annotations"), APPROVAL)
    must = f'protected groups must have approval annotation "{APPROVAL}"'
    if not annotation:
        return "missing", f"{must}, {_SEE}"
    if annotation.startswith("unapproved"):
        return "bypassed", ""
    scheme, separator, host = annotation.partition("://")
    if separator and scheme and host.partition("/")[0]:
        return "approved", ""
    return "invalid", f'{must} with either a URL or a reason starting with "unapproved", {_SEE}'


def _versions(spec: Crd) -> list[Crd]:
    return [v for v in _list(spec, "versions") if type(v) is dict]


def _map(owner: Crd, field: str) -> Crd:
    value = owner.get(field)
    return value if type(value) is dict else {}


def _list(owner: Crd, field: str) -> list[Any]:
    value = owner.get(field)
    return value if type(value) is list else []


def _text(owner: Crd, field: str) -> str:
    value = owner.get(field)
    return value if type(value) is str else ""
