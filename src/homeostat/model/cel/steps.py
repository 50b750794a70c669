"""The closures that an expression is made of, and the frame they run in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from homeostat.model.cel.overloads import Cost, Overload
from homeostat.model.cel.typed import Convert
from homeostat.model.cel.values import NONE, BudgetExceeded, CelError, Optional, no_such_overload


class Frame:
    """One evaluation: its variables, what it has cost, and how much it may cost."""

    __slots__ = ("cost", "limit", "vars")

    def __init__(self, variables: list[Any], limit: int) -> None:
        self.vars = variables
        self.cost = 0
        self.limit = limit


Step = Callable[[Frame], Any]


def converted(step: Step, convert: Convert) -> Step:
    """The step, and its value converted."""
    return lambda frame: convert(step(frame))


def get_field(value: Any, name: str) -> Any:
    """`value.name`."""
    if value.__class__ is not dict:
        raise no_such_overload()
    try:
        return value[name]
    except KeyError:
        raise CelError(f"no such key: {name}") from None


def get_optional_field(value: Any, name: str) -> Optional:
    """`value.?name`."""
    if value.__class__ is Optional:
        if not value.present:
            return NONE
        value = value.value
    if value.__class__ is not dict:
        raise no_such_overload()
    return Optional(True, value[name]) if name in value else NONE


def path_step(slot: int, names: tuple[str, ...]) -> Step:
    """`variable.a.b.c`, in one step."""
    price = len(names) + 1

    def walk(frame: Frame) -> Any:
        frame.cost += price
        value = frame.vars[slot]
        try:
            for name in names:
                value = value[name]
        except (KeyError, TypeError, IndexError):
            raise (CelError(f"no such key: {name}") if value.__class__ is dict else no_such_overload()) from None
        return value

    return walk


def unary(step: Step, impl: Callable[..., Any], cost: Cost | None) -> Step:
    """A call with one argument."""
    def cheap(frame: Frame) -> Any:
        frame.cost += 1
        return impl(step(frame))

    def priced(frame: Frame) -> Any:
        a = step(frame)
        _charge(frame, cost, (a,))
        return impl(a)

    return cheap if cost is None else priced


def binary(left: Step, right: Step, impl: Callable[..., Any], cost: Cost | None) -> Step:
    """A call with two arguments."""
    def cheap(frame: Frame) -> Any:
        frame.cost += 1
        return impl(left(frame), right(frame))

    def priced(frame: Frame) -> Any:
        a, b = left(frame), right(frame)
        _charge(frame, cost, (a, b))
        return impl(a, b)

    return cheap if cost is None else priced


def variadic(steps: list[Step], impl: Callable[..., Any], cost: Cost | None) -> Step:
    """A call with any other number of arguments."""
    def call(frame: Frame) -> Any:
        args = [s(frame) for s in steps]
        _charge(frame, cost, args)
        return impl(*args)

    return call


def _charge(frame: Frame, cost: Cost | None, args: Sequence[Any]) -> None:
    frame.cost += 1 if cost is None else cost(args)
    if frame.cost > frame.limit:
        raise BudgetExceeded


def dispatched(steps: list[Step], overloads: list[Overload]) -> Step:
    """A call whose overload is known only when the values are (dyn, int-or-string)."""

    by_class: dict[tuple[type, ...], Overload | None] = {}

    def call(frame: Frame) -> Any:
        args = [s(frame) for s in steps]
        classes = tuple([a.__class__ for a in args])
        if classes not in by_class:
            by_class[classes] = next((o for o in overloads if o.accepts(args)), None)
        found = by_class[classes]
        if found is None:
            raise no_such_overload()
        _charge(frame, found.cost, args)
        return found.impl(*args)

    return call


def logic(left: Step, right: Step, decisive: bool) -> Step:
    """`&&` (decided by False) and `||` (decided by True): either side can decide, even if the other fails."""
    other = not decisive

    def decide(frame: Frame) -> Any:
        try:
            first = left(frame)
        except CelError as error:
            try:
                if right(frame) is decisive:
                    return decisive
            except CelError:
                pass
            raise error from None
        if first is decisive:
            return decisive
        second = right(frame)
        if second is decisive:
            return decisive
        if first is other and second is other:
            return other
        raise no_such_overload()

    return decide


def pairs_of(members: Any) -> Iterable[tuple[Any, Any]]:
    """What a loop over two variables sees: index and item, or key and value."""
    return enumerate(members) if members.__class__ is list else list(members.items())
