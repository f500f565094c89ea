"""The tracing reader: the ordered accesses of one thread block. Only a schedule interleaves blocks.

A thread block is one value of every grid index of one kernel. Its accesses come in pieces of bounded size,
each a structured array; loops are expanded as columns, never one iteration at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from iosim.errors import ProgramError
from iosim.program.evaluate import Binding, Frame
from iosim.program.expr import Expr, add, const, index, sum_over
from iosim.program.ir import Accumulate, Kernel, Load, Loop, Program, Statement, Store

ACCESS = np.dtype(
    [
        ("tensor", np.int16),  # position in `list(program.tensors)`
        ("batch", np.int32),
        ("head", np.int32),  # the query head, or the kv-head for K and V
        ("row_start", np.int64),
        ("row_stop", np.int64),
        ("col_start", np.int64),
        ("col_stop", np.int64),
        ("store", np.bool_),
        ("rule", np.int8),  # what a verifier allows: PLAIN, INITIAL or SHARED
    ]
)
PLAIN, INITIAL, SHARED = 0, 1, 2
"""A store of the first contents (INITIAL) may be overwritten unread; both accesses of an accumulation are SHARED."""
Accesses = npt.NDArray[Any]

PIECE = 1 << 16
"""Most iterations of a loop expanded at a time: about 3 MB an access of its body."""


def grids(kernel: Kernel) -> list[Loop]:
    """The grid loops of a kernel, outermost first: one thread block for each combination of their indices."""
    out: list[Loop] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].parallel:
        out.append(body[0])
        body = body[0].body
    return out


def blocks(kernel: Kernel, binding: Binding) -> Iterator[dict[str, int]]:
    """Every thread block of a kernel in grid order, the last grid index fastest."""

    def expand(frame: Frame, rest: list[Loop], chosen: dict[str, int]) -> Iterator[dict[str, int]]:
        if not rest:
            yield chosen
            return
        loop = rest[0]
        for i in range(int(frame.value(loop.start)), int(frame.value(loop.stop))):
            yield from expand(Frame({loop.index: i}, frame), rest[1:], {**chosen, loop.index: i})

    yield from expand(Frame(binding), grids(kernel), {})


def block_table(kernel: Kernel, binding: Binding, most: int) -> dict[str, npt.NDArray[np.int64]]:
    """Every thread block of a kernel as columns, one a grid index, in the order of `blocks`.

    Errors: `ProgramError` when there are more than `most` blocks.
    """
    frame, rows = Frame(binding), 1
    table: dict[str, npt.NDArray[np.int64]] = {}
    for loop in grids(kernel):
        start, stop = (np.broadcast_to(np.asarray(frame.value(e)), (rows,)) for e in (loop.start, loop.stop))
        trips = np.maximum(stop - start, 0)
        rows = int(trips.sum())
        if rows > most:
            raise ProgramError(f"kernel {kernel.name}: more than {most:,} thread blocks; take larger tiles")
        source = np.repeat(np.arange(len(trips)), trips)
        index = start[source] + np.arange(rows) - np.repeat(np.cumsum(trips) - trips, trips)
        table = {name: column[source] for name, column in table.items()} | {loop.index: index}
        frame = Frame({loop.index: index}, frame, source)
    return table


def trace(
    program: Program, kernel: Kernel, block: Mapping[str, int], binding: Binding, *, backward: bool = False
) -> Iterator[Accesses]:
    """The accesses of one thread block, in order, in pieces.

    `block` gives the value of each grid index, as `blocks` yields it. `backward`: the outermost sequential loops run
    from their last iteration to their first. Errors: `ProgramError` for a wrong block.
    """
    expected = [loop.index for loop in grids(kernel)]
    if set(block) != set(expected):
        raise ProgramError(
            f"kernel {kernel.name}: a block is given by {', '.join(expected)}, got {', '.join(block)}"
        )
    tracer = _Tracer(program, Frame({**binding, **block}))
    yield from tracer.pieces(_inside(kernel), backward=backward)


def block_lengths(kernel: Kernel, table: Mapping[str, npt.NDArray[np.int64]], binding: Binding) -> Any:
    """How many accesses each block of a `block_table` makes, without tracing it; Python ints where they are huge."""
    many = len(next(iter(table.values())))
    length = np.asarray(Frame({**binding, **table}).value(_accesses(_inside(kernel))))
    return np.broadcast_to(length, (many,))


def trace_blocks(
    program: Program, kernel: Kernel, table: Mapping[str, npt.NDArray[np.int64]], binding: Binding
) -> Accesses:
    """The accesses of all blocks of a `block_table`, one block after another, as one array: for short blocks."""
    many = len(next(iter(table.values())))
    # as many iterations of a loop over blocks; the letters stay single numbers
    frame = Frame(dict(table), Frame(binding), np.zeros(many, dtype=np.int64))
    pieces = list(_Tracer(program, frame).whole(_inside(kernel), many))
    return np.concatenate(pieces) if pieces else np.empty(0, ACCESS)


def _inside(kernel: Kernel) -> tuple[Statement, ...]:
    """What one thread block does."""
    body = kernel.body
    for loop in grids(kernel):
        body = loop.body
    return body


class _Tracer:
    def __init__(self, program: Program, frame: Frame) -> None:
        self.frame = frame
        self.ids = {name: i for i, name in enumerate(program.tensors)}

    def pieces(self, body: tuple[Statement, ...], *, backward: bool) -> Iterator[Accesses]:
        """The body of the block, a long loop cut between its iterations."""
        for statement in body:
            if not isinstance(statement, Loop):
                yield from self._emit((statement,), self.frame, 1)
                continue
            start, stop = (int(self.frame.value(e)) for e in (statement.start, statement.stop))
            done, trips = 0, max(0, stop - start)
            while done < trips:
                steps = np.arange(done, min(trips, done + PIECE))
                order = stop - 1 - steps if backward else start + steps
                order = order[: self._fitting(statement, order)]
                inner = Frame({statement.index: order}, self.frame)
                yield from self._emit(statement.body, inner, len(order))
                done += len(order)

    def whole(self, body: tuple[Statement, ...], rows: int) -> Iterator[Accesses]:
        """`body` for each of `rows` iterations, uncut."""
        yield from self._emit(body, self.frame, rows)

    def _fitting(self, loop: Loop, order: npt.NDArray[np.int64]) -> int:
        """How many iterations make about PIECE accesses (at least one)."""
        inner = Frame({loop.index: order}, self.frame)
        size = np.cumsum(np.broadcast_to(np.asarray(inner.value(_accesses(loop.body))), order.shape))
        return max(1, int(np.searchsorted(size, PIECE, side="right")))

    def _emit(self, body: tuple[Statement, ...], frame: Frame, rows: int) -> Iterator[Accesses]:
        """One array with the accesses of `body` for each of `rows` iterations, in program order."""
        size = np.broadcast_to(np.asarray(frame.value(_accesses(body))), (rows,))
        if total := int(size.sum()):
            out = np.empty(total, dtype=ACCESS)
            self._fill(out, body, frame, np.cumsum(size) - size)
            yield out

    def _fill(
        self, out: Accesses, body: tuple[Statement, ...], frame: Frame, at: npt.NDArray[np.int64]
    ) -> None:
        """Write the accesses of every iteration, the first of iteration r at position at[r]."""
        at = at.astype(np.int64)
        for statement in body:
            if isinstance(statement, Load | Store | Accumulate):
                if not isinstance(statement, Store):
                    self._put(out, statement, frame, at, store=False)
                    at = at + 1
                if not isinstance(statement, Load):
                    self._put(out, statement, frame, at, store=True)
                    at = at + 1
            elif isinstance(statement, Loop):
                lo, hi, size = (
                    np.broadcast_to(np.asarray(frame.value(e)), at.shape)
                    for e in (statement.start, statement.stop, _accesses((statement,)))
                )
                trips = np.maximum(hi - lo, 0)
                rows = np.repeat(np.arange(len(at)), trips)
                step = np.arange(len(rows)) - np.repeat(np.cumsum(trips) - trips, trips)
                inner = Frame({statement.index: lo[rows] + step}, frame, rows)
                each = np.broadcast_to(np.asarray(inner.value(_accesses(statement.body))), rows.shape)
                before = np.cumsum(each) - each  # accesses of earlier iterations, over all rows
                row_start = np.repeat(np.cumsum(size) - size, trips)
                self._fill(out, statement.body, inner, at[rows] + before - row_start)
                at = at + size

    def _put(
        self,
        out: Accesses,
        statement: Load | Store | Accumulate,
        frame: Frame,
        at: npt.NDArray[np.int64],
        *,
        store: bool,
    ) -> None:
        region = statement.region
        out["tensor"][at] = self.ids[region.tensor.name]
        out["batch"][at] = frame.value(index("batch"))
        out["head"][at] = frame.value(region.head)
        for name, span in (("row", region.rows), ("col", region.cols)):
            out[f"{name}_start"][at] = frame.value(span.start)
            out[f"{name}_stop"][at] = frame.value(span.stop)
        out["store"][at] = store
        out["rule"][at] = _rule(statement)


def _rule(statement: Load | Store | Accumulate) -> int:
    if isinstance(statement, Accumulate):
        return SHARED
    return INITIAL if isinstance(statement, Store) and statement.initial else PLAIN


def _accesses(body: tuple[Statement, ...]) -> Expr:
    """How many loads and stores one run of `body` makes."""
    total: Expr = const(0)
    for statement in body:
        if isinstance(statement, Load | Store):
            total = add(total, 1)
        elif isinstance(statement, Accumulate):
            total = add(total, 2)
        elif isinstance(statement, Loop):
            total = add(total, _loop_accesses(statement))
    return total


def _loop_accesses(loop: Loop) -> Expr:
    return sum_over(loop.index, loop.start, loop.stop, _accesses(loop.body))
