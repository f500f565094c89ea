"""Values of expressions: exact, on Python ints for one point or on int64 columns for many points at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from iosim.errors import ProgramError, UsageError
from iosim.program.expr import Expr
from iosim.program.tables import Table

Column: TypeAlias = npt.NDArray[Any]
Number: TypeAlias = "int | Column"
Binding: TypeAlias = "Mapping[str, Number]"

CHUNK = 1 << 18
"""Elements of one expanded loop held at a time: a few MB a column, and still fast."""

LONGEST = 1 << 28
"""Most iterations of a loop that are added up one by one: about half a minute. Beyond it is a typing error."""

_SAFE = 1 << 62  # below this an int64 product or sum cannot wrap


def evaluate(node: Expr, binding: Binding) -> Number:
    """The value of `node` with its letters bound; an int, or a column where any letter is one."""
    return Frame(binding).value(node)


class Frame:
    """A binding with what was already computed under it; frames nest inside expanded loops."""

    def __init__(
        self,
        binding: Binding,
        outer: Frame | None = None,
        rows: Column | None = None,
        known: Mapping[Expr, Number] | None = None,
    ) -> None:
        self._binding = binding  # letters, or the one index of this frame's loop
        self._outer = outer
        self._rows = rows  # for each element here, its row in the outer frame's columns
        self._known: dict[Expr, Number] = dict(known or {})
        self._prefixes: dict[tuple[str, Expr, int, int], Column] = {}  # of the outermost frame: prefix sums

    def value(self, node: Expr) -> Number:
        """The value of `node` in this frame."""
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = self._find(node)
        return known

    def _find(self, node: Expr) -> Number:
        if self._outer is not None and not (node.free & self._binding.keys()):
            value = self._outer.value(node)
            return value[self._rows] if isinstance(value, np.ndarray) and self._rows is not None else value
        if node.op == "const":
            return cast(int, node.args[0])
        if node.op == "number":
            return self._binding.get(cast(str, node.args[0]), cast(int, node.args[1]))
        if node.op in ("param", "index"):
            name = cast(str, node.args[0])
            if name not in self._binding:
                raise ProgramError(f"the program uses {name}, which has no value here")
            return self._binding[name]
        if node.op == "sum":
            return self._sum(node)
        if node.op == "table":
            return self._entry(node)
        if node.op == "extent":
            i, tile, size = (self.value(cast(Expr, a)) for a in node.args)
            return _minimum(_mul(i + 1, tile), size) - _minimum(_mul(i, tile), size)
        a, b = (self.value(cast(Expr, arg)) for arg in node.args)
        return _BINARY[node.op](a, b)

    def _entry(self, node: Expr) -> Number:
        """The entry, or entries, of an index array; its sizes must be single numbers."""
        source, position = cast(Table, node.args[0]), self.value(cast(Expr, node.args[1]))
        root = self._root()
        sizes = {letter: root._binding[letter] for letter in source.letters}
        if any(isinstance(size, np.ndarray) for size in sizes.values()):
            raise ProgramError("a block mask is read for one problem at a time, not for columns of sizes")
        values = source.values(cast("Mapping[str, int]", sizes))
        return values[position] if isinstance(position, np.ndarray) else int(values[position])

    def _sum(self, node: Expr) -> Number:
        name, body = cast(str, node.args[0]), cast(Expr, node.args[3])
        lo, hi = self.value(cast(Expr, node.args[1])), self.value(cast(Expr, node.args[2]))
        _check_length(name, int(np.max(np.asarray(hi) - np.asarray(lo), initial=0)))
        if not isinstance(lo, np.ndarray) and not isinstance(hi, np.ndarray):
            if (many := self._varies(body, name)) is not None:
                return self._sum_columns(name, body, np.full(many, lo), np.full(many, hi - lo))
            return sum(
                _total(Frame({name: np.arange(start, min(start + CHUNK, hi))}, self).value(body))
                for start in range(lo, hi, CHUNK)
            )
        first, trips = np.broadcast_arrays(lo, np.asarray(hi) - lo)
        prefix = self._prefix_sums(name, body, first, trips)
        return prefix if prefix is not None else self._sum_columns(name, body, first, trips)

    def _varies(self, body: Expr, name: str) -> int | None:
        """The length of this frame's columns, if `body` has another value in each of their rows."""
        own = [len(v) for v in self._binding.values() if isinstance(v, np.ndarray)]
        columns = {n for n, v in self._root()._binding.items() if isinstance(v, np.ndarray)}
        return own[0] if own and (body.free - {name} or body.params & columns) else None

    def _prefix_sums(self, name: str, body: Expr, first: Column, trips: Column) -> Column | None:
        """Σ for each row as a difference of prefix sums, where all rows add the same terms; None where they do not.

        Terms repeat like this in index arrays and page counts; every other extent telescopes before it gets here.
        """
        if body.free != {name} or not len(trips) or self._varies(body, name) is not None:
            return None
        start, stop = int(first.min()), int((first + trips).max())
        if stop - start > max(CHUNK, 2 * int(trips.sum())):
            return None
        known, key = self._root()._prefixes, (name, body, start, stop)
        if key not in known:
            terms = np.asarray(Frame({name: np.arange(start, stop)}, self).value(body))
            terms = np.broadcast_to(terms, (stop - start,))
            if _largest(terms) * terms.size >= _SAFE:
                terms = terms.astype(object)
            known[key] = np.concatenate([np.zeros(1, dtype=terms.dtype), np.cumsum(terms)])
        sums = known[key]
        return cast(Column, sums[first + trips - start] - sums[first - start])

    def _root(self) -> Frame:
        """The frame of the letters."""
        root = self
        while root._outer is not None:
            root = root._outer
        return root

    def _sum_columns(self, name: str, body: Expr, first: Column, trips: Column) -> Column:
        """Σ for each row of the columns: whole rows are expanded together, up to CHUNK elements at a time."""
        out: Column = np.zeros(len(trips), dtype=np.int64)
        row = 0
        while row < len(trips):
            if trips[row] > CHUNK:
                start, stop = int(first[row]), int(first[row] + trips[row])
                pieces = [np.arange(s, min(s + CHUNK, stop)) for s in range(start, stop, CHUNK)]
                value = sum(
                    _total(Frame({name: piece}, self, np.full(len(piece), row)).value(body))
                    for piece in pieces
                )
                if value >= _SAFE and out.dtype != object:
                    out = out.astype(object)
                out[row] = value
                row += 1
                continue
            ends = np.cumsum(trips[row : row + CHUNK])
            many = max(1, int(np.searchsorted(ends, CHUNK, side="right")))
            part = slice(row, row + many)
            rows = np.repeat(np.arange(row, row + many), trips[part])
            offset = np.arange(len(rows)) - np.repeat(ends[:many] - trips[part], trips[part])
            values = Frame({name: first[rows] + offset}, self, rows).value(body)
            sums = _group_sums(values, rows - row, many)
            if sums.dtype == object and out.dtype != object:
                out = out.astype(object)
            out[part] = sums
            row += many
        return out


def _check_length(name: str, trips: int) -> None:
    if trips > LONGEST:
        raise UsageError(
            f"loop {name} has {trips} iterations, which differ and so must be added up one by one; at most 2^28: "
            "take larger tiles or a shorter sequence"
        )


def _group_sums(values: Number, group: Column, groups: int) -> Column:
    flat = np.broadcast_to(np.asarray(values), group.shape)
    wide = flat.dtype == object or (len(flat) and _largest(flat) * len(flat) >= _SAFE)
    sums = np.zeros(groups, dtype=object if wide else np.int64)
    if len(flat):  # groups stand together, so that each is a run
        starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        sums[group[starts]] = np.add.reduceat(flat.astype(object) if wide else flat, starts)
    return sums


def _total(values: Number) -> int:
    """The sum of a column as an exact Python int."""
    column = np.asarray(values)
    if column.size and column.dtype != object and _largest(column) * column.size >= _SAFE:
        column = column.astype(object)
    return int(column.sum())


def _largest(value: Number) -> int:
    if isinstance(value, np.ndarray):
        return max(abs(int(value.max())), abs(int(value.min()))) if value.size else 0
    return abs(value)


def _mul(a: Number, b: Number) -> Number:
    """a · b without wrapping: a column that would pass 2⁶² goes on in Python ints."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    x, y = np.asarray(a), np.asarray(b)
    if _largest(a) * _largest(b) >= _SAFE:
        x, y = x.astype(object), y.astype(object)
    return cast(Column, x * y)


def _minimum(a: Number, b: Number) -> Number:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def _maximum(a: Number, b: Number) -> Number:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


_BINARY: dict[str, Callable[[Number, Number], Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": _mul,
    "//": lambda a, b: a // b,
    "cdiv": lambda a, b: -(-a // b),
    "min": _minimum,
    "max": _maximum,
}
