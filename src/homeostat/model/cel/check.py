"""The type checker: gives every node its type, every call its overloads, and every mistake its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from homeostat.model.cel.overloads import FUNCTIONS, functions
from homeostat.model.cel.syntax import (
    Call,
    Const,
    Expr,
    Fold,
    Ident,
    InvalidExpression,
    ListExpr,
    MapExpr,
    Select,
    Source,
    StructExpr,
    children,
    parse,
    qualified_name,
)
from homeostat.model.cel.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    Substitution,
    Type,
    is_optional,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from homeostat.model.cel.values import TYPE_NAMES, CelError, parse_duration, parse_timestamp


def checked(text: str, variables: Mapping[str, Type]) -> tuple[Expr, set[str]]:
    """The checked tree of an expression and the variables it uses; raises InvalidExpression with all that is wrong."""
    tree, source = parse(text)
    checker = _Checker(source, variables)
    checker.visit(tree)
    checker.settle(tree)
    if checker.errors:
        # One report a place, in reading order.
        raise InvalidExpression("\n".join(source.error(i, m) for i, m in checker.in_order()))
    return tree, checker.used


class _Checker:
    def __init__(self, source: Source, variables: Mapping[str, Type]) -> None:
        self.source = source
        self.scopes: list[Mapping[str, Type]] = [variables]
        self.types = Substitution()
        self.errors: list[tuple[int, str]] = []
        self.used: set[str] = set()
        self.mixed_allowed = 0  # inside the arguments of format, whose list is of many types by nature
        functions()

    def in_order(self) -> list[tuple[int, str]]:
        return sorted(dict.fromkeys(self.errors), key=lambda e: self.source.positions.get(e[0], 0))

    def error(self, node: Expr, message: str) -> None:
        self.errors.append((node.id, message))

    def visit(self, node: Expr) -> Type:
        if isinstance(node, Const):
            return node.type
        node.type = _VISITORS[node.__class__](self, node)
        return node.type

    def settle(self, node: Expr) -> None:
        """Writes what type parameters turned out to be into every node, and checks literals that must be valid."""
        node.type = self.types.resolve(node.type, open_as_dyn=True)
        for child in children(node):
            self.settle(child)
        if isinstance(node, Call):
            self.check_literal(node)

    # Names

    def lookup(self, name: str) -> Type | None:
        for depth in range(len(self.scopes) - 1, -1, -1):
            found = self.scopes[depth].get(name)
            if found is not None:
                if depth == 0:
                    self.used.add(name)
                return found
        named = TYPE_NAMES.get(name)
        return type_of(named) if named is not None else None

    def ident(self, node: Ident) -> Type:
        node.name = node.name.removeprefix(".")
        found = self.lookup(node.name)
        if found is not None:
            return found
        self.error(node, f"undeclared reference to '{node.name}' (in container '')")
        return ERROR

    def select(self, node: Select) -> Type:
        qualified = qualified_name(node)
        if qualified and not node.test and qualified in TYPE_NAMES and self.lookup(qualified.split(".")[0]) is None:
            return type_of(TYPE_NAMES[qualified])
        target = self.types.resolve(self.visit(node.operand))
        found = self.field(node, target, node.field)
        if node.test:
            return BOOL
        return found

    def field(self, node: Expr, target: Type, name: str) -> Type:
        if is_optional(target):
            inner = self.field(node, self.types.resolve(target.params[0]), name)
            return inner if is_optional(inner) else optional_of(inner)
        if target.fields is not None:
            field = target.fields.get(name) or target.fields.get(f"__{name}__")
            if field is not None:
                return field.type
            self.error(node, f"undefined field '{name}'")
            return ERROR
        if target.kind == "map":
            return target.params[1]
        if target.kind == "param":
            self.types.assignable([target], [DYN])
            return DYN
        if target.kind in ("dyn", "error"):
            return DYN
        self.error(node, f"type '{target.text}' does not support field selection")
        return ERROR

    # Calls

    def call(self, node: Call) -> Type:
        if node.function == "_?._":
            return self.optional_select(node)
        qualified = qualified_name(node.target) if node.target is not None else ""
        if qualified and f"{qualified}.{node.function}" in FUNCTIONS and self.lookup(qualified) is None:
            node.function, node.target = f"{qualified}.{node.function}", None
        if node.function in _LOGIC:
            return self.logic(node)
        self.mixed_allowed += node.function == "format"
        args = [self.types.resolve(self.visit(a)) for a in node.args]
        self.mixed_allowed -= node.function == "format"
        if node.target is not None:
            args.insert(0, self.types.resolve(self.visit(node.target)))
        if node.function not in FUNCTIONS:
            self.error(node, f"undeclared reference to '{node.function}' (in container '')")
            return ERROR
        return self.resolve_overload(node, args)

    def resolve_overload(self, node: Call, args: list[Type]) -> Type:
        result: Type | None = None
        for candidate in FUNCTIONS[node.function]:
            if candidate.method != (node.target is not None) or _never(args, candidate.params):
                continue
            *params, gives = self.types.instantiate([*candidate.params, candidate.result])
            if self.types.assignable(args, params):
                node.overloads.append(candidate)
                found = self.types.resolve(gives)
                result = found if result is None or result == found else DYN
        if result is None:
            self.error(node, f"found no matching overload for '{node.function}' applied to '{_signature(node, args)}'")
            return ERROR
        return result

    def logic(self, node: Call) -> Type:
        if node.function in ("_&&_", "_||_"):
            for arg in node.args:
                self.expect(arg, BOOL)
            return BOOL
        args = [self.types.resolve(self.visit(a)) for a in node.args]
        if node.function == "_?_:_":
            branch = self.types.fresh()
            wanted, gives = [BOOL, branch, branch], branch
        else:
            wanted, gives = [BOOL] * len(args), BOOL
        if not self.types.assignable(args, wanted):
            self.error(node, f"found no matching overload for '{node.function}' applied to '{_signature(node, args)}'")
            return ERROR
        return self.types.resolve(gives)

    def optional_select(self, node: Call) -> Type:
        target = self.types.resolve(self.visit(node.args[0]))
        name = node.args[1]
        if not isinstance(name, Const):
            self.error(node, "unsupported optional field selection")
            return ERROR
        if is_optional(target):
            target = self.types.resolve(target.params[0])
        found = self.field(node, target, name.value)
        return found if is_optional(found) else optional_of(found)

    # Literals

    def list_literal(self, node: ListExpr) -> Type:
        item: Type | None = None
        for i, member in enumerate(node.items):
            item = self.member(item, member, i in node.optional)
        return list_of(item if item is not None else self.types.fresh())

    def map_literal(self, node: MapExpr) -> Type:
        key: Type | None = None
        value: Type | None = None
        for k, v, optional in node.entries:
            key = self.member(key, k, False)
            value = self.member(value, v, optional)
        if key is None or value is None:
            return map_of(self.types.fresh(), self.types.fresh())
        return map_of(key, value)

    def member(self, common: Type | None, node: Expr, optional: bool) -> Type:
        found = self.types.resolve(self.visit(node))
        if optional:
            if is_optional(found):
                found = found.params[0]
            elif found.kind not in ("dyn", "error"):
                self.error(node, f"expected type '{optional_of(found).text}' but found '{found.text}'")
        joined = self.types.join(common, found)
        if joined is None and self.mixed_allowed:
            return DYN
        if joined is None and common is not None:
            self.error(node, f"expected type '{common.text}' but found '{found.text}'")
            return common
        return joined if joined is not None else found

    def struct(self, node: StructExpr) -> Type:
        self.source.positions[node.id] = self.source.positions.get(node.id, 0) + len(node.name)
        self.error(node, f"undeclared reference to '{node.name}' (in container '')")
        return ERROR

    # Loops

    def fold(self, node: Fold) -> Type:
        source = self.types.resolve(self.visit(node.source))
        accu = self.visit(node.init)
        scope: dict[str, Type] = {node.accu: accu}
        inner: dict[str, Type] = {}
        if source.kind == "list":
            first, second = (INT, source.params[0]) if node.var2 else (source.params[0], DYN)
        elif source.kind == "map":
            first, second = source.params
        elif source.kind in ("dyn", "error", "param"):
            first = second = DYN
        else:
            message = "cannot be range of a comprehension (must be list, map, or dynamic)"
            self.error(node.source, f"expression of type '{source.text}' {message}")
            first = second = ERROR
        inner[node.var] = first
        if node.var2:
            inner[node.var2] = second
        self.scopes += [scope, inner]
        self.expect(node.condition, BOOL)
        self.expect(node.step, accu)
        self.scopes.pop()
        result = self.visit(node.result)
        self.scopes.pop()
        return self.types.resolve(result)

    def expect(self, node: Expr, wanted: Type) -> None:
        found = self.types.resolve(self.visit(node))
        if not self.types.assignable([found], [wanted]):
            self.error(node, f"expected type '{self.types.resolve(wanted).text}' but found '{found.text}'")

    def check_literal(self, node: Call) -> None:
        test = _LITERALS.get(node.function)
        if test is None or not node.args or (node.function != "matches" and node.target is not None):
            return
        literal = node.args[-1]
        if isinstance(literal, Const) and isinstance(literal.value, str):
            try:
                test(literal.value)
            except CelError:
                self.error(literal, f"invalid {node.function} argument")


def _check_pattern(text: str) -> None:
    from homeostat.model.cel.standard import pattern

    pattern(text)


_LITERALS: dict[str, Callable[[str], object]] = {
    "matches": _check_pattern,
    "duration": parse_duration,
    "timestamp": parse_timestamp,
}
_LOGIC = frozenset({"_&&_", "_||_", "!_", "_?_:_", "@not_strictly_false", "__not_strictly_false__"})

_VISITORS: dict[type, Callable[..., Type]] = {
    Ident: _Checker.ident,
    Select: _Checker.select,
    Call: _Checker.call,
    ListExpr: _Checker.list_literal,
    MapExpr: _Checker.map_literal,
    StructExpr: _Checker.struct,
    Fold: _Checker.fold,
}


_OPEN = frozenset({"param", "dyn", "null", "error"})


def _never(args: list[Type], params: list[Type]) -> bool:
    """A quick look that spares most overloads the real test."""
    if len(args) != len(params):
        return True
    return any(
        a.kind != p.kind and a.kind not in _OPEN and p.kind not in _OPEN for a, p in zip(args, params, strict=True)
    )


def _signature(node: Call, args: list[Type]) -> str:
    shown = [a.text for a in args]
    if node.target is not None:
        return f"{shown[0]}.({', '.join(shown[1:])})"
    return f"({', '.join(shown)})"
