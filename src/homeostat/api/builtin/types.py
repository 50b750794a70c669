"""The types of the built-in kinds, read from `types.tsv` one definition at a time, when first asked for.

Two things about these types differ from custom ones and bite: `null` is legal in every field and means absent, and
`required` is what upstream documents, not what it checks (its validation does). A quantity has no `type`: JSON strings
and numbers are both legal.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import orjson

from homeostat.api.builtin.layout import absent_when_zero
from homeostat.api.schema.canonical import MICROSECONDS
from homeostat.model.schema import ABSENT_WHEN_ZERO, OBJECT_META, Schema

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
"""How upstream's names of the types begin that all kinds share, and those of definitions."""
EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions."


@cache
def _table() -> dict[str, bytes]:
    lines = Path(__file__).with_name("types.tsv").read_bytes().splitlines()
    return {name.decode(): facts for name, _, facts in (line.partition(b"\t") for line in lines)}


def is_defined(name: str) -> bool:
    """Whether the table has a type of this name (`io.k8s.api.core.v1.Pod`)."""
    return name in _table()


def definition(name: str) -> dict[str, Any]:
    """The facts of one type as stored; a `$ref` is the bare name of another. KeyError where there is none."""
    facts: dict[str, Any] = orjson.loads(_table()[name])
    return facts


@cache
def schema(name: str) -> Schema:
    """The type by upstream's name, with references followed as they are walked. KeyError where there is none."""
    if name == META + "ObjectMeta":
        return OBJECT_META
    facts = {**definition(name), ABSENT_WHEN_ZERO: absent_when_zero(name)}
    if name == META + "MicroTime":
        facts[MICROSECONDS] = True
    return Schema(facts, schema)


def definition_name(api_version: str, kind: str) -> str:
    """Upstream's name for a kind, such as `io.k8s.api.apps.v1.Deployment`. KeyError if it is not built in."""
    group, _, version = api_version.rpartition("/")
    if "." in group and not group.endswith(".k8s.io"):
        raise KeyError(f"{group} is not a built-in group")
    if group == "apiextensions.k8s.io":
        name = f"{EXTENSIONS}{version}.{kind}"
    else:
        name = f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}.{kind}"
    if name in _table():
        return name
    if api_version == "v1" and META + kind in _table():
        return META + kind
    raise KeyError(f"{kind} in {api_version} is not a built-in type")


def schema_of(api_version: str, kind: str) -> Schema:
    """The type of a built-in kind, such as `schema_of("apps/v1", "Deployment")`. KeyError if there is none."""
    return schema(definition_name(api_version, kind))
