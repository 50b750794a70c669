"""`KIND/NAME`, as people write it who come from kubectl."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click
import pytest


def given(command: str, *words: str) -> tuple[Any, Any]:
    found: click.Command = import_module(f"homeostat.cli.{command}").command
    params = found.make_context(command, list(words)).params
    return params.get("kind", params.get("what")), params["names" if command == "wait" else "name"]


@pytest.mark.parametrize("command", ["get", "explain", "tree", "history", "events", "diff", "rollback"])
def test_a_kind_and_a_name_may_stand_in_one_word(command: str) -> None:
    assert given(command, "file/motd") == ("file", "motd")
    assert given(command, "file", "motd") == ("file", "motd")
    assert given(command, "--kubeconfig", "a/b", "file/motd", "-n", "a/b") == ("file", "motd")


def test_several_may_be_waited_for_either_way() -> None:
    assert given("wait", "file/motd") == ("file", ("motd",))
    assert given("wait", "file", "motd", "issue") == ("file", ("motd", "issue"))
    assert given("wait", "files") == ("files", ())


def test_what_has_slashes_of_its_own_is_left_as_it_is() -> None:
    assert given("rollback", "changeset", "default/shop@1a2b") == ("changeset", "default/shop@1a2b")
    assert given("get", "file/a/b")[0] == "file/a/b"
