"""Namespace: a room for objects, with a life of its own (Active, Terminating)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from homeostat.api.builtin.declare import kind, section
from homeostat.api.resource import Column, Object, Resource, Rules
from homeostat.api.table import AGE, NAME
from homeostat.model.errors import FieldError
from homeostat.model.names import dns_label_problems, qualified_name_problems

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"
"""The finalizer in `spec.finalizers`: it goes when the namespace is empty."""


class NamespaceRules(Rules):
    """Held by a finalizer of its own until it is empty, and labelled with its name."""

    def default(self, obj: Object) -> None:
        metadata = section(obj, "metadata")
        if name := metadata.get("name"):
            section(metadata, "labels")[NAME_LABEL] = name

    def prepare_create(self, obj: Object) -> None:
        spec = section(obj, "spec")
        finalizers = spec.get("finalizers") or []
        spec["finalizers"] = finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER]
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, obj: Object, old: Object) -> None:
        # Finalizers leave only through the finalize subresource, the phase only through status.
        for part in ("spec", "status"):
            if part in old:
                obj[part] = old[part]

    def begin_deletion(self, obj: Object) -> None:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        obj["metadata"].pop("deletionGracePeriodSeconds", None)

    def holds(self, obj: Object) -> bool:
        return bool((obj.get("spec") or {}).get("finalizers"))

    def validate(self, obj: Object) -> Sequence[FieldError]:
        errors: list[FieldError] = []
        path = "spec.finalizers"
        for finalizer in (obj.get("spec") or {}).get("finalizers") or ():
            errors.extend(FieldError.invalid(path, finalizer, p) for p in qualified_name_problems(finalizer))
            if "/" not in finalizer and finalizer != FINALIZER:
                detail = "name is neither a standard finalizer name nor is it fully qualified"
                errors.append(FieldError.invalid(path, finalizer, detail))
        return errors

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        phase, old_phase = ((o.get("status") or {}).get("phase") or "" for o in (obj, old))
        ending = bool(obj["metadata"].get("deletionTimestamp"))
        only = "Terminating" if ending else "Active"
        if phase in (only, old_phase):
            return ()
        detail = f"may only be '{only}' if `deletionTimestamp` is {'not ' if ending else ''}empty"
        return [FieldError.invalid("status.Phase", phase, detail)]

    def fields(self, obj: Object) -> Mapping[str, str]:
        return {"status.phase": (obj.get("status") or {}).get("phase") or ""}

    def name_problems(self, name: str) -> Sequence[str]:
        return dns_label_problems(name)


def resources() -> list[Resource]:
    """Namespace. It cannot be deleted by the collection."""
    return [
        kind(
            "v1",
            "Namespace",
            "namespaces",
            namespaced=False,
            short=("ns",),
            rules=NamespaceRules(),
            status=True,
            subresources=("finalize",),
            verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
            columns=(
                NAME,
                Column(
                    "Status", lambda o: (o.get("status") or {}).get("phase", ""), description="Active or Terminating."
                ),
                AGE,
            ),
        )
    ]
