"""Objects as the bytes they came as: small, and opened only where somebody looks inside."""

from __future__ import annotations

import orjson
import pytest

from homeostat.client import Key, Packed, objects
from homeostat.client.objects import Form


def body(number: int, **metadata: object) -> bytes:
    named = {"name": f"lamp-{number}", "namespace": "hall", "uid": f"uid-{number}", "resourceVersion": str(number), "generation": 2}
    return orjson.dumps({"metadata": {**named, **metadata}, "spec": {"colour": "red", "watts": number}})


def packed(number: int = 1, **metadata: object) -> Packed:
    return Form(Packed).decode(body(number, **metadata), "lamps.test.dev/v1", "Lamp")


def test_what_programs_ask_for_most_is_at_hand() -> None:
    owners = [{"uid": "other"}, {"uid": "shop", "controller": True}]
    one = packed(7, ownerReferences=owners)
    assert (one.key, one.uid, one.revision, one.generation) == (Key("hall", "lamp-7"), "uid-7", "7", 2)
    assert (one.owner, one.deleting) == ("shop", False)
    assert packed(deletionTimestamp="2026-01-01T00:00:00Z").deleting


def test_it_opens_to_what_it_was_with_its_kind() -> None:
    assert packed(3).load() == {**orjson.loads(body(3)), "apiVersion": "lamps.test.dev/v1", "kind": "Lamp"}


def test_its_mark_moves_with_all_but_the_status_and_the_version() -> None:
    mark = packed(resourceVersion="1").mark
    assert packed(resourceVersion="2").mark == mark
    others = [{"generation": 3}, {"labels": {"a": "b"}}, {"annotations": {"a": "b"}}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}]
    assert len({mark, *(packed(**other).mark for other in others)}) == len(others) + 1


def test_null_labels_are_none() -> None:
    assert Form(Packed).labels(packed(labels=None)) == {}
    assert Form(Packed).labels(packed(labels={"room": "hall"})) == {"room": "hall"}


def test_of_very_many_what_is_alike_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "SQUEEZE_ABOVE", 3)
    form = Form(Packed)
    found = [form.decode(body(number), "lamps.test.dev/v1", "Lamp") for number in range(9)]
    assert [one.body for one in found] == [body(number) for number in range(9)]
    assert all(len(one.data) < len(one.body) / 2 for one in found[3:])
    assert [one.load()["spec"]["watts"] for one in found] == list(range(9))
