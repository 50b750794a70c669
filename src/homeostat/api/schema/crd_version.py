"""The parts that each version of a CustomResourceDefinition has: schema, subresources, columns, selectable fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from homeostat.api.schema.compiled import anywhere
from homeostat.api.schema.default_rules import default_errors
from homeostat.api.schema.openapi_rules import openapi_errors, unsupported_field
from homeostat.api.schema.shape import children, shape_errors
from homeostat.api.schema.structural import structural_errors
from homeostat.model.errors import FieldError
from homeostat.model.schema import Schema

Raw = dict[str, Any]

MAX_SELECTABLE = 8
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SELECTABLE_TYPES = ("string", "boolean", "integer")
_ROOT_FIELDS = {
    "description": "Description",
    "type": "Type",
    "format": "Format",
    "title": "Title",
    "maximum": "Maximum",
    "exclusiveMaximum": "ExclusiveMaximum",
    "minimum": "Minimum",
    "exclusiveMinimum": "ExclusiveMinimum",
    "maxLength": "MaxLength",
    "minLength": "MinLength",
    "pattern": "Pattern",
    "maxItems": "MaxItems",
    "minItems": "MinItems",
    "uniqueItems": "UniqueItems",
    "multipleOf": "MultipleOf",
    "required": "Required",
    "items": "Items",
    "properties": "Properties",
    "externalDocs": "ExternalDocs",
    "example": "Example",
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}
"""What may stand at the root of a schema beside a status subresource: by its name in JSON, and as upstream lists it."""


def shared(versions: list[Raw], field: str) -> bool:
    """Do all versions have the same value in a field? Empty and absent are the same."""
    return all((v.get(field) or None) == (versions[0].get(field) or None) for v in versions)


def schema_errors(validation: Any, path: str, status: bool) -> list[FieldError]:
    """What is wrong with `schema` of a version. `status`: the status subresource is on, which limits the root."""
    raw = validation.get("openAPIV3Schema") if type(validation) is dict else None
    if raw is None:
        return []
    at = f"{path}.openAPIV3Schema"
    errors = shape_errors(raw, at)
    if errors:
        return errors
    if status:
        errors.extend(_root_errors(raw, at))
    if raw.get("nullable") is True:
        errors.append(FieldError.forbidden(f"{at}.nullable", "nullable cannot be true at the root"))
    unsupported = _first_unsupported(raw)
    ruled: Schema | None = None
    if not unsupported:
        found = structural_errors(raw, at)
        if not found:
            schema = Schema(raw)
            found = default_errors(schema, at)
            if not found and anywhere(schema, lambda node: bool(node.raw.get("x-kubernetes-validations"))):
                ruled = schema
        errors.extend(found)
    errors.extend(openapi_errors(raw, at))
    if not errors and unsupported:
        errors.append(FieldError.invalid(at, "", unsupported))
    if not errors and ruled is not None:
        from homeostat.api.cel import check_rules

        errors.extend(check_rules(ruled, at))
    return errors


def _root_errors(raw: Raw, path: str) -> list[FieldError]:
    for field, value in raw.items():
        if value is None or value is False or value in ("", 0) or value in ([], {}):
            continue
        if field == "type" and value != "object":
            why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            return [FieldError.invalid(f"{path}.type", value, why)]
        if field in _NOT_AT_ROOT:
            allowed = " ".join(_ROOT_FIELDS.values())
            why = f"only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
            return [FieldError.invalid(path, raw, why)]
    return []


_NOT_AT_ROOT = frozenset(
    (
        *("id", "$schema", "$ref", "default", "nullable", "enum", "maxProperties", "minProperties"),
        *("allOf", "oneOf", "anyOf", "not", "additionalProperties", "patternProperties", "dependencies"),
        *("additionalItems", "definitions", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"),
        *("x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type"),
    )
)


def _nodes(raw: Raw) -> Iterator[Raw]:
    yield raw
    for _, child in children(raw, ""):
        if type(child) is dict:
            yield from _nodes(child)


def _first_unsupported(raw: Raw) -> str:
    """Why a schema cannot even be read as structural; empty where it can."""
    for node in _nodes(raw):
        if why := unsupported_field(node):
            return why
        if any(node.get(field) for field in ("patternProperties", "dependencies", "definitions")):
            return "OpenAPIV3Schema holds fields that are not supported"
        if node.get("additionalItems") is not None or type(node.get("items")) is list:
            return "OpenAPIV3Schema 'items' must be a schema, but is an array"
        if node.get("x-kubernetes-preserve-unknown-fields") is False:
            return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    return ""


def unrecognized_formats(raw: Any) -> list[str]:
    """Formats in a schema that have no meaning for their type, so that any value will pass."""
    from homeostat.api.schema.formats import effective_format

    if type(raw) is not dict or shape_errors(raw, ""):
        return []
    named = ((node.get("type") or "", node.get("format")) for node in _nodes(raw))
    return [name for kind, name in named if name and not effective_format(kind, name)]


def subresource_errors(subresources: Raw, path: str) -> list[FieldError]:
    """What is wrong with the paths of the scale subresource."""
    scale = subresources.get("scale")
    if type(scale) is not dict:
        return []
    errors: list[FieldError] = []
    for field, under in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        value, at = scale.get(field), f"{path}.scale.{field}"
        if not value or type(value) is not str:
            errors.append(FieldError.required(at))
        elif not value.startswith("."):
            errors.append(FieldError.invalid(at, value, "must be a simple json path starting with ."))
        elif not value.startswith(under):
            errors.append(FieldError.invalid(at, value, f"should be a json path under {under[:-1]}"))
    selector, at = scale.get("labelSelectorPath"), f"{path}.scale.labelSelectorPath"
    if selector and type(selector) is str:
        if not selector.startswith("."):
            errors.append(FieldError.invalid(at, selector, "must be a simple json path starting with ."))
        elif not selector.startswith((".spec.", ".status.")):
            errors.append(FieldError.invalid(at, selector, "should be a json path under either .spec or .status"))
    return errors


def column_errors(columns: list[Any], path: str) -> list[FieldError]:
    """What is wrong with the printer columns."""
    errors: list[FieldError] = []
    for i, column in enumerate(columns):
        at = f"{path}[{i}]"
        if type(column) is not dict:
            errors.append(FieldError.type_invalid(at, column, "must be an object"))
            continue
        kind, fmt, where = column.get("type") or "", column.get("format") or "", column.get("jsonPath") or ""
        if not column.get("name"):
            errors.append(FieldError.required(f"{at}.name"))
        if kind not in _COLUMN_TYPES:
            why = f"must be one of {','.join(_COLUMN_TYPES)}"
            bad = FieldError.invalid(f"{at}.type", kind, why) if kind else FieldError.required(f"{at}.type", why)
            errors.append(bad)
        if fmt and fmt not in _COLUMN_FORMATS:
            errors.append(FieldError.invalid(f"{at}.format", fmt, f"must be one of {','.join(_COLUMN_FORMATS)}"))
        if not where or type(where) is not str:
            errors.append(FieldError.required(f"{at}.JSONPath"))
        elif not where.startswith("."):
            errors.append(FieldError.invalid(f"{at}.JSONPath", where, "must be a simple json path starting with ."))
    return errors


def selectable_errors(fields: list[Any], raw: Any, path: str) -> list[FieldError]:
    """What is wrong with the selectable fields: each must lead to a scalar of the schema, outside of metadata."""
    if not fields:
        return []
    if raw is None:
        why = "selectableFields may only be set when validations.schema is included"
        return [FieldError.invalid(path, "", why)]
    errors: list[FieldError] = []
    seen: set[tuple[str, ...]] = set()
    for i, field in enumerate(fields):
        at = f"{path}[{i}].jsonPath"
        where = field.get("jsonPath") if type(field) is dict else None
        if not where or type(where) is not str:
            errors.append(FieldError.required(at))
            continue
        names, kind, problem = _field_path(where, raw)
        if problem:
            errors.append(FieldError.invalid(at, where, f"is an invalid path: {problem}"))
            continue
        if names[0] == "metadata":
            errors.append(FieldError.invalid(at, where, "must not point to fields in metadata"))
        if kind not in _SELECTABLE_TYPES:
            why = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            errors.append(FieldError.invalid(at, where, why))
        if names in seen:
            errors.append(FieldError.duplicate(at, where))
        seen.add(names)
    if len(seen) > MAX_SELECTABLE:
        errors.append(FieldError.too_many(path, len(seen), MAX_SELECTABLE))
    return errors


def _field_path(where: str, raw: Raw) -> tuple[tuple[str, ...], str, str]:
    """The fields that a path of dots names, the type it leads to, and what is wrong with it."""
    names: list[str] = []
    node: Any = raw if type(raw) is dict else {}
    tokens = iter(re.findall(r"[.\[\]]|[^.\[\]]+", where))
    for token in tokens:
        if token == "[":
            return (), "", "array notation is not allowed"
        if token != ".":
            return (), "", f"expected [ or . but got: {token}"
        name = next(tokens, None)
        if name is None:
            return (), "", "unexpected end of JSON path"
        properties = node.get("properties")
        node = properties.get(name) if type(properties) is dict and properties else node.get("additionalProperties")
        if type(node) is not dict:
            return (), "", "does not refer to a valid field"
        names.append(name)
    if not names:
        return (), "", "unexpected end of JSON path"
    kind = node.get("type")
    return tuple(names), kind if type(kind) is str else "", ""
