"""`POST /homeostat/children`: what a change would lead to, asked of the composers of a loop in the process of the server.

It is answered with what the loop may read, masked, to those who may make that very change: it is tried in their name first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from homeostat.model.errors import ApiError, bad_request, path_method_not_allowed
from homeostat.model.protocol import CHILDREN_PATH, IMPERSONATE

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane
    from homeostat.api.request import Request, Response
    from homeostat.client import Client
    from homeostat.guards import Mode
    from homeostat.insight.below import Answer, Foresight
    from homeostat.insight.foreseeing import Parent

MANAGER = "homeostat-plan"
"""As whom a change is tried."""
_MOUNTED = CHILDREN_PATH.strip("/")


def mount_children(plane: ControlPlane, client: Client, kept: Iterable[Any], mode: Mode) -> None:
    """Has the server answer for the composers among what a loop keeps. `client` and `mode` are the loop's."""
    things = list(kept)

    async def answer(request: Request) -> Response:
        return await _answer(plane, client, things, mode, request)

    plane.mounted[_MOUNTED] = answer


def unmount_children(plane: ControlPlane) -> None:
    """There is no loop any more to answer for."""
    plane.mounted.pop(_MOUNTED, None)


async def _answer(plane: ControlPlane, client: Client, kept: Iterable[Any], mode: Mode, request: Request) -> Response:
    import msgspec

    from homeostat.api.local import LocalTransport
    from homeostat.api.request import Response
    from homeostat.client import Client
    from homeostat.insight.below import Foresight
    from homeostat.insight.foreseeing import Question, Reply
    from homeostat.loop.compose import Composer

    if request.method != "POST":
        raise path_method_not_allowed()
    user = await plane.identify(request)
    try:
        question = msgspec.json.decode(request.body, type=Question)
    except msgspec.DecodeError as error:
        raise bad_request(f"what is asked cannot be read: {error}") from None
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers if name.startswith(IMPERSONATE)}
    foresight = Foresight(client, [one for one in kept if isinstance(one, Composer)])
    async with Client(LocalTransport(plane, user), user_agent=MANAGER, timeout=None, headers=headers) as asks:
        answers = [await _one(asks, client, foresight, parent) for parent in question.parents]
    return Response(200, msgspec.json.encode(Reply(answers, mode)))


async def _one(asks: Client, client: Client, foresight: Foresight, parent: Parent) -> Answer:
    """One parent. `asks` is who wants to know: whoever may not make the change is told nothing."""
    from homeostat.insight.below import Answer
    from homeostat.loop.returned import declared_of

    obj, metadata = parent.object, parent.object.get("metadata")
    if not isinstance(metadata, dict) or not all(isinstance(one, str) and one for one in (metadata.get("name"), obj.get("apiVersion"), obj.get("kind"))):
        raise bad_request("each parent has apiVersion, kind and metadata.name")
    if not foresight.knows(obj["apiVersion"], obj["kind"]):
        return Answer(asked=False)
    which, name, namespace = (obj["apiVersion"], obj["kind"]), metadata["name"], str(metadata.get("namespace") or "")
    try:
        if parent.gone:
            await asks.kind(*which).delete(name, namespace=namespace, dry_run=True)
            return await foresight.of(await client.kind(*which).get(name, namespace=namespace), gone=True)
        tried = await asks.kind(*which).apply(declared_of(obj), field_manager=MANAGER, force=True, namespace=namespace, dry_run=True)
    except ApiError as error:
        return Answer(problem=error.message)
    same = {key: tried["metadata"][key] for key in ("uid", "namespace") if key in tried["metadata"]}  # whose children are told
    return await foresight.of({**obj, "metadata": {**metadata, **same}})
