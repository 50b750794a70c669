"""How the log looks: lines for people on a terminal, JSON lines everywhere else. Every logger of the process comes out the same way."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Literal, TextIO, TypeVar

import click

Format = Literal["auto", "human", "json"]
F = TypeVar("F", bound=Callable[..., object])

LEVELS = ("debug", "info", "warning", "error")


def log_options(command: F) -> F:
    """Adds --log-format and --log-level, as `log_format` and `log_level`."""
    form = click.option(
        "--log-format",
        type=click.Choice(["auto", "human", "json"]),
        default="auto",
        show_default=True,
        help="How the log on standard error looks; auto: for people on a terminal, JSON lines otherwise.",
    )
    level = click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="warning",
        show_default=True,
        help="What is worth a line; info: all that the loop finds and does, debug: every look.",
    )
    return form(level(command))


def configure(log_format: Format = "auto", log_level: str = "warning", stream: TextIO | None = None) -> None:
    """Has everything that is logged in this process written to `stream` (standard error), once and for all."""
    stream = stream or sys.stderr
    if stream is None:  # closed by whoever started us: there is nowhere to write to
        logging.basicConfig(level=log_level.upper(), handlers=[logging.NullHandler()], force=True)
        return
    human = stream.isatty() if log_format == "auto" else log_format == "human"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Late(human, colors=human and stream.isatty()))
    logging.basicConfig(level=log_level.upper(), handlers=[handler], force=True)


class _Late(logging.Formatter):
    """Imports structlog with the first line that there is: who has nothing to say starts sooner."""

    def __init__(self, human: bool, colors: bool) -> None:
        super().__init__()
        self._human, self._colors = human, colors
        self._real: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        if self._real is None:
            self._real = _formatter(self._human, self._colors)
        return self._real.format(record)


def _formatter(human: bool, colors: bool) -> logging.Formatter:
    import structlog

    finish: list[Any]
    if human:
        plain = structlog.dev.plain_traceback
        finish = [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain, pad_event_to=0)]
    else:
        finish = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S" if human else "iso", utc=not human),
            _add_fields,
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
    )


def _add_fields(_: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What a record carries besides its text. It cannot overwrite what every line has."""
    from homeostat.loop.logs import FIELDS

    record: logging.LogRecord = line["_record"]
    for key, value in getattr(record, FIELDS, {}).items():
        line.setdefault(key, value)
    return line


def _json(line: Any, **options: Any) -> str:
    import orjson

    return orjson.dumps(line, default=str).decode()
