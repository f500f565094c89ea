"""The sums of `tile_sums` under a block mask, from the mask as a matrix: no index arrays, no loops."""

from __future__ import annotations

from iosim.block_mask import covered, lengths, pairs, visible
from iosim.problem import AttentionProblem, TileShape
from iosim.theory.bounds import Seen
from iosim.theory.tile_sums import TileSums


def block_sums(problem: AttentionProblem, tiles: TileShape, pattern: str) -> TileSums:
    """Totals over the row tiles of one query head; the exact ranges are those of whole tiles."""
    rows, cols = lengths(problem.seq_q, tiles.rows), lengths(problem.seq_k, tiles.cols)
    blocks = visible(problem, tiles, pattern)
    keys_of_rows = covered(blocks, problem.seq_k, tiles.cols, axis=1)
    keys, scores = int(keys_of_rows.sum()), int(rows @ keys_of_rows)
    return TileSums(
        pairs_of_tiles=int(blocks.sum()),
        keys=keys,
        row_visits=int(covered(blocks, problem.seq_q, tiles.rows, axis=0).sum()),
        scores=scores,
        exact_keys=keys,
        exact_scores=scores,
        seeing_rows=int(rows[blocks.any(axis=1)].sum()),
        distinct_keys=int(cols[blocks.any(axis=0)].sum()),
    )


def seen_in_blocks(problem: AttentionProblem, tiles: TileShape, pattern: str) -> Seen:
    """What the bounds may count: visible pairs, and no row of Q or K unless each must be read.

    Rows of a visited block may still see nothing under a causal mask, so only whole blocks under no mask count.
    """
    inside = pairs(problem, tiles, pattern)
    if problem.mask.kind != "none":
        return Seen(pairs=inside, queries=0, keys=0)
    sums = block_sums(problem, tiles, pattern)
    return Seen(pairs=inside, queries=sums.seeing_rows, keys=sums.distinct_keys)
