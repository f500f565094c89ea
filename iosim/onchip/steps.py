"""How often a kernel visits a tile, and the problem as its grid sees it."""

from __future__ import annotations

from iosim.block_mask import visible
from iosim.problem import AttentionProblem, TileShape
from iosim.theory.tile_sums import tile_sums


def tile_steps(problem: AttentionProblem, tiles: TileShape, block_mask: str = "off") -> int:
    """Visited (row tile, key tile) pairs of all heads and batch entries; `block_mask`: tiles to leave out."""
    if block_mask != "off":
        return int(visible(problem, tiles, block_mask).sum()) * problem.heads * problem.batch
    return tile_sums(problem, tiles).pairs_of_tiles * problem.heads * problem.batch


def row_tiles(problem: AttentionProblem, tiles: TileShape) -> int:
    """Row tiles of all heads and batch entries: thread blocks of a kernel that is not persistent."""
    return -(-problem.seq_q // tiles.rows) * problem.heads * problem.batch
