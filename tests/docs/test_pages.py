"""What the pages for newcomers say is what happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .running import ROOT, Call, Failed, Learning, Shell, Step, Writing, matches, steps

PAGES = ["docs/tutorial.md", "docs/first-provider.md", "README.md"]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    found = Shell(tmp_path / "home")
    yield found
    found.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_followed_to_its_end(shell: Shell, page: str) -> None:
    found = steps((ROOT / page).read_text())
    assert any(isinstance(step, Call) for step in found)
    follow(shell, found)


def follow(shell: Shell, found: list[Step]) -> None:
    for step in found:
        shell.run(step)


# The reader of pages itself

PAGE = """
```python title="a.py"
x = 1
```
```sh
export WHO=you
```
<!-- not run: it would hurt -->
```sh
exit 1
```
```console
$ echo hello $WHO; cat a.py
hello …
x = 1
```
<!-- NAME is what comes after: hello -->
```console
$ echo NAME
you
```
"""


def test_a_page_is_read_as_files_and_commands_with_what_they_print() -> None:
    assert [type(step) for step in steps(PAGE)] == [Writing, Call, Call, Learning, Call]


def test_commands_follow_each_other_as_in_one_shell(shell: Shell) -> None:
    follow(shell, steps(PAGE))
    assert shell.printed == "you\n"


@pytest.mark.parametrize(
    ("right", "wrong"), [("hello …", "goodbye …"), ("x = 1\n```\n<!-- NAME", "x = 2\n```\n<!-- NAME"), ("export WHO=you", "false")]
)
def test_a_page_that_is_not_true_fails(shell: Shell, right: str, wrong: str) -> None:
    with pytest.raises(Failed, match="exits with"):
        follow(shell, steps(PAGE.replace(right, wrong)))


def test_dots_stand_for_what_differs_and_for_nothing_else() -> None:
    assert matches("a … c\n…\nend", "a b c\nx\ny\nend\n")
    assert matches("…\nend", "end")
    assert matches("", "")
    assert not matches("", "a")
    assert not matches("a … c", "a b d")
    assert not matches("a", "a\nb")
    assert not matches("a\nb", "a")


def test_a_console_block_without_a_command_is_a_mistake_of_the_page() -> None:
    with pytest.raises(ValueError, match="line 3: a console block begins with"):
        steps("\n```console\nhello\n```\n")
