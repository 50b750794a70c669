"""Event: what happened to whom. One store, two forms: `v1` (stored) and `events.k8s.io/v1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.checks import subdomain_name, unchanged
from homeostat.api.builtin.declare import fill, kind
from homeostat.api.resource import Column, Object, Resource, Rules
from homeostat.api.table import Since
from homeostat.model.errors import FieldError, invalid
from homeostat.model.names import dns_subdomain_problems, path_segment_problems, qualified_name_problems

_TO_EVENTS_GROUP = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_TO_CORE = {new: old for old, new in _TO_EVENTS_GROUP.items()}

_LIMITS = (("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024))
_FIXED = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime",
    "action", "related", "reportingComponent", "reportingInstance",
)  # fmt: skip
_UPSTREAM_NAME = {"reportingComponent": "reportingController"}


def to_events_group(event: Object) -> Object:
    """The stored event as `events.k8s.io/v1` shows it. The values are shared, not copied."""
    shown = {_TO_EVENTS_GROUP.get(field, field): value for field, value in event.items()}
    shown["apiVersion"] = "events.k8s.io/v1"
    return shown


def to_core(event: Object) -> Object:
    """An `events.k8s.io/v1` event as it is stored. The values are shared, not copied."""
    stored = {_TO_CORE.get(field, field): value for field, value in event.items()}
    stored["apiVersion"] = "v1"
    return stored


class EventRules(Rules):
    """What `v1` asks of an event: little, for the sake of old clients."""

    def default(self, obj: Object) -> None:
        fill(obj, reportingComponent="", reportingInstance="", source={})

    def validate(self, obj: Object) -> Sequence[FieldError]:
        namespace = (obj.get("metadata") or {}).get("namespace") or ""
        about = (obj.get("involvedObject") or {}).get("namespace") or ""
        if not obj.get("eventTime"):
            agree = namespace == about or (not about and namespace in ("", "default"))
        else:
            agree = bool(about) or namespace in ("default", "kube-system")
        errors = []
        if not agree:
            errors.append(FieldError.invalid("involvedObject.namespace", about, "does not match event.namespace"))
        if obj.get("eventTime"):
            errors += _new_style_errors(obj)
        return errors + subdomain_name(namespace, "namespace")

    def fields(self, obj: Object) -> Mapping[str, str]:
        about = obj.get("involvedObject") or {}
        reporter = obj.get("reportingComponent") or ""
        return {
            "involvedObject.kind": about.get("kind") or "",
            "involvedObject.namespace": about.get("namespace") or "",
            "involvedObject.name": about.get("name") or "",
            "involvedObject.uid": about.get("uid") or "",
            "involvedObject.apiVersion": about.get("apiVersion") or "",
            "involvedObject.resourceVersion": about.get("resourceVersion") or "",
            "involvedObject.fieldPath": about.get("fieldPath") or "",
            "reason": obj.get("reason") or "",
            "reportingComponent": reporter,
            "source": (obj.get("source") or {}).get("component") or reporter,
            "type": obj.get("type") or "",
        }

    def name_problems(self, name: str) -> Sequence[str]:
        return path_segment_problems(name)


def _new_style_errors(obj: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    reporter = obj.get("reportingComponent") or ""
    if not reporter:
        errors.append(FieldError.required("reportingController"))
    errors += [FieldError.invalid("reportingController", reporter, p) for p in qualified_name_problems(reporter)]
    for field, limit in _LIMITS:
        value = obj.get(field) or ""
        if not value and field != "message":
            errors.append(FieldError.required(field))
        if len(value.encode()) > limit:
            errors.append(FieldError.invalid(field, "", f"can have at most {limit} characters"))
    return errors


class StrictEventRules(EventRules):
    """What `events.k8s.io/v1` asks beyond that. The event is judged in its stored form, and errors name its fields."""

    def prepare_create(self, obj: Object) -> None:
        # Only new events are judged so: those that old clients made through `v1` must stay changeable.
        errors = [*self.validate(obj), *_series_errors(obj)]
        if not obj.get("eventTime"):
            errors.append(FieldError.required("eventTime"))
        if obj.get("type") not in ("Normal", "Warning"):
            errors.append(FieldError.invalid("type", "", f"has invalid value: {obj.get('type') or ''}"))
        for field in ("firstTimestamp", "lastTimestamp", "count", "source"):
            if obj.get(field):
                errors.append(FieldError.invalid(field, "", "needs to be unset"))
        if errors:
            raise invalid("", "Event", obj["metadata"].get("name", ""), errors)

    def fields(self, obj: Object) -> Mapping[str, str]:
        found = {f.replace("involvedObject.", "regarding."): value for f, value in super().fields(to_core(obj)).items()}
        found["reportingController"] = found.pop("reportingComponent")
        del found["source"]
        return found

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        errors = _series_errors(obj) if obj.get("series") != old.get("series") else []
        for field in _FIXED:
            errors += unchanged(obj.get(field), old.get(field), _UPSTREAM_NAME.get(field, field))
        return errors

    def name_problems(self, name: str) -> Sequence[str]:
        return dns_subdomain_problems(name)


def _series_errors(obj: Object) -> list[FieldError]:
    series = obj.get("series")
    if series is None:
        return []
    errors = []
    if (series.get("count") or 0) < 2:
        errors.append(FieldError.invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        errors.append(FieldError.required("series.lastObservedTime"))
    return errors


def _either(event: Object, core_field: str) -> Any:
    """A field in whichever of the two forms the event is shown."""
    value = event.get(core_field)
    return event.get(_TO_EVENTS_GROUP[core_field]) if value is None else value


def _first_seen(event: Object) -> str:
    return _either(event, "firstTimestamp") or event.get("eventTime") or ""


def _last_seen(event: Object) -> str:
    if series := event.get("series"):
        return series.get("lastObservedTime") or ""
    return _either(event, "lastTimestamp") or _first_seen(event)


def _count(event: Object) -> int:
    if series := event.get("series"):
        return int(series.get("count") or 0)
    return _either(event, "count") or 1


def _target(event: Object) -> str:
    about = _either(event, "involvedObject") or {}
    what = (about.get("kind") or "").lower()
    return f"{what}/{about['name']}" if about.get("name") else what


def _source(event: Object) -> str:
    source = _either(event, "source") or {}
    who = source.get("component") or _either(event, "reportingComponent") or ""
    where = source.get("host") or event.get("reportingInstance") or ""
    return f"{who}, {where}" if where else who


_COLUMNS = (
    Column("Last Seen", lambda e: Since(_last_seen(e)), description="How long ago it happened last."),
    Column("Type", lambda e: e.get("type") or "", description="Normal or Warning."),
    Column("Reason", lambda e: e.get("reason") or "", description="Why, in one word for machines."),
    Column("Object", _target, description="What it happened to."),
    Column(
        "Subobject",
        lambda e: (_either(e, "involvedObject") or {}).get("fieldPath") or "",
        priority=1,
        description="Which part of it.",
    ),
    Column("Source", _source, priority=1, description="Who reports it."),
    Column("Message", lambda e: (_either(e, "message") or "").strip(), description="What happened, for people."),
    Column("First Seen", lambda e: Since(_first_seen(e)), priority=1, description="How long ago it happened first."),
    Column("Count", _count, priority=1, description="How often it happened."),
    Column("Name", lambda e: e["metadata"].get("name", ""), priority=1, format="name", description="The event's name."),
)


def resources() -> list[Resource]:
    """Event in both groups, over one prefix of the store."""
    core = kind("v1", "Event", "events", short=("ev",), rules=EventRules(), columns=_COLUMNS)
    modern = kind("events.k8s.io/v1", "Event", "events", short=("ev",), rules=StrictEventRules(), columns=_COLUMNS)
    modern.prefix = core.prefix
    form = modern.versions["v1"]
    form.encode, form.decode = to_events_group, to_core
    return [core, modern]
