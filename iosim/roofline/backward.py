"""The work of FlashAttention-2's backward: a thread block owns Bc keys and walks the tiles of Q.

Five matmuls and one exponential a score. Two small kernels stream: one before it adds up dO x O a row and clears the
fp32 dQ that the blocks add to, one after it writes dQ in the output's type. Source: FlashAttention-2, Algorithm 2, and
its code (which kernels are launched).
"""

from __future__ import annotations

import numpy as np

from iosim.errors import UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim.roofline.lower_bound import compulsory_bytes
from iosim.roofline.work import FusedWork, masked_tiles

MATMULS = 5
LAUNCHES = 3


def backward_work(problem: AttentionProblem, tile: TileShape, *, warps: int = 8) -> FusedWork:
    """The work of the backward pass; `tile` is Br rows of Q by Bc keys.

    HBM bytes are the compulsory ones, since it never binds. Errors: `UsageError` for masks other than none and causal.
    """
    p = problem
    if p.mask.kind not in ("none", "causal") or p.head_dim != p.value_dim:
        raise UsageError("time: the backward is known for masks none and causal and equal head dimensions")
    heads = p.batch * p.heads
    row_tiles = -(-p.seq_q // tile.rows)
    first_key = np.arange(0, p.seq_k, tile.cols)
    skipped = np.maximum(0, first_key - p.key_offset) // tile.rows if p.mask.is_causal else 0 * first_key
    steps = np.maximum(0, row_tiles - skipped)
    read, written = compulsory_bytes(p, "bwd")
    element, acc = p.dtype_q.itemsize, p.dtype_acc.itemsize
    rows = heads * p.seq_q * p.head_dim
    return FusedWork(
        steps=np.tile(steps[steps > 0], heads),
        tile_flops=2 * MATMULS * tile.rows * tile.cols * p.head_dim,
        tile_scores=tile.rows * tile.cols,
        masked_tiles=masked_tiles(p, TileShape(rows=tile.cols, cols=tile.rows)),
        operand_bytes=0,  # part of the class's backward share
        edge_bytes=4 * tile.cols * p.head_dim * element,  # K and V in, dK and dV out
        warps=warps,
        residents=1,
        hbm_read_bytes=read,
        hbm_write_bytes=written,
        backward=True,
        side_bytes=rows * (3 * element + 2 * acc),  # O, dO in and dQ out; the fp32 dQ cleared and read
        launches=LAUNCHES,
    )
