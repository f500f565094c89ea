"""Block sizes: the papers' rules, and an exact search over every tile that fits.

Everything works on columns of points, so one point and a sweep of thousands go the same way. The search reads
`count`'s expression: where the traffic does not depend on one side of the tile, that side is not searched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iosim.errors import UsageError
from iosim.interpret.count import total_bytes
from iosim.interpret.footprint import MMA, live_bytes
from iosim.program.evaluate import Column, Frame, Number
from iosim.program.expr import Expr
from iosim.program.ir import Program
from iosim.program.relax import least, most, relaxed, sums_of

Ints = npt.NDArray[np.int64]

TILE_RULES = ("best", "paper", "paper-literal")
_FLAT = 1 << 20  # candidate tiles evaluated together
_FIRST = 8  # candidates counted before the first are ruled out
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a tile must fit in: M for one thread block, and the register file in the `kernel` model (bytes)."""

    model: str
    sram_bytes: Ints
    register_bytes: Ints


def capacity(model: str, sram_bytes: Number, register_bytes: Number | None, points: int) -> Capacity:
    """Capacities as columns; without a register limit (or in the `paper` model) registers are not checked."""
    registers = _NO_LIMIT if register_bytes is None or model == "paper" else register_bytes
    return Capacity(
        model=model,
        sram_bytes=np.broadcast_to(np.asarray(sram_bytes, dtype=np.int64), (points,)),
        register_bytes=np.broadcast_to(np.asarray(registers, dtype=np.int64), (points,)),
    )


def step(granularity: int, model: str) -> int:
    """Tiles are multiples of this: the granularity, in the `kernel` model also of the MMA shape."""
    if granularity < 1:
        raise UsageError(f"granularity: must be at least 1, got {granularity}")
    return math.lcm(granularity, MMA) if model == "kernel" else granularity


def paper_tiles(
    outer: str, binding: Mapping[str, Number], sram_bytes: Number, *, literal: bool, backward: bool = False
) -> tuple[Number, Number]:
    """The rule of FlashAttention, Algorithm 1, line 1, as (rows, cols).

    M in elements of K's dtype; ⌊M/4d⌋ rows of the outer operand, at most d of the inner one. With d ≠ dv, 4d is
    read as 2(d + dv). `literal`: the printed ceilings, and the roles of the printed loop order (outer K and V)
    for every algorithm. `backward`: twice as many tiles are on chip (the gradients too), so 8d instead of 4d;
    Algorithm 4 prints 4d, with which they do not fit.
    """
    M = np.asarray(sram_bytes) // np.asarray(binding["s_k"])
    per_row = 2 * (np.asarray(binding["d"]) + np.asarray(binding["dv"]))
    if backward and not literal:
        per_row = 2 * per_row
    block = np.maximum(1, -(-M // per_row) if literal else M // per_row)
    inner = np.minimum(block, np.asarray(binding["d"]))
    return (inner, block) if outer == "k" or literal else (block, inner)


def fits(
    program: Program, limit: Capacity, binding: Mapping[str, Number], points: Ints, rows: Ints, cols: Ints
) -> Column:
    """Whether each tile fits; `points` says which row of the binding's columns each tile belongs to."""
    frame = Frame(_at(binding, points) | {"Br": rows, "Bc": cols})
    sram = np.asarray(frame.value(live_bytes(program, limit.model)))
    registers = np.asarray(frame.value(live_bytes(program, limit.model, "registers")))
    ok = (sram <= limit.sram_bytes[points]) & (registers <= limit.register_bytes[points])
    return np.broadcast_to(ok, points.shape)


def _at(binding: Mapping[str, Number], points: Ints) -> dict[str, Number]:
    return {name: v[points] if isinstance(v, np.ndarray) else v for name, v in binding.items()}


@dataclass(frozen=True, slots=True)
class _Search:
    """One program on columns of points: which side is searched, in multiples of `unit`."""

    program: Program
    limit: Capacity
    binding: Mapping[str, Number]
    unit: int
    count: Expr
    long_side: str  # the letter whose every value is tried

    def tiles(self, long: Ints, short: Ints) -> tuple[Ints, Ints]:
        """(rows, cols) from the searched side and the other."""
        return (long, short) if self.long_side == "Br" else (short, long)

    def fit(self, points: Ints, long: Ints, short: Ints) -> Column:
        return fits(
            self.program, self.limit, self.binding, points, *self.tiles(long * self.unit, short * self.unit)
        )

    def most(self, points: Ints, beside: Ints, limit: Ints, *, long: bool) -> Ints:
        """Largest number of units, up to `limit`, on the long or short side that fits beside the other side's.

        Bisection: what is live on chip never shrinks when a tile grows. 0 where not even one unit fits.
        """
        low, high = np.zeros(len(points), dtype=np.int64), limit
        while (low < high).any():
            middle = (low + high + 1) // 2
            ok = self.fit(points, middle, beside) if long else self.fit(points, beside, middle)
            low, high = np.where(ok, middle, low), np.where(ok, high, middle - 1)
        return low

    def alone(self, *, long: bool) -> Ints:
        """Largest number of units of one side for every point, beside a single unit of the other."""
        points = np.arange(len(self.limit.sram_bytes))
        rows = long == (self.long_side == "Br")
        group = np.asarray(self.binding["H"]) // np.asarray(self.binding["Hk"])
        length = np.asarray(self.binding["N" if rows else "Nk"])
        length = length * group if rows and self.program.packed else length
        size = np.broadcast_to(np.asarray(length, dtype=np.int64), points.shape)
        return self.most(points, np.ones_like(points), -(-size // self.unit), long=long)

    def bytes(self, points: Ints, long: Ints, short: Ints) -> Column:
        rows, cols = self.tiles(long * self.unit, short * self.unit)
        value = Frame(_at(self.binding, points) | {"Br": rows, "Bc": cols}).value(self.count)
        return np.broadcast_to(np.asarray(value), points.shape)


def best_tiles(
    program: Program, limit: Capacity, binding: Mapping[str, Number], granularity: int
) -> tuple[Ints, Ints]:
    """The tile of fewest bytes among all that fit, for every point; (0, 0) where none fits.

    Tiles are multiples of the granularity, up to the first that covers the axis. Ties go to the squarest tile
    (largest smaller side), then to the smallest.
    """
    count = total_bytes(program)
    searched = "Br" if "Br" in count.params or "Bc" not in count.params else "Bc"
    search = _Search(program, limit, binding, step(granularity, limit.model), count, searched)
    both = {"Br", "Bc"} <= count.params
    points = len(limit.sram_bytes)
    rows, cols = np.zeros(points, dtype=np.int64), np.zeros(points, dtype=np.int64)
    tries, most_short = search.alone(long=True), search.alone(long=False)
    for part in _parts(tries):
        which = np.repeat(part, tries[part])
        long = _count_up(tries[part])
        short = search.most(which, long, most_short[which], long=False)
        if both:
            chosen = _pairs(search, part, which, long, short)
        else:
            short = np.minimum(short, long)
            chosen = _winners(which, part, search.bytes(which, long, short), long, short)
        found = search.tiles(chosen[0] * search.unit, chosen[1] * search.unit)
        rows[part], cols[part] = found
    return rows, cols


def _pairs(search: _Search, part: Ints, which: Ints, long: Ints, most_short: Ints) -> tuple[Ints, Ints]:
    """The best pair (long, 1..most_short) of each point: of those that a lower bound leaves, or simply of all."""
    if sums_of(search.count):
        found = [_pruned(search, int(p), long[which == p], most_short[which == p]) for p in part]
        return np.array([a for a, _ in found], np.int64), np.array([b for _, b in found], np.int64)
    return _every_pair(search, part, which, long, most_short)


def _pruned(search: _Search, point: int, long: Ints, most_short: Ints) -> tuple[int, int]:
    """The best pair of one point; none is counted whose lower bound is above the best count so far."""
    if not len(long):
        return 0, 0
    bound, known = relaxed(search.count), _known_sums(search, point, long, most_short)
    letters = _letters(search.binding, point)
    tried: list[tuple[Column, Ints, Ints]] = []
    best: Any = None
    for piece in reversed([*_parts(most_short)]):
        a, b = np.repeat(long[piece], most_short[piece]), _count_up(most_short[piece])
        rows, cols = search.tiles(a, b)
        units = {"Br": rows, "Bc": cols}
        sums = {node: values[units[side] - 1] for node, (side, values) in known.items()}
        frame = Frame(letters | {side: n * search.unit for side, n in units.items()}, known=sums)
        low = np.broadcast_to(np.asarray(frame.value(bound)), a.shape)
        order = np.argsort(low, kind="stable")
        many = _FIRST
        while len(order):
            now, order = order[:many], order[many:]
            value = search.bytes(np.full(len(now), point), a[now], b[now])
            tried.append((value, a[now], b[now]))
            best = value.min() if best is None else min(best, value.min())
            order = order[: int(np.searchsorted(low[order], best, side="right"))]
            many *= 2
    value, a, b = (np.concatenate(column) for column in zip(*tried, strict=True))
    first = _first(np.zeros(len(a), dtype=np.int64), value, a, b)[0]
    return int(a[first]), int(b[first])


def _known_sums(search: _Search, point: int, long: Ints, most_short: Ints) -> dict[Expr, tuple[str, Column]]:
    """The sums of the lower bound, each with the one side that it depends on, for 1, 2, 3 … units of that side."""
    size = dict(zip(("Br", "Bc"), search.tiles(long.max(), most_short.max()), strict=True))
    letters = _letters(search.binding, point)
    for side, units in size.items():
        letters |= {least(side): search.unit, most(side): int(units) * search.unit}
    out: dict[Expr, tuple[str, Column]] = {}
    for node in sums_of(relaxed(search.count)):
        side = "Bc" if "Bc" in node.params else "Br"
        units = np.arange(1, int(size[side]) + 1)
        value = np.asarray(Frame(letters | {side: units * search.unit}).value(node))
        out[node] = (side, np.broadcast_to(value, units.shape))
    return out


def _letters(binding: Mapping[str, Number], point: int) -> dict[str, Number]:
    """The binding of one point."""
    return {name: int(v[point]) if isinstance(v, np.ndarray) else v for name, v in binding.items()}


def _every_pair(search: _Search, part: Ints, which: Ints, long: Ints, most_short: Ints) -> tuple[Ints, Ints]:
    """Every pair, a bounded number at a time; the winner of each point survives."""
    kept = np.zeros((0, 3), dtype=np.int64)
    kept_bytes: Column = np.zeros(0, dtype=np.int64)
    for piece in _parts(most_short):
        point = np.repeat(which[piece], most_short[piece])
        a, b = np.repeat(long[piece], most_short[piece]), _count_up(most_short[piece])
        value = search.bytes(point, a, b)
        best = _first(point, value, a, b)
        kept = np.concatenate([kept, np.stack([point[best], a[best], b[best]], axis=1)])
        kept_bytes = np.concatenate([kept_bytes, value[best]])
    return _winners(kept[:, 0], part, kept_bytes, kept[:, 1], kept[:, 2])


def _first(point: Ints, value: Column, a: Ints, b: Ints) -> Ints:
    """The index of the best candidate of each point that occurs; candidates of a point stand together."""
    if not len(point):
        return point
    starts = np.flatnonzero(np.r_[True, point[1:] != point[:-1]])
    least = np.minimum.reduceat(value, starts)
    sizes = np.diff(np.r_[starts, len(point)])
    tied = np.flatnonzero(value == np.repeat(least, sizes))
    a, b, point = a[tied], b[tied], point[tied]
    order = np.lexsort((a * b, -np.minimum(a, b), point))
    sorted_points = point[order]
    return tied[order[np.r_[True, sorted_points[1:] != sorted_points[:-1]]]]


def _winners(point: Ints, part: Ints, value: Column, a: Ints, b: Ints) -> tuple[Ints, Ints]:
    best = _first(point, value, a, b)
    slot = np.searchsorted(part, point[best])
    long, short = np.zeros(len(part), dtype=np.int64), np.zeros(len(part), dtype=np.int64)
    long[slot], short[slot] = a[best], b[best]
    return long, short


def _parts(sizes: Ints) -> Iterator[Ints]:
    """Runs of consecutive rows whose sizes add up to at most _FLAT (or one row)."""
    start = 0
    while start < len(sizes):
        ends = np.cumsum(sizes[start : start + _FLAT])
        stop = start + max(1, int(np.searchsorted(ends, _FLAT, side="right")))
        yield np.arange(start, stop)
        start = stop


def _count_up(sizes: Ints) -> Ints:
    """1..n for each n of `sizes`, one after another."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
