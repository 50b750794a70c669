"""What people read: tables, ages, colours where there is a terminal; and the same as data for programs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from homeostat.insight.words import ago, count

__all__ = ["COLOURS", "ago", "ask", "count", "echo_lines", "emit", "output_option", "painted", "table"]

F = TypeVar("F", bound=Callable[..., Any])

COLOURS = {"+": "green", "~": "yellow", "-": "red"}
_STEERS = re.compile(r"(\x1b\[(?:[012]|22|3[1-7]|9[1-7])m)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""The colours that we paint with, and every other control character: whoever declares something must not move the cursor of who reads the plan."""


def output_option(*forms: str) -> Callable[[F], F]:
    """`-o`, with these forms; the first is what people get who do not ask, and whoever asks for `table`."""
    return click.option(
        "-o", "--output", type=_Forms(forms), default=forms[0], show_default=True, help="How to print it."
    )


class _Forms(click.Choice[str]):
    """Forms of what is printed. `table` is known everywhere: where what people read is none, they get that."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        wanted = self.choices[0] if value == "table" and value not in self.choices else value
        return str(super().convert(wanted, param, ctx))


def emit(value: Any, form: str) -> None:
    """Prints data as `json` or `yaml`."""
    if form == "yaml":
        from homeostat.model.encoding import encode_yaml

        click.echo(encode_yaml(value).decode(), nl=False)
    else:
        import orjson

        click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with the columns below each other; the first row is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def painted(line: str) -> str:
    """A line of a diff in the colour of its sign. Where there is no terminal, `click.echo` takes colours away again."""
    return click.style(line, fg=COLOURS.get(line.lstrip()[:1]))


def echo_lines(lines: Iterable[str]) -> None:
    """Prints them; what would steer the terminal, and is not ours, is shown and not done."""
    for line in lines:
        click.echo(_STEERS.sub(lambda found: found[1] or repr(found[0])[1:-1], line))


def ask(question: str) -> None:
    """Goes on where a person says yes. Exits with 3 where they say no; UsageError where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise click.UsageError("there is nobody to ask: add --yes")
    if not click.confirm(question):
        raise click.exceptions.Exit(3)
