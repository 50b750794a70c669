"""Objects as the bytes they came as: small, and opened only where somebody looks inside."""

from __future__ import annotations

import orjson
import pytest

from homeostat.client import Key, Packed, objects
from homeostat.client.cache import Cache
from homeostat.client.objects import Form, Squeezed


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


def test_of_very_many_that_are_listed_what_is_alike_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "SQUEEZE_ABOVE", 3)
    form = Form(Packed)
    found = [form.listed(body(number), "lamps.test.dev/v1", "Lamp") for number in range(9)]
    assert [one.loose for one in found] == [True] * 3 + [False] * 6
    assert [one.body for one in found] == [body(number) for number in range(9)]
    assert all(len(one.content.data) < len(one.body) / 2 for one in found[4:] if isinstance(one.content, Squeezed))
    assert [one.load()["spec"]["watts"] for one in found] == list(range(9))


def test_what_changed_last_is_kept_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "SQUEEZE_ABOVE", 3)
    form = Form(Packed)
    cache = Cache(form, {})

    def put(number: int, revision: int) -> None:
        one = form.decode(body(number, resourceVersion=str(revision)), "lamps.test.dev/v1", "Lamp")
        assert cache.put(one, form.identity(one))

    for number in range(5):
        put(number, 10 + number)
    put(0, 20)  # it had been squeezed, and comes anew
    held = [cache.get(Key("hall", f"lamp-{number}")) for number in range(5)]
    assert [one is not None and one.loose for one in held] == [True, False, False, True, True]
    assert [one is not None and one.load()["spec"]["watts"] for one in held] == list(range(5))
    cache.remove(Key("hall", "lamp-3"), "uid-3")
    put(5, 21)
    assert [one is not None and one.loose for one in held] == [True, False, False, True, True]  # who is gone takes no place
