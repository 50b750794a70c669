"""One request, understood: who asks for what, of which kind, on which object."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from homeostat.api.codec import Codec
from homeostat.api.request import Request
from homeostat.api.resource import Object, Resource
from homeostat.api.schema import MANAGER_MAX
from homeostat.model.errors import ApiError, FieldError, bad_request, invalid, not_found, show

if TYPE_CHECKING:
    from homeostat.api.auth import User

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}").fullmatch


class Call:
    """An authorised request on one kind. `before` and `after` are filled by writes, for the audit log."""

    __slots__ = (
        "after",
        "before",
        "codec",
        "impersonator",
        "name",
        "namespace",
        "request",
        "resource",
        "subresource",
        "user",
        "verb",
        "warnings",
    )

    def __init__(
        self,
        request: Request,
        user: User,
        verb: str,
        resource: Resource,
        codec: Codec,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> None:
        self.request = request
        self.user = user
        self.verb = verb
        self.resource = resource
        self.codec = codec
        self.namespace = namespace
        self.name = name
        self.subresource = subresource
        self.impersonator: User | None = None
        self.warnings: list[str] = []
        self.before: Object | None = None
        self.after: Object | None = None

    @property
    def key(self) -> str:
        """Where the object lives in the store."""
        return self.resource.key(self.namespace, self.name)

    @property
    def prefix(self) -> str:
        """Of the collection the path names: the kind, or the kind in one namespace."""
        return self.resource.collection(self.namespace)

    def not_found(self) -> ApiError:
        """404 for the object that the path names."""
        return not_found(self.resource.group, self.resource.plural, self.name)

    def invalid(self, name: str, errors: list[FieldError]) -> ApiError:
        """422 for an object of the kind."""
        return invalid(self.resource.group, self.resource.kind, name, errors)


class WriteOptions:
    """What a write says beside its object: dry run, strictness, and as whom it manages fields."""

    __slots__ = ("doubled", "dry_run", "force", "manager", "validation")

    def __init__(self, call: Call, kind: str, applying: bool = False) -> None:
        params = call.request.params
        errors: list[FieldError] = []
        self.doubled: list[str] = []  # what the body says twice; judged together with what the schema does not know
        dry_run = params.get("dryRun", "")
        if dry_run not in ("", "All"):
            errors.append(FieldError.not_supported("dryRun", [dry_run], ["All"]))
        self.dry_run = dry_run == "All"
        self.validation = params.get("fieldValidation") or "Warn"
        if self.validation not in ("Ignore", "Strict", "Warn"):
            errors.append(FieldError.not_supported("fieldValidation", self.validation, ["", "Ignore", "Strict", "Warn"]))
        self.manager = params.get("fieldManager", "")
        if len(self.manager) > MANAGER_MAX:
            errors.append(FieldError.too_long("fieldManager", MANAGER_MAX))
        elif not self.manager.isprintable():
            at, char = next((i, c) for i, c in enumerate(self.manager) if not c.isprintable())
            why = f"invalid character U+{ord(char):04X} (at position {at})"
            errors.append(FieldError.invalid("fieldManager", self.manager, why))
        self.force = call.request.flag("force")
        if applying and not self.manager:
            errors.append(FieldError.required("fieldManager", "is required for apply patch"))
        if not applying and "force" in params and kind == "PatchOptions":
            errors.append(FieldError.forbidden("force", "may not be specified for non-apply patch"))
        if errors:
            raise invalid("meta.k8s.io", kind, "", errors)
        if not self.manager:
            agent = call.request.header(b"user-agent")
            self.manager = agent.partition("/")[0][:MANAGER_MAX] or "unknown"


def integer(params: dict[str, str], name: str, default: int = 0) -> int:
    """A whole-number parameter; anything else is the caller's mistake."""
    text = params.get(name, "")
    if not text:
        return default
    if not _INTEGER(text):
        raise bad_request(f"strconv.ParseInt: parsing {show(text)}: invalid syntax")
    return int(text)


def revision_of(text: str) -> int:
    """A resourceVersion as a number; empty is 0."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        problem = FieldError.invalid("resourceVersion", text, f"strconv.ParseUint: parsing {show(text)}: invalid syntax")
        raise bad_request(f"invalid resource version: {problem}")
    return int(text)
