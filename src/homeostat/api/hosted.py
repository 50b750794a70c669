"""What ties a pod to a node, and what it offers there. Nothing runs here: logs are empty, and what would have to run says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from homeostat.api.builtin.types import schema_of
from homeostat.api.call import Call, WriteOptions
from homeostat.api.delete import DeleteOptions, remove
from homeostat.api.intake import decode_body, strictness
from homeostat.api.request import Response, success_response
from homeostat.api.resource import Object, at
from homeostat.api.schema import decode_errors
from homeostat.api.write import MOVED
from homeostat.model.errors import FieldError, bad_request, conflict
from homeostat.store import Compare, Conflict, Put

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

_TEXT = "text/plain"


async def log(plane: ControlPlane, call: Call) -> Response:
    """The log of a pod that has not begun: empty, as upstream answers before a pod has its node."""
    await _pod_exists(plane, call)
    return Response(200, b"", _TEXT)


async def connect(plane: ControlPlane, call: Call) -> Response:
    """400 for exec, attach and port-forward: there is no host to connect to."""
    await _pod_exists(plane, call)
    raise bad_request(f"pod {call.name} does not have a host assigned")


async def _pod_exists(plane: ControlPlane, call: Call) -> None:
    if await plane.store.get(call.key) is None:
        raise call.not_found()


def _read(call: Call, api_version: str, kind: str, options: WriteOptions) -> Object:
    """The body, which must be of the kind."""
    body, doubled = decode_body(call.request, kind)
    unknown, problems = decode_errors(schema_of(api_version, kind), body)
    problem = problems[0] if problems else strictness(call, options, doubled + unknown)
    if problem:
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {problem}')
    return cast(Object, body)


async def evict(plane: ControlPlane, call: Call) -> Response:
    """Deletes a pod, as asked for politely: with nobody counting disruptions, no budget stands against it."""
    body = _read(call, "policy/v1", "Eviction", WriteOptions(call, "CreateOptions"))
    if (body.get("metadata") or {}).get("name", call.name) != call.name:
        raise bad_request("name in URL does not match name in Eviction object")
    asked = body.get("deleteOptions") or {}
    wanted = asked.get("preconditions") or {}
    options = DeleteOptions(
        uid=wanted.get("uid") or "",
        revision=wanted.get("resourceVersion") or "",
        dry_run=bool(asked.get("dryRun") or call.request.params.get("dryRun")),
    )
    await remove(plane, call, options)
    return success_response(201, code=201)


async def bind(plane: ControlPlane, call: Call) -> Response:
    """Gives a pod its node, as a scheduler does: once, and for good. Both of upstream's paths lead here."""
    options = WriteOptions(call, "CreateOptions")
    binding = _read(call, "v1", "Binding", options)
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    name = metadata.get("name") or ""
    if call.name and call.name != name:
        raise bad_request("name in URL does not match name in Binding object")
    if not name:
        raise bad_request("Name parameter required.")
    if target.get("kind") not in (None, "Node"):
        raise bad_request(str(FieldError.not_supported("target.kind", target["kind"], ["Node", "<empty>"])))
    if not target.get("name"):
        raise bad_request(str(FieldError.required("target.name")))
    pods = plane.registry.get("pods")
    assert pods is not None
    call.resource, call.name, call.subresource = pods, name, "binding"
    while not await _bound(plane, call, metadata, target["name"], options):
        pass  # somebody else wrote the pod meanwhile
    return success_response(201, code=201)


async def _bound(plane: ControlPlane, call: Call, metadata: Object, node: str, options: WriteOptions) -> bool:
    entry = await plane.store.get(call.key)
    if entry is None:
        raise call.not_found()
    codec = plane.registry.codec(call.resource)
    pod = codec.load_entry(entry)
    own, why = pod["metadata"], ""
    if own.get("deletionTimestamp"):
        why = f"pod {call.name} is being deleted, cannot be assigned to a host"
    elif at(pod, "spec", "nodeName"):
        why = f'pod {call.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    elif at(pod, "spec", "schedulingGates"):
        why = f"pod {call.name} has non-empty .spec.schedulingGates"
    elif any(metadata.get(field) not in (None, own[field]) for field in ("uid", "resourceVersion")):
        why = MOVED
    if why:
        raise conflict("", "pods/binding", call.name, why)
    new: Object = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": _scheduled(pod, plane.clock.timestamp())}
    if metadata.get("annotations"):
        new["metadata"] = {**own, "annotations": {**(own.get("annotations") or {}), **metadata["annotations"]}}
    call.before, call.after = pod, new
    if options.dry_run:
        return True
    result = await plane.store.txn([Compare(entry.key, entry.revision)], [Put(entry.key, codec.encode(new))])
    return not isinstance(result, Conflict)


def _scheduled(pod: Object, now: str) -> Object:
    """The status of a pod that has a node."""
    status: Object = pod.get("status") or {}
    others = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    return {**status, "conditions": [*others, condition]}
