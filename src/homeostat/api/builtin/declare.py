"""How the families declare their kinds: one call a kind, with what differs from the usual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from homeostat.api.builtin.types import schema_of
from homeostat.api.resource import ALL_VERBS, Column, Resource, Rules, Scale, Version
from homeostat.api.table import AGE, NAME

CREATE_ONLY = ("create",)
"""The verbs of kinds that are answered, not stored: reviews and bindings."""

REPLICAS = Scale(".spec.replicas", ".status.replicas", ".spec.selector")
"""Where the workloads keep what the scale subresource shows. Their selector is a structure, not a string."""


def kind(
    api_version: str,
    name: str,
    plural: str,
    *,
    namespaced: bool = True,
    short: Sequence[str] = (),
    categories: Sequence[str] = (),
    columns: Sequence[Column] = (NAME, AGE),
    rules: Rules | None = None,
    status: bool = False,
    scale: Scale | None = None,
    generation: bool = False,
    subresources: Sequence[str] = (),
    verbs: Sequence[str] = ALL_VERBS,
) -> Resource:
    """A built-in kind with one version. `generation` says whether upstream counts changes of the spec."""
    group, _, version = api_version.rpartition("/")
    form = Version(version, schema=schema_of(api_version, name), status=status, scale=scale, columns=columns)
    return Resource(
        group=group,
        plural=plural,
        kind=name,
        singular=name.lower(),
        namespaced=namespaced,
        versions={version: form},
        storage=version,
        short_names=short,
        categories=categories,
        verbs=verbs,
        rules=rules or Rules(),
        counts_generation=generation,
        subresources=subresources,
    )


def fill(target: dict[str, Any], **defaults: Any) -> None:
    """Sets the fields that are absent, null or, for text, empty: all of these mean "not said" upstream."""
    for field, value in defaults.items():
        present = target.get(field)
        if present is None or present == "":
            target[field] = value


def section(obj: dict[str, Any], field: str) -> dict[str, Any]:
    """A part of the object (`spec`, `status`), made where it is missing."""
    part = obj.get(field)
    if part is None:
        part = obj[field] = {}
    found: dict[str, Any] = part
    return found


class SpecAndStatus(Rules):
    """Rules of the kinds whose status belongs to their controller: the main resource neither sets nor changes it.

    What is handed to the constructor is the status of a new object.
    """

    def __init__(self, **initial_status: Any) -> None:
        self._initial_status = initial_status

    def prepare_create(self, obj: dict[str, Any]) -> None:
        obj["status"] = {k: dict(v) if isinstance(v, dict) else v for k, v in self._initial_status.items()}

    def prepare_update(self, obj: dict[str, Any], old: dict[str, Any]) -> None:
        if "status" in old:
            obj["status"] = old["status"]
        else:
            obj.pop("status", None)
