"""Bytes and time of a design: bytes counted with the tile program, time by the terms of `iosim.roofline`.

Beside those terms a comparison of tiles needs what one kernel's own tile hides, since there it is part of its share:

* the rows of a tile cost instructions whatever its width: O is rescaled, one a value. A class's share holds this at the
  width it was fitted at (`fitted_on`), so only the difference to that width is added; backward likewise the
  operands that warps read, beyond those of that tile;
* nothing hides the first K and V tile of a block that has no warps of its own to load: the latency of HBM, with Q, and
  the tile's bytes at the SM's share of the L2, where blocks of the same head have had it;
* registers that a tight design spills go out and in again in every step;
* a block that has its SM to itself shows the latencies of each step (`ALONE_CLK`), at which all of its warps wait;
* a wgmma reads its operands from shared memory itself, which is hidden until it takes longer than the matmul;
* the L2 feeds the SMs at a bandwidth of its own, and an SM that works draws no more than its share of it;
* a tile is not there before the memory has answered: with s stages a block asks for a tile s − 1 tiles ahead, so that
  in a latency no more than s − 1 tiles of each resident block are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.algorithms.registry import find_algorithm
from iosim.errors import UsageError
from iosim.hardware import HardwareProfile
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.interpret.launch import loop_trips, thread_blocks
from iosim.kernels import CLASSES, load_kernel
from iosim.memory.schedule import launch_order
from iosim.onchip import on_chip
from iosim.problem import AttentionProblem, TileShape
from iosim.program.ir import Program
from iosim.roofline import FusedWork, Machine, Prediction, predict_both
from iosim.roofline.backward import backward_work
from iosim.roofline.machine import ISSUE_LANES
from iosim.roofline.work import masked_tiles, warpgroups
from iosim.tune.design import Design, Fit, padded

Ints = NDArray[np.int64]
TURN_CLK = 165.0
"""What a step of a wgmma warpgroup takes beside its products and its softmax: turns, barriers, the first product's way
through the tensor cores. Twice a tile of 64 columns less one of 128: 115 to 202, of six pairs in
validation/measurements/h200/wgmma_tiles.csv."""
ALONE_CLK = 100.0
"""Clocks of a step that a second resident block would hide: a barrier, the first operands, a chain of dependent mma and
shuffles. Tiles of our own kernel show 40 to 400 (docs/tuning.md); the wgmma kernels that were fitted hold theirs."""
L2_BYTES_PER_CLK_SM = 36.0
"""Reads of one SM from the L2: 9.4 TB/s of 132 SMs at 1.98 GHz (H200); 35 on A100 and H100 PCIe (their profiles). Taken
for GPUs that nobody measured."""
LATENCY_CLK = MappingProxyType({"l2": 281.0, "hbm": 690.0})
"""Clocks until a read is answered, of a GH200 (its profile). Taken for GPUs that nobody measured."""
MOST_BLOCKS = 4_000_000
"""Of a design: each of them is placed on an SM, in a second or so."""
ROWS = 16
"""Row tiles that hold all rows are alike: the steps of one stand for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """One run, each of many runs, and two floors in seconds (start included): the L2's bandwidth, and the latency."""

    once: Prediction
    repeated: Prediction
    l2_s: float
    latency_s: float

    @property
    def seconds(self) -> float:
        """One run: the prediction, or a floor where that takes longer."""
        return max(self.once.seconds, self.l2_s, self.latency_s)

    @property
    def low_s(self) -> float:
        """Lower end of the range."""
        return self.once.low_s * self.seconds / self.once.seconds

    @property
    def high_s(self) -> float:
        """Upper end of the range."""
        return self.once.high_s * self.seconds / self.once.seconds

    @property
    def repeated_s(self) -> float:
        """Each of many runs."""
        return max(self.repeated.seconds, self.l2_s, self.latency_s)

    @property
    def limit(self) -> str:
        """The largest term."""
        if self.seconds == self.once.seconds:
            return self.once.limit
        return "L2" if self.l2_s >= self.latency_s else "latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What every design is asked to compute: a problem, a class of kernels, a GPU, forward or backward.

    `packed`: a group's query heads are rows of one tile (few rows), by the program of `decode`; it can split its keys.
    """

    problem: AttentionProblem
    kernel_class: str
    gpu: HardwareProfile
    passes: str
    packed: bool

    @property
    def backward(self) -> bool:
        """The backward pass."""
        return self.passes == "bwd"

    @property
    def seen(self) -> AttentionProblem:
        """The problem as the tiles see it: a single query's heads are rows."""
        return self.problem.packed_heads() if self.packed else self.problem

    def program(self, splits: int) -> Program:
        """The tile program that is counted. `UsageError` for a mask it has not."""
        if not self.packed:
            return _program("flash2", self.problem.mask.kind, (("pass", self.passes),))
        text = "1" if splits == 1 else "2"
        return _program("decode", self.problem.mask.kind, (("pack-gqa", "on"), ("splits", text)))

    def binding(self, design: Design) -> dict[str, int]:
        """The letters of that program."""
        extra = {"splits": design.splits} if design.splits > 1 else {}
        return bind(self.problem, design.tile) | extra


@lru_cache(maxsize=64)
def _program(name: str, mask: str, options: tuple[tuple[str, str], ...]) -> Program:
    found = find_algorithm(name)
    return found.program(mask, found.resolve(dict(options)))


def sm_bytes(load: Workload, designs: Sequence[Design]) -> list[int]:
    """Bytes between slow memory and the SMs of each design, exact; designs with as many splits are counted at once."""
    out = [0] * len(designs)
    for many in (False, True):
        chosen = [i for i, d in enumerate(designs) if (d.splits > 1) is many]
        if not chosen:
            continue
        binding: dict[str, Any] = dict(bind(load.problem, designs[chosen[0]].tile))
        binding["Br"] = np.array([designs[i].tile.rows for i in chosen])
        binding["Bc"] = np.array([designs[i].tile.cols for i in chosen])
        if many:
            binding["splits"] = np.array([designs[i].splits for i in chosen])
        total = np.asarray(count(load.program(2 if many else 1), binding).total_bytes)
        for i, value in zip(chosen, np.broadcast_to(total, (len(chosen),)).tolist(), strict=True):
            out[i] = int(value)
    return out


def partial_bytes(load: Workload, splits: int) -> int:
    """Bytes of partial results, written and read again, whatever the tile; 0 without splits."""
    if splits == 1:
        return 0
    binding = bind(load.problem, TileShape(rows=ROWS, cols=ROWS)) | {"splits": splits}
    return _partial_bytes(load.program(2), tuple(sorted(binding.items())))


@lru_cache(maxsize=64)
def _partial_bytes(program: Program, binding: tuple[tuple[str, int], ...]) -> int:
    tally = count(program, dict(binding))
    parts = ("O_parts", "LSE_parts")
    return int(sum(tally.read_bytes.get(n, 0) + tally.write_bytes.get(n, 0) for n in parts))


def blocks_of(load: Workload, design: Design) -> int:
    """Thread blocks of the main kernel."""
    found = thread_blocks(load.program(design.splits), load.binding(design))
    return int(next(iter(found.values())))


def check_blocks(load: Workload, designs: Sequence[Design]) -> None:
    """`UsageError` where a design has more thread blocks than can be timed one by one."""
    one_each = {(d.tile, d.splits): d for d in designs}.values()
    most, design = max(((blocks_of(load, d), d) for d in one_each), key=lambda pair: pair[0])
    if most > MOST_BLOCKS:
        raise UsageError(
            f"tile {design.tile}: {most:,} thread blocks are too many to time; at most {MOST_BLOCKS:,}: ask for fewer "
            "heads or a smaller batch: once they fill the GPU some times over, the best tile hardly depends on them"
        )


def steps_of(load: Workload, design: Design) -> Ints:
    """K/V tiles of every block in launch order: those of one head, for all heads."""
    one = replace(load.problem, batch=1, heads=load.problem.group_size if load.packed else 1, kv_heads=1)
    alone = replace(load, problem=one)
    binding = alone.binding(design)
    binding["Br"] = (
        min(binding["Br"], -(-(one.seq_q * one.group_size) // ROWS) * ROWS) if load.packed else binding["Br"]
    )
    found = _head_steps(alone.program(design.splits), tuple(sorted(binding.items())))
    heads = load.problem.batch * (load.problem.kv_heads if load.packed else load.problem.heads)
    steps = np.tile(np.asarray(found), heads)
    return np.asarray(steps[launch_order(steps, design.order)])


@lru_cache(maxsize=1024)
def _head_steps(program: Program, binding: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    return tuple(loop_trips(program.kernels[0], dict(binding)).tolist())


def times(
    load: Workload, machine: Machine, design: Design, held: Fit, moved: int, hbm: tuple[int, int]
) -> Times:
    """One launch of a design that fits. `moved`: its bytes at the SMs; `hbm`: read and written.

    Errors: `ProfileError` for a GPU on which nobody knows the class, `UsageError` for a backward beyond the model.
    """
    work = _work(load, design, held, hbm)
    busy = min(1.0, work.blocks / machine.sms)
    rate = l2_bytes_per_s(load.gpu) * busy
    slower = replace(machine, hbm_read_bytes_per_s=min(machine.hbm_read_bytes_per_s, rate))
    # an SM at work loads its first tile no slower because others idle: edges keep their share of the whole rate
    share = slower.hbm_read_bytes_per_s / machine.hbm_read_bytes_per_s
    work = replace(work, edge_bytes=max(1, round(work.edge_bytes * share)))
    once, repeated = predict_both(work, slower, CLASSES[load.kernel_class])
    start = work.launches * machine.start_s
    return Times(
        once=once,
        repeated=repeated,
        l2_s=moved / rate + start,
        latency_s=_latency_clk(load, design, work) / machine.clock_hz + start,
    )


def _latency_clk(load: Workload, design: Design, work: FusedWork) -> float:
    """Clocks that the blocks of one place wait for their tiles, if computing them took no time.

    One stage: K and V arrive in turn, each asked for half a tile ahead. Few rows stream from HBM, others from the L2.
    """
    latency = _latency(load.gpu, "hbm" if load.packed else "l2")
    ahead = max(0.5, design.stages - 1)
    places = load.gpu.sm_count * work.residents
    steps = max(work.tiles / places, int(work.steps.max(initial=0)))
    return latency / ahead * steps


def l2_bytes_per_s(gpu: HardwareProfile) -> float:
    """Read bandwidth of the L2 with all SMs at work: measured, or as one SM draws on an H200."""
    if gpu.has("measured.l2_read_bandwidth"):
        return float(gpu.number("measured.l2_read_bandwidth"))
    return L2_BYTES_PER_CLK_SM * gpu.sm_count * gpu.clock_hz


def _work(load: Workload, design: Design, held: Fit, hbm: tuple[int, int]) -> FusedWork:
    read, written = hbm
    seen = padded(load.seen)
    if load.backward:
        work = backward_work(seen, design.tile, warps=design.warps)
        steps = work.steps[launch_order(work.steps, design.order)]
        fitted = fitted_tile(load)
        held_already = backward_operands(seen, fitted, 8) * design.tile.rows * design.tile.cols
        held_already //= fitted.rows * fitted.cols
        more = max(0, backward_operands(seen, design.tile, design.warps) - held_already)
        return replace(work, steps=steps, residents=held.blocks_per_sm, operand_bytes=more)
    constants = CLASSES[load.kernel_class]
    tile = design.tile
    scheme = "split-q" if constants.operands_by_warp else "wgmma"
    operands = on_chip(seen, tile, scheme, warps=design.warps).step.operand_read_bytes
    return FusedWork(
        steps=steps_of(load, design),
        tile_flops=2 * tile.rows * tile.cols * (seen.head_dim + seen.value_dim),
        tile_scores=tile.rows * tile.cols,
        masked_tiles=masked_tiles(load.seen, tile),
        operand_bytes=operands if constants.operands_by_warp else 0,
        edge_bytes=_edge_bytes(load, design),
        warps=design.warps,
        residents=held.blocks_per_sm,
        hbm_read_bytes=read,
        hbm_write_bytes=written,
        side_bytes=partial_bytes(load, design.splits),
        launches=1 if design.splits == 1 else 2,
        row_ops=_row_ops(load, design, held, seen.value_dim),
        descriptor_bytes=0 if constants.operands_by_warp else operands,
        warpgroups=warpgroups(tile),
        turn_clk=0.0 if constants.operands_by_warp else _turn_clk(load, tile),
    )


def _turn_clk(load: Workload, tile: TileShape) -> float:
    """Of a tile narrower than the fitted one: more turns for the same keys. Below zero for a wider one."""
    return TURN_CLK * warpgroups(tile) * (1 - tile.cols / fitted_tile(load).cols)


def _row_ops(load: Workload, design: Design, held: Fit, value_dim: int) -> float:
    """Lane instructions of a tile that do not grow with its width, beyond those of the fitted tile."""
    rescale = design.tile.rows * value_dim * (1 - design.tile.cols / fitted_tile(load).cols)
    if not CLASSES[load.kernel_class].operands_by_warp:
        return rescale
    # a register of a warp is as wide as the path of shared memory: a clock out, a clock in
    clocks = 2.0 * held.needs.spilled * design.warps + (ALONE_CLK if held.blocks_per_sm == 1 else 0.0)
    return rescale + clocks * ISSUE_LANES


def _edge_bytes(load: Workload, design: Design) -> int:
    """Q in, O out, and what else nothing hides: by mma.sync the first K and V tile, and an answer of the memory."""
    p, tile = load.problem, design.tile
    own = tile.rows * (p.head_dim * p.dtype_q.itemsize + p.value_dim * p.dtype_o.itemsize)
    if not CLASSES[load.kernel_class].operands_by_warp:
        return own
    machine = Machine.of(load.gpu, str(p.dtype_k))
    waiting = _latency(load.gpu, "hbm") / machine.clock_hz / machine.sms
    first = tile.cols * (p.head_dim * p.dtype_k.itemsize + p.value_dim * p.dtype_v.itemsize)
    # as bytes at the rate of Q and O
    return own + round((waiting + first / l2_bytes_per_s(load.gpu)) * machine.hbm_read_bytes_per_s)


def _latency(gpu: HardwareProfile, level: str) -> float:
    """Clocks until the L2 or HBM answers."""
    key = f"measured.{level}_latency"
    return float(gpu.number(key)) if gpu.has(key) else LATENCY_CLK[level]


def fitted_tile(load: Workload) -> TileShape:
    """The tile at which the class's share was fitted, at this head dimension or the next that its kernel knows."""
    name = CLASSES[load.kernel_class].fitted_on
    assert name is not None
    facts = load_kernel(name)
    known = facts.backward_tiles if load.backward else facts.tiles
    d = min(load.problem.head_dim, max(t.head_dim_max for t in known))
    tile = facts.backward_tile(d) if load.backward else facts.tile(d)
    assert tile is not None
    return tile


def backward_operands(problem: AttentionProblem, tile: TileShape, warps: int) -> int:
    """Shared memory that the warps read for the five matmuls of a tile, each by its best division of the warps.

    A grid of m x n warps reads the rows' operand n times and the columns' m times.
    """
    p, Br, Bc = problem, tile.rows, tile.cols
    matmuls = (
        (Br, Bc, p.head_dim),  # S = Q K^T
        (Br, Bc, p.value_dim),  # dP = dO V^T
        (Bc, p.value_dim, Br),  # dV = P^T dO
        (Bc, p.head_dim, Br),  # dK = dS^T Q
        (Br, p.head_dim, Bc),  # dQ = dS K
    )
    grids = [(m, warps // m) for m in (1, 2, 4, 8) if warps % m == 0]
    elements = sum(min(n * rows * k + m * cols * k for m, n in grids) for rows, cols, k in matmuls)
    return elements * p.dtype_k.itemsize
