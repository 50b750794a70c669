"""Making a kind known to an API server, ours or any other.

A definition never loses a field that objects declare: a server drops what is not in it, so an older program that is started once more would
take away what was declared for the newer one, in policies and in resources, without a word.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from homeostat.client import Client
from homeostat.model.errors import ApiError

SERVED_SECONDS = 10.0
"""How long a server may take until it serves a kind that it was told of."""
PAUSE_SECONDS = 0.05

log = logging.getLogger("homeostat.loop")

Object = dict[str, Any]
Path = tuple[str, ...]
EACH = "*"
"""In a path: every item of a list, every value of a map."""


async def define(client: Client, crd: Object, manager: str) -> None:
    """Applies a CustomResourceDefinition, and waits until its kind is served. TimeoutError where it is not in time."""
    definitions = client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    crd = await _with_what_is_used(client, crd)
    await definitions.apply(crd, field_manager=manager, force=True)
    version = crd["spec"]["versions"][0]["name"]
    served = client.kind(f"{crd['spec']['group']}/{version}", crd["spec"]["names"]["kind"])
    async with asyncio.timeout(SERVED_SECONDS):
        while True:
            try:
                await served.served()
                return
            except ApiError as error:
                if error.code != 404:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)


async def _with_what_is_used(client: Client, crd: Object) -> Object:
    """The definition, and those fields of the one there is that it lacks and that some object declares otherwise than by default."""
    try:
        known = await client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").get(crd["metadata"]["name"])
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        return crd
    version = crd["spec"]["versions"][0]["name"]
    before = next((_spec_of(one) for one in known["spec"]["versions"] if one["name"] == version), {})
    lost = list(_lost(before, _spec_of(crd["spec"]["versions"][0]), ()))
    if not lost:
        return crd
    try:
        objects = await client.kind(f"{crd['spec']['group']}/{version}", crd["spec"]["names"]["kind"]).list(namespace="")
    except ApiError as error:
        if error.code == 404:
            return crd
        raise
    used = [(path, schema) for path, schema in lost if any(_uses(one.get("spec"), path, schema.get("default")) for one in objects)]
    if not used:
        return crd
    crd = deepcopy(crd)
    for path, schema in used:
        _graft(_spec_of(crd["spec"]["versions"][0]), path, schema)
    names = ", ".join(f"spec.{'.'.join(path)}" for path, _ in used)
    log.warning(
        "%s of %s is declared, and this program does not know it: it stays as it is, and nothing is done about it. Is this an older program?",
        names,
        crd["metadata"]["name"],
    )
    return crd


def _spec_of(version: Object) -> Object:
    found: Object = version.get("schema", {}).get("openAPIV3Schema", {}).get("properties", {}).get("spec", {})
    return found


def _lost(before: Object, after: Object, path: Path) -> Iterator[tuple[Path, Object]]:
    """The fields of one schema that another lacks, the outermost of each."""
    if after.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, schema in before.get("properties", {}).items():
        if name in after.get("properties", {}):
            yield from _lost(schema, after["properties"][name], (*path, name))
        elif "properties" in after:
            yield (*path, name), schema
    for inner in ("items", "additionalProperties"):
        if isinstance(before.get(inner), dict) and isinstance(after.get(inner), dict):
            yield from _lost(before[inner], after[inner], (*path, EACH))


def _uses(value: Any, path: Path, default: Any) -> bool:
    if not path:
        return value is not None and value != default
    if path[0] == EACH:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return any(_uses(one, path[1:], default) for one in inner)
    return isinstance(value, dict) and path[0] in value and _uses(value[path[0]], path[1:], default)


def _graft(schema: Object, path: Path, grown: Object) -> None:
    for name in path[:-1]:
        schema = (schema.get("items") or schema["additionalProperties"]) if name == EACH else schema["properties"][name]
    schema["properties"][path[-1]] = grown
