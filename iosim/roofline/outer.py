"""The work of FlashAttention-1 as printed: keys outside, queries inside, O through slow memory at every visit.

    K_j, V_j  |  Q_i, O_i, m_i, l_i in   tile   O_i, m_i, l_i out  |  ... all i  |  K_j+1, V_j+1 ...  |  O once more

One thread block a head and no second one on its SM: what its own loop does not overlap, nothing does. Q and O of the
next visit come while this one computes; O goes out at the rate at which one SM stores, with nothing beside it; K and V
of a key tile are waited for; and in the last pass, which rounds O, every load waits for the one before it.
"""

from __future__ import annotations

import numpy as np

from iosim.kernels import KernelFacts
from iosim.kernels.facts import WARP_THREADS
from iosim.onchip import on_chip
from iosim.onchip.steps import tile_steps
from iosim.problem import AttentionProblem, TileShape
from iosim.roofline.shared_path import shared_path
from iosim.roofline.work import FusedWork, fitted_row_ops

SCORE_OPS = 3.5
"""Instructions a score without which no softmax is: maximum, multiply-add, sum, half of a conversion to 16 bits. The
share of a class holds them."""
LOAD_BYTES = 16
"""Of a thread, in the last pass over O."""


def outer_work(
    facts: KernelFacts,
    problem: AttentionProblem,
    tile: TileShape,
    *,
    residents: int,
    threads: int | None = None,
    hbm_read_bytes: float,
    hbm_write_bytes: float,
) -> FusedWork:
    """The work of a kernel whose card has `algorithm: flash1`; a tile is a visit of rows by a key tile."""
    p, padded = facts.packed(problem), facts.padded(problem)
    threads = threads or facts.threads_per_block
    warps, acc = threads // WARP_THREADS, p.dtype_acc.itemsize
    blocks = p.batch * p.heads
    visits = tile_steps(p, tile) // blocks
    key_tiles = -(-p.seq_k // tile.cols)
    rows = min(tile.rows, p.seq_q)  # of one query all others of the tile are neither loaded nor stored
    o_tile = rows * (p.value_dim + 2) * acc
    kv_tile = tile.cols * (p.head_dim * p.dtype_k.itemsize + p.value_dim * p.dtype_v.itemsize)
    q_tile = rows * p.head_dim * p.dtype_q.itemsize
    last_pass = p.seq_q * p.value_dim * acc
    counted = _instructions(facts, p, tile)
    path = shared_path(padded, tile, "split-q", warps=warps)
    waiting = tile.rows * p.value_dim * acc  # O on its way through the waiting room, in by the copies and out
    operands = on_chip(padded, tile, "split-q", warps=warps).step.operand_read_bytes + waiting
    return FusedWork(
        steps=np.full(blocks, visits),
        tile_flops=2 * tile.rows * tile.cols * (padded.head_dim + padded.value_dim),
        tile_scores=tile.rows * tile.cols,
        masked_tiles=_masked(p, tile, key_tiles),
        operand_bytes=operands,
        edge_bytes=0,
        warps=warps,
        residents=residents,
        hbm_read_bytes=hbm_read_bytes,
        hbm_write_bytes=hbm_write_bytes,
        row_ops=counted - fitted_row_ops(facts, p, tile),
        path_wavefronts=path.by_warps + (2 * waiting + q_tile) / 128,
        store_bytes=o_tile,
        rounds=key_tiles,
        again_rounds=last_pass / (threads * LOAD_BYTES),
        again_bytes=last_pass,
        first_bytes=key_tiles * (kv_tile + q_tile + o_tile),
    )


def _instructions(facts: KernelFacts, p: AttentionProblem, tile: TileShape) -> float:
    """Of a visit by all threads, beyond what the share holds; counted at the card's tile, elsewhere as many a score."""
    step, _ = facts.instructions_of("loop", p.head_dim)
    known = facts.tile(p.head_dim)
    if not step or known is None:
        return 0.0
    a_score = step * facts.threads_per_block / (known.rows * known.cols)
    return (a_score - SCORE_OPS) * tile.rows * tile.cols


def _masked(p: AttentionProblem, tile: TileShape, key_tiles: int) -> int:
    """Visits whose scores are compared with a mask: the diagonal in each key tile, and the ragged last one."""
    row_tiles = -(-p.seq_q // tile.rows)
    diagonal = key_tiles * -(-tile.cols // tile.rows) if p.mask.is_causal else 0
    return diagonal + (row_tiles if p.seq_k % tile.cols else 0)
