"""Results of the special-function units (exponentials, reciprocals, logarithms), as a counter sees them.

A score takes one exponential. What belongs to a row is computed by all four lanes of the quad that holds the row, so
it counts four times: hence executed scores × (1 + 4/Bc), and a few operations at the end of every row.
"""

from __future__ import annotations

from dataclasses import dataclass

from iosim.onchip.steps import row_tiles, tile_steps
from iosim.problem import AttentionProblem, TileShape

QUAD_LANES = 4  # lanes that share a row of an mma accumulator (PTX ISA, fragment layout of m16n8k16)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialFacts:
    """What a kernel does on its special-function units besides one exponential a score.

    `per_row_step`: for each row and tile. `per_row`: at the end of a row. `per_row_tile` and `per_block`: index
    arithmetic, of a tile and of a resident thread block.
    """

    kernel: str
    per_row_step: int
    per_row: int
    per_row_tile: int
    per_block: int
    resident_blocks: int | None
    source: str


GENERAL = SpecialFacts(
    kernel="any kernel with the accumulator layout of mma",
    per_row_step=QUAD_LANES,  # e^(m − m_new) on every lane that holds the row
    per_row=7,
    per_row_tile=0,
    per_block=0,
    resident_blocks=None,
    source="the layout of mma accumulators; 7 a row measured on an H200 (6.25 to 10 by kernel)",
)
FLASH2_SPECIALS = SpecialFacts(
    kernel="FlashAttention-2 (mma.sync, 128 threads a block)",
    per_row_step=QUAD_LANES,
    # reciprocal and logarithm of the sum on four lanes, less the e^(m − m_new) that the first tile does not need
    per_row=2 * QUAD_LANES - QUAD_LANES,
    # a thread divides its head by the group size: conversion, reciprocal, conversion back
    per_row_tile=3 * 128,
    per_block=0,
    resident_blocks=None,
    source="derived from the algorithm and the integer division of the head index; exact on the H200 rows",
)
CUDNN_SPECIALS = SpecialFacts(
    kernel="the fused forward of cuDNN on Hopper (wgmma, persistent)",
    per_row_step=QUAD_LANES,
    per_row=0,
    per_row_tile=800,
    per_block=96,
    resident_blocks=132,
    source="fitted to two rows of the H200 counters and exact on the others",
)


def special_ops(
    problem: AttentionProblem, tiles: TileShape, facts: SpecialFacts = GENERAL, *, pack: bool = True
) -> int:
    """Special-function results, one a thread: executed scores × (1 + 4/Bc), plus what ends a row.

    Counts whole tiles, as kernels execute them: padded rows and masked scores are computed too. `pack`: with a
    single query row the query heads of a kv-head share a tile.
    """
    p = problem.packed_heads() if pack else problem
    steps, blocks = tile_steps(p, tiles), row_tiles(p, tiles)
    resident = blocks if facts.resident_blocks is None else min(blocks, facts.resident_blocks)
    return (
        steps * tiles.rows * (tiles.cols + facts.per_row_step)
        + blocks * (tiles.rows * facts.per_row + facts.per_row_tile)
        + resident * facts.per_block
    )
