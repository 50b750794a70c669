"""From the text of a file to the objects in it, with the line that each begins at; and from a field to its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from homeostat.model.encoding import Malformed, decode_json, load_numbered_yaml
from homeostat.sources.files import RenderError
from homeostat.sources.sops import Keys, is_sealed, unseal

SUFFIXES = (".yaml", ".yml", ".json")
_LINE = re.compile(r"line (\d+): (.*)", re.DOTALL).fullmatch
_PAIR = re.compile(r'(\w+)="?([^",\]]*)"?')
_STEP = re.compile(r"[^.\[\]]+|\[(\d+)\]|\[[^\]]*\]")

Object = dict[str, Any]


class Manifest(NamedTuple):
    """One object that a commit declares, and where it stands. `line` 0: its file came out of a tool."""

    obj: Object
    file: str
    line: int
    sealed: bool = False
    """It was encrypted: what is in it is told to nobody."""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def refused(self, problem: str, field: str = "", line: int = 0) -> RenderError:
        """What is wrong with it, as an error that says where."""
        return RenderError(problem, self.file, line or self.line, field)


def parse(text: str, file: str, keys: Keys | None = None) -> list[Manifest]:
    """The objects of a file; lists are taken apart, and what is encrypted is opened. RenderError with file and line where it cannot be."""
    try:
        documents = _json(text) if file.endswith(".json") else None
        documents = load_numbered_yaml(text) if documents is None else documents
    except Malformed as error:
        said = _LINE(str(error))
        raise RenderError(said[2] if said else str(error), file, int(said[1]) if said else 0) from None
    if not any(is_sealed(value) for _, value in documents):
        return [one for line, value in documents for one in _objects(value, file, line)]
    opened = _opened(documents, text, file, keys)
    return [one._replace(sealed=True) for line, value in opened for one in _objects(value, file, line)]


def _opened(documents: list[tuple[int, Any]], text: str, file: str, keys: Keys | None) -> list[tuple[int, Any]]:
    def refused(number: int, problem: str, field: str) -> RenderError:
        line = documents[number][0]
        return RenderError(problem, file, line_of(text, line, field) or line, field)

    if keys is None:
        number = next(number for number, (_, value) in enumerate(documents) if is_sealed(value))
        raise refused(
            number,
            "it is encrypted: it is opened where `decryption` names the Secret with the age key, and in no kustomization or template",
            "sops",
        )
    found = unseal([value for _, value in documents], keys, refused)
    return [(line, value) for (line, _), value in zip(documents, found, strict=True)]


def _json(text: str) -> list[tuple[int, Any]] | None:
    """The quick way for what is one JSON value; None where it is not, and is looked at as YAML, which can say in which line."""
    try:
        value, doubled = decode_json(text.encode())
    except Malformed:
        return None
    return None if doubled else [(1, value)]


def _objects(value: Any, file: str, line: int) -> Iterator[Manifest]:
    if not isinstance(value, dict):
        raise RenderError(f"an object is expected here, not {type(value).__name__}", file, line)
    if is_sealed(value):
        raise RenderError("it is encrypted within a list: give it a file of its own", file, line, "sops")
    if str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list):
        for item in value["items"]:
            yield from _objects(item, file, line)
        return
    for name in ("apiVersion", "kind"):
        if not isinstance(value.get(name), str) or not value[name]:
            raise RenderError(f"{name} is missing", file, line, name)
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise RenderError("metadata is missing", file, line, "metadata")
    if not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise RenderError(
            "metadata.name is missing: a name that is made up would be another each time", file, line, "metadata.name"
        )
    for name in ("labels", "annotations"):
        found = metadata.get(name)
        if found is not None and not isinstance(found, dict):
            raise RenderError(f"metadata.{name} is a map of texts", file, line, f"metadata.{name}")
    yield Manifest(value, file, line)


def line_of(text: str, start: int, field: str) -> int:
    """The line of a field (`spec.ports[0].port`), of the document that begins at line `start`; of what is missing, its parent's.

    0 where it cannot be told, as within lists of objects.
    """
    import yaml

    try:
        for node in yaml.compose_all(text, Loader=yaml.CSafeLoader):
            if node is not None and node.start_mark.line + 1 >= start:
                return _descend(node, field)
    except yaml.YAMLError:
        pass
    return 0


def _descend(node: Any, field: str) -> int:
    line = int(node.start_mark.line) + 1
    for step in _STEP.finditer(field):
        at, following = _below(node, step[0], step[1])
        if following is None or at is None:
            return line
        node, line = following, int(at.start_mark.line) + 1
    return line


def _below(node: Any, step: str, number: str | None) -> tuple[Any, Any]:
    """What is one step down: where it stands, and what it is."""
    if node.id == "mapping":
        name = step.strip("[]'\"")
        return next(((key, value) for key, value in node.value if key.value == name), (None, None))
    if node.id != "sequence":
        return None, None
    if number is not None:
        item = node.value[int(number)] if int(number) < len(node.value) else None
        return item, item
    wanted = dict(_PAIR.findall(step))  # `[name="web",protocol="TCP"]`: what is said of the item, defaults included
    for item in node.value:
        if item.id == "mapping":
            there = {key.value: value.value for key, value in item.value if key.value in wanted}
            if there and all(wanted[key] == value for key, value in there.items()):
                return item, item
    return None, None
