"""The counting reader: exact bytes and operations of a program, for one point or for columns of points.

Each statement's cost is a product; summing it over its loops is done once, symbolically (`program.expr.sum_over`),
so a loop is expanded only where its extents do not separate. What remains is evaluated on ints or columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from iosim.program.evaluate import Binding, Frame, Number
from iosim.program.expr import Expr, add, const, has_table, sum_over
from iosim.program.ir import Accumulate, Compute, Load, Loop, Program, Statement, Store
from iosim.program.ops import OPS

UNITS = ("tensor", "vector", "special")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One statement of the listing with the loops around it and its total cost as expressions."""

    kernel: str
    depth: int
    statement: Statement
    read_bytes: Expr
    write_bytes: Expr
    work: dict[str, Expr]  # by unit, in operations


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Totals of a program: bytes by tensor and direction, operations by unit."""

    read_bytes: dict[str, Number]
    write_bytes: dict[str, Number]
    tensor_flops: Number
    vector_flops: Number
    special_ops: Number

    @property
    def total_bytes(self) -> Number:
        """All bytes across the boundary between slow memory and the SMs."""
        return sum(self.read_bytes.values()) + sum(self.write_bytes.values())


def lines(program: Program) -> list[Line]:
    """Every statement in the order of the listing, loops included (their own cost is zero)."""
    return [line for kernel in program.kernels for line in _walk(kernel.name, kernel.body, ())]


def _walk(kernel: str, body: tuple[Statement, ...], loops: tuple[Loop, ...]) -> Iterator[Line]:
    zero = const(0)
    for statement in body:
        read = write = zero
        work: dict[str, Expr] = {}
        if isinstance(statement, Load):
            read = _over(loops, statement.region.bytes)
        elif isinstance(statement, Store):
            write = _over(loops, statement.region.bytes)
        elif isinstance(statement, Accumulate):
            read = write = _over(loops, statement.region.bytes)
            work["vector"] = _over(loops, statement.region.elements)
        elif isinstance(statement, Compute) and OPS[statement.op].unit in UNITS:
            work[OPS[statement.op].unit] = _over(loops, statement.cost)
        yield Line(
            kernel=kernel,
            depth=len(loops),
            statement=statement,
            read_bytes=read,
            write_bytes=write,
            work=work,
        )
        if isinstance(statement, Loop):
            yield from _walk(kernel, statement.body, (*loops, statement))


def _over(loops: tuple[Loop, ...], cost: Expr) -> Expr:
    """`cost` summed over the loops around it, the innermost first."""
    for loop in reversed(loops):
        cost = sum_over(loop.index, loop.start, loop.stop, cost)
    return cost


@lru_cache(maxsize=256)
def totals(program: Program) -> dict[str, dict[str, Expr]]:
    """The whole program as expressions: 'read' and 'write' by tensor, 'work' by unit."""
    out: dict[str, dict[str, Expr]] = {"read": {}, "write": {}, "work": {unit: const(0) for unit in UNITS}}
    for line in lines(program):
        if isinstance(line.statement, Load | Accumulate):
            _accumulate(out["read"], line.statement.region.tensor.name, line.read_bytes)
        if isinstance(line.statement, Store | Accumulate):
            _accumulate(out["write"], line.statement.region.tensor.name, line.write_bytes)
        for unit, amount in line.work.items():
            _accumulate(out["work"], unit, amount)
    return out


def _accumulate(table: dict[str, Expr], key: str, amount: Expr) -> None:
    table[key] = add(table.get(key, const(0)), amount)


def total_bytes(program: Program) -> Expr:
    """All bytes as one expression; its `params` tell which letters the traffic depends on."""
    parts = totals(program)
    total = const(0)
    for amount in [*parts["read"].values(), *parts["write"].values()]:
        total = total + amount
    return total


def count(program: Program, binding: Binding) -> Tally:
    """Exact bytes and operations; `binding` gives each letter an int, or a column for many points at once."""
    parts = totals(program)
    many = max((len(v) for v in binding.values() if isinstance(v, np.ndarray)), default=0)
    if many and _reads_tables(program):
        return _stacked([count(program, _row(binding, i)) for i in range(many)])
    frame = Frame(binding)
    work = parts["work"]
    return Tally(
        read_bytes={name: frame.value(e) for name, e in parts["read"].items()},
        write_bytes={name: frame.value(e) for name, e in parts["write"].items()},
        tensor_flops=frame.value(work["tensor"]),
        vector_flops=frame.value(work["vector"]),
        special_ops=frame.value(work["special"]),
    )


@lru_cache(maxsize=256)
def _reads_tables(program: Program) -> bool:
    return any(has_table(e) for part in totals(program).values() for e in part.values())


def _row(binding: Binding, i: int) -> dict[str, Number]:
    """One point of a binding of columns: an index array belongs to one problem."""
    return {name: int(v[i]) if isinstance(v, np.ndarray) else v for name, v in binding.items()}


def _stacked(points: list[Tally]) -> Tally:
    def column(values: list[Number]) -> Number:
        wide = any(abs(int(v)) >= 1 << 62 for v in values)
        return np.array(values, dtype=object if wide else np.int64)

    first = points[0]
    return Tally(
        read_bytes={n: column([p.read_bytes[n] for p in points]) for n in first.read_bytes},
        write_bytes={n: column([p.write_bytes[n] for p in points]) for n in first.write_bytes},
        tensor_flops=column([p.tensor_flops for p in points]),
        vector_flops=column([p.vector_flops for p in points]),
        special_ops=column([p.special_ops for p in points]),
    )
