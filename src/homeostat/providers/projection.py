"""What of an observed document is about what was declared: so that what a server adds is no drift, also inside of lists.

Maps need nothing: `compare` looks at the declared fields alone. Lists are one value to it; so each item here is cut down to
what is declared of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def project(declared: Any, observed: Any) -> Any:
    """The observed value with the items of its lists cut down to the fields that are declared of them, place by place.

    A list of another length stays as it is: it differs as a whole.
    """
    if isinstance(declared, Mapping) and isinstance(observed, Mapping):
        return {name: project(declared[name], value) if name in declared else value for name, value in observed.items()}
    if isinstance(declared, list) and isinstance(observed, list) and len(declared) == len(observed):
        return [_item(one, other) for one, other in zip(declared, observed, strict=True)]
    return observed


def _item(declared: Any, observed: Any) -> Any:
    if isinstance(declared, Mapping) and isinstance(observed, Mapping):
        return {name: _item(declared[name], observed[name]) for name in declared if name in observed}
    return project(declared, observed)


def dig(document: Any, path: str) -> Any:
    """What stands at `a.b.c` in a document; the document itself for the empty path. KeyError where there is nothing."""
    for name in steps(path):
        if not isinstance(document, Mapping) or name not in document:
            raise KeyError(name)
        document = document[name]
    return document


def bury(value: Any, path: str) -> Any:
    """A document that has the value at `a.b.c` and nothing else."""
    for name in reversed(steps(path)):
        value = {name: value}
    return value


def steps(path: str) -> Sequence[str]:
    """`a.b` as its names."""
    return path.split(".") if path else ()
