"""Useful work: the matmul flops that a problem cannot do without, whatever tiles compute beside it."""

from __future__ import annotations

from collections.abc import Mapping

from iosim import block_mask
from iosim.algorithms.registry import Algorithm
from iosim.problem import AttentionProblem, TileShape

PASS_MATMULS = {"fwd": 2, "bwd": 4, "fwd+bwd": 6}
"""Matmuls that a pass cannot do without; each flash backward computes S once more, which is executed, not useful."""


def useful_flops(
    problem: AttentionProblem, algorithm: Algorithm, options: Mapping[str, str], tiles: TileShape | None
) -> int:
    """Matmul flops of the unmasked pairs; of all pairs for the plain matmul, which sees no mask.

    Forward two matmuls, backward four: scores computed again in a backward are executed but not useful. Linear
    attention has its own two, and its normaliser, on rows instead of pairs. `tiles` is needed for a block mask.
    """
    p = problem
    heads = p.heads * p.batch
    if algorithm.computes == "scores":
        return 2 * p.head_dim * p.seq_q * p.seq_k * heads
    if algorithm.computes == "linear attention":
        return 2 * p.head_dim * (p.value_dim + 1) * (p.seq_q + p.seq_k) * heads
    pattern = options.get("block-mask", "off")
    if pattern != "off" and tiles is not None:
        pairs = block_mask.pairs(problem, tiles, pattern)
        forward = 2 * (p.head_dim + p.value_dim) * pairs * heads
        return forward * PASS_MATMULS[options.get("pass", "fwd")] // 2
    return p.useful_flops * PASS_MATMULS[options.get("pass", "fwd")] // 2
