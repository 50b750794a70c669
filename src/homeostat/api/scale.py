"""The scale subresource: how many there should be and how many there are, of anything that can be counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import orjson

from homeostat.api import fields
from homeostat.api.builtin.types import schema_of
from homeostat.api.call import Call, WriteOptions
from homeostat.api.intake import decode_body, place, strictness
from homeostat.api.patching import bad_outcome, patch_document, patch_media, read_configuration, read_patch
from homeostat.api.read import shape_of
from homeostat.api.request import Response
from homeostat.api.resource import Column, Object, Scale, at
from homeostat.api.schema import decode_errors
from homeostat.api.shape import TableShape
from homeostat.api.table import AGE, NAME, Printer
from homeostat.api.write import change
from homeostat.model.errors import FieldError, bad_request, invalid, not_found, path_not_found
from homeostat.model.protocol import APPLY_PATCH
from homeostat.model.schema import ANY
from homeostat.model.selectors import selector_text

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

_VERSION = "autoscaling/v1"
_PRINTER = Printer(
    (
        NAME,
        Column("Desired", lambda obj: obj["spec"].get("replicas", 0), "integer", description="How many there should be."),
        Column("Available", lambda obj: obj["status"]["replicas"], "integer", description="How many there are."),
        AGE,
    )
)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.lstrip(".").split("."))


def _layout(call: Call) -> Scale:
    layout = call.codec.version.scale
    if layout is None:
        raise path_not_found()
    return layout


def as_scale(call: Call, obj: Object) -> Object:
    """An object as its `Scale`."""
    layout = _layout(call)
    metadata = obj["metadata"]
    shown = {k: metadata[k] for k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if k in metadata}
    replicas = at(obj, *_parts(layout.spec_replicas))
    status: dict[str, Any] = {"replicas": at(obj, *_parts(layout.status_replicas)) or 0}
    selector = at(obj, *_parts(layout.selector)) if layout.selector else None
    if selector and isinstance(selector, str):
        status["selector"] = selector
    elif selector and not call.resource.custom:  # of custom kinds only text is taken for a selector
        status["selector"] = selector_text(selector)
    spec = {"replicas": replicas} if replicas else {}
    return {"kind": "Scale", "apiVersion": _VERSION, "metadata": shown, "spec": spec, "status": status}


async def get(plane: ControlPlane, call: Call) -> Response:
    """GET of a Scale."""
    _layout(call)
    shape = shape_of(plane, call, listing=False)
    if isinstance(shape, TableShape):
        shape.printer = _PRINTER
    entry = await plane.store.get(call.key)
    if entry is None:
        # Of built-in kinds upstream says that the scale is missing, of custom ones that the object is.
        scale = call.resource.plural if call.resource.custom else f"{call.resource.plural}/scale"
        raise not_found(call.resource.group, scale, call.name)
    return Response(200, shape.show(as_scale(call, call.codec.load_entry(entry))), shape.content_type)


async def update(plane: ControlPlane, call: Call) -> Response:
    """PUT of a Scale."""
    _layout(call)
    options = WriteOptions(call, "UpdateOptions")
    body, doubled = decode_body(call.request, "Scale")
    problem = _fit(call, body, options, doubled)
    if problem:
        raise bad_request(f'Scale in version "v1" cannot be handled as a Scale: {problem}')
    return await _write(plane, call, lambda _: body, options)


async def patch(plane: ControlPlane, call: Call) -> Response:
    """PATCH of a Scale, by any patch."""
    _layout(call)
    media = patch_media(call)
    if media == APPLY_PATCH:
        return await _apply(plane, call)
    options = WriteOptions(call, "PatchOptions")
    body = read_patch(call, options, media)
    doubled, options.doubled = options.doubled, []  # of the Scale, and not of the object that it changes

    def patched(scale: Object) -> Object:
        new, text = patch_document(call, scale, body, media, ANY)
        problem = _fit(call, new, options, doubled)
        if problem:
            raise bad_outcome(new, text, problem)
        return cast(Object, new)

    return await _write(plane, call, patched, options)


async def _apply(plane: ControlPlane, call: Call) -> Response:
    """Server-side apply of a Scale: its manager owns the count of the object, and nothing else."""
    options = WriteOptions(call, "PatchOptions", applying=True)
    config = read_configuration(call, options, kind="Scale", api_version=_VERSION)
    schema = schema_of(_VERSION, "Scale")

    def merged(scale: Object) -> Object:
        return fields.apply(
            schema,
            scale,
            config,
            manager=options.manager,
            api_version=_VERSION,
            subresource="scale",
            force=options.force,
            now=plane.clock.timestamp(),
            schema_for_version={_VERSION: schema}.get,
        )

    return await _write(plane, call, merged, options, applied=True)


async def _write(
    plane: ControlPlane, call: Call, make: Any, options: WriteOptions, *, applied: bool = False
) -> Response:
    """`applied`: what `make` gives says who owns the count now."""
    layout = _layout(call)

    def counted(api_version: str) -> tuple[str, ...] | None:
        version = call.resource.versions.get(api_version.rpartition("/")[2])
        return _parts(version.scale.spec_replicas) if version is not None and version.scale is not None else None

    def scaled(live: Object) -> Object:
        before = as_scale(call, live)
        owners = fields.entries_of(live)
        if applied:
            fields.put_entries(before, fields.entries_of_scale(owners, counted, _VERSION))
        scale = make(before)
        replicas = _wanted_replicas(call, scale)
        given = scale.get("metadata") or {}
        obj: Object = {**live, "metadata": dict(live["metadata"])}
        if given.get("resourceVersion"):
            obj["metadata"]["resourceVersion"] = given["resourceVersion"]
        if given.get("uid"):
            obj["metadata"]["uid"] = given["uid"]
        if applied:
            of_scale = fields.entries_of(scale)
            fields.put_entries(obj, fields.entries_of_object(owners, of_scale, counted, call.codec.api_version))
        return _with(obj, _parts(layout.spec_replicas), replicas)

    call.subresource = "scale"
    response = await change(plane, call, scaled, options, applied=applied)
    response.body = orjson.dumps(as_scale(call, orjson.loads(response.body)))
    return response


def _fit(call: Call, scale: Any, options: WriteOptions, doubled: list[str]) -> str:
    """Makes a Scale of what was sent, in place; gives why it cannot be one, or nothing."""
    said = (scale.get("kind") or "Scale", scale.get("apiVersion") or _VERSION) if isinstance(scale, dict) else ()
    if said != ("Scale", _VERSION):
        raise bad_request(f"the body must be an {_VERSION} Scale")
    unknown, problems = decode_errors(schema_of(_VERSION, "Scale"), scale)
    return problems[0] if problems else strictness(call, options, doubled + unknown)


def _wanted_replicas(call: Call, scale: Object) -> int:
    place(call, scale)
    replicas: int = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0 and not call.resource.custom:  # custom kinds say so themselves, and name their own field
        error = FieldError.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("autoscaling", "Scale", call.name, [error])
    return replicas


def _with(obj: Object, path: tuple[str, ...], value: Any) -> Object:
    """The object with one nested field set; what is not on the way is shared."""
    head, *rest = path
    if not rest:
        return {**obj, head: value}
    inner = obj.get(head)
    return {**obj, head: _with(inner if isinstance(inner, dict) else {}, tuple(rest), value)}
