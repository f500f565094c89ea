"""Results of the special-function units (exponentials, reciprocals, logarithms), as a counter sees them.

A score takes one exponential. What belongs to a row is computed by all four lanes of the quad that holds the row, so
it counts four times: hence executed scores × (1 + 4/Bc), and a few operations at the end of every row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from iosim.onchip.steps import row_tiles, tile_steps
from iosim.problem import AttentionProblem, TileShape

QUAD_LANES = 4  # lanes that share a row of an mma accumulator (PTX ISA, fragment layout of m16n8k16)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialFacts:
    """What a kernel does on its special-function units besides one exponential a score.

    `row_lanes`: lanes that each compute what belongs to a row of a tile (0: a tile has nothing of it). `per_row`: at
    the end of a row, on all its lanes. `per_row_tile` and `per_block`: index arithmetic, of a tile and of a resident
    thread block; `per_causal_tile`: more of it under a causal mask. `step_rows`: rows of a tile that leave out a
    masked block of keys on their own (0: all rows of the tile together), as warpgroups of 64 do. Kernel cards hold
    them.
    """

    row_lanes: int = QUAD_LANES
    per_row: int
    per_row_tile: int = 0
    per_block: int = 0
    step_rows: int = 0
    per_causal_tile: int = 0


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
    blocks = row_tiles(p, tiles)
    resident = blocks if most_blocks is None else min(blocks, most_blocks)
    return (
        # e^(m - m_new) on every lane that holds the row
        _executed_rows(p, tiles, facts, block_mask) * (tiles.cols + facts.row_lanes)
        + blocks * (tiles.rows * facts.per_row + facts.per_row_tile)
        + (blocks * facts.per_causal_tile if p.mask.is_causal else 0)
        + resident * facts.per_block
    )


def _executed_rows(p: AttentionProblem, tiles: TileShape, facts: SpecialFacts, block_mask: str) -> int:
    """Rows that go through a block of keys, summed over the blocks, padded ones as well."""
    if not facts.step_rows:
        return tile_steps(p, tiles, block_mask) * tiles.rows
    steps = replace(tiles, rows=facts.step_rows)
    # Rows past the end, to the end of the last tile: they see every key, so nothing of them is left out.
    past = row_tiles(p, tiles) * tiles.rows - row_tiles(p, steps) * facts.step_rows
    return tile_steps(p, steps, block_mask) * facts.step_rows + past * -(-p.seq_k // tiles.cols)
