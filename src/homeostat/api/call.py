"""One request, understood: who asks for what, of which kind, on which object."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from homeostat.api.codec import Codec
from homeostat.api.request import Request
from homeostat.api.resource import Object, Resource, Rules
from homeostat.api.schema import MANAGER_MAX, NOTHING, Fitting, Place
from homeostat.api.schema.values import INT64_MAX, INT64_MIN
from homeostat.model.errors import ApiError, FieldError, bad_request, invalid, not_found, show

if TYPE_CHECKING:
    from homeostat.api.auth import User

_INTEGER = re.compile(r"[+-]?[0-9]+").fullmatch
_DURATION_PART = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)([^0-9.]*)")
_DURATION_UNITS = frozenset({"ns", "us", "µs", "μs", "ms", "s", "m", "h"})
_LONGEST_NUMBER = 20
"""Characters of the longest number that Go can hold."""
_UINT64_MAX = 2**64 - 1


class Call:
    """An authorised request on one kind. `before` and `after` are filled by writes, for the audit log."""

    __slots__ = (
        "after",
        "annotations",
        "before",
        "codec",
        "fitting",
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
        self.annotations: dict[str, str] | None = None
        self.fitting: Fitting = NOTHING  # what was found to fit the schema
        self.before: Object | None = None
        self.after: Object | None = None

    def annotate(self, key: str, value: str) -> None:
        """Has the audit log say something more of this request."""
        self.annotations = {**(self.annotations or {}), key: value}

    @property
    def rules(self) -> Rules:
        """What the kind demands of a write through this path."""
        rules = self.resource.rules
        return rules.parts.get(self.subresource, rules)

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

    __slots__ = ("doubled", "dry_run", "force", "manager", "nulls", "validation")

    def __init__(self, call: Call, kind: str, applying: bool = False) -> None:
        params = call.request.params
        errors: list[FieldError] = []
        self.doubled: list[str] = []  # what the body says twice; judged together with what the schema does not know
        self.nulls: Sequence[Place] = ()  # what was applied as null and may not be: kept, so that it is judged with the rest
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
    if len(text) > _LONGEST_NUMBER or not INT64_MIN <= int(text) <= INT64_MAX:
        raise bad_request(f"strconv.ParseInt: parsing {show(text)}: value out of range")
    return int(text)


def revision_of(text: str) -> int:
    """A resourceVersion as a number; empty is 0."""
    if not text:
        return 0
    why = ""
    if not (text.isascii() and text.isdigit()):
        why = "invalid syntax"
    elif len(text) > _LONGEST_NUMBER or int(text) > _UINT64_MAX:
        why = "value out of range"
    if why:
        problem = FieldError.invalid("resourceVersion", text, f"strconv.ParseUint: parsing {show(text)}: {why}")
        raise bad_request(f"invalid resource version: {problem}")
    return min(int(text), INT64_MAX)  # beyond lies no revision of any store


def check_timeout(params: dict[str, str]) -> None:
    """Refuses a `timeout` that is no duration. Answers are quick enough to need none, but nonsense is told, as upstream does."""
    text = params.get("timeout", "")
    body = text[1:] if text[:1] in ("-", "+") else text
    at, why = 0, ""
    while at < len(body) and body != "0" and not why:
        part = _DURATION_PART.match(body, at)
        if part is None:
            why = "invalid duration"
        elif not part[1]:
            why = "missing unit in duration"
        elif part[1] not in _DURATION_UNITS:
            why = f"unknown unit {show(part[1])} in duration"
        else:
            at = part.end()
    if why or (text and not body):
        raise bad_request(f"invalid timeout specified in the request URL - time: {why or 'invalid duration'} {show(text)}")
