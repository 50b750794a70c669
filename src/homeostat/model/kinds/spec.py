"""The class that a kind is declared by."""

from __future__ import annotations

from typing import Any, dataclass_transform

import msgspec

from homeostat.model.kinds.schema import check
from homeostat.model.kinds.shape import NotYetDefined


class _Declared(msgspec.StructMeta):
    """Looks at a class when it is defined, so that a mistake shows where it was made."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        options.setdefault("kw_only", True)
        struct: Any = super().__new__(mcls, name, bases, namespace, **options)
        try:
            check(struct)
        except NotYetDefined:
            pass  # looked at again when the schema is made
        return struct


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Spec(msgspec.Struct, metaclass=_Declared, rename="camel"):
    """What a kind declares: annotated fields, with defaults where they are not required.

        class Server(Spec):
            '''A web server.'''

            image: str
            ports: Annotated[list[Port], ListMap("name")] = []
            max_replicas: Annotated[int, Meta(ge=1, le=100)] = 3
            '''How many may run at once.'''
            drain: timedelta = timedelta(seconds=30)

            rules = [Rule("!has(self.ports) || self.ports.size() < 100", message="too many ports")]

    Fields are given by keyword; on the wire they are in camelCase (`maxReplicas`). Values are not checked when an
    instance is made in Python, only when one is decoded. A type that a kind cannot have raises TypeError where the
    class is defined.
    """
