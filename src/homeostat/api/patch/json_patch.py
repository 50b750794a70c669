"""JSON patch (RFC 6902), with the habits of kube-apiserver's library.

It differs from the RFC where that library does: `replace` of a missing key in an object adds it, `copy` of a missing
key copies `null`, `-1` is the last item of a list, and a missing value equals `null` in `test`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from homeostat.api.patch.refusals import Json, rejected
from homeostat.api.wording import json_word
from homeostat.model.errors import ApiError, bad_request
from homeostat.model.protocol import BODY_LIMIT

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = BODY_LIMIT
"""Total size, as JSON, of what all `copy` operations of one patch may add."""
MAX_MOVED_ITEMS = 50_000_000
"""Total number of list items that inserts and removals of one patch may shift; about a tenth of a second."""

_FIELDS = frozenset({"op", "path", "from", "value"})


def apply_json_patch(document: Json, patch: Any) -> Json:
    """The document after all operations, in order; one that fails refuses the whole patch.

    Raises 400 where the patch is not a list of operations, 413 beyond `MAX_OPERATIONS`, and 422 where an operation does
    not apply, a `test` fails, or a limit of this module is passed.
    """
    if patch is None:
        return document
    _check_form(patch)
    work = _Work(document)
    for operation in patch:
        kind = operation.get("op")
        step = _STEPS.get(kind or "")
        if step is None:
            raise rejected(f"Unexpected kind: {kind or 'unknown'}")
        step(work, operation)
    if not isinstance(work.root, dict):
        raise rejected("the patched document is not an object")
    return work.root


def unknown_operation_fields(patch: list[Json]) -> list[str]:
    """What strict field validation has to say of the patch itself, one text for each unknown field of an operation."""
    return [
        f'json patch unknown field "[{position}].{field}"'
        for position, operation in enumerate(patch)
        for field in operation
        if field not in _FIELDS
    ]


def _check_form(patch: Any) -> None:
    def mismatch(value: Any, target: str) -> ApiError:
        return bad_request(f"error decoding patch: json: cannot unmarshal {json_word(value)} into Go {target}")

    if not isinstance(patch, list):
        raise mismatch(patch, "value of type []handlers.jsonPatchOp")
    if len(patch) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}"
        raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")
    for operation in patch:
        if not isinstance(operation, dict):
            raise mismatch(operation, "value of type handlers.jsonPatchOp")
        for field in ("op", "path", "from"):
            if not isinstance(operation.get(field, ""), (str, type(None))):
                raise mismatch(operation[field], f"struct field jsonPatchOp.{field} of type string")


class _Missing(Exception):
    """A step of a pointer leads nowhere; the text says why."""


class _Work:
    """The document while it is patched: a container is copied when it is first written to, and only then."""

    def __init__(self, document: Any) -> None:
        self.root = document
        self._own: dict[int, Any] = {}  # id → the copy itself, kept alive so that its id stays its own
        self._copied = 0
        self._moved = 0

    def _owned(self, container: Any) -> Any:
        if id(container) in self._own:
            return container
        copy = container.copy()
        self._own[id(copy)] = copy
        return copy

    def parent(self, pointer: str, *, write: bool) -> tuple[Any, str]:
        """The container that a pointer's last step is in, and that step. With `write`, it may be changed."""
        steps = pointer.split("/")
        if len(steps) < 2:
            raise _Missing
        if write:
            self.root = self._owned(self.root)
        node = self.root
        for step in steps[1:-1]:
            key = _unescape(step)
            slot = _slot(node, key) if isinstance(node, list) else key
            child = node.get(slot) if isinstance(node, dict) else node[slot]
            if not isinstance(child, (dict, list)):
                raise _Missing
            if write:
                child = node[slot] = self._owned(child)
            node = child
        return node, _unescape(steps[-1])

    def add(self, node: Any, key: str, value: Any) -> None:
        if isinstance(node, dict):
            node[key] = value
        elif key == "-":
            node.append(value)
        else:
            slot = _slot(node, key, room=1, adding=True)
            self._move(len(node) - slot)
            node.insert(slot, value)

    def remove(self, node: Any, key: str) -> None:
        if isinstance(node, dict):
            if key not in node:
                raise _Missing(f"Unable to remove nonexistent key: {key}: missing value")
            del node[key]
        else:
            slot = _slot(node, key)
            self._move(len(node) - slot)
            del node[slot]

    def duplicate(self, value: Any) -> Any:
        encoded = orjson.dumps(value)
        self._copied += len(encoded)
        if self._copied > MAX_COPIED_BYTES:
            raise rejected(
                f"Unable to complete the copy, the accumulated size increase of copy is {self._copied},"
                f" exceeding the limit {MAX_COPIED_BYTES}"
            )
        return orjson.loads(encoded) if isinstance(value, (dict, list)) else value

    def _move(self, items: int) -> None:
        self._moved += items
        if self._moved > MAX_MOVED_ITEMS:
            raise rejected(f"the patch shifts more than {MAX_MOVED_ITEMS} list items")


def _unescape(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~") if "~" in step else step


def _slot(items: list[Any], key: str, room: int = 0, adding: bool = False) -> int:
    """The position that a step names in a list; negative ones count from the end."""
    digits = key[1:] if key[:1] in ("-", "+") else key
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        why = "value out of range" if digits.isdigit() else "invalid syntax"
        parsing = f'strconv.Atoi: parsing "{key}": {why}'
        raise _Missing(f"value was not a proper array index: '{key}': {parsing}" if adding else parsing)
    size = len(items) + room
    slot = int(key)
    if not -size <= slot < size:
        raise _Missing(f"Unable to access invalid index: {slot}: invalid index referenced")
    return slot + size if slot < 0 else slot


def _get(node: Any, key: str) -> Any:
    return node.get(key) if isinstance(node, dict) else node[_slot(node, key)]


def _text(operation: Json, field: str, when_missing: str) -> str:
    text = operation.get(field)
    if text is None:
        raise rejected(f"{when_missing}: missing value")
    return str(text)


def _find(work: _Work, pointer: str, when_missing: str, *, write: bool = True) -> tuple[Any, str]:
    try:
        return work.parent(pointer, write=write)
    except _Missing:
        raise rejected(f"{when_missing}: missing value") from None


@contextmanager
def _blaming(what: str) -> Iterator[None]:
    try:
        yield
    except _Missing as why:
        raise rejected(f"{what}: {why}") from None


def _add(work: _Work, operation: Json) -> None:
    path = _text(operation, "path", "add operation failed to decode path")
    node, key = _find(work, path, f'add operation does not apply: doc is missing path: "{path}"')
    with _blaming(f"error in add for path: '{path}'"):
        work.add(node, key, operation.get("value"))


def _remove(work: _Work, operation: Json) -> None:
    path = _text(operation, "path", "remove operation failed to decode path")
    node, key = _find(work, path, f'remove operation does not apply: doc is missing path: "{path}"')
    with _blaming(f"error in remove for path: '{path}'"):
        work.remove(node, key)


def _replace(work: _Work, operation: Json) -> None:
    path = _text(operation, "path", "replace operation failed to decode path: operation missing path field")
    value = operation.get("value")
    if path == "":
        if not isinstance(value, (dict, list)):
            raise rejected("replace operation value must be object or array")
        work.root = value
        return
    node, key = _find(work, path, f"replace operation does not apply: doc is missing path: {path}")
    try:
        node[key if isinstance(node, dict) else _slot(node, key)] = value
    except _Missing:
        raise rejected(f"replace operation does not apply: doc is missing key: {path}: missing value") from None


def _move(work: _Work, operation: Json) -> None:
    origin = _text(operation, "from", "move operation failed to decode from: operation, missing from field")
    node, key = _find(work, origin, f"move operation does not apply: doc is missing from path: {origin}")
    with _blaming(f"error in move for path: '{key}'"):
        value = _get(node, key)
        work.remove(node, key)
    path = _text(operation, "path", "move operation failed to decode path: operation missing path field")
    node, key = _find(work, path, f"move operation does not apply: doc is missing destination path: {path}")
    with _blaming(f"error in move for path: '{path}'"):
        work.add(node, key, value)


def _copy(work: _Work, operation: Json) -> None:
    origin = _text(operation, "from", "copy operation failed to decode from: operation, missing from field")
    node, key = _find(work, origin, f"copy operation does not apply: doc is missing from path: {origin}", write=False)
    with _blaming(f"error in copy for from: '{origin}'"):
        value = _get(node, key)
    path = _text(operation, "path", "copy operation failed to decode path")
    node, key = _find(work, path, f"copy operation does not apply: doc is missing destination path: {path}")
    with _blaming("error while adding value during copy"):
        work.add(node, key, work.duplicate(value))


def _test(work: _Work, operation: Json) -> None:
    path = _text(operation, "path", "test operation failed to decode path: operation missing path field")
    if path == "":
        found = work.root
    else:
        node, key = _find(work, path, f"test operation does not apply: is missing path: {path}", write=False)
        with _blaming(f"error in test for path: '{path}'"):
            found = _get(node, key)
    if not _same(found, operation.get("value")):
        raise rejected(f"testing value {path} failed: test failed")


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON. Python takes `1`, `1.0` and `true` for one another; JSON does not."""
    return left == right and _same_types(left, right)


def _same_types(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return all(_same_types(value, right[field]) for field, value in left.items())
    if isinstance(left, list):
        return all(map(_same_types, left, right))
    return True


_STEPS = {"add": _add, "remove": _remove, "replace": _replace, "move": _move, "copy": _copy, "test": _test}
