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

    `row_lanes`: lanes that each compute what belongs to a row of a tile (0: a tile has nothing of it). `per_row`: at
    the end of a row, on all its lanes. `per_row_tile` and `per_block`: index arithmetic, of a tile and of a resident
    thread block. Kernel cards hold them.
    """

    row_lanes: int = QUAD_LANES
    per_row: int
    per_row_tile: int = 0
    per_block: int = 0


GENERAL = SpecialFacts(per_row=7)
"""Any kernel with the accumulator layout of mma; 7 a row measured on an H200 (6.25 to 10 by kernel)."""


def special_ops(
    problem: AttentionProblem,
    tiles: TileShape,
    facts: SpecialFacts = GENERAL,
    *,
    pack: bool = True,
    most_blocks: int | None = None,
    block_mask: str = "off",
) -> int:
    """Special-function results, one a thread: executed scores × (1 + lanes/Bc), plus what ends a row.

    Counts whole tiles, as kernels execute them: padded rows and masked scores are computed too. `pack`: with a
    single query row the query heads of a kv-head share a tile. `most_blocks`: thread blocks of a persistent kernel.
    `block_mask`: a pattern of `iosim.block_mask`, of whose tiles alone there are scores.
    """
    p = problem.packed_heads() if pack else problem
    steps, blocks = tile_steps(p, tiles, block_mask), row_tiles(p, tiles)
    resident = blocks if most_blocks is None else min(blocks, most_blocks)
    return (
        steps * tiles.rows * (tiles.cols + facts.row_lanes)  # e^(m - m_new) on every lane that holds the row
        + blocks * (tiles.rows * facts.per_row + facts.per_row_tile)
        + resident * facts.per_block
    )
