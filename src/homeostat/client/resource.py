"""A handle on one kind, with the verbs of the Kubernetes API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from homeostat.client.discovery import Served
from homeostat.client.objects import Form, Selection
from homeostat.model.errors import ApiError
from homeostat.model.protocol import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

if TYPE_CHECKING:
    from homeostat.client.client import Client
    from homeostat.client.informer import Informer
    from homeostat.client.watch import Watch

T = TypeVar("T")

PAGE = 500
"""Objects asked for at a time by `list`."""

PatchKind = Literal["merge", "json", "strategic"]
_PATCH_TYPES = {"merge": MERGE_PATCH, "json": JSON_PATCH, "strategic": STRATEGIC_PATCH, "apply": APPLY_PATCH}

_PLAIN: Form[dict[str, Any]] = Form(dict)


class Listing(list[T], Generic[T]):
    """A list of objects as the collection was at `resource_version`, from which a watch goes on without a gap."""

    resource_version: str = ""


class _List(msgspec.Struct):
    metadata: dict[str, Any] = {}
    items: list[msgspec.Raw] | None = None


class Resource(Generic[T]):
    """One kind on one server. Made by `Client.kind`.

    Verbs that take a name look in `namespace`, else in the handle's namespace, else in the client's. Verbs on a
    collection (list, watch, informer) look in `namespace`, else in the handle's, else **everywhere**.

    Refusals raise `ApiError`; a server that cannot be reached raises `Unreachable`.
    """

    def __init__(self, client: Client, api_version: str, kind: str, form: type[T], namespace: str = "") -> None:
        self.client = client
        self.api_version = api_version
        self.kind = kind
        self.namespace = namespace
        self.form = Form(form)

    def __repr__(self) -> str:
        return f"<{self.api_version} {self.kind}{' in ' + self.namespace if self.namespace else ''}>"

    async def served(self) -> Served:
        """How the server serves the kind: its path, verbs and subresources. Raises `ApiError` 404 where it does not."""
        return await self.client.discovery.find(self.api_version, self.kind)

    # Reading

    async def get(self, name: str, *, namespace: str = "", subresource: str = "", resource_version: str = "") -> T:
        """One object. Raises `ApiError` with code 404 where there is none."""
        params = {"resourceVersion": resource_version} if resource_version else {}
        reply = await self._call("GET", name, namespace, subresource, params)
        return self.form.decode(reply, self.api_version, self.kind)

    async def list(
        self,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        page: int = PAGE,
        resource_version: str = "",
        match: str = "",
    ) -> Listing[T]:
        """All that match, read in pages of `page` (0: at once) from one snapshot.

        Where the snapshot expires between two pages the list is begun anew, once at once, so what is given is always
        consistent. `labels` and `fields` are selectors. `resource_version` and `match` are as the API has them.
        """
        which = Selection(namespace, labels, fields)
        return await self.select(which, page=page, resource_version=resource_version, match=match)

    async def select(
        self, which: Selection, *, page: int = PAGE, resource_version: str = "", match: str = ""
    ) -> Listing[T]:
        """What `list` does, for a selection that is at hand."""
        asked = _given(resourceVersion=resource_version, resourceVersionMatch=match)
        try:
            return await self._pages(which, asked, page)
        except ApiError as error:
            if error.code != 410 or resource_version not in ("", "0"):
                raise
        return await self._pages(which, asked, 0)

    async def _pages(self, which: Selection, asked: dict[str, str], page: int) -> Listing[T]:
        found: Listing[T] = Listing()
        params = which.params | asked | ({"limit": str(page)} if page else {})
        path = await self.collection(which.namespace)
        while True:
            try:
                reply = await self.client.request("GET", path, params)
            except ApiError as error:
                self._lost(error)
                raise
            part = msgspec.json.decode(reply.body, type=_List)
            found.extend(self.form.listed(bytes(raw), self.api_version, self.kind) for raw in part.items or ())
            found.resource_version = part.metadata.get("resourceVersion", "")
            token = part.metadata.get("continue")
            if not token:
                return found
            params = which.params | {"limit": str(page), "continue": token}
            await asyncio.sleep(0)  # a server in this process answers at once: others have their turn between two pages

    def watch(
        self,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        idle: float | None = None,
    ) -> Watch[T]:
        """Changes after `resource_version`; where none is given, the present objects as ADDED and then changes.

        Use it as `async with … as events: async for event in events`. See `Watch` for what it survives.
        """
        from homeostat.client.watch import IDLE_SECONDS, Watch

        which = Selection(namespace or self.namespace, labels, fields)
        return Watch(self, which, resource_version, idle or IDLE_SECONDS)

    def informer(
        self,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        idle: float | None = None,
    ) -> Informer[T]:
        """A local copy of the collection that keeps itself current. Use it as `async with`; see `Informer`."""
        from homeostat.client.informer import Informer
        from homeostat.client.watch import IDLE_SECONDS

        which = Selection(namespace or self.namespace, labels, fields)
        return Informer(self, which, indexes=indexes or {}, idle=idle or IDLE_SECONDS)

    # Writing

    async def create(
        self,
        obj: T | dict[str, Any],
        *,
        namespace: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
    ) -> T:
        """Makes an object. 409 where the name is taken. A lost answer is not tried again: look whether it is there."""
        body = self.form.to_dict(obj, self.api_version, self.kind)
        where = namespace or body["metadata"].get("namespace", "")
        params = _written(dry_run, field_manager, field_validation)
        return self._wrote(await self._call("POST", "", where, "", params, body), dry_run)

    async def create_subresource(
        self, name: str, subresource: str, body: dict[str, Any], *, namespace: str = ""
    ) -> dict[str, Any]:
        """Posts to a subresource of an object, such as `token` of a service account or `eviction` of a pod."""
        reply = await self._call("POST", name, namespace, subresource, {}, body)
        return _PLAIN.decode(reply)

    async def replace(
        self,
        obj: T | dict[str, Any],
        *,
        namespace: str = "",
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
    ) -> T:
        """Writes a whole object over the present one; 409 where it has changed since its resourceVersion."""
        body = self.form.to_dict(obj, self.api_version, self.kind)
        meta = body["metadata"]
        where = namespace or meta.get("namespace", "")
        params = _written(dry_run, field_manager, field_validation)
        reply = await self._call("PUT", meta["name"], where, subresource, params, body)
        return self._wrote(reply, dry_run, subresource)

    async def patch(
        self,
        name: str,
        patch: dict[str, Any] | Sequence[dict[str, Any]],
        *,
        kind: PatchKind = "merge",
        namespace: str = "",
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
    ) -> T:
        """Changes a part of an object. Built-in kinds alone know `strategic`."""
        params = _written(dry_run, field_manager, field_validation)
        reply = await self._call("PATCH", name, namespace, subresource, params, patch, patch=kind)
        return self._wrote(reply, dry_run, subresource)

    async def apply(
        self,
        obj: T | dict[str, Any],
        *,
        field_manager: str,
        force: bool = False,
        namespace: str = "",
        subresource: str = "",
        dry_run: bool = False,
        field_validation: str = "",
    ) -> T:
        """Server-side apply: declares the given fields as `field_manager`'s, creates the object where there is none.

        What the manager declared before and leaves out now is removed. 409 names the fields that others own, unless
        `force`. Idempotent, so a lost answer is tried again.
        """
        body = self.form.to_dict(obj, self.api_version, self.kind)
        meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
        body["metadata"] = meta
        where = namespace or meta.get("namespace", "")
        params = _written(dry_run, field_manager, field_validation) | ({"force": "true"} if force else {})
        reply = await self._call("PATCH", meta["name"], where, subresource, params, body, patch="apply")
        return self._wrote(reply, dry_run, subresource)

    async def delete(
        self,
        name: str,
        *,
        namespace: str = "",
        propagation: Literal["", "Background", "Foreground", "Orphan"] = "",
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> T | None:
        """Deletes an object: None when it is gone, the object where something (a finalizer, a grace) still holds it.

        `uid` and `resource_version` must hold, else 409: say them when you mean one very object.
        """
        body = _delete_options(propagation, uid, resource_version, grace_seconds, dry_run)
        where = self._where(await self.served(), namespace)
        reply = await self._call("DELETE", name, where, "", {}, body)
        answer = _PLAIN.decode(reply)
        held = "deletionTimestamp" in (answer.get("metadata") or {})
        if not dry_run and held:
            self.client.wrote(self.api_version, self.kind, answer, reply)
        elif not dry_run:
            # A `Status` that names what is gone, or (some built-in kinds) what it was.
            gone = (answer.get("details") or answer.get("metadata") or {}).get("uid", "") or uid
            self.client.removed(self.api_version, self.kind, where, name, gone)
        return self.form.decode(reply, self.api_version, self.kind) if held else None

    async def delete_collection(
        self,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        everything: bool = False,
        propagation: Literal["", "Background", "Foreground", "Orphan"] = "",
        dry_run: bool = False,
    ) -> None:
        """Deletes all that match, in one namespace. No selector selects nothing, unless `everything` is said."""
        if not (labels or fields or everything):
            raise ValueError("delete_collection needs a selector, or everything=True")
        where = self._where(await self.served(), namespace)
        body = _delete_options(propagation, "", "", None, dry_run)
        await self._call("DELETE", "", where, "", _given(labelSelector=labels, fieldSelector=fields), body)

    # The way there

    def _where(self, served: Served, namespace: str) -> str:
        return (namespace or self.namespace or self.client.namespace) if served.namespaced else ""

    async def collection(self, namespace: str = "") -> str:
        """The path of the collection that list and watch read: of a namespace, or of all."""
        served = await self.served()
        return served.path((namespace or self.namespace) if served.namespaced else "")

    async def _call(
        self,
        method: str,
        name: str,
        namespace: str,
        subresource: str,
        params: dict[str, str],
        body: Any = None,
        *,
        patch: str = "",
    ) -> bytes:
        client = self.client
        served = client.discovery.known(self.api_version, self.kind) or await self.served()
        path = served.path(self._where(served, namespace), name, subresource)
        content = _PATCH_TYPES[patch] if patch else JSON
        repeat = method == "GET" or patch == "apply"
        try:
            reply = await client.request(method, path, params, body, content_type=content, idempotent=repeat)
        except ApiError as error:
            self._lost(error)
            raise
        return reply.body

    def _lost(self, error: ApiError) -> None:
        if error.code == 404 and not error.name:
            self.client.discovery.forget(self.api_version)  # the path itself is unknown: the kind may have moved

    def _wrote(self, reply: bytes, dry_run: bool, subresource: str = "") -> T:
        if subresource not in ("", "status"):
            return self.form.decode(reply)  # a scale, say: an object of another kind
        obj = self.form.decode(reply, self.api_version, self.kind)
        if not dry_run:
            self.client.wrote(self.api_version, self.kind, obj, reply)
        return obj


def _given(**params: str) -> dict[str, str]:
    return {name: value for name, value in params.items() if value}


def _written(dry_run: bool, field_manager: str, field_validation: str) -> dict[str, str]:
    params = {"fieldManager": field_manager} if field_manager else {}
    if dry_run or field_validation:
        params |= _given(dryRun="All" if dry_run else "", fieldValidation=field_validation)
    return params


def _delete_options(
    propagation: str, uid: str, resource_version: str, grace_seconds: int | None, dry_run: bool
) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if propagation:
        options["propagationPolicy"] = propagation
    if uid or resource_version:
        options["preconditions"] = _given(uid=uid, resourceVersion=resource_version)
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if dry_run:
        options["dryRun"] = ["All"]
    return options
