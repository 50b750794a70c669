"""Kinds declared by typed Python classes: schema, CustomResourceDefinition, decoding and encoding all come from the
type.

    class Port(Spec):
        name: str
        port: Annotated[int, Meta(ge=1, le=65535)]

    class ServerSpec(Spec):
        image: str
        ports: Annotated[list[Port], ListMap("name")] = []
        drain: timedelta = timedelta(seconds=30)

    server = KindInfo("shop.example.com", "v1", "Server", ServerSpec, short_names=("srv",))

    crd_for(server)                                      # the definition to apply
    decode(ServerSpec, {"image": "web:1"}).drain         # timedelta(seconds=30)
    encode(ServerSpec(image="web:1"))                    # {"image": "web:1", "ports": [], "drain": "30s"}

Read `shape` for the types that a kind may have, `marks` for what stands beside them in `Annotated`, `schema` and
`definition` for what the API server gets, `values` for what goes over the wire.
"""

from homeostat.model.kinds.definition import AGE, READY, Column, KindInfo, KindVersion, Scale, crd_for, plural_of
from homeostat.model.kinds.durations import Length, Span, format_duration, parse_duration
from homeostat.model.kinds.marks import Atomic, ListMap, ListSet, MapAtomic, Rule, Sensitive
from homeostat.model.kinds.schema import schema_of
from homeostat.model.kinds.spec import Spec
from homeostat.model.kinds.values import InvalidSpec, decode, encode

__all__ = [
    "AGE",
    "READY",
    "Atomic",
    "Column",
    "InvalidSpec",
    "KindInfo",
    "KindVersion",
    "Length",
    "ListMap",
    "ListSet",
    "MapAtomic",
    "Rule",
    "Scale",
    "Sensitive",
    "Span",
    "Spec",
    "crd_for",
    "decode",
    "encode",
    "format_duration",
    "parse_duration",
    "plural_of",
    "schema_of",
]
