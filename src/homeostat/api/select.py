"""Which objects of a collection a list, a watch or a collection delete means: label and field selectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from homeostat.api.call import Call
from homeostat.api.codec import Codec
from homeostat.api.request import Request
from homeostat.api.resource import Resource
from homeostat.api.schema.jsonpath import compile_path
from homeostat.model.errors import ApiError, bad_request
from homeostat.model.selectors import FieldSelector, LabelSelector, parse_field_selector, parse_label_selector


@cache
def _label_reader() -> Callable[[bytes], Any]:
    """Reads the labels of stored bytes and skips the rest. Made when the first selector is used."""
    import msgspec

    metadata = msgspec.defstruct("Metadata", [("labels", dict[str, str], msgspec.field(default_factory=dict))])
    return msgspec.json.Decoder(msgspec.defstruct("Labelled", [("metadata", metadata)])).decode


class Matcher:
    """Decides by stored bytes. Labels are read without decoding the rest; fields by key where the key tells them."""

    __slots__ = ("_codec", "_fields", "_getters", "_labels", "_namespaced", "_prefix", "_read", "_resource")

    def __init__(self, resource: Resource, codec: Codec, labels: LabelSelector | None, fields: FieldSelector | None) -> None:
        self._resource = resource
        self._codec = codec
        self._labels = labels
        self._read = _label_reader()
        self._fields = fields
        self._namespaced = resource.namespaced
        self._prefix = len(resource.prefix)
        self._getters: dict[str, Callable[[Any], str]] = {}
        if fields is not None and resource.custom:
            for path in codec.version.selectable:
                self._getters[path.lstrip(".")] = _text_getter(path)

    def matches(self, key: str, value: bytes) -> bool:
        if self._labels is not None and not self._labels.matches(self._read(value).metadata.labels):
            return False
        return self._fields is None or self._fields.matches(self._field_values(key, value))

    def _field_values(self, key: str, value: bytes) -> dict[str, str]:
        assert self._fields is not None
        namespace, _, name = key[self._prefix :].rpartition("/")
        values = {"metadata.name": name, "metadata.namespace": namespace}
        if any(f not in values for f in self._fields.names):
            obj = self._codec.load(value, 1 << 62)
            if self._resource.custom:
                for field, get in self._getters.items():
                    values[field] = get(obj)
            else:
                values.update(self._resource.rules.fields(obj))
        return values


def _text_getter(path: str) -> Callable[[Any], str]:
    get = compile_path(path)

    def text(obj: Any) -> str:
        found = get(obj)
        if not found or found[0] is None:
            return ""
        value = found[0]
        return ("true" if value else "false") if isinstance(value, bool) else str(value)

    return text


def matcher_for(call: Call) -> Matcher | None:
    """The selectors of the request; None where everything in the collection is meant."""
    params = call.request.params
    label_text = params.get("labelSelector", "")
    field_text = params.get("fieldSelector", "")
    if call.name:  # a watch of one object, in the old way that has its name in the path
        field_text = f"metadata.name={call.name},{field_text}"
    if not label_text and not field_text:
        return None
    labels = parse_label_selector(label_text) if label_text else None
    fields = parse_field_selector(field_text) if field_text else None
    if fields is not None:
        _check_fields(call, fields)
    if labels is not None and labels.empty:
        labels = None
    if labels is None and fields is None:
        return None
    return Matcher(call.resource, call.codec, labels, fields)


def _check_fields(call: Call, fields: FieldSelector) -> None:
    """Refuses fields that the kind cannot be selected by. Kinds with fields of their own say so in other words."""
    resource = call.resource
    own = (
        {p.lstrip(".") for p in call.codec.version.selectable}
        if resource.custom
        else set(resource.rules.fields({"metadata": {}}))
    )
    plain = not own and not resource.custom
    known = {"metadata.name", *own}
    if resource.namespaced or resource.custom or plain:
        known.add("metadata.namespace")
    for name in fields.names:
        if name not in known:
            if plain:
                raise bad_request(f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"')
            raise bad_request(f"field label not supported: {name}")


def named_by_selector(request: Request) -> str:
    """The name of the one object that a list or watch means; empty where it may mean several."""
    try:
        return parse_field_selector(request.params.get("fieldSelector", "")).exact("metadata.name") or ""
    except ApiError:
        return ""  # the verb will say what is wrong with it
