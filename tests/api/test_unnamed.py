"""Change sets that nobody named: the server finds again what the loop put together."""

from __future__ import annotations

from homeostat.api import unnamed
from homeostat.api.unnamed import _together, manager_of
from homeostat.loop import changesets


def test_the_server_puts_together_what_the_loop_does() -> None:
    assert (unnamed.WINDOW, unnamed.LONGEST) == (changesets.WINDOW, changesets.LONGEST)


def test_what_is_chained_without_a_longer_pause_belongs_together() -> None:
    writes = [(100.0, "a", 1), (102.0, "b", 2), (104.0, "a", 3), (107.0, "c", 4)]
    assert _together(writes, 102.0) == [("a", 1), ("b", 2), ("a", 3)]
    assert _together(writes, 107.0) == [("c", 4)]
    assert _together(writes, 106.0) == []
    assert _together([], 1.0) == []


def test_a_chain_is_no_longer_than_the_longest() -> None:
    writes = [(float(at), f"k{at}", at) for at in range(0, 400, 2)]
    assert len(_together(writes, 0.0)) == 151
    assert _together(writes, 302.0)[0] == ("k302", 302)


def test_who_takes_a_field_wrote_and_not_who_lost_it_in_the_same_second() -> None:
    time = "2026-01-31T12:00:00Z"
    old = {"metadata": {"managedFields": [{"manager": "one", "time": time, "fieldsV1": {"f:data": {"f:a": {}}}}]}}
    new = {"metadata": {"managedFields": [{"manager": "one", "time": time, "fieldsV1": {}}, {"manager": "two", "time": time, "fieldsV1": {"f:data": {"f:a": {}}}}]}}
    assert manager_of(new, old)["manager"] == "two"
    assert manager_of({"metadata": {}}, None) == {}
