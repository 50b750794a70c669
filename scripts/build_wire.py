"""Builds `api/builtin/wire.tsv`: how the built-in types look in protobuf, which Go clients send by default.

    python scripts/build_wire.py GOPATH_SRC

GOPATH_SRC holds `k8s.io/api`, `k8s.io/apimachinery` and `k8s.io/apiextensions-apiserver` (Debian ships them as
golang-k8s-*-dev). Only facts are taken: field numbers and wire types from `generated.proto`, and from `types.go` what
JSON calls a field, whether it is inlined, and whether its zero value means that it is absent.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from homeostat.api.builtin.types import _table, is_defined

ROOTS = ("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",)
SCALARS = {
    "string": "string",
    "bytes": "bytes",
    "bool": "bool",
    "double": "double",
    "int32": "int",
    "int64": "int",
    "uint32": "int",
    "uint64": "int",
}
_PACKAGE = re.compile(r"^package (\S+);", re.M)
_MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.M | re.S)
_FIELD = re.compile(r"^  (?:optional |repeated |required )?(map<string, ?\S+>|\S+) (\w+) = (\d+);", re.M)
_REPEATED = re.compile(r"^  repeated \S+ \w+ = (\d+);", re.M)
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
_GO_FIELD = re.compile(r'^\s+(?:\w+\s+)?(\S+)\s+`.*?json:"([^"]*)".*?protobuf:"\w+,(\d+),', re.M)
_GO_FIELD_SWAPPED = re.compile(r'^\s+(?:\w+\s+)?(\S+)\s+`.*?protobuf:"\w+,(\d+),.*?json:"([^"]*)"', re.M)


def go_fields(text: str) -> dict[str, dict[int, tuple[str, str]]]:
    """By struct and field number: the Go type and the json tag."""
    found: dict[str, dict[int, tuple[str, str]]] = {}
    for name, body in _STRUCT.findall(text):
        fields = {int(n): (kind, tag) for kind, tag, n in _GO_FIELD.findall(body)}
        fields |= {int(n): (kind, tag) for kind, n, tag in _GO_FIELD_SWAPPED.findall(body) if int(n) not in fields}
        found[name] = fields
    return found


def messages(source: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each message: its name, its fields as lines of the table, and the messages it refers to."""
    for proto in sorted(source.rglob("generated.proto")):
        text = proto.read_text()
        package = _PACKAGE.search(text)
        assert package, proto
        prefix = package[1].replace("k8s.io.", "io.k8s.", 1).replace("_", "-")
        go = {}
        for file in proto.parent.glob("*.go"):
            if not file.name.startswith(("generated", "zz_")):
                go |= go_fields(file.read_text())
        for name, body in _MESSAGE.findall(text):
            repeated = {int(n) for n in _REPEATED.findall(body)}
            fields, refs = [], []
            for kind, proto_name, digits in _FIELD.findall(body):
                number = int(digits)
                go_type, tag = go.get(name, {}).get(number, ("", proto_name))
                json_name, *flags = tag.split(",")
                shape = "[]" if number in repeated else ""
                if kind.startswith("map<"):
                    kind, shape = kind[4:-1].split(",")[1].strip(), "{}"
                if kind not in SCALARS:
                    kind = kind.lstrip(".")
                    kind = kind.replace("k8s.io.", "io.k8s.", 1).replace("_", "-") if "." in kind else f"{prefix}.{kind}"
                    refs.append(kind)
                kind = SCALARS.get(kind, kind)
                absent = "?" if "omitempty" in flags and not go_type.startswith("*") else ""
                fields.append(f"{number} {'~' if not json_name or 'inline' in flags else json_name} {kind}{shape}{absent}")
            yield f"{prefix}.{name}", fields, refs


def main() -> None:
    source = Path(sys.argv[1]) / "k8s.io"
    table = {name: (fields, refs) for name, fields, refs in messages(source)}
    wanted, todo = set(), [*ROOTS, *(name for name in _table() if is_defined(name) and name in table)]
    while todo:
        name = todo.pop()
        if name in table and name not in wanted:
            wanted.add(name)
            todo.extend(table[name][1])
    lines = [f"{name}\t{','.join(table[name][0])}" for name in sorted(wanted)]
    target = Path(__file__).parent.parent / "src/homeostat/api/builtin/wire.tsv"
    target.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} types, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
