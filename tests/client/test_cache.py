"""The state of an informer, without a server: nothing older ever wins."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from homeostat.client.cache import Cache
from homeostat.client.objects import Form, Key

A = Key("", "a")


def obj(name: str, revision: int, uid: str = "u1") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(revision)}}


def cache(*objects: dict[str, Any], revision: int = 10) -> Cache[dict[str, Any]]:
    made: Cache[dict[str, Any]] = Cache(Form(dict), {})
    made.replace(objects, str(revision), made.begin_list())
    return made


def wrote(known: Cache[dict[str, Any]], one: dict[str, Any]) -> bool:
    return known.put(one, Form(dict).identity(one))


def test_a_late_event_does_not_bring_back_what_we_deleted() -> None:
    known = cache(obj("a", 5))
    assert known.remove(A, "u1") == A
    assert known.event("MODIFIED", obj("a", 11)) is None
    assert known.get(A) is None
    assert known.event("DELETED", obj("a", 12)) is None
    assert known.event("ADDED", obj("a", 13, "u2")) == A


def test_a_list_from_before_our_deletion_does_not_bring_it_back() -> None:
    known = cache(obj("a", 5))
    begun = known.begin_list()
    known.remove(A, "u1")
    assert known.replace([obj("a", 5)], "10", begun) == []
    assert known.get(A) is None
    later = known.begin_list()
    known.replace([], "12", later)
    assert known._gone == {}


def test_a_list_from_before_our_write_does_not_undo_it() -> None:
    known = cache(obj("a", 5))
    begun = known.begin_list()
    assert wrote(known, obj("a", 20))
    assert wrote(known, obj("b", 21, "u2"))
    assert known.replace([obj("a", 5)], "15", begun) == []
    assert known.get(A) == obj("a", 20)
    assert known.get(Key("", "b")) is not None


def test_a_server_that_went_back_in_time_is_believed() -> None:
    known = cache(obj("a", 90), obj("b", 95, "u2"), revision=100)
    changed = known.replace([obj("a", 3, "u9")], "4", known.begin_list())
    assert set(changed) == {A, Key("", "b")}
    assert known.get(A) == obj("a", 3, "u9")
    assert len(known) == 1


def test_own_writes_do_not_move_the_place_from_which_a_watch_goes_on() -> None:
    known = cache(revision=10)
    wrote(known, obj("a", 20))
    known.leave(obj("b", 21, "u2"))
    assert known.revision == "10"
    known.event("ADDED", obj("c", 12, "u3"))
    assert known.revision == "12"


def test_the_end_of_an_earlier_object_of_the_same_name_is_not_the_end_of_this_one() -> None:
    known = cache(obj("a", 5, "old"))
    wrote(known, obj("a", 20, "new"))
    assert known.event("DELETED", obj("a", 15, "old")) is None
    assert known.get(A) == obj("a", 20, "new")


@given(st.lists(st.integers(1, 40), unique=True, min_size=1), st.randoms(use_true_random=False))
def test_whatever_the_order_the_newest_state_stays(revisions: list[int], chance: Any) -> None:
    """Events come in order; answers to our writes come at any time before or after their events."""
    history = sorted(revisions)
    known = cache(revision=0)
    events, answers = list(history), history[:]
    chance.shuffle(answers)
    best = 0
    while events or answers:
        if events and (not answers or chance.random() < 0.5):
            revision = events.pop(0)
            known.event("MODIFIED", obj("a", revision))
        else:
            revision = answers.pop()
            wrote(known, obj("a", revision))
        best = max(best, revision)
        assert known.get(A) == obj("a", best)
