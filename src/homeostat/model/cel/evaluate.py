"""From a checked tree to a function that evaluates it, counting its cost as it goes.

Every node becomes a Python closure over its children. Data is used as it is: a `Frame` holds the variables in numbered
slots, an object is its dict, and only what JSON cannot say (moments, spans, bytes, doubles) is converted, at the end of
a path such as `self.spec.deadline` and nowhere before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from homeostat.model.cel.overloads import LIST_COST, MAP_COST, Overload
from homeostat.model.cel.standard import index_list, index_map, index_optionally
from homeostat.model.cel.steps import (
    Frame,
    Step,
    binary,
    converted,
    dispatched,
    get_field,
    get_optional_field,
    logic,
    pairs_of,
    path_step,
    unary,
    variadic,
)
from homeostat.model.cel.syntax import Call, Const, Expr, Fold, Ident, ListExpr, MapExpr, Select, qualified_name
from homeostat.model.cel.typed import converter, equality, union
from homeostat.model.cel.types import Type, is_optional
from homeostat.model.cel.values import (
    TYPE_NAMES,
    BudgetExceeded,
    CelError,
    Optional,
    map_key,
    no_such_overload,
)


class Code:
    """An expression ready to run. `slots` is how many variables a frame needs, the first being those declared."""

    __slots__ = ("run", "slots")

    def __init__(self, run: Step, slots: int) -> None:
        self.run = run
        self.slots = slots

    def evaluate(self, values: Iterable[Any], limit: int) -> tuple[Any, int]:
        """The value and what it cost. Raises CelError, or BudgetExceeded past the limit."""
        variables = list(values)
        frame = Frame(variables + [None] * (self.slots - len(variables)), limit)
        try:
            value = self.run(frame)
        except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
            # Data that no check foresaw is the data's fault for whoever wrote it, never the server's.
            raise CelError(f"{error.__class__.__name__}: {error}") from error
        if frame.cost > limit:
            raise BudgetExceeded
        return value, frame.cost


def compile_tree(tree: Expr, variables: Iterable[str], raw: Iterable[str] = ()) -> Code:
    """Compiles a checked tree. `raw` names the variables whose values are plain JSON and converted on use."""
    compiler = _Compiler({name: i for i, name in enumerate(variables)}, frozenset(raw))
    run = compiler.compile(tree)
    return Code(run, compiler.slots)


class _Compiler:
    def __init__(self, slots: Mapping[str, int], raw: frozenset[str]) -> None:
        self.scope: dict[str, tuple[int, bool, bool]] = {n: (i, n in raw, False) for n, i in slots.items()}
        self.slots = len(slots)

    def compile(self, node: Expr, keep_raw: bool = False) -> Step:
        step: Step = _COMPILERS[node.__class__](self, node)
        if not keep_raw and self.is_raw(node):
            convert = converter(node.type)
            if convert is not None:
                return converted(step, convert)
        return step

    def is_raw(self, node: Expr) -> bool:
        """Whether the node yields JSON as it was stored: a raw variable, or a path into one."""
        if isinstance(node, Ident):
            return self.scope.get(node.name, (0, False, False))[1]
        if isinstance(node, Select):
            return not node.test and not is_optional(node.operand.type) and self.is_raw(node.operand)
        return isinstance(node, Call) and node.function == "_[_]" and self.is_raw(node.args[0])

    def const(self, node: Const) -> Step:
        value = node.value
        return lambda frame: value

    def ident(self, node: Ident) -> Step:
        if node.name not in self.scope:
            value = TYPE_NAMES[node.name]
            return lambda frame: value
        slot, _, accumulates = self.scope[node.name]

        def read(frame: Frame) -> Any:
            frame.cost += 1
            return frame.vars[slot]

        def read_accumulator(frame: Frame) -> Any:
            frame.cost += 1
            value = frame.vars[slot]
            if value.__class__ is CelError:
                raise value
            return value

        return read_accumulator if accumulates else read

    # Fields

    def select(self, node: Select) -> Step:
        if node.type.kind == "type" and not _declared(self.scope, node):
            value = TYPE_NAMES[qualified_name(node)]
            return lambda frame: value
        name = _json_name(node.operand.type, node.field)
        if is_optional(node.operand.type):
            return self.select_in_optional(node, name)
        path = self.path(node)
        if path is not None and not node.test:
            return path_step(*path)
        operand = self.compile(node.operand, keep_raw=True)

        def has(frame: Frame) -> bool:
            value = operand(frame)
            if value.__class__ is not dict:
                raise no_such_overload()
            return name in value

        def get(frame: Frame) -> Any:
            frame.cost += 1
            return get_field(operand(frame), name)

        return has if node.test else get

    def path(self, node: Expr) -> tuple[int, tuple[str, ...]] | None:
        """The slot and the names of `variable.a.b.c`; None for anything else."""
        if isinstance(node, Ident):
            slot, _, accumulates = self.scope.get(node.name, (-1, False, True))
            return None if accumulates else (slot, ())
        if isinstance(node, Select) and not node.test and not is_optional(node.operand.type):
            inner = self.path(node.operand)
            if inner is not None:
                return inner[0], (*inner[1], _json_name(node.operand.type, node.field))
        return None

    def select_in_optional(self, node: Select, name: str) -> Step:
        operand = self.compile(node.operand)

        def get(frame: Frame) -> Any:
            frame.cost += 1
            found = get_optional_field(operand(frame), name)
            return found.present if node.test else found

        return get

    def optional_select(self, node: Call) -> Step:
        target, field = node.args
        inner = target.type.params[0] if is_optional(target.type) else target.type
        name = _json_name(inner, field.value if isinstance(field, Const) else "")
        raw = self.is_raw(target)
        operand = self.compile(target, keep_raw=True)
        convert = converter(node.type.params[0]) if raw else None

        def get(frame: Frame) -> Optional:
            frame.cost += 1
            found = get_optional_field(operand(frame), name)
            return Optional(True, convert(found.value)) if convert is not None and found.present else found

        return get

    # Calls

    def call(self, node: Call) -> Step:
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(self, node)
        operands = ([node.target] if node.target is not None else []) + node.args
        steps = [self.compile(a) for a in operands]
        exact = len(node.overloads) == 1 and all(a.type.kind != "dyn" for a in operands)
        if not exact:
            return dispatched(steps, list(node.overloads))
        found: Overload = node.overloads[0]
        impl, cost = _specialised(node, found), found.cost
        if len(steps) == 1:
            return unary(steps[0], impl, cost)
        if len(steps) == 2:
            return binary(steps[0], steps[1], impl, cost)
        return variadic(steps, impl, cost)

    def index(self, node: Call) -> Step:
        if is_optional(node.args[0].type):
            return binary(self.compile(node.args[0]), self.compile(node.args[1]), index_optionally, None)
        container, key = self.compile(node.args[0], keep_raw=True), self.compile(node.args[1])

        def get(frame: Frame) -> Any:
            frame.cost += 1
            value = container(frame)
            if value.__class__ is list:
                return index_list(value, key(frame))
            if value.__class__ is dict:
                return index_map(value, key(frame))
            raise no_such_overload()

        return get

    def logical_and(self, node: Call) -> Step:
        return logic(self.compile(node.args[0]), self.compile(node.args[1]), False)

    def logical_or(self, node: Call) -> Step:
        return logic(self.compile(node.args[0]), self.compile(node.args[1]), True)

    def logical_not(self, node: Call) -> Step:
        operand = self.compile(node.args[0])

        def negate(frame: Frame) -> bool:
            frame.cost += 1
            value = operand(frame)
            if value is True:
                return False
            if value is False:
                return True
            raise no_such_overload()

        return negate

    def conditional(self, node: Call) -> Step:
        test, yes, no = (self.compile(a) for a in node.args)

        def choose(frame: Frame) -> Any:
            value = test(frame)
            if value is True:
                return yes(frame)
            if value is False:
                return no(frame)
            raise no_such_overload()

        return choose

    def not_strictly_false(self, node: Call) -> Step:
        operand = self.compile(node.args[0])

        def lenient(frame: Frame) -> bool:
            frame.cost += 1
            try:
                return operand(frame) is not False
            except CelError:
                return True

        return lenient

    # Literals

    def list_literal(self, node: ListExpr) -> Step:
        items, optional = [self.compile(i) for i in node.items], node.optional

        def build(frame: Frame) -> list[Any]:
            frame.cost += LIST_COST
            return [i(frame) for i in items]

        def build_optional(frame: Frame) -> list[Any]:
            frame.cost += LIST_COST
            built = []
            for i, item in enumerate(items):
                value = item(frame)
                if i not in optional:
                    built.append(value)
                elif value.present:
                    built.append(value.value)
            return built

        return build_optional if optional else build

    def map_literal(self, node: MapExpr) -> Step:
        entries = [(self.compile(k), self.compile(v), optional) for k, v, optional in node.entries]

        def build(frame: Frame) -> dict[Any, Any]:
            frame.cost += MAP_COST
            built: dict[Any, Any] = {}
            for key, value, optional in entries:
                k, v = map_key(key(frame)), value(frame)
                if optional:
                    if not v.present:
                        continue
                    v = v.value
                built[k] = v
            return built

        return build

    # Loops

    def fold(self, node: Fold) -> Step:
        source, init = self.compile(node.source), self.compile(node.init)
        outer = dict(self.scope)
        accu = self.declare(node.accu, accumulates=True)
        with_accu = dict(self.scope)
        first = self.declare(node.var)
        second = self.declare(node.var2) if node.var2 else -1
        condition = self.compile(node.condition)
        step = self.appending(node) or self.compile(node.step)
        self.scope = with_accu
        result = self.compile(node.result)
        self.scope = outer
        endless = isinstance(node.condition, Const) and node.condition.value is True

        def loop(frame: Frame) -> Any:
            variables = frame.vars
            members = source(frame)
            start = init(frame)
            if members.__class__ is not list and members.__class__ is not dict:
                raise no_such_overload()
            variables[accu] = start
            pairs = pairs_of(members) if second >= 0 else None
            for member in members if pairs is None else pairs:
                if not endless and condition(frame) is not True:
                    break
                if pairs is None:
                    variables[first] = member
                else:
                    variables[first], variables[second] = member
                try:
                    value = step(frame)
                except CelError as error:
                    value = error
                variables[accu] = value
                if frame.cost > frame.limit:
                    raise BudgetExceeded
            return result(frame)

        return loop

    def declare(self, name: str, accumulates: bool = False) -> int:
        slot = self.slots
        self.slots += 1
        self.scope[name] = (slot, False, accumulates)
        return slot

    def appending(self, node: Fold) -> Step | None:
        """The step `accu + [x]` of map and filter, done in place: the list is nobody else's, and the loop stays linear."""
        if not isinstance(node.init, ListExpr):
            return None
        step, test = node.step, None
        if isinstance(step, Call) and step.function == "_?_:_":
            test, step = self.compile(step.args[0]), step.args[1]
        if not (isinstance(step, Call) and step.function == "_+_" and isinstance(step.args[1], ListExpr)):
            return None
        item_list = step.args[1]
        if len(item_list.items) != 1 or item_list.optional:
            return None
        built: Callable[[Frame], list[Any]] = self.compile(step.args[0])
        item = self.compile(item_list.items[0])

        def append(frame: Frame) -> list[Any]:
            if test is not None:
                passed = test(frame)
                if passed is False:
                    return built(frame)
                if passed is not True:
                    raise no_such_overload()
            members = built(frame)
            value = item(frame)
            frame.cost += LIST_COST + 1
            members.append(value)
            return members

        return append


_COMPILERS: dict[type, Callable[..., Step]] = {
    Const: _Compiler.const,
    Ident: _Compiler.ident,
    Select: _Compiler.select,
    Call: _Compiler.call,
    ListExpr: _Compiler.list_literal,
    MapExpr: _Compiler.map_literal,
    Fold: _Compiler.fold,
}
_SPECIAL: dict[str, Callable[..., Step]] = {
    "_&&_": _Compiler.logical_and,
    "_||_": _Compiler.logical_or,
    "!_": _Compiler.logical_not,
    "_?_:_": _Compiler.conditional,
    "@not_strictly_false": _Compiler.not_strictly_false,
    "_[_]": _Compiler.index,
    "_?._": _Compiler.optional_select,
}


def _json_name(target: Type, field: str) -> str:
    if target.kind == "object" and target.fields is not None:
        found = target.fields.get(field) or target.fields[f"__{field}__"]  # a reserved word, escaped or not
        return found.name
    return field


def _declared(scope: Mapping[str, object], node: Expr) -> bool:
    while isinstance(node, Select):
        node = node.operand
    return not isinstance(node, Ident) or node.name in scope


def _specialised(node: Call, found: Overload) -> Callable[..., Any]:
    operands = ([node.target] if node.target is not None else []) + node.args
    if found.id in ("equals", "not_equals"):
        same = equality(operands[0].type)
        return same if found.id == "equals" else lambda a, b: not same(a, b)
    if found.id == "add_list" and operands[0].type.list_type in ("set", "map"):
        return union(operands[0].type)
    return found.impl
