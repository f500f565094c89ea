"""Exact bytes of split-KV attention, without running or knowing its tile program."""

from __future__ import annotations

from dataclasses import replace

from iosim.problem import AttentionProblem, Mask, TileShape
from iosim.theory.tile_sums import tile_sums

PARTIAL_BYTES = 4
Bytes = dict[str, int]


def packed_keys(problem: AttentionProblem, tiles: TileShape, *, packed: bool) -> int:
    """Keys loaded, in whole tiles, over all row tiles of all heads and batch entries.

    With g query heads packed, row r stands at query r // g. Floors and ceilings by g and then by Bc are floors and
    ceilings by g·Bc, so the tiles visited are those of a problem whose keys, offset and key tile are g times as long
    (and whose window is g(w − 1) + 1).
    """
    p, g = problem, problem.group_size
    if not packed:
        return tile_sums(p, tiles).keys * p.heads * p.batch
    window = None if p.mask.window is None else g * (p.mask.window - 1) + 1
    prefix = None if p.mask.prefix is None else g * p.mask.prefix
    longer = replace(p, seq_q=p.seq_q * g, seq_k=p.seq_k * g, mask=Mask(p.mask.kind, window, prefix))
    return tile_sums(longer, TileShape(rows=tiles.rows, cols=tiles.cols * g)).keys // g * p.kv_heads * p.batch


def decode_form(
    problem: AttentionProblem, tiles: TileShape, *, splits: int, packed: bool, latent: bool = False
) -> tuple[Bytes, Bytes]:
    """Reads and writes, all heads and batch entries. `latent`: the values are part of the keys, read once."""
    p = problem
    rows = p.batch * p.heads * p.seq_q
    keys = packed_keys(p, tiles, packed=packed)
    reads = {
        "Q": splits * rows * p.head_dim * p.dtype_q.itemsize,
        "K": keys * p.head_dim * p.dtype_k.itemsize,
        "V": 0 if latent else keys * p.value_dim * p.dtype_v.itemsize,
    }
    writes = {"O": rows * p.value_dim * p.dtype_o.itemsize}
    if splits > 1:
        parts = {
            "O_parts": splits * rows * p.value_dim * PARTIAL_BYTES,
            "LSE_parts": splits * rows * PARTIAL_BYTES,
        }
        reads, writes = reads | parts, writes | parts
    return {t: n for t, n in reads.items() if n}, writes
