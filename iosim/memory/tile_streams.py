"""Streams of a kernel's tile accesses: its thread blocks one after the other, or merged by a schedule.

An access is one load or store of a program's trace, whole. Nothing is held but a piece of the stream and, for a merged
one, the traces of the blocks that are running (one for all heads where heads do not change it).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iosim.errors import SimulationError
from iosim.interpret.trace import ACCESS, Accesses, block_lengths, block_table, grids, trace, trace_blocks
from iosim.memory.hierarchy import Policies
from iosim.memory.launch import backward_blocks, grid_order, launched, outside_loops
from iosim.memory.schedule import Schedule, interleave
from iosim.program.ir import Accumulate, Kernel, Load, Loop, Program, Statement, Store

Ints = NDArray[np.int64]
PIECE = 1 << 17
"""Accesses in a piece: 6 MB."""
MOST_BLOCKS = 4_000_000
MOST_ACCESSES = 4_000_000_000
"""A stream of this length takes a quarter of an hour; a longer one is a typing error."""
MOST_OF_A_BLOCK = 12_000_000
"""Accesses of one block whose trace a merged stream has to hold: 500 MB."""
_KEPT = 4_000_000  # accesses of traces kept for blocks to come
_HEADS = {"batch", "head", "kv_head"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Accesses in order; of each, its block (its number in the kernel's grid), step in that block, and slot."""

    accesses: Accesses
    block: Ints
    step: Ints
    slot: Ints

    def __len__(self) -> int:
        return len(self.block)


class KernelStream:
    """The accesses of one kernel. `lengths` [blocks]: accesses of each block, in grid order."""

    def __init__(self, program: Program, kernel: Kernel, binding: Mapping[str, int]) -> None:
        self.program, self.kernel, self.binding = program, kernel, dict(binding)
        self.table = block_table(kernel, binding, MOST_BLOCKS)
        if list(self.table)[:2] not in (["batch", "head"], ["batch", "kv_head"]):
            raise SimulationError(
                f"kernel {kernel.name}: its grid must begin with batch and head, got {list(self.table)}"
            )
        lengths = block_lengths(kernel, self.table, binding)
        self.total = int(lengths.sum())
        """Accesses of all blocks."""
        if self.total > MOST_ACCESSES:
            raise SimulationError(
                f"kernel {kernel.name}: {self.total:,} tile accesses are too many to follow; at most "
                f"{MOST_ACCESSES:,}: take larger tiles or a shorter sequence"
            )
        self.lengths: Ints = lengths.astype(np.int64)
        self.heads_alike = not _depends(_body(kernel), _HEADS)
        shown = list(self.table)[2:] if self.heads_alike else list(self.table)
        self._keys = [self.table[name] for name in shown]

    def in_turn(self) -> Iterator[Piece]:
        """All blocks, one after the other in grid order."""
        yield from self._run(np.arange(len(self.lengths)))

    def distinct(self) -> Iterator[Piece]:
        """One block of each kind: blocks that differ only in batch entry and head are alike. Others are left out."""
        yield from self._run(self._kinds()[0])

    @property
    def copies(self) -> int:
        """How many blocks there are of each kind."""
        return len(self.lengths) // max(1, len(self._kinds()[0]))

    def merged(self, policies: Policies) -> Iterator[Piece]:
        """All blocks in the order of time."""
        if int(self.lengths.max(initial=0)) > MOST_OF_A_BLOCK:
            raise SimulationError(
                f"kernel {self.kernel.name}: a thread block makes {int(self.lengths.max()):,} tile accesses, too many "
                f"to merge with others; at most {MOST_OF_A_BLOCK:,}: take larger tiles or a shorter sequence"
            )
        order = grid_order(self.table, policies)
        backward = backward_blocks(order, policies)
        steps = np.maximum(0, self.lengths - sum(outside_loops(self.kernel)))
        start = launched(order, self.lengths, steps, policies)
        schedule = Schedule(slots=policies.slots, skew=policies.skew, seed=policies.seed)
        kept = _Kept(self, *self._kinds(backward), backward)
        for events in interleave(np.maximum(self.lengths, 1), start, schedule, piece=PIECE):
            accesses = kept.lookup(events.block, events.phase)
            yield Piece(accesses, events.block, events.phase, events.slot)

    def _kinds(self, backward: NDArray[np.bool_] | None = None) -> tuple[Ints, Ints]:
        """The first block of each kind, and the kind of each block."""
        keys = [*self._keys, *([] if backward is None else [backward])]
        if not keys:
            return np.zeros(1, np.int64), np.zeros(len(self.lengths), np.int64)
        _, first, kind = np.unique(np.stack(keys, axis=1), axis=0, return_index=True, return_inverse=True)
        return first, kind

    def _run(self, blocks: Ints) -> Iterator[Piece]:
        """These blocks one after the other: short ones together, a long one in pieces."""
        ends = np.cumsum(self.lengths[blocks])
        start = 0
        while start < len(blocks):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + PIECE, side="right")))
            some = blocks[start:stop]
            if int(self.lengths[some[0]]) > PIECE:
                yield from self._long(int(some[0]))
            elif int(ends[stop - 1]) > before:
                yield _in_turn(self.traced(some), some, self.lengths[some])
            start = stop

    def _long(self, block: int) -> Iterator[Piece]:
        done = 0
        for accesses in trace(self.program, self.kernel, self.values(block), self.binding):
            step = np.arange(done, done + len(accesses))
            yield Piece(accesses, np.full(len(step), block), step, np.zeros(len(step), np.int64))
            done += len(accesses)

    def traced(self, blocks: Ints) -> Accesses:
        """The accesses of a few short blocks, one after the other."""
        return trace_blocks(
            self.program, self.kernel, {n: c[blocks] for n, c in self.table.items()}, self.binding
        )

    def values(self, block: int) -> dict[str, int]:
        """The grid indices of a block."""
        return {name: int(column[block]) for name, column in self.table.items()}

    def head_shifts(self) -> Ints:
        """How far a block's heads lie from those of the first one, [tensor, block]."""
        tensors = list(self.program.tensors.values())
        group, own = self.binding["H"] // self.binding["Hk"], list(self.table)[1]
        head = self.table[own]
        shared, alone = (head // group, head) if own == "head" else (head, head * group)
        return np.stack(
            [0 * head if tensor.single else shared if tensor.shared else alone for tensor in tensors]
        )


class _Kept:
    """The traces of the kinds of blocks that are running."""

    def __init__(self, stream: KernelStream, first: Ints, kind: Ints, backward: NDArray[np.bool_]) -> None:
        self._stream, self._first, self._kind, self._backward = stream, first, kind, backward
        shown = first[kind]  # the block that each one's trace is taken from
        heads = stream.head_shifts()
        self._shift = heads - heads[:, shown]
        self._batch = stream.table["batch"] - stream.table["batch"][shown]
        self._known: OrderedDict[int, Accesses] = OrderedDict()

    def lookup(self, block: Ints, step: Ints) -> Accesses:
        """The access of each (block, step)."""
        kinds, slot = np.unique(self._kind[block], return_inverse=True)
        self._fetch(kinds)
        found = [self._known[kind] for kind in kinds.tolist()]
        if len(found) == 1:
            out = found[0][step]
        elif sum(map(len, found)) <= 8 * PIECE:
            offset = np.cumsum([0, *map(len, found[:-1])])
            out = np.concatenate(found)[offset[slot] + step]
        else:
            out = np.empty(len(step), ACCESS)
            by_kind = np.argsort(slot, kind="stable")
            for own in np.split(by_kind, np.flatnonzero(np.diff(slot[by_kind])) + 1):
                out[own] = found[slot[own[0]]][step[own]]
        out["batch"] += self._batch[block].astype(np.int32)
        out["head"] += self._shift[out["tensor"], block].astype(np.int32)
        return out

    def _fetch(self, kinds: Ints) -> None:
        missing = np.array([k for k in kinds.tolist() if k not in self._known], dtype=np.int64)
        turned = self._backward[self._first[missing]]
        for kind in missing[turned].tolist():
            block = self._stream.values(int(self._first[kind]))
            pieces = trace(
                self._stream.program, self._stream.kernel, block, self._stream.binding, backward=True
            )
            self._known[kind] = np.concatenate([*pieces])
        for some in self._together(missing[~turned]):
            blocks = self._first[some]
            lengths = self._stream.lengths[blocks]
            traces = np.split(self._stream.traced(blocks), np.cumsum(lengths)[:-1])
            self._known.update(zip(some.tolist(), traces, strict=True))
        self._forget(set(kinds.tolist()))

    def _together(self, kinds: Ints) -> Iterator[Ints]:
        """Kinds that are traced in one go."""
        if len(kinds):
            ends = np.cumsum(self._stream.lengths[self._first[kinds]])
            yield from np.split(kinds, np.flatnonzero(np.diff(ends // (8 * PIECE))) + 1)

    def _forget(self, needed: set[int]) -> None:
        size = sum(map(len, self._known.values()))
        for kind in [k for k in self._known if k not in needed]:
            if size <= _KEPT:
                return
            size -= len(self._known.pop(kind))


def _in_turn(accesses: Accesses, blocks: Ints, lengths: Ints) -> Piece:
    step = np.arange(len(accesses)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Piece(accesses, np.repeat(blocks, lengths), step, np.zeros(len(accesses), np.int64))


def _body(kernel: Kernel) -> tuple[Statement, ...]:
    loops = grids(kernel)
    return (loops[2],) if len(loops) > 2 else loops[-1].body


def _depends(body: tuple[Statement, ...], names: set[str]) -> bool:
    """Whether the rows, columns or loop bounds of a kernel depend on these indices."""
    for statement in body:
        if isinstance(statement, Loop):
            if names & (statement.start.free | statement.stop.free) or _depends(statement.body, names):
                return True
        elif isinstance(statement, Load | Store | Accumulate):
            region = statement.region
            ends = (region.rows.start, region.rows.stop, region.cols.start, region.cols.stop)
            if any(names & end.free for end in ends):
                return True
    return False
