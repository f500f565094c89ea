"""What one fused kernel does, tile by tile: all that a prediction of its time needs to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.block_mask import visible
from iosim.errors import SimulationError
from iosim.kernels import CLASSES, KernelFacts, load_kernel
from iosim.kernels.facts import WARP_THREADS
from iosim.onchip import on_chip
from iosim.onchip.special import QUAD_LANES
from iosim.onchip.steps import tile_steps
from iosim.problem import AttentionProblem, TileShape
from iosim.roofline.shared_path import SharedPath, shared_path

WARPGROUP_ROWS = 64
Cost = Callable[[KernelFacts, AttentionProblem, TileShape, int], float]
"""Vector instructions of a tile by so many warps."""
_SCHEMES = {"rows": "split-q", "keys": "split-k"}
STEP_OPS, STEP_OPS_16_ROWS = 22, 28
"""Instructions of a warp in a step of an mma.sync kernel that do not grow with its keys: the loop, addresses, shuffles
and votes of statistics. Counted in the machine code of our flash2, warps of 16 and of 32 rows; taken for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedWork:
    """One launch of a fused kernel.

    `steps` [blocks]: K/V tiles of each thread block in launch order. `tile_flops`: both matmuls of a tile, as the
    instructions see it. `tile_scores`: of a tile. `masked_tiles`: tiles of a block that a mask or the end of the keys
    crosses. `operand_bytes`: shared memory read by the warps of a block for a tile; 0 where the tensor cores read it
    themselves. `edge_bytes`: Q tile in, O tile out. `residents`: blocks an SM has room for. HBM bytes are simulated.
    `side_bytes`: streamed by small kernels before and after it, `launches` with them. `row_ops`: vector instructions
    of a tile for its rows, beyond those that the share of a kernel's class holds already (below zero: fewer).
    `descriptor_bytes`: shared memory read by the tensor cores themselves for a tile, which takes time only beyond the
    matmuls'. `path_wavefronts`: cycles of the shared-memory path in a tile, copies and statistics included; no tile is
    faster. `exchanges`: barriers of a tile between which warps hand each other results. `row_special`: special-function
    results of a tile beyond those of its scores and of the fitted kernel's rows. `interleaved`: exponentials stand
    between products. `warpgroups`: that multiply 64 rows each, where the tensor cores read operands themselves.
    `turn_clk`: cycles of a tile that they wait beside products and softmax, beyond those of the fitted kernel's tile.
    `parts_out_wavefronts`: of the path, stores of parts of O beside the products that make them. `store_bytes`: of a
    tile, to slow memory, from accumulators; nothing overlaps them. `rounds`, `first_bytes`: loads of a block outside
    its tiles, one after the other, and what they bring. `again_rounds`, `again_bytes`: the same of what the block
    wrote itself, from the L2 where that of all blocks at work fits. `step_ops`: those of `row_ops` that come with a
    step, whatever its width.
    """

    steps: NDArray[np.int64]
    tile_flops: int
    tile_scores: int
    masked_tiles: int
    operand_bytes: int
    edge_bytes: int
    warps: int
    residents: int
    hbm_read_bytes: float
    hbm_write_bytes: float
    backward: bool = False
    side_bytes: float = 0.0
    launches: int = 1
    row_ops: float = 0.0
    descriptor_bytes: int = 0
    path_wavefronts: float = 0.0
    parts_out_wavefronts: float = 0.0
    exchanges: int = 0
    row_special: int = 0
    interleaved: bool = False
    warpgroups: int = 0
    turn_clk: float = 0.0
    store_bytes: int = 0
    rounds: float = 0.0
    first_bytes: int = 0
    again_rounds: float = 0.0
    step_ops: float = 0.0
    again_bytes: int = 0

    @property
    def tiles(self) -> int:
        """K/V tiles of all blocks."""
        return int(self.steps.sum())

    @property
    def blocks(self) -> int:
        """Thread blocks with work."""
        return len(self.steps)


def fused_work(
    facts: KernelFacts,
    problem: AttentionProblem,
    tile: TileShape,
    accesses: Any,
    *,
    residents: int,
    threads: int | None = None,
    hbm_read_bytes: float,
    hbm_write_bytes: float,
) -> FusedWork:
    """The work of a kernel on a problem.

    `accesses` [blocks]: tile accesses inside the key loop of each block, in launch order, from the simulated schedule.
    Errors: `SimulationError` where they do not match the tiles that the mask leaves.
    """
    seen, padded = facts.packed(problem), facts.padded(problem)
    warps = (threads or facts.threads_per_block) // WARP_THREADS
    by_warp = _operands(facts, padded, tile, warps)
    path = _path(facts, padded, tile, warps)
    shares = facts.warps_divide == "keys"  # what is a row's, all warps share
    q_bytes = tile.rows * seen.head_dim * seen.dtype_q.itemsize
    return FusedWork(
        steps=_steps(np.asarray(accesses, dtype=np.int64), _tiles(facts, seen, tile)),
        tile_flops=2 * tile.rows * tile.cols * (padded.head_dim + padded.value_dim),
        tile_scores=tile.rows * tile.cols,
        masked_tiles=masked_tiles(seen, tile),
        operand_bytes=by_warp,
        edge_bytes=q_bytes + tile.rows * seen.value_dim * seen.dtype_o.itemsize,
        warps=warps,
        residents=residents,
        hbm_read_bytes=hbm_read_bytes,
        hbm_write_bytes=hbm_write_bytes,
        row_ops=row_ops(facts, seen, tile, warps),
        step_ops=_beyond_fitted(_own_step, facts, seen, tile, warps),
        path_wavefronts=path.total if path else 0.0,
        parts_out_wavefronts=path.parts_out if path else 0.0,
        exchanges=2 if shares else 0,  # maxima; sums and parts of O
        row_special=tile.rows * max(0, facts.row_lanes - QUAD_LANES) if shares else 0,
        interleaved=facts.interleaves_exp,
        warpgroups=warpgroups(tile),
    )


def row_ops(facts: KernelFacts, seen: AttentionProblem, tile: TileShape, warps: int) -> float:
    """What the rows of a tile cost beyond the same scores in the kernel that the class was fitted on.

    O is rescaled, one instruction a value, unless the kernel puts that off. Spilled bytes go out and in again, 128 a
    clock, in which 128 lanes could have issued: one instruction a byte each way. A step has instructions of its own.
    """
    return sum(_beyond_fitted(cost, facts, seen, tile, warps) for cost in (_own_rows, _own_step))


def fitted_row_ops(facts: KernelFacts, seen: AttentionProblem, tile: TileShape) -> float:
    """What the rows of the kernel that the class was fitted on cost, for as many scores as `tile` has; 0 if unknown."""
    return sum(_of_fitted(cost, facts, seen, tile) or 0.0 for cost in (_own_rows, _own_step))


def _beyond_fitted(
    cost: Cost, facts: KernelFacts, seen: AttentionProblem, tile: TileShape, warps: int
) -> float:
    held = _of_fitted(cost, facts, seen, tile)
    return 0.0 if held is None else cost(facts, seen, tile, warps) - held


def _of_fitted(cost: Cost, facts: KernelFacts, seen: AttentionProblem, tile: TileShape) -> float | None:
    """A cost of the kernel that the class was fitted on, for as many scores as `tile` has; None where none is known."""
    name = CLASSES[facts.kernel_class].fitted_on
    fitted = load_kernel(name) if name else None
    known = fitted.tile(seen.head_dim) if fitted else None
    if fitted is None or known is None:
        return None
    scores = tile.rows * tile.cols / (known.rows * known.cols)
    return scores * cost(fitted, seen, known, fitted.threads_per_block // WARP_THREADS)


def _own_rows(facts: KernelFacts, seen: AttentionProblem, tile: TileShape, warps: int) -> float:
    rescaled = tile.rows * seen.value_dim if facts.row_lanes else 0
    if facts.warps_divide == "keys":  # the owner of a row adds up the parts of O
        rescaled += warps * tile.rows * seen.value_dim
    spill = facts.spill(seen.head_dim, tile)
    return rescaled + 2.0 * (spill.bytes_per_step if spill else 0)


def _own_step(facts: KernelFacts, seen: AttentionProblem, tile: TileShape, warps: int) -> float:
    if not CLASSES[facts.kernel_class].operands_by_warp:
        return 0.0
    rows = tile.rows if facts.warps_divide == "keys" else tile.rows / warps
    return warps * WARP_THREADS * (STEP_OPS + STEP_OPS_16_ROWS * rows / 16)


def warpgroups(tile: TileShape) -> int:
    """Warpgroups that multiply 64 rows of a tile each, as wgmma does."""
    return max(1, tile.rows // WARPGROUP_ROWS)


def masked_tiles(problem: AttentionProblem, tile: TileShape) -> int:
    """Tiles of a thread block whose scores are compared with a mask, one edge of it after the other.

    The diagonal of a causal mask crosses ⌈Br/Bc⌉ key tiles of a row tile, the far edge of a window as many again;
    keys that do not fill their last tile make one more.
    """
    edges = {"none": 0, "causal": 1, "window": 2, "prefix": 1}[problem.mask.kind]
    return edges * -(-tile.rows // tile.cols) + (1 if problem.seq_k % tile.cols else 0)


def _tiles(facts: KernelFacts, seen: AttentionProblem, tile: TileShape) -> int:
    """Tiles of all heads; those of a block mask lie on the grid of the tile."""
    mask = facts.options.get("block-mask", "off")
    if mask == "off":
        return tile_steps(seen, tile)
    return seen.batch * seen.heads * int(np.count_nonzero(visible(seen, tile, mask)))


def _steps(accesses: NDArray[np.int64], tiles: int) -> NDArray[np.int64]:
    """Accesses of a block to its tiles: each tile is the same number of loads (K and V, a bias ...)."""
    total = int(accesses.sum())
    if not tiles or total % tiles:
        raise SimulationError(f"time: {total} accesses of the key loops do not divide into {tiles} tiles")
    return np.asarray(accesses // (total // tiles))


def _operands(facts: KernelFacts, padded: AttentionProblem, tile: TileShape, warps: int) -> int:
    if not CLASSES[facts.kernel_class].operands_by_warp:
        return 0
    step = on_chip(padded, tile, _SCHEMES[facts.warps_divide], warps=warps).step
    return step.operand_read_bytes + step.exchange_write_bytes + step.exchange_read_bytes


def _path(facts: KernelFacts, padded: AttentionProblem, tile: TileShape, warps: int) -> SharedPath | None:
    if not CLASSES[facts.kernel_class].operands_by_warp:
        return None
    return shared_path(padded, tile, _SCHEMES[facts.warps_divide], warps=warps)
