"""What a pod offers once it runs on a node. Nothing runs here: logs are empty, and what would have to run says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homeostat.api.builtin.types import schema_of
from homeostat.api.call import Call
from homeostat.api.delete import DeleteOptions, remove
from homeostat.api.intake import decode_body
from homeostat.api.request import Response, success_response
from homeostat.api.schema import decode_errors
from homeostat.model.errors import bad_request

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


async def evict(plane: ControlPlane, call: Call) -> Response:
    """Deletes a pod, as asked for politely: with nobody counting disruptions, no budget stands against it."""
    body, _ = decode_body(call.request, "Eviction")
    _, problems = decode_errors(schema_of("policy/v1", "Eviction"), body)
    if problems:
        raise bad_request(f'Eviction in version "v1" cannot be handled as a Eviction: {problems[0]}')
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
