"""Size and index expressions: built once from letters, evaluated later on ints or on columns of ints.

A node is interned: equal expressions are one object, so results can be remembered by identity. Python cannot
branch on a node (its value is not known when the program is built): comparing one, or using it in an `if`,
raises `ProgramError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from iosim.errors import ProgramError

if TYPE_CHECKING:
    from iosim.program.tables import Table

Arg: TypeAlias = "Expr | int | str | Table"
Like: TypeAlias = "Expr | int"

PRECEDENCE = {"+": 1, "-": 1, "*": 2, "//": 2}


class Expr:
    """One node: `op` names it, `args` are its parts, `free` the loop indices its value depends on.

    Operations: const, param, number (an option's, with its value), index, + - * // (floor), cdiv (ceiling), min, max,
    extent (rows of tile i on a tiled axis), table (an entry of an index array) and sum (over one loop index).
    """

    __slots__ = ("args", "free", "op", "params")

    op: str
    args: tuple[Arg, ...]
    free: frozenset[str]
    params: frozenset[str]

    def __init__(self, op: str, args: tuple[Arg, ...]) -> None:
        self.op = op
        self.args = args
        children = self.children
        free = frozenset[str]().union(*(c.free for c in children))
        params = frozenset[str]().union(*(c.params for c in children))
        if op == "index":
            free = frozenset([str(args[0])])
        elif op == "sum":
            free -= {str(args[0])}
        elif op == "table":
            params |= frozenset(cast("Table", args[0]).letters)
        elif op in ("param", "number"):
            params = frozenset([str(args[0])])
        self.free = free
        self.params = params

    @property
    def children(self) -> list[Expr]:
        """The parts that are expressions themselves."""
        return [a for a in self.args if isinstance(a, Expr)]

    def __add__(self, other: Like) -> Expr:
        return add(self, other)

    def __radd__(self, other: Like) -> Expr:
        return add(other, self)

    def __sub__(self, other: Like) -> Expr:
        return sub(self, other)

    def __rsub__(self, other: Like) -> Expr:
        return sub(other, self)

    def __mul__(self, other: Like) -> Expr:
        return mul(self, other)

    def __rmul__(self, other: Like) -> Expr:
        return mul(other, self)

    def __floordiv__(self, other: Like) -> Expr:
        return floordiv(self, other)

    def _undecided(self, *_: object) -> bool:
        raise ProgramError(
            f"the program branches on {self}, which has no value while the program is built; "
            "use loop bounds, minimum or maximum instead of a Python comparison"
        )

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = _undecided

    def __index__(self) -> int:
        raise ProgramError(f"{self} has no value while the program is built; iterate with p.loop or p.grid")

    def __eq__(self, other: object) -> bool:
        return self is other or self._undecided()

    def __ne__(self, other: object) -> bool:
        return self is not other and self._undecided()

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return _text(self)

    __repr__ = __str__


_node = lru_cache(maxsize=None)(Expr)


def const(value: int) -> Expr:
    """A known whole number."""
    return _node("const", (int(value),))


def param(letter: str) -> Expr:
    """A size that is bound when the program is read: N, d, Br …"""
    return _node("param", (letter,))


def number(letter: str, value: int) -> Expr:
    """A count that an option gives, such as splits; a binding may give the letter other values."""
    return _node("number", (letter, value))


def index(name: str) -> Expr:
    """The index of a loop or grid."""
    return _node("index", (name,))


def table(source: Table, position: Like) -> Expr:
    """The entry of an index array at a position."""
    return _node("table", (source, lift(position)))


def has_table(node: Expr) -> bool:
    """True where the value depends on an index array."""
    return node.op == "table" or any(has_table(child) for child in node.children)


def lift(value: Like) -> Expr:
    """An int becomes a constant; an expression stays what it is."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProgramError(f"sizes and indices are whole numbers, got {value!r}")
    return const(value)


def is_const(node: Expr, value: int) -> bool:
    """True for the constant `value`."""
    return node.op == "const" and node.args[0] == value


def _ints(a: Expr, b: Expr) -> tuple[int, int] | None:
    if a.op == "const" and b.op == "const":
        return cast(int, a.args[0]), cast(int, b.args[0])
    return None


def add(x: Like, y: Like) -> Expr:
    """x + y, folded where both or one of them is known."""
    a, b = lift(x), lift(y)
    if known := _ints(a, b):
        return const(known[0] + known[1])
    if is_const(a, 0):
        return b
    return a if is_const(b, 0) else _node("+", (a, b))


def sub(x: Like, y: Like) -> Expr:
    """x − y."""
    a, b = lift(x), lift(y)
    if known := _ints(a, b):
        return const(known[0] - known[1])
    if a is b:
        return const(0)
    if is_const(b, 0):
        return a
    rows = _rows_between(a, b)
    return _node("-", (a, b)) if rows is None else rows


def _rows_between(a: Expr, b: Expr) -> Expr | None:
    """min((i + 1)·t, n) − min(i·t, n) as the extent of tile i, whose sum is known."""
    if a.op != "min" or b.op != "min" or a.children[1] is not b.children[1]:
        return None
    (after, size), (before, _) = a.children, b.children
    if after.op != "*" or before.op != "*" or after.children[1] is not before.children[1]:
        return None
    i, tile = before.children
    return extent(i, tile, size) if after.children[0] is add(i, 1) else None


def mul(x: Like, y: Like) -> Expr:
    """x · y."""
    a, b = lift(x), lift(y)
    if known := _ints(a, b):
        return const(known[0] * known[1])
    if is_const(a, 0) or is_const(b, 0):
        return const(0)
    if is_const(a, 1):
        return b
    return a if is_const(b, 1) else _node("*", (a, b))


def floordiv(x: Like, y: Like) -> Expr:
    """⌊x / y⌋."""
    a, b = lift(x), lift(y)
    if known := _ints(a, b):
        return const(known[0] // known[1])
    return a if is_const(b, 1) or is_const(a, 0) else _node("//", (a, b))


def cdiv(x: Like, y: Like) -> Expr:
    """⌈x / y⌉: how many tiles of y cover x."""
    a, b = lift(x), lift(y)
    if known := _ints(a, b):
        return const(-(-known[0] // known[1]))
    return a if is_const(b, 1) else _node("cdiv", (a, b))


def minimum(x: Like, y: Like) -> Expr:
    """The smaller of x and y."""
    a, b = lift(x), lift(y)
    if known := _ints(a, b):
        return const(min(known))
    return a if a is b else _node("min", (a, b))


def maximum(x: Like, y: Like) -> Expr:
    """The larger of x and y; max(0, y) is y where y cannot be negative."""
    a, b = lift(x), lift(y)
    if known := _ints(a, b):
        return const(max(known))
    if at_least(b, a):
        return b
    return a if at_least(a, b) else _node("max", (a, b))


def at_least(a: Expr, b: Expr) -> bool:
    """True where a >= b follows from the form: max(b, …), b + 1, min((i + 1)·t, n) against min(i·t, n) …"""
    if a is b or (is_const(b, 0) and nonnegative(a)):
        return True
    if a.op == "max":
        return any(at_least(c, b) for c in a.children)
    if a.op == "+" and any(c is b and nonnegative(d) for c, d in (a.children, a.children[::-1])):
        return True
    if a.op != b.op or a.op not in ("min", "*"):
        return False
    (x, last), (y, other) = a.children, b.children
    return last is other and (a.op == "min" or nonnegative(last)) and at_least(x, y)


def nonnegative(node: Expr) -> bool:
    """True where the sign follows from the form: every letter and every index is at least 0."""
    children = node.children
    if node.op == "const":
        return cast(int, node.args[0]) >= 0
    if node.op == "max":
        return any(nonnegative(c) for c in children)
    if node.op == "-":
        return at_least(*children)
    if node.op in ("param", "number", "index", "extent", "table"):
        return True
    return node.op in ("+", "*", "//", "cdiv", "min") and all(nonnegative(c) for c in children)


def tile_start(i: Like, tile: Like, size: Like) -> Expr:
    """First row of tile i on an axis of `size` rows in tiles of `tile`: min(i · tile, size).

    It is also the number of rows before tile i, which is what makes sums of extents closed.
    """
    i, tile, size = lift(i), lift(tile), lift(size)
    if i.op == "cdiv" and i.args[0] is size and i.args[1] is tile:
        return size
    if is_const(i, 0):
        return const(0)
    return minimum(mul(i, tile), size)


def extent(i: Like, tile: Like, size: Like) -> Expr:
    """Rows of tile i: `tile`, less in a ragged last tile."""
    i, tile, size = lift(i), lift(tile), lift(size)
    if is_const(tile, 1):
        return const(1)
    return _node("extent", (i, tile, size))


def factors(node: Expr) -> list[Expr]:
    """The factors of a product, constants first."""
    if node.op == "*":
        left, right = node.children
        return factors(left) + factors(right)
    return [node]


def product(nodes: Iterable[Like]) -> Expr:
    """The product of all; 1 for none."""
    out = const(1)
    for node in nodes:
        out = mul(out, node)
    return out


def sum_over(name: str, lo: Expr, hi: Expr, term: Expr) -> Expr:
    """Σ of `term` for index `name` from lo up to, not including, hi (0 where hi <= lo).

    A factor that does not depend on the index is taken out; a single tile extent telescopes to a difference of
    tile starts. What is left, and only that, becomes a `sum` node, which is expanded when it is evaluated.
    """
    end = maximum(lo, hi)
    parts = factors(term)
    fixed = [f for f in parts if name not in f.free]
    moving = [f for f in parts if name in f.free]
    if not moving:
        return product([*fixed, sub(end, lo)])
    if len(moving) == 1 and moving[0].op == "extent" and moving[0].args[0] is index(name):
        _, tile, size = moving[0].children
        inner = sub(tile_start(end, tile, size), tile_start(lo, tile, size))
        return product([*fixed, inner])
    return product([*fixed, _node("sum", (name, lo, end, product(moving)))])


def _text(node: Expr) -> str:
    op, args = node.op, node.args
    if op in ("const", "param", "number", "index"):
        return str(args[0])
    if op in PRECEDENCE:
        left, right = args
        sign = {"*": "·", "//": " // "}.get(op, f" {op} ")
        strict = op in "-//" or (op == "*" and isinstance(right, Expr) and right.op == "//")
        return f"{_wrap(left, op, False)}{sign}{_wrap(right, op, strict)}"
    if op == "cdiv":
        return f"ceil({args[0]} / {_wrap(args[1], '//', True)})"
    if op == "extent":
        return f"rows({args[0]}; {args[1]} of {args[2]})"
    if op == "table":
        return f"{args[0]}[{args[1]}]"
    if op == "sum":
        return f"Σ[{args[0]}={args[1]}..{args[2]}) {_wrap(args[3], '*', False)}"
    return f"{op}({', '.join(str(a) for a in args)})"


def _wrap(arg: Any, parent: str, strict: bool) -> str:
    inner = PRECEDENCE.get(arg.op) if isinstance(arg, Expr) else None
    if inner is not None and (inner < PRECEDENCE[parent] or (strict and inner == PRECEDENCE[parent])):
        return f"({arg})"
    return str(arg)
