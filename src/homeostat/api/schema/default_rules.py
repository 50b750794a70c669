"""A default must itself be a value that the schema would take: pruned, and valid."""

from __future__ import annotations

import orjson

from homeostat.api.schema.embedded import embedded_errors
from homeostat.api.schema.explain import explain
from homeostat.api.schema.prune import prune
from homeostat.model.errors import UNSET, FieldError
from homeostat.model.schema import TYPE_AND_METADATA, Schema


def default_errors(schema: Schema, path: str) -> list[FieldError]:
    """What is wrong with the defaults in a structural schema; those under `additionalProperties` are left unread."""
    errors: list[FieldError] = []
    _walk(schema, path, errors, resource=True, in_metadata=False)
    return errors


def _walk(schema: Schema, path: str, errors: list[FieldError], *, resource: bool, in_metadata: bool) -> None:
    in_metadata = in_metadata and not schema.embedded
    if schema.default is not UNSET and schema.default is not None:
        errors.extend(_value_errors(schema, f"{path}.default", in_metadata))
    if schema.items is not None:
        _walk(schema.items, f"{path}.items", errors, resource=False, in_metadata=in_metadata)
    for name, child in schema.properties.items():
        inside = in_metadata or ((resource or schema.embedded) and name in TYPE_AND_METADATA)
        _walk(child, f"{path}.properties[{name}]", errors, resource=False, in_metadata=inside)


def _value_errors(schema: Schema, path: str, in_metadata: bool) -> list[FieldError]:
    value = schema.default
    if in_metadata:
        return explain(schema, value).field_errors(path)
    errors = []
    copy = orjson.loads(orjson.dumps(value))
    if prune(schema, copy, root=schema.embedded):
        errors.append(FieldError.invalid(path, value, "must not have unknown fields"))
    return errors + (embedded_errors(schema, value, path) or explain(schema, value).field_errors(path))
