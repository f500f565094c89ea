"""What no algorithm of a class can beat, as whole bytes, each with its class, range and source.

All bounds count reads and writes between slow memory and an on-chip memory of M bytes, over all heads and
batch entries. Thread blocks that each own M bytes can be run one after the other on one such memory, so the
bounds hold for a whole grid. Square roots are taken on integers and rounded down: never too high.

Segments. Cut a run into stretches of equal I/O. What one stretch can compute is limited by the data it can
touch, M bytes left from before and what it reads, so the number of stretches cannot be small.

*Fused*: stretches of M bytes. A pair (query, key) needs its rows of Q, K and V on chip together. With x query
rows and y key rows, x·d·s_q + y·(d·s_k + dv·s_v) <= 2M, so x·y <= M² / (d·s_q·(d·s_k + dv·s_v)); with P pairs
in all there are more than P·d·s_q·(d·s_k + dv·s_v)/M² − 1 whole stretches of M bytes.

*Matmul*: stretches of 2M bytes of reads, accumulators read at their first use (as if they were stored zeros;
their writes pay for that afterwards). A product that touches a, b and c elements of its three matrices has at
most √(a·b·c) multiplications (Loomis and Whitney 1949), and a·s_a + b·s_b + c·s_c <= 3M, so at most
M^1.5 / √(s_a·s_b·s_c) by the inequality of the means. So V multiplications need at least
2V·√(s_a·s_b·s_c)/√M − 2M bytes. At one itemsize this is 2mnk/√M − 2M elements, the form of Smith et al. Heads
that share K or V are one product with more rows, and disjoint products add up under the same square root, so
V is summed over all heads. An element on chip is taken to need no less than its itemsize in slow memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isqrt

from iosim.errors import UsageError
from iosim.problem import AttentionProblem

DERIVED = "derived in docs/theory.md"
SMITH = "Smith, Lowery, Langou, van de Geijn 2017 (arXiv:1702.02017); itemsizes: docs/theory.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lower bound: `bytes` is None and `valid` False outside its range, and `reason` says why.

    `algorithms`: the class it holds for. `source`: paper or derivation.
    """

    name: str
    bytes: int | None
    valid: bool
    reason: str
    source: str
    algorithms: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the masks leave of one head: visible pairs, and rows of Q and of K that any algorithm must read."""

    pairs: int
    queries: int
    keys: int

    @staticmethod
    def of(problem: AttentionProblem) -> Seen:
        """Under the problem's own mask."""
        return Seen(pairs=problem.pairs, queries=problem.visible_queries, keys=problem.visible_keys)


def compulsory_bytes(problem: AttentionProblem, seen: Seen | None = None, *, latent: bool = False) -> int:
    """Bytes that any exact attention moves: each visible row of Q, K and V read, all of O written, once.

    Rows that the mask hides from everyone need not be read; K and V count once a kv head.
    """
    p, seen = problem, seen or Seen.of(problem)
    per_query_head = seen.queries * p.head_dim * p.dtype_q.itemsize + (
        p.seq_q * p.value_dim * p.dtype_o.itemsize
    )
    per_key = _key_row_bytes(p, latent)
    return p.batch * (p.heads * per_query_head + p.kv_heads * seen.keys * per_key)


def _key_row_bytes(p: AttentionProblem, latent: bool) -> int:
    """A row of K and of V; of K alone where the values are part of it."""
    return p.head_dim * p.dtype_k.itemsize + (0 if latent else p.value_dim * p.dtype_v.itemsize)


def bounds(
    problem: AttentionProblem,
    sram_bytes: int,
    *,
    spills_scores: bool,
    matmul_only: bool = False,
    seen: Seen | None = None,
    latent: bool = False,
) -> list[Bound]:
    """Every bound that concerns the algorithm, the ones that do not apply included, with the reason.

    `sram_bytes`: M, what one thread block may hold. `spills_scores`: the algorithm writes S to slow memory.
    `matmul_only`: it computes S = Q Kᵀ and nothing else, whatever the mask. `seen`: what a block mask
    leaves, if there is one. `latent`: the values are columns of the keys. `UsageError` if M < 1.
    """
    if sram_bytes < 1:
        raise UsageError(f"sram_bytes: must be at least 1, got {sram_bytes}")
    if matmul_only:
        return [_gemm_compulsory(problem), _gemm_bound(problem, sram_bytes)]
    seen = seen or Seen.of(problem)
    return [
        _compulsory(problem, seen, latent),
        _fused(problem, seen, sram_bytes, spills_scores, latent),
        _matmuls(problem, seen, sram_bytes, spills_scores),
        _score_round_trip(problem, seen, spills_scores),
    ]


def strongest(candidates: Iterable[Bound]) -> int:
    """The largest valid bound in bytes; 0 when none is valid."""
    return max((b.bytes for b in candidates if b.valid and b.bytes is not None), default=0)


def ideal_reads_sram_bytes(problem: AttentionProblem) -> int:
    """Smallest M at which the matmul bound lets each matmul of `standard` read its operands once.

    4·d² elements at one dtype: below it the idealised count of standard attention is out of reach, and is
    not to be held against the bounds.
    """
    p = problem
    scores = -(-4 * p.head_dim**2 * p.dtype_q.itemsize * p.dtype_k.itemsize // p.dtype_o.itemsize)
    return max(scores, 4 * p.value_dim**2 * p.dtype_v.itemsize)


def matmul_bound_bytes(multiplications: int, itemsizes: tuple[int, int, int], sram_bytes: int) -> int:
    """2V·√(s_a·s_b·s_c)/√M − 2M in bytes, rounded down, at least 0: see the module's text."""
    s_a, s_b, s_c = itemsizes
    leading = isqrt(4 * multiplications**2 * s_a * s_b * s_c // sram_bytes)
    return max(0, leading - 2 * sram_bytes)


def _heads(p: AttentionProblem) -> int:
    return p.batch * p.heads


def _compulsory(p: AttentionProblem, seen: Seen, latent: bool) -> Bound:
    return Bound(
        name="compulsory",
        bytes=compulsory_bytes(p, seen, latent=latent),
        valid=True,
        reason="holds at every M",
        source="visible rows of Q, K, V read once, O written once",
        algorithms="every exact attention",
    )


def _fused(p: AttentionProblem, seen: Seen, sram_bytes: int, spills_scores: bool, latent: bool) -> Bound:
    query_row = p.head_dim * p.dtype_q.itemsize
    key_row = _key_row_bytes(p, latent)
    smallest = query_row + key_row
    value: int | None = None
    if spills_scores:
        reason = "out of its class: the algorithm writes S to slow memory"
    elif sram_bytes < smallest:
        reason = f"no such algorithm: one row each of Q, K and V takes {smallest} of M = {sram_bytes} bytes"
    else:
        pairs = seen.pairs * _heads(p)
        value = max(0, pairs * query_row * key_row // sram_bytes - sram_bytes)
        reason = "holds where a row each of Q, K and V fits in M"
    return Bound(
        name="fused",
        bytes=value,
        valid=value is not None,
        reason=reason,
        source=DERIVED,
        algorithms="S never in slow memory; whole rows of Q, K and V on chip for every pair",
    )


def _matmuls(p: AttentionProblem, seen: Seen, sram_bytes: int, spills_scores: bool) -> Bound:
    s_o = p.dtype_o.itemsize
    scores = (p.dtype_q.itemsize, p.dtype_k.itemsize, s_o)
    output = (s_o, p.dtype_v.itemsize, s_o)
    smallest = max(sum(scores), sum(output))
    value: int | None = None
    if not spills_scores:
        reason = "out of its class: the algorithm keeps S on chip"
    elif sram_bytes < smallest:
        reason = f"no such algorithm: one multiplication takes {smallest} of M = {sram_bytes} bytes"
    else:
        pairs = seen.pairs * _heads(p)
        value = matmul_bound_bytes(pairs * p.head_dim, scores, sram_bytes)
        value += matmul_bound_bytes(pairs * p.value_dim, output, sram_bytes)
        reason = "holds at every M that holds one element of each operand"
    return Bound(
        name="matmul",
        bytes=value,
        valid=value is not None,
        reason=reason,
        source=SMITH,
        algorithms="S written to slow memory and read back, as S or P, before it meets V; no fast matmul",
    )


def _score_round_trip(p: AttentionProblem, seen: Seen, spills_scores: bool) -> Bound:
    value = (
        compulsory_bytes(p, seen) + 2 * seen.pairs * _heads(p) * p.dtype_o.itemsize if spills_scores else None
    )
    return Bound(
        name="score round trip",
        bytes=value,
        valid=spills_scores,
        reason="holds at every M" if spills_scores else "out of its class: the algorithm keeps S on chip",
        source="compulsory bytes, and each unmasked score written once and read once",
        algorithms="S written to slow memory and read back, as S or P, before it meets V",
    )


def _gemm_compulsory(p: AttentionProblem) -> Bound:
    q = p.heads * p.seq_q * p.head_dim * p.dtype_q.itemsize
    k = p.kv_heads * p.seq_k * p.head_dim * p.dtype_k.itemsize
    s = p.heads * p.seq_q * p.seq_k * p.dtype_o.itemsize
    return Bound(
        name="compulsory",
        bytes=p.batch * (q + k + s),
        valid=True,
        reason="holds at every M",
        source="Q and K read once, S written once",
        algorithms="every S = Q Kᵀ",
    )


def _gemm_bound(p: AttentionProblem, sram_bytes: int) -> Bound:
    sizes = (p.dtype_q.itemsize, p.dtype_k.itemsize, p.dtype_o.itemsize)
    fits = sram_bytes >= sum(sizes)
    products = _heads(p) * p.seq_q * p.seq_k * p.head_dim
    return Bound(
        name="matmul",
        bytes=matmul_bound_bytes(products, sizes, sram_bytes) if fits else None,
        valid=fits,
        reason="holds at every M that holds one element of each operand"
        if fits
        else f"no such algorithm: one multiplication takes {sum(sizes)} of M = {sram_bytes} bytes",
        source=SMITH,
        algorithms="every S = Q Kᵀ that performs all multiplications; no fast matmul",
    )
