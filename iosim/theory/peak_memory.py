"""Memory that one attention layer holds outside the chip: in training as FlashAttention's Table 21 measured it, and
in a forward pass alone.

A fitted rule reproduces printed measurements and nothing proves it; a derived one lists the tensors that an
algorithm keeps. Only the attention's own tensors count: no weights, no other layers, no framework.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from iosim.errors import ProblemError
from iosim.problem import MAX_SIZE, AttentionProblem

PASSES = ("fwd", "bwd", "fwd+bwd")
"""fwd is inference: nothing is kept for a backward pass. The backward holds all that the forward left behind, so its
peak is that of both."""

_SCORES_TRAINED = 4
_SCORES_FORWARD = 2  # S and P
_STANDARD_MORE = 2  # of the 10 matrices that fit Table 21, what Q, K, V, O and their gradients do not explain
_FLASH1_MORE = 3  # of the 11 likewise
_FLASH1_KEY_BLOCK = 256
_SPARSE_BLOCK = (16, 256)
_SPARSE_ENTRY_BYTES = 8
_FP32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPart:
    """Tensors of one kind that are held at the peak, and their bytes."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMemory:
    """What an algorithm holds in slow memory at the peak of a pass. `status`: fitted, derived or extrapolated."""

    algorithm: str
    passes: str
    parts: tuple[HeldPart, ...]
    status: str
    source: str

    @property
    def total_bytes(self) -> int:
        """All parts together."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Bytes of the tensors of all heads and batch entries, and rows of Q."""

    q: int
    k: int
    v: int
    o: int
    scores: int
    rows: int
    q_fp32: int
    o_fp32: int
    expanded_kv: int


def held_memory(problem: AttentionProblem, algorithm: str, passes: str = "fwd+bwd") -> HeldMemory:
    """Tensors held at the peak of a pass by `standard`, `flash1`, `flash2` or `block_sparse_flash1`.

    Training by standard, flash1 and block_sparse_flash1 follows the rule fitted to FlashAttention Table 21 (fp16,
    seq_q = seq_k, equal heads); for other shapes each of its matrices takes its own size, and the result is called
    extrapolated. All else is derived. `ProblemError` for an unknown algorithm or pass.
    """
    if passes not in PASSES:
        raise ProblemError(f"pass: unknown pass {passes!r}; allowed: {', '.join(PASSES)}")
    if algorithm not in ALGORITHMS:
        raise ProblemError(f"peak memory: unknown algorithm {algorithm!r}; known: {', '.join(ALGORITHMS)}")
    sizes = _sizes(problem)
    forward = passes == "fwd"
    parts = [HeldPart(name=name, bytes=getattr(sizes, name.lower())) for name in ("Q", "K", "V", "O")]
    if not forward:
        parts += [HeldPart(name=f"d{part.name}", bytes=part.bytes) for part in parts]
    parts += _own_parts(problem, sizes, algorithm, forward=forward)
    status, source = _origin(problem, algorithm, forward=forward)
    return HeldMemory(
        algorithm=algorithm,
        passes=passes,
        parts=tuple(part for part in parts if part.bytes),
        status=status,
        source=source,
    )


ALGORITHMS = ("standard", "flash1", "flash2", "block_sparse_flash1")


def _sizes(p: AttentionProblem) -> _Sizes:
    rows, keys = p.batch * p.heads * p.seq_q, p.batch * p.kv_heads * p.seq_k
    widths = p.head_dim * p.dtype_k.itemsize + p.value_dim * p.dtype_v.itemsize
    return _Sizes(
        q=rows * p.head_dim * p.dtype_q.itemsize,
        k=keys * p.head_dim * p.dtype_k.itemsize,
        v=keys * p.value_dim * p.dtype_v.itemsize,
        o=rows * p.value_dim * p.dtype_o.itemsize,
        scores=rows * p.seq_k * p.dtype_o.itemsize,
        rows=rows,
        q_fp32=rows * p.head_dim * _FP32_BYTES,
        o_fp32=rows * p.value_dim * _FP32_BYTES,
        expanded_kv=0 if p.kv_heads == p.heads else p.batch * p.heads * p.seq_k * widths,
    )


def _own_parts(p: AttentionProblem, s: _Sizes, algorithm: str, *, forward: bool) -> list[HeldPart]:
    """What an algorithm holds besides inputs, outputs and their gradients."""
    if algorithm == "standard":
        if forward:
            return [HeldPart(name="S and P", bytes=_SCORES_FORWARD * s.scores)]
        return [
            HeldPart(name="4 score matrices", bytes=_SCORES_TRAINED * s.scores),
            HeldPart(name="2 more matrices of Q's size", bytes=_STANDARD_MORE * s.q),
        ]
    if algorithm == "flash2":
        statistics = HeldPart(name="log-sum-exp (fp32)", bytes=s.rows * _FP32_BYTES)
        if forward:
            return [statistics]
        return [
            statistics,
            HeldPart(name="rowsum(dO∘O) (fp32)", bytes=s.rows * _FP32_BYTES),
            HeldPart(name="dQ accumulator (fp32)", bytes=s.q_fp32),
            HeldPart(name="dK, dV a query head", bytes=s.expanded_kv),
        ]
    return _flash1_parts(p, s, forward=forward, sparse=algorithm == "block_sparse_flash1")


def _flash1_parts(p: AttentionProblem, s: _Sizes, *, forward: bool, sparse: bool) -> list[HeldPart]:
    """FlashAttention as shipped in 2022: an fp32 scratch matrix where the keys do not fit one block of 256."""
    beyond = p.seq_k > _FLASH1_KEY_BLOCK
    if forward:
        parts = [
            HeldPart(name="log-sum-exp (fp32)", bytes=s.rows * _FP32_BYTES),
            HeldPart(name="O between passes (fp32)", bytes=s.o_fp32 if beyond else 0),
        ]
    else:
        parts = [
            HeldPart(name="3 more matrices of Q's size", bytes=_FLASH1_MORE * s.q),
            HeldPart(name="2 row statistics (fp32)", bytes=2 * s.rows * _FP32_BYTES),
            HeldPart(name="scratch matrix (fp32)", bytes=s.q_fp32 if beyond else 0),
        ]
    if sparse:
        rows, cols = _SPARSE_BLOCK
        blocks = -(-p.seq_q // rows) * -(-p.seq_k // cols)
        parts.append(HeldPart(name="block mask", bytes=_SPARSE_ENTRY_BYTES * blocks))
    return parts


def _origin(p: AttentionProblem, algorithm: str, *, forward: bool) -> tuple[str, str]:
    """How sure a number is, and where it is from."""
    if algorithm == "flash2":
        return (
            "derived",
            "Dao 2023, Algorithms 1 and 2; buffers of the FlashAttention-2 source (flash_api.cpp)",
        )
    if forward:
        source = "Dao et al. 2022, Algorithm 0" if algorithm == "standard" else "FlashAttention 1.0 source"
        return "derived", source
    status = "fitted" if _in_table_21(p) else "extrapolated"
    return status, "FlashAttention (2022), Table 21: fp16, seq_q = seq_k, equal heads, within 0.6 MiB"


def _in_table_21(p: AttentionProblem) -> bool:
    square = p.seq_q == p.seq_k and p.head_dim == p.value_dim and p.heads == p.kv_heads
    return square and {t.itemsize for t in (p.dtype_q, p.dtype_k, p.dtype_v, p.dtype_o)} == {2}


def peak_memory_bytes(problem: AttentionProblem, algorithm: str) -> int:
    """Peak bytes of a forward and a backward pass, for the shapes of FlashAttention Table 21 and no others.

    Standard: 4 copies of the N × N scores and 10 of an N × d matrix. FlashAttention as shipped in 2022: 11
    matrix copies and two fp32 numbers a row, and beyond N = 256, where its key block ends, one fp32 scratch
    matrix (2 more copies); block-sparse adds its mask. The rule is fitted to the table (fp16, batch 16, 8 heads,
    d = 64) and meets every such entry within 0.6 MiB. `ProblemError` outside the shapes it describes.
    """
    if not _in_table_21(problem):
        raise ProblemError(
            "peak memory: known only for seq_q = seq_k, value_dim = head_dim, kv_heads = heads "
            "and one two-byte dtype (FlashAttention Table 21)"
        )
    return held_memory(problem, algorithm).total_bytes


def at_length(problem: AttentionProblem, seq: int) -> AttentionProblem:
    """The problem with `seq` queries and keys."""
    return replace(problem, seq_q=seq, seq_k=seq)


def largest_seq(problem: AttentionProblem, algorithm: str, passes: str, capacity_bytes: int) -> int:
    """The largest seq_q = seq_k whose tensors fit in `capacity_bytes`; 0 where not even one row does.

    Footprints grow with the length, so a search by halves is exact.
    """

    def fits(seq: int) -> bool:
        return held_memory(at_length(problem, seq), algorithm, passes).total_bytes <= capacity_bytes

    low, high = 0, 1
    while high < MAX_SIZE and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
