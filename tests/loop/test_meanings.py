"""Who takes back what somebody else declared."""

from __future__ import annotations

from homeostat.loop.fleet import Ref
from homeostat.loop.meanings import REMEMBERED, Meanings

THING = Ref("things.example.com", "default", "one", "uid")
RED, BLUE = {"colour": "red"}, {"colour": "blue"}


def replaced(by: str) -> Meanings:
    found = Meanings()
    found.replaced(THING, RED, (by,))
    return found


def test_who_declares_again_what_somebody_else_replaced_undoes_it() -> None:
    assert replaced("ann").undone(THING, RED, ("bob",)) == "ann"


def test_who_declares_something_new_undoes_nothing() -> None:
    assert replaced("ann").undone(THING, BLUE, ("bob",)) == ""


def test_nobody_undoes_their_own() -> None:
    assert replaced("ann").undone(THING, RED, ("ann",)) == ""


def test_to_go_back_by_our_own_hand_is_no_fight() -> None:
    assert replaced("ann").undone(THING, RED, ("homeostat-return",)) == ""
    assert replaced("homeostat-rollback").undone(THING, RED, ("ann",)) == ""


def test_what_is_declared_no_more_is_forgotten_and_so_is_what_changed_long_ago() -> None:
    found = replaced("ann")
    found.forget(THING)
    assert found.undone(THING, RED, ("bob",)) == ""
    found = replaced("ann")
    for number in range(REMEMBERED):
        found.replaced(Ref("things.example.com", "default", f"other-{number}", ""), RED, ("ann",))
    assert found.undone(THING, RED, ("bob",)) == ""
