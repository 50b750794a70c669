"""Requests of every sort, from ordinary to absurd, made from one number.

The operations are those that the server's own OpenAPI documents declare. A body begins as an object of the right kind and is then
broken: values of other types, other sizes and other meanings, fields that nobody knows, bytes that are no text.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import quote, urlencode

import orjson
import yaml
from tests.fuzz.seeds import SEEDS, Object

NAMES = ("a", "b", "c", "default", "kube-system", "widgets.fuzz.example.com", "view", "admin")
ODD_NAMES = ("..", ".", "%00", "a%2fb", "A_B", "é", "x" * 300, "%ff", "a b", "-", "%", "status", "watch", "a\\b", "🎈")
NAMESPACES = ("default", "fuzz", "fuzz", "fuzz", "gone", "kube-system")
MEDIA = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "text/plain",
    "",
    "application/json;charset=utf-8",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
PATCHES = MEDIA[-4:]
ACCEPTS = (
    "",
    "*/*",
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
    "text/html;q=é",
    "application/json;as=;v=;g=;;=",
    "application/json;stream=watch",
)
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**32, 2**63 - 1, -(2**63), 2**64 - 1, 10**30, 0.5, -0.0, 1e308, 1e-320,
    "", " ", "a", "0", "-1", "1e400", "1Gi", "-5%", "100%", "\0", "é\u0301", "\u202e", "🎈", "x" * 300, "\n", "..", "a/b/c", "/",
    "true", "null", "2024-01-01T00:00:00Z", "9999-99-99T99:99:99Z", "0001-01-01T00:00:00Z", "::1", "10.0.0.0/33", "*",
    "system:masters", "$patch", "(a+)+$", "[", "{}", "%s%n", "{{", "1" * 5000, [], {}, [None], [[]], [{}], {"": ""}, {"a": None},
    {"$patch": "replace"}, {"$patch": "delete"}, {"$retainKeys": ["a"]}, {"matchLabels": {"a b": "c"}}, ["a", "a"], [1, "1", 1.0],
    {"f:a": {}}, {"apiVersion": 1}, {"x" * 300: 1},
)  # fmt: skip
ODD_FIELDS = (
    "metadata", "spec", "status", "apiVersion", "kind", "name", "namespace", "uid", "resourceVersion", "generation", "labels",
    "annotations", "finalizers", "ownerReferences", "managedFields", "deletionTimestamp", "creationTimestamp", "generateName",
    "selfLink", "$patch", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers", "$retainKeys", "", "\0", "é", "a.b",
    "a/b", "~", "type", "default", "properties", "items", "x-kubernetes-validations", "pattern", "enum", "rule", "replicas", "data",
)  # fmt: skip
PARAMS: dict[str, tuple[str, ...]] = {
    "limit": ("1", "2", "0", "-1", "x", "9" * 30, "9" * 400, "1.5", "0x10", "١"),
    "continue": ("x", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6"
                 "OTk5OTk5OTk5OTk5OTk5OTk5OTksInN0YXJ0IjoiXHUwMDAwIn0", "é", "=" * 10, "\0"),
    "resourceVersion": ("0", "1", "5", "-1", "x", "9" * 18, "9" * 30, "é", "٣", " 1", "+1", "1_0"),
    "resourceVersionMatch": ("Exact", "NotOlderThan", "x"),
    "timeoutSeconds": ("0", "1", "-1", "x", "9" * 30, "9" * 400, "1e3"),
    "watch": ("1", "true", "false", "x", ""),
    "allowWatchBookmarks": ("true", "x"),
    "sendInitialEvents": ("true", "false", ""),
    "labelSelector": ("a=b", "a in (b,c)", "!a", "a>5", "a>é", "a in (", ",,,", "=", "a" * 9999, "a=b," * 500, "a notin ()", "\0"),
    "fieldSelector": ("metadata.name=a", "metadata.name!=a", "spec.x=1", "metadata.name", "=", "\\", "a=b\\,c", "spec.colour=red"),
    "dryRun": ("All", "x", "", "all"),
    "fieldManager": ("m", "x" * 200, "a\nb", "é", ""),
    "fieldValidation": ("Strict", "Warn", "Ignore", "x"),
    "force": ("true", "false", "x"),
    "pretty": ("true", "x"),
    "propagationPolicy": ("Orphan", "Foreground", "Background", "x"),
    "gracePeriodSeconds": ("0", "-1", "9" * 30, "x"),
    "orphanDependents": ("true", "false", "x"),
    "includeObject": ("None", "Object", "Metadata", "x"),
    "x" * 50: ("y",),
}  # fmt: skip
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"user-agent", b"\xff\xfe/1"),
    (b"user-agent", b"a\tb/" + b"x" * 500),
    (b"impersonate-user", b"nobody"),
    (b"impersonate-user", b""),
    (b"impersonate-group", b"system:masters"),
    (b"impersonate-extra-%zz", b"\xff"),
    (b"impersonate-user", b"system:serviceaccount:a:b"),
    (b"impersonate-uid", b"u"),
    (b"homeostat-change-set", b"\xff" * 300),
    (b"accept-encoding", b"gzip, br"),
    (b"if-none-match", b'"x"'),
    (b"authorization", b"Bearer x"),
)


KEYWORDS: dict[str, tuple[Any, ...]] = {
    "nullable": (True,),
    "default": (None, 0, "", "x", [], {}, {"a": 1}, ["a"], True),
    "enum": ([1], ["a", "b"], [None], [{}], []),
    "pattern": ("^a+$", "(a+)+$", "(", "[[:alpha:]]", "\\p{L}", "a{1000}{1000}", ""),
    "format": ("date-time", "int32", "ipv4", "uuid", "byte", "duration", "email", "cidr", "x"),
    "minimum": (0, -1, 1e308, 0.5), "maximum": (5, -(2**63)), "multipleOf": (0, 3, 0.1, -1),
    "minLength": (0, 3, -1), "maxLength": (5, 0), "minItems": (1, 100), "minProperties": (1,), "maxProperties": (0, 2),
    "uniqueItems": (True, False), "required": (["a"], ["zz"], [], [""]),
    "x-kubernetes-int-or-string": (True,), "x-kubernetes-list-type": ("set", "map", "atomic", "x"),
    "x-kubernetes-list-map-keys": (["a"], ["zz"]), "x-kubernetes-map-type": ("granular", "atomic"),
    "x-kubernetes-embedded-resource": (True,), "x-kubernetes-preserve-unknown-fields": (True, False),
    "anyOf": ([{"minimum": 1}, {"required": ["a"]}], [{}]), "oneOf": ([{}, {}],), "not": ({"required": ["b"]}, {}),
    "allOf": ([{"properties": {"a": {"maxLength": 3}}}],),
    "x-kubernetes-validations": tuple(
        [{"rule": rule}] for rule in (
            "self == self", "self.a == 1", "self == oldSelf", "size(self) > 0", "self.all(x, x == x)", "1/0 == 1", "self.matches('(a+)+')",
            "self.exists(x, self.exists(y, self.exists(z, x == y && y == z)))", "has(self.a) && self.a.startsWith('b')", "true", "(", "",
            "self.map(x, self).size() > 3", "self + self == self", "quantity(self).isGreaterThan(quantity('1'))", "self.split('').size() < 5",
            "duration(self) > duration('1s')", "timestamp(self) < timestamp('2024-01-01T00:00:00Z')", "self in ['a', 'b']", "type(self) == int",
            "optionalOldSelf.hasValue()", "int(self) > 5", "url(self).getHost() == 'a'", "self.format([self]) == ''", "[self][5] == self",
        )
    ),
}  # fmt: skip


class Sent:
    """One request, and what made it."""

    def __init__(self, number: int, method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.number, self.method, self.target, self.headers, self.body = number, method, target, headers, body

    def __str__(self) -> str:
        return f"request {self.number}: {self.method} {self.target[:2000]}\n{self.headers}\n{self.body[:4000]!r}"


class Operations:
    """What the server says can be asked of it: (method, path, kind of the body, parameters)."""

    def __init__(self, documents: list[Object]) -> None:
        self.all: list[tuple[str, str, str, list[str]]] = []
        for document in documents:
            for path, item in document.get("paths", {}).items():
                shared = [p.get("name", "") for p in item.get("parameters", ())]
                for method in ("get", "post", "put", "patch", "delete"):
                    if method in item:
                        self.all.append((method.upper(), path, _kind(item, method), shared + _names(item[method])))
        self.creations = [o for o in self.all if o[0] == "POST"]


def _names(operation: Object) -> list[str]:
    return [p.get("name", "") for p in operation.get("parameters", ())]


def _kind(item: Object, method: str) -> str:
    if method == "delete":
        return "DeleteOptions"
    for operation in (item[method], *(item[m] for m in ("put", "post", "get") if m in item)):
        kind = operation.get("x-kubernetes-group-version-kind", {}).get("kind", "")
        if kind:
            return str(kind)
    return ""


class Generator:
    """Makes requests from a seed. `known` are objects that the server returned: they are sent back, changed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.known: dict[str, list[Object]] = {}
        self.operations: Operations
        self._number = 0

    def learn(self, kind: str, obj: Object) -> None:
        """Remembers an object that the server gave."""
        kept = self.known.setdefault(kind, [])
        if len(kept) < 20:
            kept.append(obj)
        else:
            kept[self.random.randrange(20)] = obj

    def next(self) -> tuple[Sent, str]:
        """The next request and the kind it is about."""
        r = self.random
        method, path, kind, names = r.choice(self.operations.all)
        if method != "POST" and r.random() < 0.3:  # there must be something to change and to delete
            method, path, kind, names = r.choice(self.operations.creations)
        self._number += 1
        namespace, name = self._choose(NAMESPACES, ODD_NAMES, 0.03), self._choose(NAMES[:3], ODD_NAMES, 0.05)
        if r.random() < 0.1:
            name = r.choice(NAMES)
        version = path.split("/")[2] if path.startswith("/api/") else "/".join(path.split("/")[2:4])
        target = path.replace("{namespace}", quote(namespace, "%")).replace("{name}", quote(name, "%"))
        if r.random() < 0.02:
            method = r.choice(("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO"))
        if r.random() < 0.01:
            target = self._broken_path(target)
        query = self._query(names)
        media, body = self._body(method, version, kind, namespace if "{namespace}" in path else "", name)
        headers = [(b"content-type", media.encode())] if media else []
        accept = "application/json" if r.random() < 0.6 else r.choice(ACCEPTS)
        headers.append((b"accept", accept.encode("latin-1")))
        if r.random() < 0.05:
            headers += r.choices(HEADERS, k=r.randint(1, 3))
        return Sent(self._number, method, target + query, headers, body), kind

    def _choose(self, usual: tuple[str, ...], odd: tuple[str, ...], chance: float) -> str:
        return self.random.choice(odd if self.random.random() < chance else usual)

    def _broken_path(self, target: str) -> str:
        r = self.random
        at = r.randrange(len(target))
        return target[:at] + r.choice(("//", "/../", "%2f", "%00", "%", "%zz", "é", "/.", "\\", "x" * 5000)) + target[at:]

    def _query(self, names: list[str]) -> str:
        r = self.random
        if r.random() < 0.4:
            return ""
        chosen = [n for n in (*names, r.choice(list(PARAMS))) if n in PARAMS and r.random() < 0.15]
        if r.random() < 0.01:
            return "?" + r.choice(("%", "&&&=", "a=%ff", "a" * 3000, "&".join(f"a{i}=1" for i in range(2000)), "watch", "%00=%00"))
        # A watch without an end would hold the request: the reader leaves after the first events.
        return "?" + urlencode([(n, r.choice(PARAMS[n])) for n in chosen]) if chosen else ""

    # Bodies

    def _body(self, method: str, version: str, kind: str, namespace: str, name: str) -> tuple[str, bytes]:
        r = self.random
        if method == "GET" or (method == "DELETE" and r.random() < 0.6):
            return "", b""
        obj = self._object(version, kind, namespace, name)
        if method == "PATCH":
            media = r.choice(PATCHES) if r.random() < 0.97 else r.choice(MEDIA)
            value = self._patch(media, obj)
        else:
            media = "application/json" if r.random() < 0.9 else r.choice(MEDIA)
            value = obj
        if r.random() < 0.7:
            for _ in range(r.choice((0, 0, 1, 1, 2, 4))):
                value = self._mutated(value)
        return media, self._encoded(media, value)

    def _object(self, version: str, kind: str, namespace: str, name: str) -> Object:
        r = self.random
        if self.known.get(kind) and r.random() < 0.4:
            obj: Object = orjson.loads(orjson.dumps(r.choice(self.known[kind])))
            if r.random() < 0.5 and isinstance(obj.get("metadata"), dict):
                obj["metadata"].pop("resourceVersion", None)
                obj["metadata"].pop("managedFields", None)
        else:
            obj = deepcopy(SEEDS.get(kind) or {"spec": self._value(3), "status": self._value(2)})
        metadata = obj.get("metadata")
        metadata = obj["metadata"] = metadata if isinstance(metadata, dict) else {}
        if r.random() < 0.95:
            obj["apiVersion"], obj["kind"] = version, kind
            metadata["name"] = name
            if kind == "CustomResourceDefinition":
                metadata["name"] = "widgets.fuzz.example.com"
            if namespace:
                metadata["namespace"] = namespace
            else:
                metadata.pop("namespace", None)
            if kind == "CustomResourceDefinition" and r.random() < 0.5:
                self._define(obj)
        if r.random() < 0.1:
            metadata["finalizers"] = ["fuzz.example.com/hold"]
        if r.random() < 0.1:
            metadata["labels"] = {"a": "b", "app": "x"}
        if r.random() < 0.05:
            metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}]
        return obj

    def _define(self, crd: Object) -> None:
        """Another kind, of a random schema."""
        r = self.random
        word = r.choice(("gadget", "gizmo", "thing"))
        group = r.choice(("one.example.com", "two.example.com"))
        crd["metadata"]["name"] = f"{word}s.{group}"
        crd["spec"] = deepcopy(SEEDS["CustomResourceDefinition"]["spec"])
        crd["spec"] |= {"group": group, "names": {"plural": f"{word}s", "singular": word, "kind": word.title()}}
        crd["spec"]["scope"] = r.choice(("Namespaced", "Cluster"))
        spec = self._schema(3)
        for version in crd["spec"]["versions"]:
            version["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"spec": spec, "status": self._schema(1)}}
            version.pop("selectableFields", None)

    def _schema(self, depth: int) -> Object:
        """A structural schema, more often than not."""
        r = self.random
        kind = r.choice(("object", "object", "array", "string", "integer", "number", "boolean"))
        schema: Object = {"type": kind}
        if kind == "object":
            if depth and r.random() < 0.7:
                schema["properties"] = {name: self._schema(depth - 1) for name in r.sample(("a", "b", "c", "spec", "x-y"), 2)}
            elif depth and r.random() < 0.5:
                schema["additionalProperties"] = self._schema(depth - 1)
            else:
                schema["x-kubernetes-preserve-unknown-fields"] = True
        elif kind == "array":
            schema["items"] = self._schema(max(0, depth - 1))
            schema["maxItems"] = r.choice((0, 3, 10))
        for word, choices in KEYWORDS.items():
            if r.random() < 0.08:
                schema[word] = deepcopy(r.choice(choices))
        return schema

    def _patch(self, media: str, obj: Object) -> Any:
        r = self.random
        if media != "application/json-patch+json":
            if media == "application/apply-patch+yaml" and r.random() < 0.8:
                obj["metadata"] = {k: v for k, v in obj["metadata"].items() if k in ("name", "namespace", "labels")}
            return obj if r.random() < 0.7 else {k: v for k, v in obj.items() if r.random() < 0.5}
        pointers = list(_pointers(obj, ""))
        patch = []
        for _ in range(r.choice((0, 1, 2, 3, 20))):
            step: Object = {"op": r.choice(("add", "remove", "replace", "move", "copy", "test", "x"))}
            step["path"] = r.choice(pointers) + r.choice(("", "", "", "/-", "/0", "/a", "/~", "/-1", "/99999999999999999999"))
            if step["op"] in ("move", "copy"):
                step["from"] = r.choice(pointers)
            elif step["op"] != "remove":
                step["value"] = self._odd()
            patch.append(step)
        return patch

    def _value(self, depth: int) -> Any:
        """Any value at all, of the words that random schemas know."""
        r = self.random
        if not depth or r.random() < 0.3:
            return r.choice((0, 1, -5, 0.5, "", "a", "abc", "2024-01-01T00:00:00Z", True, None, self._odd()))
        if r.random() < 0.7:
            return {name: self._value(depth - 1) for name in r.sample(("a", "b", "c", "spec", "x-y", "d"), r.randint(0, 4))}
        return [self._value(depth - 1) for _ in range(r.randint(0, 4))]

    def _odd(self) -> Any:
        return deepcopy(self.random.choice(ODD_VALUES))  # what is put into an object may be broken further

    def _mutated(self, value: Any) -> Any:
        """The value with one place in it changed."""
        r = self.random
        if r.random() < 0.02:
            return self._odd()
        node, at = value, []
        while isinstance(node, dict | list) and node and r.random() < 0.85:
            key = r.choice(list(node)) if isinstance(node, dict) else r.randrange(len(node))
            at.append((node, key))
            node = node[key]
        if not at:
            return value
        holder, key = at[-1]
        match r.randrange(6):
            case 0 | 1:
                holder[key] = self._odd()
            case 2:
                del holder[key]
            case 3 if isinstance(holder, dict):
                holder[r.choice(ODD_FIELDS)] = self._odd()
            case 3 | 4 if isinstance(holder, list):
                holder.append(r.choice((deepcopy(node), self._odd())))
            case _:
                holder[key] = r.choice(([node], {"a": node}, [node, deepcopy(node)], _deep(node, r.choice((5, 150)))))
        return value

    def _encoded(self, media: str, value: Any) -> bytes:
        r = self.random
        if "yaml" in media and r.random() < 0.5:
            body = yaml.dump(value, Dumper=_Dumper, allow_unicode=r.random() < 0.5).encode("utf-8", "replace")
        elif "protobuf" in media:
            body = b"k8s\0" + bytes(r.randrange(256) for _ in range(r.choice((0, 3, 40, 300))))
        else:
            body = json.dumps(value, ensure_ascii=r.random() < 0.5).encode("utf-8", "surrogatepass")
        if r.random() < 0.06:
            body = self._broken_bytes(body)
        return body

    def _broken_bytes(self, body: bytes) -> bytes:
        r = self.random
        at = r.randrange(len(body) + 1)
        match r.randrange(5):
            case 0:
                return body[:at]
            case 1:
                return body[:at] + bytes([r.randrange(256)]) + body[at + 1 :]
            case 2:
                return body[:at] + r.choice((b"\0", b"\xff", b"NaN", b"1e999", b"\\ud800", b"[" * 20000, b"9" * 5000)) + body[at:]
            case 3:
                return body + body
            case _:
                return b"\xef\xbb\xbf" + body


class _Dumper(yaml.SafeDumper):
    """Writes out what stands twice, instead of by an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _deep(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = {"a": value}
    return value


def _pointers(value: Any, path: str) -> Iterator[str]:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _pointers(inner, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _pointers(inner, f"{path}/{i}")
