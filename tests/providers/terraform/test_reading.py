"""What Terraform prints, as a plan: what counts, what is shown, what is hidden."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.loop.fleet import Cause, Parts
from homeostat.loop.observation import ABSENT
from homeostat.providers.terraform.reading import later, lock_of, mask, read_plan, words

KEY = b"k" * 32


def entry(address: str, *actions: str, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"address": address, "mode": "managed", "change": {"actions": list(actions), "before": before, "after": after, **more}}


def plan_of(*changes: dict[str, Any], **more: Any) -> Any:
    things = [{"mode": "managed"}, {"mode": "data"}]
    prior = {"values": {"root_module": {"resources": things, "child_modules": [{"resources": [{"mode": "managed"}] * 9}]}}}
    return read_plan({"resource_changes": list(changes), "prior_state": prior, **more}, KEY, lambda value: value)


@pytest.mark.parametrize(
    ("actions", "counted"),
    [
        (("create",), Parts(10, adds=1)),
        (("update",), Parts(10, changes=1)),
        (("delete",), Parts(10, deletions=1)),
        (("delete", "create"), Parts(10, deletions=1)),
        (("create", "delete"), Parts(10, deletions=1)),
        (("forget",), Parts(10)),
    ],
)
def test_each_action_counts_for_what_it_does(actions: tuple[str, ...], counted: Parts) -> None:
    assert plan_of(entry("a.b", *actions, before={}, after={})).parts == counted


def test_what_is_as_it_should_be_and_what_is_only_read_is_no_step() -> None:
    read = {**entry("data.a.b", "read"), "mode": "data"}
    assert plan_of(entry("a.b", "no-op"), read).steps == ()
    (moved,) = plan_of({**entry("a.c", "no-op"), "previous_address": "a.b"}).steps
    assert (moved.action, moved.said) == ("none", "rename from a.b")


def test_what_is_sensitive_is_masked_and_told_to_change() -> None:
    change = entry(
        "a.b",
        "update",
        before={"name": "x", "password": "old", "rules": [{"key": "s1"}]},
        after={"name": "y", "password": "new", "rules": [{"key": "s2"}]},
        before_sensitive={"password": True, "rules": [{"key": True}]},
        after_sensitive={"password": True, "rules": [{"key": True}]},
    )
    (step,) = plan_of(change).steps
    assert (("name",), "x", "y") in step.values
    assert (("password",), "(sensitive)", "(sensitive)") in step.values
    assert not any(word in repr(step.values) for word in ("old", "new", "s1", "s2"))
    other = dict(change, change={**change["change"], "after": {**change["change"]["after"], "password": "newer"}})
    assert plan_of(other).steps[0].digest != step.digest  # though it looks the same, it is another plan


def test_what_is_known_only_afterwards_is_said_so() -> None:
    assert later({"a": 1}, {"b": True, "c": {"d": True}, "e": {}}) == {"a": 1, "b": "(known after apply)", "c": {"d": "(known after apply)"}}
    assert later(None, {}) is None
    assert mask({"a": [1, 2]}, {"a": [False, True]}) == {"a": [1, "(sensitive)"]}
    (step,) = plan_of(entry("a.b", "create", after={"n": 1}, after_unknown={"id": True})).steps
    assert step.values == (((), ABSENT, {"n": 1, "id": "(known after apply)"}),)


def test_a_step_that_undoes_what_others_did_is_drift_and_one_that_also_does_more_is_both() -> None:
    drifted = entry("a.b", "update", before={"n": 1}, after={"n": 9})
    back = entry("a.b", "update", before={"n": 9}, after={"n": 1})
    other = entry("a.b", "update", before={"n": 9}, after={"n": 2})
    again = entry("a.b", "create", after={"n": 1})
    gone = entry("a.b", "delete", before={"n": 1}, after=None)
    causes = [plan_of(step, resource_drift=[moved]).steps[0].cause for step, moved in [(back, drifted), (other, drifted), (again, gone)]]
    assert causes == [Cause.DRIFT, Cause.BOTH, Cause.DRIFT]
    assert plan_of(resource_drift=[drifted]).drifted == {"a.b": "changed by others: n"}
    assert plan_of(back).steps[0].cause is None


def test_a_check_that_fails_is_no_difference_but_no_health_either() -> None:
    check = {"address": {"to_display": "check.web"}, "status": "fail", "instances": [{"problems": [{"message": "503"}]}]}
    assert plan_of(checks=[check, {"address": {"to_display": "check.db"}, "status": "pass"}]).unhealthy == "check.web fails: 503"


def test_an_error_has_its_file_and_line() -> None:
    said = {
        "summary": "Reference to undeclared resource",
        "detail": "A thing\nis not there.",
        "range": {"filename": "main.tf", "start": {"line": 14}},
        "snippet": {"context": 'output "x"'},
    }
    assert words(said) == 'Reference to undeclared resource (main.tf:14, in output "x"): A thing is not there.'


def test_the_holder_of_a_lock_is_found_in_the_message() -> None:
    told = "Error message: resource temporarily unavailable\nLock Info:\n  ID:        abc\n  Who:       me@here\n  Created:   now\n"
    assert lock_of({"detail": told}) == {"ID": "abc", "Who": "me@here", "Created": "now"}
    assert lock_of({"detail": f"HTTP remote state already locked: ID=other\n{told}"}) == {"ID": "other"}
