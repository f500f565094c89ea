"""Exact bytes of the backward passes, tensor by tensor, without running or knowing their tile programs.

Unlike the forward, a thread block here owns the keys of one kv-head and walks the query heads that share it: K, V
and their gradients move once a kv-head, everything of the queries once a query head. Gradients have the dtype of
what they are the gradient of; dO, and P, dP and dS in slow memory, that of O; statistics are fp32.
Sources: Dao et al. 2022, algorithms 3 and 4; Dao 2023, algorithm 2; masks and ragged ends are derived here.
"""

from __future__ import annotations

from collections.abc import Callable

from iosim.problem import AttentionProblem, TileShape
from iosim.theory.block_sums import block_sums
from iosim.theory.tile_sums import TileSums, tile_sums

_STATISTIC_BYTES = 4
Bytes = dict[str, int]


def backward_form(
    algorithm: str,
    problem: AttentionProblem,
    tiles: TileShape | None,
    *,
    skip_first_read: bool,
    blocks: str = "off",
) -> tuple[Bytes, Bytes]:
    """Reads and writes of the backward of standard, flash1 or flash2; all heads and batch entries.

    `blocks`: the block mask, if there is one.
    """
    p = problem
    widths = {
        "Q": p.head_dim * p.dtype_q.itemsize,
        "K": p.head_dim * p.dtype_k.itemsize,
        "V": p.value_dim * p.dtype_v.itemsize,
        "O": p.value_dim * p.dtype_o.itemsize,
        **dict.fromkeys(("M", "L", "LSE", "D"), _STATISTIC_BYTES),
        **dict.fromkeys(("P", "dP", "dS"), p.seq_k * p.dtype_o.itemsize),
    }
    if algorithm == "standard":
        reads, writes = _standard(p)
    else:
        assert tiles is not None
        sums = tile_sums(p, tiles) if blocks == "off" else block_sums(p, tiles, blocks)
        reads, writes = _FLASH[algorithm](p, sums, skip_first_read)

    def scaled(rows: Bytes) -> Bytes:
        sizes = {t: n * widths.get(t, widths.get(t.removeprefix("d"), 0)) * p.batch for t, n in rows.items()}
        return {tensor: size for tensor, size in sizes.items() if size}

    return scaled(reads), scaled(writes)


def _standard(p: AttentionProblem) -> tuple[Bytes, Bytes]:
    """Rows of each tensor: dV, dP, dS, dQ and dK one after another, each operand once; masks skip nothing."""
    queries, keys = p.heads * p.seq_q, p.heads * p.seq_k
    reads = {"P": 2, "dO": 2, "dP": 1, "dS": 2, "Q": 1}
    once = {"dP": queries, "dS": queries, "dQ": queries}
    gradients = dict.fromkeys(("dK", "dV"), p.kv_heads * p.seq_k)
    return {t: n * queries for t, n in reads.items()} | {"K": keys, "V": keys}, once | gradients


def _flash1(p: AttentionProblem, sums: TileSums, skip_first_read: bool) -> tuple[Bytes, Bytes]:
    """Literal: zeros are stored in every row of dQ, dK and dV, and dQ is read at each visit."""
    visits, keys = p.heads * sums.row_visits, p.kv_heads * sums.distinct_keys
    first = p.heads * sums.seeing_rows if skip_first_read else 0
    every_key = p.kv_heads * p.seq_k
    stored_keys = every_key if skip_first_read else every_key + keys
    reads = dict.fromkeys(("Q", "O", "dO", "M", "L"), visits) | {"dQ": visits - first, "K": keys, "V": keys}
    writes = {"dQ": visits + p.heads * p.seq_q - first, "dK": stored_keys, "dV": stored_keys}
    return reads, writes


def _flash2(p: AttentionProblem, sums: TileSums, skip_first_read: bool) -> tuple[Bytes, Bytes]:
    """D and the zeros of dQ first; then a read and a write of dQ for each visit. Keys nobody sees are loaded too."""
    visits, queries, keys = p.heads * sums.row_visits, p.heads * p.seq_q, p.kv_heads * p.seq_k
    reads = {"O": queries, "dO": queries + visits, "K": keys, "V": keys}
    reads |= dict.fromkeys(("Q", "LSE", "D", "dQ"), visits)
    return reads, {"D": queries, "dQ": queries + visits, "dK": keys, "dV": keys}


_FLASH: dict[str, Callable[[AttentionProblem, TileSums, bool], tuple[Bytes, Bytes]]] = {
    "flash1": _flash1,
    "flash2": _flash2,
}
