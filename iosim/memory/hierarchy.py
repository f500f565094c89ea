"""Thread blocks on SM slots, their accesses merged in the order of time, through the L2 down to HBM.

The hierarchy sees accesses only: programs give the traces, a schedule the order, `Policies` every assumption in
between. Kernels of one program run one after the other through the same L2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from iosim.errors import SimulationError
from iosim.interpret.trace import blocks, grids
from iosim.memory.cache import Cache
from iosim.memory.config import READ, WRITE, Accesses, CacheConfig, CacheCounts
from iosim.memory.schedule import Events, Ints, Schedule, Waves, interleave, launch_order, waves
from iosim.memory.streams import BlockTraces, Ranges
from iosim.program.ir import Kernel, Load, Loop, Program, Store

MAX_BLOCKS = 4_000_000
PIECE = 1 << 18  # events merged at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Every assumption about how a kernel runs, by name. Printed with every result.

    `sms`, `blocks_per_sm`: the slots. `grid_order`: block index, fastest first. `launch`: a name of
    `schedule.ORDERS`. `kv_walk`: forward, backward or sawtooth. `skew`: standard deviation of a step's time.
    `spill_bytes_per_step`, `spill_bytes_per_block`: registers written to a private frame.
    """

    sms: int
    blocks_per_sm: int = 1
    grid_order: Sequence[str] = ("row_tile", "head", "batch")
    launch: str = "grid"
    kv_walk: str = "forward"
    skew: float = 0.0
    spill_bytes_per_step: int = 0
    spill_bytes_per_block: int = 0
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
    """What one kernel did: bytes its SMs read and wrote, the L2's counts, and how its blocks filled the slots."""

    kernel: str
    sm_read_bytes: int
    sm_write_bytes: int
    spill_write_bytes: int
    cache: CacheCounts
    blocks: int
    waves: Waves


def simulate_kernels(
    program: Program, binding: Mapping[str, int], policies: Policies, l2: CacheConfig
) -> list[KernelLevels]:
    """Run every kernel of the program through one L2 that starts cold.

    `fetch_bytes` and `writeback_bytes` of the counts are HBM reads and writes; what is dirty at the end of a kernel
    stays in the L2. Errors: `SimulationError` for a grid too large to simulate.
    """
    cache = Cache(l2)
    out, before = [], CacheCounts()
    for kernel in program.kernels:
        run = _KernelRun(program, kernel, binding, policies, l2)
        moved = [0, 0, 0]
        for accesses in run.accesses():
            cache.feed(accesses)
            spilled = accesses.stream == run.spill_stream
            for way, chosen in enumerate(
                (accesses.kind == READ, (accesses.kind == WRITE) & ~spilled, spilled)
            ):
                moved[way] += int(accesses.length_bytes[chosen].sum())
        after = cache.counts()
        out.append(
            KernelLevels(
                kernel=kernel.name,
                sm_read_bytes=moved[0],
                sm_write_bytes=moved[1],
                spill_write_bytes=moved[2],
                cache=_since(before, after),
                blocks=len(run.grid),
                waves=waves(run.steps, run.order, policies.slots),
            )
        )
        before = after
    return out


def _since(before: CacheCounts, after: CacheCounts) -> CacheCounts:
    """What a kernel added; its dirty bytes are those of the whole cache when it ended."""
    added = {name: getattr(after, name) - getattr(before, name) for name in asdict(after)}
    return CacheCounts(**added | {"dirty_bytes": after.dirty_bytes})


class _KernelRun:
    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        binding: Mapping[str, int],
        policies: Policies,
        l2: CacheConfig,
    ) -> None:
        self.policies, self.l2 = policies, l2
        self.traces = BlockTraces(program, kernel, binding, walk=policies.kv_walk)
        self.spill_stream = len(self.traces.places)
        self.grid = list(_limited(blocks(kernel, binding), kernel.name))
        lengths = {}
        for block in self.grid:  # one length for each distinct inner index: batch and head do not change it
            inner = tuple(block[name] for name in self.traces.inner)
            if inner not in lengths:
                lengths[inner] = len(self.traces.ranges(block, 0))
        self.phases = np.array(
            [lengths[tuple(b[n] for n in self.traces.inner)] for b in self.grid], dtype=np.int64
        )
        self.before, self.after = _outside_loops(kernel)
        self.steps = np.maximum(0, self.phases - self.before - self.after)
        self.order = self._order(kernel)
        self.position = np.empty(len(self.grid), dtype=np.int64)
        self.position[self.order] = np.arange(len(self.order))

    def _order(self, kernel: Kernel) -> Ints:
        """Launch order: the grid's own axes permuted, then the named order; blocks without accesses are left out."""
        axes = {"row_tile": self.traces.inner, "head": ["head"], "batch": ["batch"]}
        names = [name for axis in reversed(self.policies.grid_order) for name in axes[axis]]
        keys = [np.array([block[name] for block in self.grid]) for name in reversed(names)]
        permuted = np.lexsort(keys) if keys else np.arange(len(self.grid))
        order = permuted[launch_order(self.steps[permuted], self.policies.launch)]
        return np.asarray(order[self.phases[order] > 0])

    def accesses(self) -> Iterator[Accesses]:
        """The merged accesses of all blocks, in pieces."""
        policies = self.policies
        # loading Q_i and storing O_i take a block about as long as its K and V tiles do, so every phase counts
        schedule = Schedule(slots=policies.slots, skew=policies.skew, seed=policies.seed)
        phases = np.maximum(self.phases, 1)  # empty blocks are not in the order
        for events in interleave(phases, self.order, schedule, piece=PIECE):
            yield self._piece(events)

    def _piece(self, events: Events) -> Accesses:
        start, length = np.empty(len(events), np.int64), np.empty(len(events), np.int64)
        kind, stream = np.empty(len(events), np.uint8), np.empty(len(events), np.uint8)
        by_block = np.argsort(events.block, kind="stable")
        cuts = np.flatnonzero(np.diff(events.block[by_block])) + 1
        for group in np.split(by_block, cuts):
            block = int(events.block[group[0]])
            found = self._ranges(block)
            phase = events.phase[group]
            start[group], length[group] = found.start[phase], found.length[phase]
            kind[group], stream[group] = np.where(found.store[phase], WRITE, READ), found.tensor[phase]
        side = (
            (events.slot % self.policies.sms) // 2 % self.l2.partitions
        )  # SM pairs alternate between the sides
        columns = (start, length, kind, side.astype(np.uint8), stream)
        if self.policies.spill_bytes_per_step:
            columns = self._with_spills(events, columns)
        return Accesses.of(columns[0], columns[1], kind=columns[2], side=columns[3], stream=columns[4])

    def _ranges(self, block: int) -> Ranges:
        return self.traces.ranges(self.grid[block], int(self.position[block]))

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


def _limited(grid: Iterator[dict[str, int]], name: str) -> Iterator[dict[str, int]]:
    for number, block in enumerate(grid):
        if number >= MAX_BLOCKS:
            raise SimulationError(f"kernel {name}: more than {MAX_BLOCKS} thread blocks; take larger tiles")
        yield block


def _outside_loops(kernel: Kernel) -> tuple[int, int]:
    """Accesses of a block before its first and after its last sequential loop."""
    body = kernel.body
    for loop in grids(kernel):
        body = loop.body
    moves = [isinstance(s, Load | Store) for s in body]
    loops = [i for i, s in enumerate(body) if isinstance(s, Loop)]
    return (sum(moves[: loops[0]]), sum(moves[loops[-1] + 1 :])) if loops else (0, 0)
