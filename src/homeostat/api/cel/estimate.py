"""What an expression may cost at worst, known before it ever runs: sizes come from the schema, prices from upstream.

Which rules a CRD may carry depends on these numbers, so they follow the real API server's to the unit. A cost or size
is a pair (least, most); the most saturates at 2^64-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from homeostat.model.cel.overloads import LIST_COST, MAP_COST, PER_CHARACTER, PER_PATTERN_CHARACTER
from homeostat.model.cel.syntax import Call, Const, Expr, Fold, Ident, ListExpr, MapExpr, Select
from homeostat.model.cel.types import UNBOUNDED, Type, is_optional

LONGEST_FORMAT = 128
"""Characters that the pattern of a named format is taken to have."""


class Range(NamedTuple):
    """From `low` to `high`, of units of cost or of elements."""

    low: int
    high: int

    def plus(self, other: Range) -> Range:
        return Range(min(self.low + other.low, UNBOUNDED), min(self.high + other.high, UNBOUNDED))

    def times(self, other: Range) -> Range:
        return Range(min(self.low * other.low, UNBOUNDED), min(self.high * other.high, UNBOUNDED))

    def by(self, factor: float) -> Range:
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


def _scaled(amount: int, factor: float) -> int:
    return min(ceil(float(amount) * factor), UNBOUNDED)


ZERO, ONE, ANY_SIZE = Range(0, 0), Range(1, 1), Range(0, UNBOUNDED)


class Members(NamedTuple):
    """How large the keys (or indexes) and the values of a container are."""

    kind: str
    key: Range
    value: Range


class _Local(NamedTuple):
    path: tuple[str, ...]
    size: Range | None
    members: Members | None


_Call = tuple[Range, Range | None]
"""The cost of a call without its arguments, and the size of its result where that is known."""


def worst_cost(tree: Expr, root: Type) -> int:
    """The most that evaluating a checked tree can cost where `self` and `oldSelf` are of the given type."""
    return _Estimate(root).cost(tree).high


class _Estimate:
    def __init__(self, root: Type) -> None:
        self.root = root
        self.paths: dict[int, tuple[str, ...]] = {}
        self.sizes: dict[int, Range] = {}
        self.members: dict[int, Members] = {}
        self.locals: dict[str, list[_Local]] = {}

    def cost(self, node: Expr) -> Range:
        if isinstance(node, Ident):
            self.paths[node.id] = self.path(node) if self.locals.get(node.name) else (node.name,)
            return ONE
        if isinstance(node, Select):
            return self.select(node)
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, ListExpr):
            return self.list_literal(node)
        if isinstance(node, MapExpr):
            return self.map_literal(node)
        if isinstance(node, Fold):
            return self.bind(node) if _is_bind(node) else self.fold(node)
        return ZERO

    # Where a value comes from, and how large it is

    def path(self, node: Expr) -> tuple[str, ...]:
        if isinstance(node, Ident) and self.locals.get(node.name):
            return self.locals[node.name][-1].path
        return self.paths.get(node.id, ())

    def size(self, node: Expr) -> Range | None:
        if node.id in self.sizes:
            return self.sizes[node.id]
        literal = _literal_size(node)
        if literal is not None:
            return literal
        found = self.declared_size(self.path(node))
        if found is not None:
            self.sizes[node.id] = found
            return found
        if _is_scalar(node.type):
            return ONE
        if isinstance(node, Ident) and self.locals.get(node.name):
            return self.locals[node.name][-1].size
        return None

    def size_or_any(self, node: Expr) -> Range:
        return self.size(node) or ANY_SIZE

    def declared_size(self, path: tuple[str, ...]) -> Range | None:
        """What the schema says of the place that a path leads to.

        The first step is a variable and not looked at: what comes from no variable counts as large as `self`. So the
        real server has it, and rules were written to fit.
        """
        if not path:
            return None
        t = self.root
        for name in path[1:]:
            if name == "@keys":
                if t.kind != "map":
                    return None
                t = t.params[0]
            elif name in ("@items", "@values"):
                if t.kind not in ("list", "map"):
                    return None
                t = t.params[-1]
            else:
                field = t.fields.get(name) if t.fields is not None else None
                if field is None:
                    return None
                t = field.type
        # Numbers, booleans and objects have no elements to count.
        counted = t.kind in ("string", "bytes", "list", "map", "dyn", "duration", "timestamp")
        return Range(0, t.max_elements if counted else 0)

    def members_of(self, node: Expr) -> Members | None:
        if node.id in self.members:
            return self.members[node.id]
        if isinstance(node, Ident) and self.locals.get(node.name):
            return self.locals[node.name][-1].members
        return None

    # Nodes

    def select(self, node: Select) -> Range:
        cost = self.cost(node.operand)
        if node.test:
            return cost
        if node.operand.type.kind in ("map", "object"):
            cost = cost.plus(ONE)
        self.paths[node.id] = (*self.path(node.operand), node.field)
        return cost

    def list_literal(self, node: ListExpr) -> Range:
        total = Range(LIST_COST, LIST_COST)
        size = Range(UNBOUNDED if node.items else 0, 0)
        for item in node.items:
            total = total.plus(self.cost(item))
            size = size.union(self.size_or_any(item))
        self.members[node.id] = Members("list", ONE, size)
        return total

    def map_literal(self, node: MapExpr) -> Range:
        total = Range(MAP_COST, MAP_COST)
        keys = values = Range(UNBOUNDED if node.entries else 0, 0)
        for key, value, _ in node.entries:
            total = total.plus(self.cost(key)).plus(self.cost(value))
            keys = keys.union(self.size_or_any(key))
            values = values.union(self.size_or_any(value))
        self.members[node.id] = Members("map", keys, values)
        return total

    def bind(self, node: Fold) -> Range:
        total = self.cost(node.source).plus(self.cost(node.init))
        self.push(node.accu, _Local(self.path(node.init), self.size(node.init), self.members_of(node.init)))
        total = total.plus(self.cost(node.result))
        self.locals[node.accu].pop()
        self.copy(node, node.result)
        return total

    def fold(self, node: Fold) -> Range:
        total = self.cost(node.source).plus(self.cost(node.init))
        self.push(node.accu, _Local(self.path(node.init), self.size(node.init), self.members_of(node.init)))
        members, path = self.members_of(node.source), self.path(node.source)
        kind = members.kind if members else node.source.type.kind
        keys = _Local((*path, "@indices" if kind == "list" else "@keys"), members.key if members else None, None)
        values = _Local((*path, "@items" if kind == "list" else "@values"), members.value if members else None, None)
        self.push(node.var, keys if node.var2 or kind != "list" else values)
        if node.var2:
            self.push(node.var2, values)
        each = self.cost(node.condition).plus(self.cost(node.step))
        self.locals[node.var].pop()
        if node.var2:
            self.locals[node.var2].pop()
        total = total.plus(self.cost(node.result))
        self.locals[node.accu].pop()
        count = self.size_or_any(node.source)
        if isinstance(node.init, ListExpr | MapExpr):
            self.sizes[node.id] = count
            built = self.members_of(node.step)
            if built is not None:
                self.members[node.id] = built
        elif isinstance(node.init, Const):
            self.sizes[node.id] = self.size_or_any(node.init)
        return total.plus(count.times(each))

    def push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def copy(self, target: Expr, source: Expr) -> None:
        size, members = self.size(source), self.members_of(source)
        if size is not None:
            self.sizes[target.id] = size
        if members is not None:
            self.members[target.id] = members

    # Calls

    def call(self, node: Call) -> Range:
        costs = [self.cost(a) for a in node.args]
        if node.function == "dyn":
            self.copy(node, node.args[0])
            return ONE.plus(costs[0])
        logic = self.logic(node, costs)
        if logic is not None:
            return logic
        total = _sum_of(costs)
        if node.target is not None:
            total = total.plus(self.cost(node.target))
        if node.function == "_?._":
            name = node.args[1]
            self.paths[node.id] = (*self.path(node.args[0]), name.value if isinstance(name, Const) else "")
            return total.plus(ONE)
        own, size = Range(UNBOUNDED, 0), None
        for candidate in node.overloads:
            price, made = library_cost(self, node, candidate.id)
            own = own.union(price)
            if made is not None:
                size = made if size is None else size.union(made)
            if candidate.id in ("index_list", "index_map"):
                members = self.members_of(node.args[0])
                size = members.value if members else None
                self.paths[node.id] = (
                    *self.path(node.args[0]),
                    "@items" if candidate.id == "index_list" else "@values",
                )
            if size is None:
                size = self.size(node)
        if size is not None:
            self.sizes[node.id] = size
        return total.plus(own) if node.overloads else ZERO

    def logic(self, node: Call, costs: list[Range]) -> Range | None:
        if node.function in ("_&&_", "_||_"):
            return Range(costs[0].low, costs[0].plus(costs[1]).high)
        if node.function == "_?_:_":
            yes, no = node.args[1], node.args[2]
            self.sizes[node.id] = self.size_or_any(yes).union(self.size_or_any(no))
            first, second = self.members_of(yes), self.members_of(no)
            if first is not None and second is not None:
                self.members[node.id] = _either(first, second)
            return costs[0].plus(costs[1].union(costs[2]))
        if node.function in ("!_", "@not_strictly_false"):
            return ONE.plus(costs[0])
        return None

    def joined(self, node: Call) -> Range:
        """The size of `a + b`, noting what its members are."""
        first, second = self.members_of(node.args[0]), self.members_of(node.args[1])
        if first is not None and second is not None:
            self.members[node.id] = _either(first, second)
        return self.size_or_any(node.args[0]).plus(self.size_or_any(node.args[1]))

    def element(self, node: Expr) -> tuple[Type, Range] | None:
        """The type and size of a list's members; None for what is no list."""
        if not node.type.params:
            return None
        item = node.type.params[0]
        path = self.path(node)
        return item, (self.declared_size((*path, "@items")) if path else None) or ANY_SIZE


def library_cost(e: _Estimate, node: Call, overload: str) -> _Call:
    """The price of one overload of a function, and the size of what it gives."""
    operands = ([node.target] if node.target is not None else []) + node.args
    first = e.size_or_any(operands[0]) if operands else ZERO
    name = node.function
    if name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf") and node.target is not None:
        return _list_traversal(e, node.target, first), None
    if name in ("lowerAscii", "upperAscii", "substring", "trim"):
        return first.by(PER_CHARACTER), first
    if name == "url":
        return first.by(PER_CHARACTER), first
    if name in _PARSERS and node.target is None:
        return first.by(PER_CHARACTER), None
    if name == "ip.isCanonical":
        return first.by(2 * PER_CHARACTER), None
    if name == "replace" and len(operands) >= 3:
        return first.by(2 * PER_CHARACTER), _replaced(first, e.size_or_any(operands[1]), e.size_or_any(operands[2]))
    if name == "split":
        limit = operands[2] if len(operands) > 2 else None
        most = limit.value if isinstance(limit, Const) and limit.value >= 0 else first.high
        return first.by(2 * PER_CHARACTER), Range(0, most)
    if name == "join":
        size = _joined_text(e, operands, first)
        return size.by(PER_CHARACTER), size
    if name in ("find", "findAll"):
        return _pattern(first, e.size_or_any(operands[1])), Range(0, first.high)
    if name == "validate":
        return e.size_or_any(operands[1]).by(PER_CHARACTER).by(LONGEST_FORMAT * PER_PATTERN_CHARACTER), None
    if name in _LIST_BUILDERS:
        return _list_builder(e, name, operands, first)
    if name in ("sets.contains", "sets.intersects", "sets.equivalent"):
        pairs = first.times(e.size_or_any(operands[1]))
        return (Range(2 * pairs.low, min(2 * pairs.high, UNBOUNDED)) if name == "sets.equivalent" else pairs).plus(
            ONE
        ), None
    if name in ("containsIP", "containsCIDR"):
        return _network(e, operands, name), None
    return _standard(e, node, overload, operands, first)


def _standard(e: _Estimate, node: Call, overload: str, operands: list[Expr], first: Range) -> _Call:
    if overload == "string_format":
        return first.by(PER_CHARACTER), ANY_SIZE
    if overload == "string_to_bytes":
        return first.by(PER_CHARACTER), Range(first.low, min(first.high * 4, UNBOUNDED))
    if overload == "bytes_to_string":
        return first.by(PER_CHARACTER), Range(first.low // 4, first.high)
    if overload == "strings_quote":
        return first.by(PER_CHARACTER), Range(first.low + 2, min(first.high * 2 + 2, UNBOUNDED))
    if overload in ("starts_with_string", "ends_with_string"):
        return e.size_or_any(operands[1]).by(PER_CHARACTER), None
    if overload == "in_list":
        return e.size_or_any(operands[1]), None
    if overload == "matches_string" and node.target is not None:
        return _pattern(first, e.size_or_any(operands[1])), None
    if overload == "contains_string":
        return first.by(PER_CHARACTER).times(e.size_or_any(operands[1]).by(PER_CHARACTER)), None
    if overload in ("add_string", "add_bytes", "add_list"):
        size = e.joined(node)
        return (ONE if overload == "add_list" else size.by(PER_CHARACTER)), size
    if overload == "equals" and operands[0].type.kind == "opaque" and not is_optional(operands[0].type):
        other = e.size(operands[1])
        return (other.by(PER_CHARACTER) if other is not None else ONE), None
    if overload in ("equals", "not_equals", "ordered_string", "ordered_bytes"):
        most = min(first.high, e.size_or_any(operands[1]).high)
        return Range(1 if most else 0, most).by(PER_CHARACTER), None
    return ONE, None


_PARSERS = frozenset({"cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"})
_LIST_BUILDERS = frozenset({
    "sort", "@sortByAssociatedKeys", "distinct", "reverse", "slice", "lists.range", "flatten",
})  # fmt: skip


def _list_builder(e: _Estimate, name: str, operands: list[Expr], first: Range) -> _Call:
    """Functions that give a new list: what they look at, and a list's own price."""
    made, cost = first, first
    if name in ("sort", "@sortByAssociatedKeys", "distinct"):
        element = e.element(operands[-1])
        text = element is not None and element[0].kind in ("string", "bytes")
        each = element[1].by(PER_CHARACTER) if text and element is not None else ONE
        cost = first.times(first).times(each).times(Range(2, 2))
    elif name in ("slice", "lists.range"):
        ends = [o.value for o in operands[-2:] if isinstance(o, Const) and isinstance(o.value, int)]
        known = len(ends) == (2 if name == "slice" else 1)
        count = max(ends[-1] - (ends[0] if name == "slice" else 0), 0) if known else first.high
        made = cost = Range(count, count) if known or name == "slice" else ANY_SIZE
    elif name == "flatten":
        made = cost = _flattened(e, operands[0], first)
    return cost.plus(Range(LIST_COST + 1, LIST_COST + 1)), made


def _flattened(e: _Estimate, node: Expr, size: Range) -> Range:
    if isinstance(node, ListExpr):
        total = sum(len(i.items) if isinstance(i, ListExpr) else 1 for i in node.items)
        return Range(total, total)
    element = e.element(node)
    return size.times(element[1]) if element is not None and element[0].kind == "list" else size


def _list_traversal(e: _Estimate, target: Expr, size: Range) -> Range:
    element = e.element(target)
    if element is None:
        return size.by(PER_CHARACTER)
    item, item_size = element
    each = ONE.plus(item_size.by(PER_CHARACTER)) if item.kind in ("string", "bytes") else ONE
    return size.times(each)


def _joined_text(e: _Estimate, operands: Sequence[Expr], count: Range) -> Range:
    element = e.element(operands[0])
    size = count.times(element[1]) if element is not None else ZERO
    if len(operands) > 1:
        gaps = Range(max(count.low - 1, 0), max(count.high - 1, 0))
        size = size.plus(e.size_or_any(operands[1]).times(gaps))
    return size


def _pattern(text: Range, expression: Range) -> Range:
    return text.plus(ONE).by(PER_CHARACTER).times(expression.by(PER_PATTERN_CHARACTER))


def _network(e: _Estimate, operands: Sequence[Expr], name: str) -> Range:
    width = Range(4, 16)
    cost = width.plus(width).by(PER_CHARACTER)
    if name == "containsCIDR":
        cost = cost.plus(width.by(PER_CHARACTER)).plus(ONE)
    if operands[1].type.kind == "string":
        cost = cost.plus(e.size_or_any(operands[1]).by(PER_CHARACTER))
    return cost


def _replaced(size: Range, old: Range, new: Range) -> Range:
    """The size of a text after every `old` in it became `new`."""
    if old.low == 0:
        most = min(size.high + 1, UNBOUNDED) * new.high + size.high
    elif new.high <= old.low:
        most = size.high
    else:
        most = ceil(size.high / old.low) * new.high
    if old.high == 0:
        least = min(size.low + 1, UNBOUNDED) * new.low + size.low
    elif old.high <= new.low:
        least = size.low
    else:
        least = ceil(size.low / old.high) * new.low
    return Range(min(least, UNBOUNDED), min(most, UNBOUNDED))


def _sum_of(costs: Sequence[Range]) -> Range:
    total = ZERO
    for cost in costs:
        total = total.plus(cost)
    return total


def _either(a: Members, b: Members) -> Members:
    return Members(a.kind, a.key.union(b.key), a.value.union(b.value))


def _literal_size(node: Expr) -> Range | None:
    if isinstance(node, Const):
        size = len(node.value) if isinstance(node.value, str | bytes) else 1
    elif isinstance(node, ListExpr):
        size = len(node.items)
    elif isinstance(node, MapExpr):
        size = len(node.entries)
    else:
        return None
    return Range(size, size)


def _is_scalar(t: Type) -> bool:
    if is_optional(t):
        return _is_scalar(t.params[0])
    return t.kind in ("bool", "double", "duration", "int", "timestamp", "uint")


def _is_bind(node: Fold) -> bool:
    endless = isinstance(node.condition, Const) and node.condition.value is False
    return endless and isinstance(node.source, ListExpr) and not node.source.items and node.accu != "@result"
