"""From the traces of thread blocks to byte ranges: where tensors lie, and what each phase of a block touches.

A phase is one access of a block's trace. Tensors are contiguous, [batch, head, row, column], each on a boundary of
2 MiB (an allocator's page). Blocks that differ only in batch entry and head share one trace, shifted.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iosim.errors import SimulationError
from iosim.interpret.trace import ACCESS, Accesses, block_lengths, trace, trace_blocks
from iosim.program.evaluate import evaluate
from iosim.program.expr import Expr, index, param
from iosim.program.ir import Kernel, Load, Loop, Program, Region, Statement, Store

Ints = NDArray[np.int64]
TENSOR_ALIGNMENT_BYTES = 2 << 20
_AT_ONCE_ACCESSES = 1_000_000  # of all blocks together, traced in one go: 150 MB while that lasts
_SPREAD = 16  # a table of so many entries a block is cheaper than sorting the blocks
_KEPT_ACCESSES = 3_000_000  # accesses of traces kept for blocks to come: about 60 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a tensor lies and how to find an element."""

    base_bytes: int
    heads: int
    rows: int
    cols: int
    itemsize: int
    shared: bool

    @property
    def head_bytes(self) -> int:
        """Bytes of one head."""
        return self.rows * self.cols * self.itemsize


def layout(program: Program, binding: Mapping[str, int]) -> dict[str, Placed]:
    """A place for every tensor, in the order of the program."""
    out, base = {}, 0
    for tensor in program.tensors.values():
        rows, cols, itemsize = (
            int(evaluate(e, binding)) for e in (tensor.rows, tensor.cols, tensor.itemsize)
        )
        heads = 1 if tensor.single else binding["Hk"] if tensor.shared else binding["H"]
        placed = Placed(
            base_bytes=base, heads=heads, rows=rows, cols=cols, itemsize=itemsize, shared=tensor.shared
        )
        out[tensor.name] = placed
        size = binding["B"] * heads * placed.head_bytes
        base += -(-size // TENSOR_ALIGNMENT_BYTES) * TENSOR_ALIGNMENT_BYTES
    return out


@dataclass(frozen=True, slots=True)
class Ranges:
    """Byte ranges of one block in order: `start`, `length`, `store`, and the tensor's position in the program."""

    start: Ints
    length: Ints
    store: NDArray[np.bool_]
    tensor: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.start)


class BlockTraces:
    """The byte ranges of the thread blocks of one kernel, made when they are asked for.

    `table`: the blocks as columns, one a grid index. Blocks that differ only in batch entry and head are one *kind*:
    they share a trace, shifted by whole heads. `backward`: for each block, whether it walks its keys backwards.
    `alive` is called now and then while traces are made.
    """

    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        binding: Mapping[str, int],
        table: Mapping[str, Ints],
        backward: NDArray[np.bool_],
        alive: Callable[[], None] | None = None,
    ) -> None:
        self.program, self.kernel, self.binding = program, kernel, dict(binding)
        self.places = list(layout(program, binding).values())
        self.end_bytes = max(p.base_bytes + binding["B"] * p.heads * p.head_bytes for p in self.places)
        names = list(table)
        if names[:2] not in (["batch", "head"], ["batch", "kv_head"]):
            raise SimulationError(
                f"kernel {kernel.name}: its grid must begin with batch and head, got {names}"
            )
        self._shared = names[1] == "head" and not _uses(kernel.body, {"batch", "head"})
        shown = names[2:] if self._shared else names
        self._keys, self.kind = _kinds([*(table[name] for name in shown), backward.astype(np.int64)])
        self._names = shown
        self._shift = self._shifts(table)
        self._kept: OrderedDict[int, Ranges] = OrderedDict()
        self._size = 0
        self._all = None if backward.any() else self._all_at_once()
        if self._all is None:
            lengths = np.empty(len(self._keys), dtype=np.int64)
            for kind in range(len(lengths)):
                lengths[kind] = len(self.ranges(kind))
                if alive:
                    alive()
        else:
            lengths = self._all[1]
        self.phases = lengths[self.kind]

    def _all_at_once(self) -> tuple[Ranges, Ints] | None:
        """The ranges of every kind one after another and their lengths, where they are few enough to keep."""
        columns = dict(zip(self._names, self._keys.T, strict=False))
        if self._shared:
            none = np.zeros(len(self._keys), dtype=np.int64)
            columns = {"batch": none, "head": none} | columns
        sizes = block_lengths(self.kernel, columns, self.binding)
        if not 0 < int(sizes.sum()) <= _AT_ONCE_ACCESSES:
            return None
        ranges, source = self._bytes(trace_blocks(self.program, self.kernel, columns, self.binding))
        kind = np.repeat(np.arange(len(sizes)), sizes)[source]
        return ranges, np.bincount(kind, minlength=len(sizes))

    def piece(self, block: Ints, phase: Ints) -> Ranges:
        """The range that each (block, phase) touches."""
        if self._all is not None:
            every, lengths = self._all
            at = (np.cumsum(lengths) - lengths)[self.kind[block]] + phase
            tensor = every.tensor[at]
            start = every.start[at] + self._shift[tensor, block]
            return Ranges(start, every.length[at], every.store[at], tensor)
        kinds, slot = _numbered(self.kind[block], len(self._keys))
        found = [self.ranges(int(kind)) for kind in kinds]
        offset = np.cumsum([0, *map(len, found[:-1])])
        at = offset[slot] + phase
        tensor = np.concatenate([r.tensor for r in found])[at]
        start = np.concatenate([r.start for r in found])[at] + self._shift[tensor, block]
        length = np.concatenate([r.length for r in found])[at]
        return Ranges(start, length, np.concatenate([r.store for r in found])[at], tensor)

    def ranges(self, kind: int) -> Ranges:
        """The ranges of one kind of block, at batch entry and head 0 where these do not matter."""
        known = self._kept.get(kind)
        if known is None:
            *values, backward = self._keys[kind].tolist()
            block = {"batch": 0, "head": 0} if self._shared else {}
            known = self._make(block | dict(zip(self._names, values, strict=True)), backward=bool(backward))
            self._kept[kind] = known
            self._size += len(known)
            while self._size > _KEPT_ACCESSES and len(self._kept) > 1:
                _, old = self._kept.popitem(last=False)
                self._size -= len(old)
        return known

    def _shifts(self, table: Mapping[str, Ints]) -> Ints:
        """Bytes from the first head to each block's own, [tensor, block]; zero where a kind is one head's."""
        many = len(next(iter(table.values())))
        if not self._shared:
            return np.zeros((len(self.places), many), dtype=np.int64)
        group = self.binding["H"] // self.binding["Hk"]
        heads = [table["head"] // group if place.shared else table["head"] for place in self.places]
        return np.stack(
            [(table["batch"] * p.heads + h) * p.head_bytes for p, h in zip(self.places, heads, strict=True)]
        )

    def _make(self, block: Mapping[str, int], *, backward: bool) -> Ranges:
        pieces = list(trace(self.program, self.kernel, block, self.binding, backward=backward))
        accesses = np.concatenate(pieces) if pieces else np.empty(0, ACCESS)
        return self._bytes(accesses)[0]

    def _bytes(self, accesses: Accesses) -> tuple[Ranges, Ints]:
        """Whole rows are one range, part of each row a range a row; and the access that each range is of."""
        table = {name: np.array([getattr(p, name) for p in self.places]) for name in ("cols", "itemsize")}
        tensor = accesses["tensor"]
        cols, itemsize = table["cols"][tensor], table["itemsize"][tensor]
        whole = (accesses["col_start"] == 0) & (accesses["col_stop"] == cols)
        tall = accesses["row_stop"] - accesses["row_start"]
        repeat = np.where(whole, 1, tall)
        source = np.repeat(np.arange(len(accesses)), repeat)
        row = np.arange(len(source)) - np.repeat(np.cumsum(repeat) - repeat, repeat)
        base = np.array([p.base_bytes for p in self.places])[tensor]
        heads = np.array([p.heads for p in self.places])[tensor]
        head_bytes = np.array([p.head_bytes for p in self.places])[tensor]
        head = accesses["batch"].astype(np.int64) * heads + accesses["head"]
        start = base + head * head_bytes + (accesses["row_start"] * cols + accesses["col_start"]) * itemsize
        width = (accesses["col_stop"] - accesses["col_start"]) * itemsize
        length = np.where(whole, tall * width, width)
        ranges = (start[source] + row * (cols * itemsize)[source], length[source])
        kept = ranges[1] > 0
        store, name = accesses["store"][source], tensor[source]
        return Ranges(ranges[0][kept], ranges[1][kept], store[kept], name[kept]), source[kept]


def _kinds(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The different rows of these columns of numbers from 0 up, sorted [kind, column], and the kind of each row."""
    sizes = tuple(int(column.max(initial=0)) + 1 for column in columns)
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        code = code * size + column
    if math.prod(sizes) <= _SPREAD * len(code):
        codes, kind = _numbered(code, math.prod(sizes))
    else:
        codes, kind = np.unique(code, return_inverse=True)
    return np.stack(np.unravel_index(codes, sizes), axis=1), kind


def _numbered(values: Ints, size: int) -> tuple[Ints, Ints]:
    """The different values below `size` in order, and the place of each value among them: `np.unique`, unsorted."""
    there = np.zeros(size, dtype=np.bool_)
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]


def _uses(body: tuple[Statement, ...], names: set[str]) -> bool:
    """Whether any region or loop bound of a kernel depends on these indices."""
    for statement in body:
        if isinstance(statement, Loop):
            if names & (statement.start.free | statement.stop.free) or _uses(statement.body, names):
                return True
        elif isinstance(statement, Load | Store):
            spans = (statement.region.rows, statement.region.cols)
            ends: list[Expr] = [e for span in spans for e in (span.start, span.stop)]
            if any(names & e.free for e in ends) or not _plain_head(statement.region):
                return True
    return False


def _plain_head(region: Region) -> bool:
    """Whether a region belongs to the block's own query head, or to the kv-head that this one reads."""
    head = index("head")
    return region.head is (head // (param("H") // param("Hk")) if region.tensor.shared else head)
