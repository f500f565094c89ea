"""Cycles of one tile on one SM, by the unit that would take them if it alone were busy.

The three do not add up and do not simply overlap: a kernel's schedule decides. They tell which unit is short.
"""

from __future__ import annotations

from dataclasses import dataclass

from iosim.hardware import HardwareProfile
from iosim.onchip.shared import OnChip
from iosim.onchip.special import QUAD_LANES
from iosim.problem import AttentionProblem, TileShape


@dataclass(frozen=True, slots=True, kw_only=True)
class TileCycles:
    """Clocks of one tile step at the rates of the profile."""

    tensor_cycles: float
    special_cycles: float
    shared_cycles: float


def tile_cycles(problem: AttentionProblem, use: OnChip, gpu: HardwareProfile) -> TileCycles:
    """Matmuls at the dense peak of K's dtype, exponentials, and shared-memory bytes with the fills of the step.

    `ProfileError` where the profile does not know one of the rates.
    """
    unit = gpu.compute_unit(str(problem.dtype_k))
    flops_per_clk = unit.peak_flops_per_s / unit.clock_hz / gpu.sm_count
    return TileCycles(
        tensor_cycles=_tile_flops(problem, use.tiles) / flops_per_clk,
        special_cycles=use.tiles.rows * (use.tiles.cols + QUAD_LANES) / gpu.special_ops_per_clk_sm,
        shared_cycles=use.step.total_bytes / gpu.sram_bandwidth_bytes_per_clk_sm,
    )


def _tile_flops(p: AttentionProblem, tiles: TileShape) -> int:
    return 2 * tiles.rows * tiles.cols * (p.head_dim + p.value_dim)
