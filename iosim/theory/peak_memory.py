"""Memory that one attention layer holds in training, as FlashAttention's Table 21 measured it."""

from __future__ import annotations

from iosim.errors import ProblemError
from iosim.problem import AttentionProblem

_SCORE_COPIES = 4
_STANDARD_MATRIX_COPIES = 10
_FLASH_MATRIX_COPIES = 11
_FLASH_SCRATCH_COPIES = 2
_FLASH_KEY_BLOCK = 256
_STATISTICS_PER_ROW = 2
_FP32_BYTES = 4


def peak_memory_bytes(problem: AttentionProblem, algorithm: str) -> int:
    """Peak bytes of a forward and a backward pass by `standard` or `flash1` attention.

    Standard: 4 copies of the N × N scores and 10 of an N × d matrix. FlashAttention as shipped in 2022: 11
    matrix copies and two fp32 numbers a row, and beyond N = 256, where its key block ends, one fp32 scratch
    matrix (2 more copies). The rule is fitted to FlashAttention Table 21 (fp16, batch 16, 8 heads, d = 64)
    and meets every standard and flash entry within 0.6 MiB. `ProblemError` outside the shapes it describes.
    """
    p = problem
    square = p.seq_q == p.seq_k and p.head_dim == p.value_dim and p.heads == p.kv_heads
    dtypes = {p.dtype_q, p.dtype_k, p.dtype_v, p.dtype_o}
    if not square or len(dtypes) != 1 or p.dtype_q.itemsize != 2:
        raise ProblemError(
            "peak memory: known only for seq_q = seq_k, value_dim = head_dim, kv_heads = heads "
            "and one two-byte dtype (FlashAttention Table 21)"
        )
    size = p.dtype_q.itemsize
    heads = p.batch * p.heads
    matrix = heads * p.seq_q * p.head_dim * size
    if algorithm == "standard":
        return _SCORE_COPIES * heads * p.seq_q * p.seq_k * size + _STANDARD_MATRIX_COPIES * matrix
    if algorithm == "flash1":
        scratch = _FLASH_SCRATCH_COPIES if p.seq_k > _FLASH_KEY_BLOCK else 0
        statistics = heads * p.seq_q * _STATISTICS_PER_ROW * _FP32_BYTES
        return (_FLASH_MATRIX_COPIES + scratch) * matrix + statistics
    raise ProblemError(f"peak memory: unknown algorithm {algorithm!r}; known: standard, flash1")
