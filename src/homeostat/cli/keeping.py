"""How much of the past `homeostat up` keeps: the history of each kind, and checkpoints by the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from homeostat.cli.duration import seconds

if TYPE_CHECKING:
    from homeostat.api.history import Retention

_NO_OPTION = click.Option(["--keep-history"])

F = TypeVar("F", bound=Callable[..., Any])


class Keeping(msgspec.Struct, frozen=True):
    """What the options say; `options` gives it as the server wants it."""

    history: tuple[str, ...] = ()
    every: int | None = None
    keep: int = 24
    directory: Path | None = None

    def options(self, data: Path) -> dict[str, Any]:
        """Arguments of `Server`."""
        from homeostat.cli.checkpoint import FOLDER

        found: dict[str, Any] = {"retention": retention(self.history)}
        if self.every is not None:
            found["checkpoints"] = (self.directory or data / FOLDER, float(self.every), self.keep)
        return found


def keeping_options(command: F) -> F:
    """Adds --keep-history and --checkpoint-…, and hands them over as `keeping`."""
    import functools

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        keep_history: tuple[str, ...],
        checkpoint_every: int | None,
        checkpoint_keep: int,
        checkpoint_dir: Path | None,
        **rest: Any,
    ) -> Any:
        if checkpoint_every is not None and checkpoint_every < 1:
            raise click.BadParameter("it must be a second at least", param_hint="--checkpoint-every")
        retention(keep_history)  # what is wrong is said before anything starts
        return command(*args, keeping=Keeping(keep_history, checkpoint_every, checkpoint_keep, checkpoint_dir), **rest)

    options = [
        click.option(
            "--keep-history", metavar="[KIND=]TIME[,N]", multiple=True,
            help="How long, and how many changes of each object, its past is kept: 30d,100 unless said. "
            "Of a KIND: secrets=1d, files.files.homeostat.dev=1y,500; 0 keeps nothing. May be repeated.",
        ),
        click.option("--checkpoint-every", metavar="TIME", callback=seconds, help="Write a checkpoint so often: 1h."),
        click.option("--checkpoint-keep", metavar="N", type=click.IntRange(1), default=24, show_default=True, help="How many."),
        click.option(
            "--checkpoint-dir", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
            help="Where. Default: checkpoints/ in the data directory.",
        ),
    ]  # fmt: skip
    found: Any = wrapped
    for option in reversed(options):
        found = option(found)
    return found  # type: ignore[no-any-return]


def retention(words: Iterable[str]) -> Retention:
    """From the values of --keep-history. BadParameter where one is not understood."""
    from homeostat.api.history import UNKEPT, Keep, Retention

    default, kinds = Keep(), dict(UNKEPT)
    for word in words:
        kind, equals, amount = word.rpartition("=")
        if (equals and not kind) or "/" in kind:
            raise _wrong(word, "no kind stands before the =")
        base = kinds.get(kind, default) if kind else default
        keep = _keep(word, amount, base if base.seconds else Keep())
        if kind:
            kinds[kind.lower()] = keep
        else:
            default = keep
    return Retention(default, kinds)


def _keep(word: str, text: str, base: Any) -> Any:
    from homeostat.api.history import NOTHING, Keep

    time, _, number = text.partition(",")
    if number and not (number.isascii() and number.isdecimal() and int(number) > 0):
        raise _wrong(word, f"{number!r} is no number of changes")
    try:
        long = _years(time) if time.endswith("y") else seconds(click.get_current_context(), _NO_OPTION, time)
    except (click.BadParameter, ValueError):
        raise _wrong(word, f"{time!r} is no duration such as 12h, 30d or 1y") from None
    return Keep(float(long), int(number) if number else base.changes) if long else NOTHING


def _years(text: str) -> int:
    return int(text[:-1]) * 365 * 86_400


def _wrong(word: str, why: str) -> click.BadParameter:
    return click.BadParameter(f"{word}: {why}; write TIME, TIME,N or KIND=TIME,N", param_hint="--keep-history")
