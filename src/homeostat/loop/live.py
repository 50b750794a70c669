"""One object on a Kubernetes API as we keep it by server-side apply: read fresh, told apart from what is not ours, written."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from homeostat.client import Resource
from homeostat.loop.applied import fields_of, managers_of, settle, shows, view
from homeostat.loop.compare import fingerprint
from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Cause
from homeostat.loop.provider import Moved, Refused
from homeostat.loop.writers import Writers
from homeostat.model.conditions import find_condition, summary
from homeostat.model.errors import ApiError
from homeostat.model.protocol import CHANGE_SET

GONE_WITHIN = 20.0
"""Seconds that a deletion waits for finalizers and grace."""

ANSWER_SECONDS = 0.5
"""So long the answer to a write is a reading of the object."""

Object = dict[str, Any]


class LiveObject:
    """An object by its name, and as it was when it was last read (`obj`; None: it is not there).

    `manager` is the field manager that we write as: what it owns is ours. With `marks`, what is written carries its change set, which
    is a note on the object and no part of what is declared.
    """

    def __init__(self, kind: Resource[Object], name: str, namespace: str, manager: str, *, marks: bool = False) -> None:
        self.kind = kind
        self.name = name
        self.namespace = namespace
        self.manager = manager
        self.mark = ""
        """The change set of what is written next."""
        self._marks = marks
        self.obj: Object | None = None
        self.conflict = ""
        """Who else owns what would be changed, in words; as of the last `about`."""
        self._answer: tuple[Object, float] | None = None  # what our last write left, as the server said, and when
        self._asked = b""  # for which declaration and state the server was asked what applying would do
        self._settled: Object = {}  # what came out of it

    @property
    def uid(self) -> str:
        """Which object it is; empty where there is none."""
        return str(self.obj["metadata"]["uid"]) if self.obj is not None else ""

    # Looking

    async def read(self) -> Object | None:
        """The object as it is now: right after a write of ours, as the server answered it."""
        answer, self._answer = self._answer, None
        if answer is not None and asyncio.get_running_loop().time() - answer[1] < ANSWER_SECONDS:
            self.obj = answer[0]
            return self.obj
        try:
            self.obj = await self.kind.get(self.name, namespace=self.namespace)
        except ApiError as error:
            if error.code != 404 or not error.name:  # a 404 that names nothing is about the kind, not about the object
                raise
            self.obj = None
        return self.obj

    async def about(self, declared: Object) -> Object:
        """What of the object is about the declaration, in its words wherever applying it would change nothing.

        Where something seems to differ the server is asked what applying would do: it knows defaults and normal forms. It is
        asked once for the same declaration and state.
        """
        assert self.obj is not None
        found, self.conflict = self.owned(declared), ""
        if found == declared:
            return found
        asked = fingerprint(declared, None, found)
        if asked != self._asked:
            self._settled, self.conflict = await self._ask(declared, found)
            self._asked = b"" if self.conflict else asked  # whose a field is may change, and the field not
        return self._settled

    def owned(self, declared: Object, obj: Mapping[str, Any] | None = None) -> Object:
        """The fields that are declared, and those that we own and are declared no more."""
        obj = self.obj if obj is None else obj
        assert obj is not None
        found: Object = view(declared, obj, fields_of(obj), fields_of(obj, self.manager))
        return unmarked(found, declared) if self._marks else found

    def shows(self, declared: Object) -> bool:
        """Whether what is `owned` is just what is declared."""
        assert self.obj is not None
        if self._marks:
            return self.owned(declared) == declared
        return shows(declared, self.obj, fields_of(self.obj), fields_of(self.obj, self.manager))

    async def _ask(self, declared: Object, found: Object) -> tuple[Object, str]:
        conflict = ""
        try:
            try:
                would = await self._apply(declared, dry_run=True)
            except ApiError as error:
                conflict = _conflict(error)
                if not conflict:
                    raise
                would = await self._apply(declared, dry_run=True, force=True)
        except ApiError:
            return found, conflict  # it cannot be applied as it is: whoever tries will hear why
        told: Object = settle(declared, self.owned(declared, would), found)
        return told, conflict

    def attribute(self, diff: Diff, depth: int = 1) -> Diff:
        """The diff with the names of those who changed the object. Its paths have `depth` steps before those of the object."""
        writers = Writers((self.obj or {}).get("metadata", {}).get("managedFields") or ())
        changes = (
            change
            if change.cause is Cause.INTENT
            else replace(change, who=writers.of(change.path[depth:], {self.manager}))
            for change in diff.changes
        )
        return replace(diff, changes=tuple(changes))

    def unhealthy(self, *, kept: bool = False) -> str:
        """What the object says of itself, if it says that it does not work, or not yet. One that a loop keeps has to say that it does."""
        assert self.obj is not None
        how = summary(self.obj)
        if how == "Current":
            return "nothing is known of it yet" if kept and find_condition(self.obj, "Ready") is None else ""
        said = (find_condition(self.obj, "Stalled") if how == "Failed" else find_condition(self.obj, "Ready")) or {}
        return f"it is {how}" + (f": {said['message']}" if said.get("message") else "")

    # Acting; raises `Moved` and `Refused`, and whatever else where nobody can tell what was done

    async def put(self, declared: Object, *, force: bool) -> None:
        """Applies the declaration to this very object, or makes it where there was none. `force` takes fields from others."""
        try:
            put = await (self._create(declared) if self.obj is None else self._apply(declared, force=force))
            self._answer = put, asyncio.get_running_loop().time()
        except ApiError as error:
            if conflict := _conflict(error):
                raise (Moved if self.obj is None else Refused)(conflict) from None
            if self.obj is None and error.code == 404:  # its namespace is not there, say: nobody was faster
                raise Refused(error.message) from None
            raise _told(error) from None

    async def _create(self, declared: Object) -> Object:
        """Applies what was not there. Without force that cannot change what somebody else has made meanwhile; only add to it."""
        made = await self._apply(declared)
        if others := managers_of(made) - {self.manager}:
            kept = ("name", "namespace", "uid")
            bare = {key: value for key, value in made["metadata"].items() if key in kept}
            await self.kind.apply({"metadata": bare}, field_manager=self.manager)  # and so it is as it was
            raise Moved(f"{' and '.join(sorted(others))} made it first")
        return made

    async def _apply(self, declared: Object, *, force: bool = False, dry_run: bool = False) -> Object:
        metadata = declared["metadata"]
        if self.obj is not None:
            metadata = {**metadata, "uid": self.uid}
        if self.mark and not dry_run:
            metadata = {**metadata, "annotations": {CHANGE_SET: self.mark, **(metadata.get("annotations") or {})}}
        declared = {**declared, "metadata": metadata}
        return await self.kind.apply(
            declared, field_manager=self.manager, force=force, dry_run=dry_run, namespace=self.namespace
        )

    async def delete(self) -> None:
        """Deletes this very object and waits until it is gone."""
        if self.obj is None:
            return
        try:
            left = await self.kind.delete(self.name, namespace=self.namespace, uid=self.uid)
        except ApiError as error:
            if error.code == 404:
                return
            raise _told(error) from None
        if left is not None:
            await self._wait_gone(self.uid)

    async def _wait_gone(self, uid: str) -> None:
        pause, waited, held = 0.02, 0.0, ""
        while waited < GONE_WITHIN:
            await asyncio.sleep(pause)
            waited, pause = waited + pause, min(pause * 2, 1.0)
            obj = await self.read()
            if obj is None or self.uid != uid:
                return
            held = ", ".join(obj["metadata"].get("finalizers") or ())
        raise TimeoutError(f"it is being deleted, and still held by {held or 'its grace'}")


def unmarked(found: Object, declared: Mapping[str, Any]) -> Object:
    """What was found, without the note of a change set that is not declared."""
    notes = (found.get("metadata") or {}).get("annotations") or {}
    if CHANGE_SET not in notes or CHANGE_SET in ((declared.get("metadata") or {}).get("annotations") or {}):
        return found
    metadata = {name: value for name, value in found["metadata"].items() if name != "annotations"}
    if left := {name: value for name, value in notes.items() if name != CHANGE_SET}:
        metadata["annotations"] = left
    return {**found, "metadata": metadata}


def is_secret(obj: Mapping[str, Any]) -> bool:
    """Whether its data is for nobody's eyes."""
    return obj.get("kind") == "Secret" and obj.get("apiVersion") == "v1"


def masked(obj: Object, seal: str) -> Object:
    """The object as it may be compared and shown: of a Secret the digests of its values, which `seal` keeps from being guessed."""
    if not is_secret(obj) or not isinstance(obj.get("data"), Mapping):
        return obj
    hidden = {key: hashlib.sha256(f"{seal} {value}".encode()).hexdigest()[:16] for key, value in obj["data"].items()}
    return {**obj, "data": hidden}


def _told(error: ApiError) -> Exception:
    """What a refusal means: others were faster, nothing was done, or nobody knows."""
    if error.code in (404, 409):
        return Moved(error.message)
    return Refused(error.message) if error.code < 500 else error


def _conflict(error: ApiError) -> str:
    """Who owns what we would change, in words; empty where a refusal is about something else."""
    fields = [cause for cause in error.causes if cause.get("reason") == "FieldManagerConflict"]
    if error.code != 409 or not fields:
        return ""
    said = ", ".join(f"{cause.get('field', '')} ({cause.get('message', '')})" for cause in fields[:5])
    return f"others own what would change: {said}; to take it from them, set forceConflicts"
