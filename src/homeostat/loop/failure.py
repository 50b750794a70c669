"""What a failure of somebody's code says to people: what went wrong, where, what to do, and no secret of the declaration."""

from __future__ import annotations

import asyncio
import json
import os
import traceback
from collections.abc import Awaitable, Collection, Iterator
from types import CoroutineType, TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

from homeostat.loop.render import MASK, Pattern
from homeostat.model.errors import ApiError
from homeostat.model.kinds import KindInfo, Spec

T = TypeVar("T")

SHORTEST_SECRET = 4
"""Characters from which a secret is looked for in what was raised: fewer stand in every text."""
SHOWN = 80
"""Characters that are shown of what a method returned by mistake."""
_OF_CODE = (
    TypeError, AttributeError, NameError, LookupError, ArithmeticError, AssertionError, NotImplementedError, ImportError, RecursionError,
)  # fmt: skip
"""What comes of a mistake in code, and rarely says by itself what is meant."""


class Mistake(Exception):
    """A provider or composer is not written as the loop calls it. Says which method, and what is wrong with it."""


class Contained:
    """Somebody's code runs in it: it can end neither the process nor the work of the loop, only fail."""

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None or isinstance(error, (Exception, KeyboardInterrupt, GeneratorExit)):
            return
        if isinstance(error, SystemExit):
            raise Mistake(f"it called sys.exit({error.code!r}); raise an exception that says what is wrong instead") from error
        if not isinstance(error, asyncio.CancelledError):  # such as a panic of what is written in Rust
            raise Mistake(f"it raised {type(error).__name__}: {error}") from error
        if (task := asyncio.current_task()) is None or not task.cancelling():  # nobody gave up this work: the error is its own
            raise Mistake("something that it awaits was cancelled; catch CancelledError there, and raise an exception that says what is wrong") from error


CONTAINED = Contained()


class NoKind:
    """Stands for `info` in a class that declares no kind."""

    def __get__(self, instance: object, owner: type) -> KindInfo:
        raise AttributeError(
            f'{owner.__name__} declares no kind yet: name its types and its group, as in class {owner.__name__}({_form(owner)}, group="things.example.com")'
        )


def check_type(owner: type, found: Any, what: str) -> None:
    """TypeError where what a class says is its spec or its state is none."""
    if not (isinstance(found, type) and issubclass(found, Spec)):
        name = getattr(found, "__name__", found)
        raise TypeError(f"{owner.__name__}: its {what} is {name}, which is no Spec: make it a class of `homeostat.Spec`, with the fields and their types")


def _form(owner: type) -> str:
    form = next((kind for kind in owner.__mro__ if kind.__module__.startswith("homeostat.loop.")), owner).__name__
    return f"{form}[ItsSpec]" if form == "Composer" else f"{form}[ItsSpec, ItsState]"


def awaited(found: Awaitable[T] | Any, who: object, method: str) -> Awaitable[T]:
    """What a method of `who` returned, if that can be awaited. Raises `Mistake` where it was written without `async`."""
    if type(found) is CoroutineType or isinstance(found, Awaitable):  # the first is what nearly all are, and told at once
        return found
    raise Mistake(f"{type(who).__name__}.{method} is to be written `async def`: it returned {shown(found)} at once")


def shown(value: object) -> str:
    """What a method returned by mistake, as people call it."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def told(error: BaseException, who: object, secrets: Collection[str] = ()) -> str:
    """What an error that the code of `who` raised says; for mistakes in code with its type, and the line. Without `secrets`."""
    text = error.message if isinstance(error, ApiError) else str(error)
    if isinstance(error, TimeoutError) and not text:
        text = "it did not answer in time"
    elif isinstance(error, _OF_CODE):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if (not text or isinstance(error, (*_OF_CODE, Mistake))) and (line := _line(error.__cause__ or error, who)):
        text = f"{text or type(error).__name__} ({line})"
    return hidden(text or type(error).__name__, secrets)


def secrets_in(value: Any, inside: Collection[Pattern]) -> Iterator[str]:
    """The texts at or below these paths of an encoded object."""
    if not inside:
        return
    below = () in inside
    if isinstance(value, str):
        if below and len(value) >= SHORTEST_SECRET:
            yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from secrets_in(one, {()} if below else {p[1:] for p in inside if p[0] in ("*", name)})
    elif isinstance(value, list):
        for one in value:
            yield from secrets_in(one, {()} if below else {p[1:] for p in inside if p[0] == "*"})


def hidden(text: str, secrets: Collection[str]) -> str:
    """The text with what is secret masked, also where it is quoted as Python, JSON or a URL has it."""
    for secret in sorted(secrets, key=len, reverse=True):
        for form in {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret)}:
            text = text.replace(form, MASK)
    return text


def _line(error: BaseException, who: object) -> str:
    """Where in the code of `who` it was raised, or what it called raised it; empty where it has no part in it."""
    modules = {kind.__module__ for kind in type(who).__mro__ if not kind.__module__.startswith(("homeostat.", "builtins", "typing"))}
    for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_globals.get("__name__") in modules:
            return f"{os.path.basename(frame.f_code.co_filename)}, line {number}"
    return ""
