"""How often a kernel visits a tile, and the problem as its grid sees it."""

from __future__ import annotations

from dataclasses import replace

from iosim.problem import AttentionProblem, Mask, TileShape
from iosim.theory.tile_sums import tile_sums


def tile_steps(problem: AttentionProblem, tiles: TileShape) -> int:
    """Visited (row tile, key tile) pairs of all heads and batch entries."""
    return tile_sums(problem, tiles).pairs_of_tiles * problem.heads * problem.batch


def row_tiles(problem: AttentionProblem, tiles: TileShape) -> int:
    """Row tiles of all heads and batch entries: thread blocks of a kernel that is not persistent."""
    return -(-problem.seq_q // tiles.rows) * problem.heads * problem.batch


def packed(problem: AttentionProblem) -> AttentionProblem:
    """A single query row a head: its group's query heads become the rows of one tile, as FlashAttention-2 does.

    The one query sees every key, so a causal mask falls away. Windows and longer queries stay as they are.
    """
    if problem.seq_q != 1 or problem.mask.window is not None:
        return problem
    return replace(
        problem,
        heads=problem.kv_heads,
        seq_q=problem.group_size,
        mask=Mask(),
    )
