"""Thread blocks on SM slots, their accesses merged in the order of time, through the L2 down to HBM.

The hierarchy sees accesses only: programs give the traces, a schedule the order, `Policies` every assumption in
between. Kernels of one program run one after the other through the same L2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from iosim.errors import SimulationError
from iosim.interpret.trace import block_lengths, block_table
from iosim.memory.cache import Cache
from iosim.memory.config import READ, WRITE, Accesses, CacheConfig, CacheCounts
from iosim.memory.launch import backward_blocks, grid_order, launched, outside_loops
from iosim.memory.ragged_streams import RaggedTraces, ragged_table
from iosim.memory.schedule import Events, Ints, Schedule, Waves, interleave, waves
from iosim.memory.streams import BlockTraces, Ranges
from iosim.program.ir import Kernel, Program

MAX_BLOCKS = 4_000_000
MAX_ACCESSES = 2_000_000_000
"""Tile accesses of a kernel: a quarter of an hour."""
PIECE = 1 << 18  # events merged at a time
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Every assumption about how a kernel runs, by name. Printed with every result.

    `sms`, `blocks_per_sm`: the slots. `grid_order`: block index, fastest first. `launch`: a name of
    `schedule.ORDERS`. `head_group`: heads whose row tiles are launched together, the last rows first (0: as the grid
    has them). `kv_walk`: forward, backward or sawtooth. `skew`: standard deviation of a step's time.
    `spill_bytes_per_step`, `spill_bytes_per_block`: registers written to a private frame. `column_band`: tiles of keys
    that a grid over row and key tiles (i, j) goes through before the next ones, for every row tile; 0 is all of them.
    """

    sms: int
    blocks_per_sm: int = 1
    grid_order: Sequence[str] = ("row_tile", "head", "batch")
    launch: str = "grid"
    head_group: int = 0
    kv_walk: str = "forward"
    skew: float = 0.0
    spill_bytes_per_step: int = 0
    spill_bytes_per_block: int = 0
    column_band: int = 0
    seed: int = 1

    @property
    def slots(self) -> int:
        """Thread blocks that run at once."""
        return self.sms * self.blocks_per_sm

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"grid_order": list(self.grid_order)}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLevels:
    """What one kernel did: bytes its SMs read and wrote, the L2's counts, and how its blocks filled the slots.

    `steps` [blocks]: tile accesses inside the loops of each block, in the order of launch.
    """

    kernel: str
    sm_read_bytes: int
    sm_write_bytes: int
    spill_write_bytes: int
    cache: CacheCounts
    blocks: int
    waves: Waves
    steps: Ints = field(compare=False, repr=False)


def simulate_kernels(
    program: Program,
    binding: Mapping[str, int],
    policies: Policies,
    l2: CacheConfig,
    *,
    cold_kernels: bool = False,
    sequences: Sequence[Mapping[str, int]] = (),
    progress: Progress | None = None,
) -> list[KernelLevels]:
    """Run every kernel of the program through one L2 that starts cold (`cold_kernels`: cold for each of them).

    `sequences`: the letters of each sequence of a ragged batch (B = 1), in place of `binding`; one grid for all.
    `fetch_bytes` and `writeback_bytes` of the counts are HBM reads and writes; what is dirty at the end of a kernel
    stays in the L2. `progress`: told of tile accesses done and in all, kernel by kernel.
    Errors: `SimulationError` for a grid too large to simulate.
    """
    cache = Cache(l2)
    streams = range(len(program.tensors) + 1)  # the last one is the spilled registers
    out, before = [], [CacheCounts()] * len(streams)
    for kernel in program.kernels:
        if cold_kernels:
            cache, before = Cache(l2), [CacheCounts()] * len(streams)
        run = _KernelRun(program, kernel, binding, policies, l2, sequences, progress)
        for accesses in run.accesses(progress):
            cache.feed(accesses)
        after = [cache.counts(stream) for stream in streams]
        added = [_since(*pair) for pair in zip(before, after, strict=True)]
        counts = [
            _to_scale(c, int(r), int(w), l2)
            for c, r, w in zip(added, run.read_sectors_of, run.written_sectors_of, strict=True)
        ]
        out.append(
            KernelLevels(
                kernel=kernel.name,
                sm_read_bytes=int(run.read_of.sum()),
                sm_write_bytes=int(run.written_of[:-1].sum()),
                spill_write_bytes=int(run.written_of[-1]),
                cache=sum(counts, CacheCounts()),
                blocks=len(run.phases),
                waves=waves(run.steps, run.order, policies.slots),
                steps=run.steps[run.order],
            )
        )
        before = after
    return out


def launched_steps(
    program: Program, binding: Mapping[str, int], policies: Policies, l2: CacheConfig
) -> dict[str, Ints]:
    """`KernelLevels.steps` by kernel, without running any access through the L2."""
    found = {}
    for kernel in program.kernels:
        run = _KernelRun(program, kernel, binding, policies, l2)
        found[kernel.name] = run.steps[run.order]
    return found


def _since(before: CacheCounts, after: CacheCounts) -> CacheCounts:
    """What a kernel added; its dirty bytes are those of the whole cache when it ended."""
    added = {name: getattr(after, name) - getattr(before, name) for name in asdict(after)}
    return CacheCounts(**added | {"dirty_bytes": after.dirty_bytes})


def _to_scale(counts: CacheCounts, read_bytes: int, write_bytes: int, l2: CacheConfig) -> CacheCounts:
    """Counts of one tensor from sampled slices, scaled by what all of them see: bytes of whole sectors are known."""
    if not l2.sampled_slices:
        return counts
    read = read_bytes / counts.read_bytes if counts.read_bytes else 1.0
    written = write_bytes / counts.write_bytes if counts.write_bytes else 1.0
    both = read if read_bytes >= write_bytes else written
    factors = dict.fromkeys(("read_bytes", "read_hit_bytes", "fetch_bytes"), read) | {"fabric_bytes": both}
    factors |= dict.fromkeys(("write_bytes", "writeback_bytes", "dirty_bytes"), written)
    return replace(counts, **{name: round(getattr(counts, name) * f) for name, f in factors.items()})


class _KernelRun:
    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        binding: Mapping[str, int],
        policies: Policies,
        l2: CacheConfig,
        sequences: Sequence[Mapping[str, int]] = (),
        progress: Progress | None = None,
    ) -> None:
        self.policies, self.l2 = policies, l2
        if sequences:
            self.table, total = ragged_table(kernel, sequences, MAX_BLOCKS)
        else:
            self.table = block_table(kernel, binding, MAX_BLOCKS)
            total = int(block_lengths(kernel, self.table, binding).sum())
        if total > MAX_ACCESSES:
            raise SimulationError(
                f"kernel {kernel.name}: {total:,} tile accesses are too many to simulate; at most {MAX_ACCESSES:,}: "
                "take larger tiles, shorter sequences or fewer heads"
            )
        alive = partial(progress, 0, total) if progress else None  # long traces take a while to make
        order = grid_order(self.table, policies)
        backward = backward_blocks(order, policies)
        self.traces: BlockTraces | RaggedTraces
        if sequences:
            self.traces = RaggedTraces(program, kernel, sequences, self.table, backward, alive)
        else:
            self.traces = BlockTraces(program, kernel, binding, self.table, backward, alive)
        self.spill_stream = len(self.traces.places)
        self.phases = self.traces.phases
        self.before, self.after = outside_loops(kernel)
        self.steps = np.maximum(0, self.phases - self.before - self.after)
        self.order = launched(order, self.phases, self.steps, policies)
        self.read_of = np.zeros(self.spill_stream + 1, dtype=np.int64)  # bytes by tensor
        self.written_of = np.zeros(self.spill_stream + 1, dtype=np.int64)
        self.read_sectors_of = np.zeros_like(self.read_of)  # the same, every sector that is touched whole
        self.written_sectors_of = np.zeros_like(self.written_of)

    def accesses(self, progress: Progress | None = None) -> Iterator[Accesses]:
        """The merged accesses of all blocks, in pieces."""
        policies, done = self.policies, 0
        # loading Q_i and storing O_i take a block about as long as its K and V tiles do, so every phase counts
        schedule = Schedule(slots=policies.slots, skew=policies.skew, seed=policies.seed)
        phases = np.maximum(self.phases, 1)
        for events in interleave(phases, self.order, schedule, piece=PIECE):
            yield self._piece(events)
            done += len(events.block)
            if progress:
                progress(done, int(phases.sum()))

    def _piece(self, events: Events) -> Accesses:
        found = self.traces.piece(events.block, events.phase)
        kind = np.where(found.store, WRITE, READ).astype(np.uint8)
        pair = (events.slot % self.policies.sms) // 2
        side = (pair % self.l2.partitions).astype(np.uint8)  # pairs of SMs alternate between the sides
        sectors, covered = _whole_sectors(found, self.l2.sector_bytes)
        for store, total, whole in (
            (False, self.read_of, self.read_sectors_of),
            (True, self.written_of, self.written_sectors_of),
        ):
            chosen = found.store == store
            np.add.at(total, found.tensor[chosen], found.length[chosen])
            np.add.at(whole, found.tensor[chosen], covered[chosen])
        start = np.where(found.store, sectors, found.start)
        length = np.where(found.store, covered, found.length)
        columns = (start, length, kind, side, found.tensor.astype(np.uint8))
        if self.policies.spill_bytes_per_step:
            columns = self._with_spills(events, columns)
        return Accesses.of(columns[0], columns[1], kind=columns[2], side=columns[3], stream=columns[4])

    def _with_spills(self, events: Events, columns: Any) -> Any:
        """After each K/V step the slot's private frame is written; at the first step of a block all of it."""
        step = events.phase - self.before
        inside = (step >= 0) & (events.phase < self.phases[events.block] - self.after)
        ends = np.flatnonzero(inside & (step % 2 == 1))  # a step reads K_j and V_j
        policies = self.policies
        frame = policies.spill_bytes_per_step + policies.spill_bytes_per_block
        base = -(-self.traces.end_bytes // self.l2.line_bytes) * self.l2.line_bytes
        room = -(-frame // self.l2.line_bytes) * self.l2.line_bytes
        size = np.where(step[ends] == 1, frame, policies.spill_bytes_per_step)
        self.written_of[-1] += int(size.sum())
        sector = self.l2.sector_bytes
        self.written_sectors_of[-1] += int((-(-size // sector)).sum()) * sector
        spilled = (
            base + events.slot[ends] * room,
            size,
            WRITE,
            columns[3][ends],
            self.spill_stream,
        )
        return tuple(
            np.insert(column, ends + 1, value) for column, value in zip(columns, spilled, strict=True)
        )


def _whole_sectors(found: Ranges, sector: int) -> tuple[Ints, Ints]:
    """Start and length of the sectors that each range touches.

    A store is widened to them: the L2 keeps which bytes of a sector were written and fetches nothing for the rest; a
    neighbouring tile fills it.
    """
    first = found.start // sector * sector
    return first, -(-(found.start + found.length) // sector) * sector - first
