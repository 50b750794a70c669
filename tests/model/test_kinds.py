"""Kinds as typed classes: what the type says is what the server enforces, and what comes back is the type again."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum, IntEnum
from typing import Annotated, Any, ClassVar, Literal, NewType, Optional
from uuid import UUID

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Meta, UnsetType

from homeostat.api.schema import check_crd, default, default_crd, prune, validate
from homeostat.model.errors import ApiError
from homeostat.model.kinds import (
    Atomic,
    Column,
    InvalidSpec,
    KindInfo,
    KindVersion,
    Length,
    ListMap,
    ListSet,
    MapAtomic,
    Rule,
    Scale,
    Sensitive,
    Span,
    Spec,
    crd_for,
    decode,
    encode,
    format_duration,
    parse_duration,
    plural_of,
    schema_of,
)
from homeostat.model.schema import Schema
from homeostat.testing import TestPlane
from kubectl.program import find_kubectl


class Strategy(Enum):
    ROLLING = "Rolling"
    RECREATE = "Recreate"


class Level(IntEnum):
    LOW = 1
    HIGH = 9


Cores = NewType("Cores", float)


class Port(Spec):
    """A door to the server."""

    name: Annotated[str, Meta(min_length=1, max_length=15)]
    """How others refer to it."""

    port: Annotated[int, Meta(ge=1, le=65535)]
    protocol: Literal["TCP", "UDP"] = "TCP"


class Limits(Spec):
    cpu: Annotated[Cores, Meta(gt=0)] = Cores(1.0)
    memory: int | str = "1Gi"


class Range(Spec):
    min: int = 1
    max: int = 3
    rules = [Rule("self.min <= self.max", message="min is over max")]


class ServerSpec(Spec):
    """A web server.

    It serves what it is given.
    """

    image: Annotated[str, Meta(pattern="^[a-z0-9./:-]+$", description="What runs.")]
    max_replicas: Annotated[int, Meta(ge=0, le=100)] = 3
    ports: Annotated[list[Port], ListMap("name"), Meta(max_length=16)] = []
    tags: set[str] = set()
    command: Annotated[list[str], Atomic] = []
    hosts: Annotated[list[str], ListSet] = []
    labels: dict[str, str] = {}
    selector: Annotated[dict[str, str], MapAtomic] = {}
    limits: Limits = msgspec.field(default_factory=Limits)
    replicas: Range | None = None
    strategy: Strategy = Strategy.ROLLING
    level: Level = Level.LOW
    mode: Optional[Literal["fast", "slow"]] = None  # noqa: UP045
    drain: timedelta = timedelta(seconds=30)
    not_before: datetime | None = None
    day: date | None = None
    serial: UUID | None = None
    key: bytes = b""
    password: Annotated[str, Sensitive] = ""
    target: int | str = 80
    note: str | UnsetType = UNSET
    extra: dict[str, Any] = {}
    anything: Any = None
    weight: Annotated[int, Meta(multiple_of=5), Rule("self < 50", message="too heavy")] = 10


SERVER = KindInfo(
    "shop.example.com",
    "v1",
    "Server",
    ServerSpec,
    short_names=("srv",),
    categories=("all",),
    columns=(Column("Image", ".spec.image"),),
    selectable=(".spec.image",),
)


def declare(name: str, body: dict[str, Any]) -> type[Spec]:
    """A class put together by hand, for annotations that are not names of this module."""
    metaclass: Any = type(Spec)
    made: type[Spec] = metaclass(name, (Spec,), {"__module__": __name__, **body})
    return made


def problems_of(kind: KindInfo) -> list[str]:
    crd = orjson.loads(orjson.dumps(crd_for(kind)))
    default_crd(crd)
    return [str(error) for error in check_crd(crd)]


def spec_schema(kind: type[Spec]) -> dict[str, Any]:
    found: dict[str, Any] = schema_of(kind)["properties"]
    return found


class TestSchema:
    def test_a_field_without_a_default_is_required_and_a_default_is_written(self) -> None:
        schema = schema_of(Port)
        assert schema["required"] == ["name", "port"]
        assert schema["properties"]["protocol"]["default"] == "TCP"
        assert schema["properties"]["port"] == {
            "type": "integer",
            "format": "int64",
            "minimum": 1,
            "maximum": 65535,
        }

    def test_names_are_in_camel_case_on_the_wire(self) -> None:
        assert "maxReplicas" in spec_schema(ServerSpec)
        assert "notBefore" in spec_schema(ServerSpec)

    def test_docstrings_become_descriptions(self) -> None:
        assert schema_of(ServerSpec)["description"] == "A web server.\n\nIt serves what it is given."
        assert spec_schema(ServerSpec)["image"]["description"] == "What runs."
        assert spec_schema(Port)["name"]["description"] == "How others refer to it."
        assert spec_schema(ServerSpec)["ports"]["items"]["description"] == "A door to the server."

    def test_optional_is_nullable_and_has_no_default(self) -> None:
        found = spec_schema(ServerSpec)["notBefore"]
        assert found == {"type": "string", "format": "date-time", "nullable": True}
        assert spec_schema(ServerSpec)["note"] == {"type": "string"}

    def test_lists_say_how_they_are_merged(self) -> None:
        fields = spec_schema(ServerSpec)
        assert fields["ports"]["x-kubernetes-list-map-keys"] == ["name"]
        assert [fields[name].get("x-kubernetes-list-type") for name in ("ports", "tags", "hosts", "command")] == [
            "map",
            "set",
            "set",
            "atomic",
        ]
        assert fields["selector"]["x-kubernetes-map-type"] == "atomic"

    def test_limits_go_by_what_they_limit(self) -> None:
        fields = spec_schema(ServerSpec)
        assert fields["ports"]["maxItems"] == 16
        assert spec_schema(Port)["name"]["maxLength"] == 15
        assert fields["weight"]["multipleOf"] == 5
        cpu = spec_schema(Limits)["cpu"]
        assert (cpu["minimum"], cpu["exclusiveMinimum"]) == (0, True)

    def test_rules_stand_with_what_they_bind(self) -> None:
        assert schema_of(Range)["x-kubernetes-validations"] == [
            {"rule": "self.min <= self.max", "message": "min is over max"}
        ]
        assert spec_schema(ServerSpec)["weight"]["x-kubernetes-validations"][0]["rule"] == "self < 50"

    def test_a_struct_with_a_field_called_rules_takes_them_by_decorator(self) -> None:
        @Rule("self.rules.size() < 9")
        @Rule("self.open || self.rules.size() > 0", reason="FieldValueForbidden")
        class Firewall(Spec):
            open: bool = False
            rules: list[str] = []

        class Stricter(Firewall):
            rules: list[str]

        texts = [rule["rule"] for rule in schema_of(Stricter)["x-kubernetes-validations"]]
        assert texts == ["self.rules.size() < 9", "self.open || self.rules.size() > 0"]

    def test_fields_are_inherited(self) -> None:
        assert set(spec_schema(Named)) == {"name", "port", "protocol", "alias"}
        assert spec_schema(Named)["name"]["description"] == "How others refer to it."

    def test_a_plain_struct_may_stand_inside(self) -> None:
        assert spec_schema(Outer)["inner"]["properties"]["some_field"]["type"] == "integer"


class Named(Port):
    alias: str


class Plain(msgspec.Struct):
    some_field: int = 1


class Outer(Spec):
    inner: Plain = msgspec.field(default_factory=Plain)


class TestWhatHasNoPlace:
    def refused(self, hint: Any, value: Any = msgspec.NODEFAULT) -> str:
        body: dict[str, Any] = {"__annotations__": {"size": hint}}
        if value is not msgspec.NODEFAULT:
            body["size"] = value
        with pytest.raises(TypeError) as caught:
            declare("Box", body)
        message = str(caught.value)
        assert message.startswith("Box.size: ")
        return message

    @pytest.mark.parametrize(
        ("hint", "says"),
        [
            (complex, "complex has no place in a kind"),
            (list[complex], "complex has no place"),
            (tuple[int, str], "of one type"),
            (dict[int, str], "keys of a map are texts, not int"),
            (int | bytes, "too many things"),
            (Port | Limits, "too many things"),
            (set[Port], "a set is of scalars"),
            (Literal["a", 1], "all texts, or all integers"),
            (Annotated[str, ListSet], "ListSet is for lists"),
            (Annotated[list[Port], ListSet], "ListMap tells structs apart"),
            (Annotated[list[str], ListMap("name")], "lists of structs"),
            (Annotated[list[Port], ListMap("nome")], "Port has no such field"),
            (Annotated[list[Plain], ListMap("some_field")], ""),
            (Annotated[list[ServerSpec], ListMap("not_before")], "every item has"),
            (Annotated[dict[str, str], Atomic], "takes MapAtomic"),
            (Annotated[int, Sensitive], "for texts"),
            (Annotated[str, Meta(pattern="(?=x)")], "RE2"),
        ],
    )
    def test_is_refused_where_the_class_is_defined(self, hint: Any, says: str) -> None:
        if not says:  # a key with a default is one that every item has
            declare("Box", {"__annotations__": {"size": hint}})
            return
        assert says in self.refused(hint)

    def test_a_default_that_does_not_fit(self) -> None:
        assert "expected an integer >= 1" in self.refused(Annotated[int, Meta(ge=1)], 0)
        assert "expected a string, got an integer" in self.refused(str, 3)

    def test_a_default_that_changes(self) -> None:
        made = iter(range(10))
        assert "the same every time" in self.refused(int, msgspec.field(default_factory=lambda: next(made)))

    def test_a_type_that_contains_itself(self) -> None:
        with pytest.raises(TypeError, match=r"Node.below: Node contains itself \(Node → Node\)"):

            class Node(Spec):
                below: list[Node] = []

    def test_types_that_contain_each_other_are_refused_when_they_are_used(self) -> None:
        with pytest.raises(TypeError, match=r"Tail.head: Head contains itself \(Head → Tail → Head\)"):
            schema_of(Head)

    def test_a_type_that_comes_later_is_looked_at_when_it_is_there(self) -> None:
        assert spec_schema(Early)["late"]["properties"] == {"x": {"type": "boolean", "default": False}}

    def test_a_type_that_nobody_can_find(self) -> None:
        class Lost(Spec):
            way: list[Nowhere] = []  # type: ignore[name-defined]  # noqa: F821

        with pytest.raises(TypeError, match=r"Lost.way: no type 'Nowhere' in .*test_kinds"):
            schema_of(Lost)

    def test_a_tagged_struct(self) -> None:
        class Tagged(msgspec.Struct, tag=True):
            x: int

        assert "tagged" in self.refused(Tagged)


class Head(Spec):
    tail: Tail | None = None


class Tail(Spec):
    head: Head | None = None


class Early(Spec):
    late: Late | None = None


class Late(Spec):
    x: bool = False


class TestValues:
    WIRE: ClassVar[dict[str, Any]] = {
        "image": "web:1",
        "maxReplicas": 5,
        "ports": [{"name": "http", "port": 80, "protocol": "UDP"}],
        "tags": ["a", "b"],
        "limits": {"cpu": 0.5, "memory": 512},
        "replicas": {"min": 2, "max": 4},
        "strategy": "Recreate",
        "level": 9,
        "mode": "slow",
        "drain": "1m30s",
        "notBefore": "2026-01-31T12:00:00Z",
        "day": "2026-01-31",
        "serial": "12345678-1234-5678-1234-567812345678",
        "key": "AAE=",
        "note": "n",
        "extra": {"a": [1, None]},
        "anything": {"b": 1},
    }

    def test_come_typed_and_go_as_they_came(self) -> None:
        spec = decode(ServerSpec, self.WIRE)
        assert spec.ports == [Port(name="http", port=80, protocol="UDP")]
        assert spec.tags == {"a", "b"}
        assert spec.drain == timedelta(seconds=90)
        assert spec.not_before == datetime(2026, 1, 31, 12, tzinfo=UTC)
        assert spec.strategy is Strategy.RECREATE
        assert spec.level is Level.HIGH
        assert spec.key == b"\x00\x01"
        assert spec.serial == UUID("12345678123456781234567812345678")
        assert encode(spec, defaults=False) == self.WIRE

    def test_defaults_are_written_or_left_out(self) -> None:
        spec = ServerSpec(image="a")
        assert encode(spec, defaults=False) == {"image": "a"}
        full = encode(spec)
        assert full["limits"] == {"cpu": 1.0, "memory": "1Gi"}
        assert full["drain"] == "30s"
        assert full["maxReplicas"] == 3
        assert not {"notBefore", "note", "key", "replicas", "anything"} & full.keys()

    def test_a_null_that_means_something_is_kept(self) -> None:
        class Shelf(Spec):
            height: int | None
            width: int | None = 5

        assert encode(decode(Shelf, {"height": None, "width": None})) == {"height": None, "width": None}

    def test_what_the_server_lets_pass_is_decoded(self) -> None:
        spec = decode(ServerSpec, {"image": "a", "maxReplicas": 4.0, "labels": None, "unheardOf": 1})
        assert (spec.max_replicas, spec.labels) == (4, {})

    def test_every_field_that_does_not_fit_is_named(self) -> None:
        wrong: dict[str, Any] = {
            "ports": [{"port": 0}, {"name": "x", "port": "80"}],
            "labels": {"a": 1},
            "strategy": "Sideways",
            "drain": "soon",
            "notBefore": "later",
            "limits": [],
            "maxReplicas": 101,
        }
        with pytest.raises(InvalidSpec) as caught:
            decode(ServerSpec, wrong)
        found = {error.path: error.detail for error in caught.value.errors}
        assert found == {
            "spec.image": "Required value",
            "spec.maxReplicas": "Invalid value: 101: expected an integer <= 100",
            "spec.ports[0].name": "Required value",
            "spec.ports[0].port": "Invalid value: 0: expected an integer >= 1",
            "spec.ports[1].port": 'Invalid value: "80": expected an integer, got a string',
            "spec.labels[a]": "Invalid value: 1: expected a string, got an integer",
            "spec.strategy": 'Unsupported value: "Sideways": supported values: "Rolling", "Recreate"',
            "spec.drain": 'Invalid value: "soon": a duration is written like "1h30m", "45s" or "250ms"',
            "spec.notBefore": 'Invalid value: "later": invalid RFC3339 encoded datetime',
            "spec.limits": "Invalid value: []: expected an object, got a list",
        }
        assert str(caught.value).startswith("ServerSpec is invalid: spec.image: Required value; ")

    def test_what_a_class_checks_itself_is_said_in_its_own_words(self) -> None:
        class Even(Spec):
            x: int

            def __post_init__(self) -> None:
                if self.x % 2:
                    raise ValueError("x is odd")

        pair = declare("Pair", {"__annotations__": {"even": Even}})
        with pytest.raises(InvalidSpec, match=r"Pair is invalid: spec.even: x is odd"):
            decode(pair, {"even": {"x": 1}})

    def test_times_are_written_in_utc_and_need_a_zone(self) -> None:
        east = timezone(timedelta(hours=2))
        assert encode(ServerSpec(image="a", not_before=datetime(2026, 1, 1, 2, tzinfo=east)))["notBefore"] == (
            "2026-01-01T00:00:00Z"
        )
        with pytest.raises(ValueError, match="has no time zone"):
            encode(ServerSpec(image="a", not_before=datetime(2026, 1, 1)))

    def test_what_is_encoded_shares_no_container_with_the_spec(self) -> None:
        spec = ServerSpec(image="a", command=["x"], labels={"a": "b"})
        wire = encode(spec)
        wire["command"].append("y")
        wire["labels"]["c"] = "d"
        assert (spec.command, spec.labels) == (["x"], {"a": "b"})


class Timed(Spec):
    span: Span = timedelta(0)
    length: Length = timedelta(1)


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "seconds", "canonical"),
        [
            ("0", 0, "0s"),
            ("90s", 90, "1m30s"),
            ("1h", 3600, "1h0m0s"),
            ("1.5h", 5400, "1h30m0s"),
            ("-2m", -120, "-2m0s"),
            ("250ms", 0.25, "250ms"),
            ("1s500ms", 1.5, "1.5s"),
            ("7us", 7e-6, "7µs"),
            ("1000000ns", 0.001, "1ms"),
        ],
    )
    def test_are_read_and_written_as_go_does(self, text: str, seconds: float, canonical: str) -> None:
        assert parse_duration(text) == timedelta(seconds=seconds)
        assert format_duration(timedelta(seconds=seconds)) == canonical

    @pytest.mark.parametrize("text", ["", "1", "1d", "s", "1h 30m", "1ns", "PT5S", "9999999h", "1m" * 40, "1s\n"])
    def test_others_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="duration"):
            parse_duration(text)

    @given(data=st.data())
    @settings(max_examples=200, deadline=None)
    def test_what_a_server_lets_into_a_field_can_be_read(self, data: st.DataObject) -> None:
        found = schema_of(Timed)["properties"]["span"]
        text = data.draw(st.from_regex(found["pattern"].rstrip("$"), fullmatch=True))
        assert len(text) > found["maxLength"] or parse_duration(text) >= timedelta(0)

    @pytest.mark.parametrize("text", ["9999999h", "1000000000h", "1m" * 40, "999999h" * 3, "1ns", "0.0000001s", "1.2.3h", "-1s", "5"])
    def test_what_cannot_be_read_is_not_let_into_a_field(self, text: str) -> None:
        for field in ("span", "length"):
            assert validate(Schema(schema_of(Timed)), {field: text}, path="spec"), (field, text)

    @pytest.mark.parametrize("text", ["1h30m0s", "999999h59m59.999999s", "90m", "31536000s", "1.5h", "250ms", "7µs", "+2s", "1s500ms"])
    def test_what_people_write_is_let_into_a_field(self, text: str) -> None:
        assert not validate(Schema(schema_of(Timed)), {"span": text, "length": text}, path="spec")
        assert decode(Timed, {"span": text, "length": text}).span > timedelta(0)

    def test_one_that_is_more_than_nothing_is_asked_for(self) -> None:
        assert not validate(Schema(schema_of(Timed)), {"span": "0s"}, path="spec")
        assert validate(Schema(schema_of(Timed)), {"length": "0h0m0s"}, path="spec")

    @given(st.timedeltas(timedelta(days=-90000), timedelta(days=90000)))
    @settings(max_examples=200, deadline=None)
    def test_none_is_lost_on_the_way(self, span: timedelta) -> None:
        assert parse_duration(format_duration(span)) == span


class TestDefinition:
    def test_the_server_finds_nothing_wrong_with_it(self) -> None:
        assert problems_of(SERVER) == []

    @pytest.mark.parametrize(
        ("kind", "plural"),
        [
            ("File", "files"),
            ("GuardPolicy", "guardpolicies"),
            ("Process", "processes"),
            ("Gateway", "gateways"),
            ("Proxy", "proxies"),
            ("Box", "boxes"),
            ("Mesh", "meshes"),
            ("Y", "ys"),
        ],
    )
    def test_plurals_are_english(self, kind: str, plural: str) -> None:
        assert plural_of(kind) == plural

    def test_it_has_all_that_was_said_of_the_kind(self) -> None:
        crd = crd_for(SERVER)
        assert crd["metadata"]["name"] == SERVER.name == "servers.shop.example.com"
        assert crd["spec"]["names"] == {
            "kind": "Server",
            "listKind": "ServerList",
            "plural": "servers",
            "singular": "server",
            "shortNames": ["srv"],
            "categories": ["all"],
        }
        (version,) = crd["spec"]["versions"]
        assert [column["name"] for column in version["additionalPrinterColumns"]] == ["Image", "Ready", "Age"]
        assert version["subresources"] == {"status": {}}
        assert version["schema"]["openAPIV3Schema"]["required"] == ["spec"]

    def test_a_kind_with_several_versions_scale_and_a_typed_status(self) -> None:
        class PoolStatus(Spec):
            replicas: int = 0
            selector: str = ""

        kind = KindInfo(
            "shop.example.com",
            "v2",
            "Pool",
            Range,
            PoolStatus,
            scope="Cluster",
            plural="poolz",
            scale=Scale(".spec.min", ".status.replicas", ".status.selector"),
            other_versions=(KindVersion("v1", Range, PoolStatus, deprecated="use v2"), KindVersion("v1alpha1", Range, served=False)),
            labels={"a": "b"},
        )
        assert problems_of(kind) == []
        versions = crd_for(kind)["spec"]["versions"]
        assert [(v["name"], v["served"], v["storage"]) for v in versions] == [
            ("v2", True, True),
            ("v1", True, False),
            ("v1alpha1", False, False),
        ]
        properties = versions[0]["schema"]["openAPIV3Schema"]["properties"]
        assert set(properties["status"]["properties"]) == {"replicas", "selector", "conditions", "observedGeneration"}
        assert properties["spec"]["default"] == {"min": 1, "max": 3}

    def test_a_definition_may_be_changed_without_harm_to_the_next(self) -> None:
        status = {"type": "object", "properties": {"x": {"type": "string"}}}
        for kind in (SERVER, KindInfo("a.example.com", "v1", "Thing", Range, status)):
            before = orjson.dumps(crd_for(kind))
            for version in crd_for(kind)["spec"]["versions"]:
                for inner in version["schema"]["openAPIV3Schema"]["properties"].values():
                    for below in inner.get("properties", {}).values():
                        below.clear()
            assert orjson.dumps(crd_for(kind)) == before
            assert hash(kind)

    def test_a_status_schema_is_taken_as_it_is(self) -> None:
        given = {"type": "object", "properties": {"x": {"type": "string"}}}
        crd = crd_for(KindInfo("a.example.com", "v1", "Thing", Range, given))
        assert crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] == given

    @pytest.mark.parametrize(
        ("names", "says"),
        [
            (("example", "v1", "Thing"), "'example' cannot be the group of a kind: it has a dot"),
            (("a.example.com", "V1", "Thing"), "'V1' cannot be the version of a kind"),
            (("a.example.com", "v1", "thing"), "it begins with a capital letter"),
            (("a.example.com", "v1", "My_Thing"), "'My_Thing' cannot be the kind of a kind"),
        ],
    )
    def test_names_that_are_none_are_refused_at_once(self, names: tuple[str, str, str], says: str) -> None:
        with pytest.raises(ValueError, match=says.replace("(", r"\(")):
            KindInfo(*names, Range)


@given(
    st.builds(
        ServerSpec,
        image=st.from_regex("[a-z0-9./:-]+", fullmatch=True),
        max_replicas=st.integers(0, 100),
        ports=st.lists(
            st.builds(
                Port,
                name=st.text(min_size=1, max_size=15),
                port=st.integers(1, 65535),
                protocol=st.sampled_from(["TCP", "UDP"]),
            ),
            unique_by=lambda port: port.name,
            max_size=3,
        ),
        tags=st.sets(st.text(max_size=3), max_size=3),
        hosts=st.lists(st.text(max_size=3), unique=True, max_size=3),
        labels=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
        limits=st.builds(Limits, cpu=st.floats(0.1, 64), memory=st.integers(0, 9) | st.text(max_size=4)),
        replicas=st.none() | st.builds(Range, min=st.integers(0, 3), max=st.integers(3, 5)),
        strategy=st.sampled_from(Strategy),
        level=st.sampled_from(Level),
        mode=st.sampled_from(["fast", "slow", None]),
        drain=st.timedeltas(timedelta(0), timedelta(days=400)),
        not_before=st.none() | st.datetimes(datetime(1000, 1, 1), timezones=st.just(UTC)),
        day=st.none() | st.dates(date(1000, 1, 1)),
        serial=st.none() | st.uuids(),
        key=st.binary(max_size=5),
        target=st.integers(0, 9) | st.text(max_size=3),
        weight=st.integers(0, 9).map(lambda n: n * 5),
    )
)
@settings(max_examples=100, deadline=None)
def test_every_value_of_the_type_is_one_that_the_server_takes_unchanged(spec: ServerSpec) -> None:
    schema = Schema(crd_for(SERVER)["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    for defaults in (True, False):
        wire = orjson.loads(orjson.dumps({"spec": encode(spec, defaults=defaults)}))
        stored = orjson.loads(orjson.dumps(wire))
        prune(schema, stored)
        default(schema, stored)
        assert stored["spec"] == encode(spec)  # nothing pruned, and our defaults are the server's
        assert validate(schema, stored) == []
        assert decode(ServerSpec, wire["spec"]) == decode(ServerSpec, stored["spec"]) == spec


class TestOnAServer:
    @pytest.fixture
    def plane(self, homeostat: TestPlane) -> TestPlane:
        homeostat.apply(orjson.dumps(crd_for(SERVER)).decode())
        return homeostat

    async def make(self, plane: TestPlane, spec: Mapping[str, Any]) -> dict[str, Any]:
        async with plane.client() as client:
            servers = client.kind(SERVER.api_version, SERVER.kind)
            return await servers.create({"metadata": {"name": "a"}, "spec": spec})

    async def test_objects_are_defaulted_as_the_class_does(self, plane: TestPlane) -> None:
        made = await self.make(plane, {"image": "web:1", "ports": [{"name": "http", "port": 80}], "typo": 1})
        assert made["spec"] == encode(decode(ServerSpec, {"image": "web:1", "ports": [{"name": "http", "port": 80}]}))

    async def test_a_typed_object_is_stored_and_read_back(self, plane: TestPlane) -> None:
        spec = decode(ServerSpec, TestValues.WIRE)
        made = await self.make(plane, encode(spec))
        assert decode(ServerSpec, made["spec"]) == spec

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"image": "WEB"}, "spec.image in body should match"),
            ({"maxReplicas": 101}, "should be less than or equal to 100"),
            ({"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, "Duplicate value"),
            ({"ports": [{"name": "a"}]}, "spec.ports[0].port: Required value"),
            ({"strategy": "Sideways"}, 'supported values: "Rolling", "Recreate"'),
            ({"drain": "3 days"}, "spec.drain in body should match"),
            ({"notBefore": "later"}, "must be of type date-time"),
            ({"mode": "medium"}, "Unsupported value"),
            ({"replicas": {"min": 9}}, "min is over max"),
            ({"weight": 55}, "too heavy"),
            ({"key": "***"}, "must be of type byte"),
        ],
    )
    async def test_what_does_not_fit_is_refused(self, plane: TestPlane, change: dict[str, Any], says: str) -> None:
        with pytest.raises(ApiError) as caught:
            await self.make(plane, {"image": "web:1", **change})
        assert says in caught.value.message

    async def test_null_is_taken_where_the_type_has_none(self, plane: TestPlane) -> None:
        made = await self.make(plane, {"image": "web:1", "mode": None, "replicas": None})
        assert decode(ServerSpec, made["spec"]).mode is None

    async def test_kubectl_explains_it(self, plane: TestPlane) -> None:
        program = find_kubectl()

        def kubectl(*args: str) -> str:
            command = [program, "--kubeconfig", str(plane.kubeconfig), *args]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

        assert "It serves what it is given." in kubectl("explain", "servers")
        assert "How others refer to it." in kubectl("explain", "srv.spec.ports.name")
        assert "maxReplicas" in kubectl("explain", "servers.spec")
        await self.make(plane, {"image": "web:1"})
        assert kubectl("get", "srv", "-n", "default").split()[:4] == ["NAME", "IMAGE", "READY", "AGE"]
        listed = json.loads(kubectl("get", "servers", "-n", "default", "--field-selector=spec.image=web:1", "-o", "json"))
        assert len(listed["items"]) == 1


class Waits(Spec):
    """Times that cannot be anything."""

    grace: Span = timedelta()
    every: Length = timedelta(seconds=5)


@pytest.mark.parametrize(
    ("text", "is_span", "is_length"),
    [
        ("0s", True, False),
        ("0h0m0s", True, False),
        ("0.0s", True, False),
        ("-1h", False, False),
        ("0.5s", True, True),
        ("10s", True, True),
        ("1h0m0s", True, True),
        ("soon", False, False),
    ],
)
def test_a_span_is_not_below_nothing_and_a_length_is_more(text: str, is_span: bool, is_length: bool) -> None:
    fields = schema_of(Waits)["properties"]
    assert bool(re.fullmatch(fields["grace"]["pattern"], text)) is is_span
    assert bool(re.fullmatch(fields["every"]["pattern"], text)) is is_length
