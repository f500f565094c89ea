"""Page-table entries that are read, from the key range of every row tile: sums over row tiles, held as one array each.

Key tile j lies on ⌈min((j + 1)·Bc, Nk)/P⌉ − ⌊j·Bc/P⌋ pages. Pages and key tiles cut the keys differently, so there
is no closed form; a prefix sum over key tiles gives each row tile its share.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iosim.block_mask import visible
from iosim.problem import AttentionProblem, TileShape
from iosim.theory.tile_sums import ceil_div

Ints = npt.NDArray[np.int64]
ENTRY_BYTES = 4


def page_table_bytes(
    problem: AttentionProblem, tiles: TileShape, page: int, *, packed: bool = False, blocks: str = "off"
) -> int:
    """Bytes of the page table that are read, all heads and batch entries: each thread block looks up its own."""
    p = problem
    starts = np.arange(ceil_div(p.seq_k, tiles.cols), dtype=np.int64) * tiles.cols
    ends = np.minimum(starts + tiles.cols, p.seq_k)
    pages = -(-ends // page) - starts // page
    if blocks != "off":
        entries = int(visible(problem, tiles, blocks).sum(axis=0) @ pages)
    else:
        before = np.concatenate([[0], np.cumsum(pages)])
        first, last = _tile_ranges(p, tiles, p.group_size if packed else 1)
        entries = int((before[last] - before[first]).sum())
    return ENTRY_BYTES * entries * p.batch * (p.kv_heads if packed else p.heads)


def _tile_ranges(p: AttentionProblem, tiles: TileShape, group: int) -> tuple[Ints, Ints]:
    """First and past-the-last key tile of every row tile; rows are (query, head of the group)."""
    start = np.arange(0, p.seq_q * group, tiles.rows, dtype=np.int64)
    stop = np.minimum(start + tiles.rows, p.seq_q * group)
    first_key, last_key = np.zeros_like(start), np.full_like(start, p.seq_k)
    if p.mask.is_causal:
        last_key = np.clip(-(-stop // group) + p.key_offset, 0, p.seq_k)
    if p.mask.window is not None:
        first_key = np.maximum(0, start // group + p.key_offset - p.mask.window + 1)
    if p.mask.prefix is not None:
        last_key = np.maximum(last_key, min(p.mask.prefix, p.seq_k))
    first, last = first_key // tiles.cols, -(-last_key // tiles.cols)
    return np.minimum(first, last), last
