"""Traffic against every capacity at once, from the trace of a tile program alone.

The memory is one fully associative LRU that holds whole tiles, the program's own: a touch hits exactly if the distinct
bytes touched since the last touch, the tile's own included, fit. A written tile is not fetched; a dirty one is written
back when it falls out, or at the end. Three streams of tile accesses can pass through it:

*in turn*  all thread blocks one after the other through one memory: the sequential machine of the bounds
*alone*    every thread block through a memory of its own that starts empty: a GPU's SRAM
*merged*   all thread blocks in the order of a schedule through one memory: a GPU's L2, without sets and partitions
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.algorithms.registry import Algorithm
from iosim.analysis import theory_beside
from iosim.interpret.binding import bind
from iosim.interpret.footprint import footprint
from iosim.interpret.trace import Accesses
from iosim.memory.hierarchy import Policies
from iosim.memory.stack_distance import MissCurve, StackDistance, add_curves
from iosim.memory.tile_names import TileNames
from iosim.memory.tile_streams import PIECE, KernelStream, Piece
from iosim.problem import AttentionProblem, TileShape
from iosim.program.ir import Program

Ints = NDArray[np.int64]
Progress = Callable[[int, int], None]
"""Called with (accesses done, accesses in all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is read off: an algorithm on a problem, with its options resolved and its tile chosen.

    `live_bytes`: what a thread block holds on chip at its worst moment (Q, K, V, O tiles), beside any LRU.
    """

    algorithm: Algorithm
    problem: AttentionProblem
    options: Mapping[str, str]
    tile: TileShape
    program: Program
    live_bytes: int

    @staticmethod
    def of(
        algorithm: Algorithm, problem: AttentionProblem, options: Mapping[str, str], tile: TileShape
    ) -> Run:
        """`options` as the algorithm resolves them."""
        program = algorithm.program(problem.mask.kind, options)
        held = footprint(program, "paper", bind(problem, tile))
        return Run(
            algorithm=algorithm,
            problem=problem,
            options=dict(options),
            tile=tile,
            program=program,
            live_bytes=int(held.sram_bytes),
        )

    @property
    def binding(self) -> dict[str, int]:
        """The letters of the program."""
        return bind(self.problem, self.tile)

    def streams(self) -> list[KernelStream]:
        """The accesses of each kernel. Errors: `SimulationError` for too many."""
        return [KernelStream(self.program, kernel, self.binding) for kernel in self.program.kernels]

    def floor(self, on_chip_bytes: int) -> dict[str, int]:
        """Lower bounds by name that hold for this program with an LRU beside its tile, so many bytes on chip in all.

        Reads and writes. Bounds that need S to leave the chip say nothing here (an LRU may hold S), nor those that
        need a forward and a backward pass to share nothing on chip: of both passes, the backward's hold.
        """
        spills = self.program.spills_scores and self.algorithm.computes != "scores"
        options = self.options
        if options.get("pass") == "fwd+bwd":
            options = {**options, "pass": "bwd"}
        theory = theory_beside(
            self.algorithm,
            self.program,
            self.problem,
            options,
            self.tile if self.algorithm.tiled else None,
            sram_bytes=max(1, on_chip_bytes),
            fits=True,
        )
        found = {b.name: b.bytes for b in theory.bounds if b.valid and b.bytes is not None}
        return {"compulsory": theory.compulsory_bytes} if spills else found


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityCurve:
    """Bytes that one stream moves to and from the next level, at any capacity.

    `stream`: in turn, alone or merged. `beside_bytes`: what the thread blocks hold themselves, beside the LRU.
    `tensor_bytes`: the size of each tensor, by name. `accesses`: tile accesses followed.
    """

    stream: str
    flushed: MissCurve
    running: MissCurve
    beside_bytes: int
    tensor_bytes: Mapping[str, int]
    accesses: int

    @property
    def capacities_bytes(self) -> Ints:
        """Every capacity at which fewer bytes move than just below it, ascending."""
        return self.flushed.capacities_bytes

    def read_bytes(self, capacity_bytes: Any) -> Ints:
        """Bytes read from the next level."""
        return self.flushed.fetch_bytes(capacity_bytes)

    def write_bytes(self, capacity_bytes: Any) -> Ints:
        """Bytes written to the next level, what is dirty at the end included."""
        return self.flushed.writeback_bytes(capacity_bytes)

    def dirty_bytes(self, capacity_bytes: Any) -> Ints:
        """Bytes of these that are still in the memory when the program ends."""
        return self.write_bytes(capacity_bytes) - self.running.writeback_bytes(capacity_bytes)

    def total_bytes(self, capacity_bytes: Any) -> Ints:
        """Bytes moved, both ways."""
        return self.read_bytes(capacity_bytes) + self.write_bytes(capacity_bytes)

    def passes(self, tensor: str, capacity_bytes: Any) -> NDArray[np.float64]:
        """How many times a tensor is read: bytes read of it over its size."""
        group = list(self.tensor_bytes).index(tensor)
        return self.flushed.fetch_bytes_of(group, capacity_bytes) / max(1, self.tensor_bytes[tensor])


def in_turn_curve(run: Run, progress: Progress | None = None) -> CapacityCurve:
    """One memory, all thread blocks one after the other in grid order, kernel after kernel."""
    streams = run.streams()
    pieces = (piece for stream in streams for piece in stream.in_turn())
    return _one_memory(run, streams, "in turn", pieces, run.live_bytes, progress)


def merged_curve(run: Run, policies: Policies, progress: Progress | None = None) -> CapacityCurve:
    """One memory, the thread blocks merged in the order of a schedule, kernel after kernel."""
    streams = run.streams()
    pieces = (piece for stream in streams for piece in stream.merged(policies))
    return _one_memory(run, streams, "merged", pieces, run.live_bytes * policies.slots, progress)


def alone_curve(run: Run, progress: Progress | None = None) -> CapacityCurve:
    """A memory for each thread block, empty at its start and written back at its end; the bytes of all blocks."""
    streams = run.streams()
    names, total = _names(run, streams), sum(len(s.lengths) and s.total // s.copies for s in streams)
    curves, done = [], 0
    for stream in streams:
        for curve, accesses in _alone(stream, names, len(run.program.tensors)):
            curves.append((curve, stream.copies))
            done += accesses
            if progress:
                progress(done, total)
    whole = add_curves(curves)
    return CapacityCurve(
        stream="alone",
        flushed=whole,
        running=whole,
        beside_bytes=run.live_bytes,
        tensor_bytes=_tensor_bytes(run, names),
        accesses=sum(s.total for s in streams),
    )


def _one_memory(
    run: Run,
    streams: list[KernelStream],
    name: str,
    pieces: Iterable[Piece],
    beside_bytes: int,
    progress: Progress | None,
) -> CapacityCurve:
    names, total, done = _names(run, streams), sum(s.total for s in streams), 0
    distance = StackDistance(names.sizes_bytes, names.tensor, len(run.program.tensors))
    for piece in pieces:
        for tiles, written, _ in names.touches(piece.accesses):
            distance.feed(tiles, written)
        done += len(piece)
        if progress:
            progress(done, total)
    return CapacityCurve(
        stream=name,
        flushed=distance.curve(flushed=True),
        running=distance.curve(),
        beside_bytes=beside_bytes,
        tensor_bytes=_tensor_bytes(run, names),
        accesses=total,
    )


def _alone(stream: KernelStream, names: TileNames, tensors: int) -> Iterator[tuple[MissCurve, int]]:
    """The curves of blocks of each kind, several short blocks in one."""
    long, current = None, -1
    for piece in stream.distinct():
        block = int(piece.block[0])
        if stream.lengths[block] <= PIECE:
            yield _short_blocks(piece, names, tensors), len(piece)
            continue
        if block != current:
            if long is not None:
                yield long.curve(flushed=True), 0
            long, current = StackDistance(names.sizes_bytes, names.tensor, tensors), block
        assert long is not None
        for tiles, written, _ in names.touches(piece.accesses):
            long.feed(tiles, written)
    if long is not None:
        yield long.curve(flushed=True), int(stream.lengths[current])


def _short_blocks(piece: Piece, names: TileNames, tensors: int) -> MissCurve:
    """Whole blocks through memories of their own: tiles of different blocks are different tiles of one memory.

    Between two touches by one block only its own tiles are touched, so every distance is that of its own memory.
    """

    def named() -> Iterator[tuple[Ints, NDArray[np.bool_]]]:
        for tiles, written, source in names.touches(piece.accesses):
            yield piece.block[source] * len(names.sizes_bytes) + tiles, written

    known = np.unique(np.concatenate([np.unique(name) for name, _ in named()]))
    if not len(known):
        known = np.zeros(1, np.int64)
    tile = known % len(names.sizes_bytes)
    distance = StackDistance(names.sizes_bytes[tile], names.tensor[tile], tensors)
    for name, written in named():
        distance.feed(np.searchsorted(known, name), written)
    return distance.curve(flushed=True)


def _names(run: Run, streams: list[KernelStream]) -> TileNames:
    """Numbers for the tiles that all kernels together cut slow memory into."""

    def accesses() -> Iterator[Accesses]:
        for stream in streams:
            for piece in stream.distinct():
                yield piece.accesses

    return TileNames(run.program, run.binding, accesses())


def _tensor_bytes(run: Run, names: TileNames) -> dict[str, int]:
    return dict(zip(run.program.tensors, names.tensor_bytes, strict=True))
