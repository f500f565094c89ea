"""What no backward of a class can beat, in whole bytes; the arguments are those of `bounds`, with one more matrix.

*Fused*: P is computed again, and P and dS stay on chip. A pair needs its rows of Q, dO, K and V on chip together
(S from Q and K, dP from dO and V), so x query rows and y key rows obey x·(d·s_q + dv·s_o) + y·(d·s_k + dv·s_v)
<= 2M, and P pairs need P·(d·s_q + dv·s_o)·(d·s_k + dv·s_v)/M − M bytes: 4N²d²/M − M elements at one dtype.

*Matmul*, for algorithms that read P and write dS: the products dV = Pᵀ dO and dQ = dS K (or dK = dSᵀ Q) share
no matrix, so their bounds add up; dO, K and Q also serve the other products, whose bounds would count them twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from iosim.errors import UsageError
from iosim.problem import AttentionProblem
from iosim.theory.bounds import SMITH, Bound, Seen, bounds, matmul_bound_bytes


def backward_compulsory_bytes(problem: AttentionProblem, seen: Seen | None = None) -> int:
    """Visible rows of Q, dO, K and V read once; dQ, dK and dV written once. O and statistics could be recomputed."""
    p, seen = problem, seen or Seen.of(problem)
    query, output = p.head_dim * p.dtype_q.itemsize, p.value_dim * p.dtype_o.itemsize
    key = p.head_dim * p.dtype_k.itemsize + p.value_dim * p.dtype_v.itemsize
    queries = p.heads * (seen.queries * (query + output) + p.seq_q * query)
    return p.batch * (queries + p.kv_heads * (seen.keys + p.seq_k) * key)


def backward_bounds(
    problem: AttentionProblem, sram_bytes: int, *, spills_scores: bool, seen: Seen | None = None
) -> list[Bound]:
    """Every bound of a backward pass, those that do not apply included; `seen`: what a block mask leaves.

    `UsageError` if M < 1.
    """
    if sram_bytes < 1:
        raise UsageError(f"sram_bytes: must be at least 1, got {sram_bytes}")
    seen = seen or Seen.of(problem)
    pairs = seen.pairs * problem.heads * problem.batch
    compulsory = Bound(
        name="compulsory",
        bytes=backward_compulsory_bytes(problem, seen),
        valid=True,
        reason="holds at every M",
        source="visible rows of Q, K, V and dO read once, dQ, dK and dV written once",
        algorithms="every exact backward",
    )
    return [
        compulsory,
        _fused(problem, pairs, sram_bytes, spills_scores),
        _matmuls(problem, pairs, sram_bytes, spills_scores),
        _score_passes(problem, seen, spills_scores),
    ]


def both_bounds(
    problem: AttentionProblem, sram_bytes: int, *, spills_scores: bool, seen: Seen | None = None
) -> list[Bound]:
    """Forward, then backward, with nothing kept on chip in between: each bound is the sum of the two."""
    forward: Sequence[Bound] = bounds(problem, sram_bytes, spills_scores=spills_scores, seen=seen)
    backward = backward_bounds(problem, sram_bytes, spills_scores=spills_scores, seen=seen)
    out = []
    for a, b in zip(forward, backward, strict=True):
        known = a.bytes is not None and b.bytes is not None
        total = (a.bytes or 0) + (b.bytes or 0) if known else None
        out.append(
            replace(
                b,
                bytes=total,
                valid=a.valid and b.valid,
                reason=b.reason if a.valid else a.reason,
                source=f"forward: {a.source}; backward: {b.source}",
                algorithms=f"{b.algorithms}; nothing kept on chip between the passes",
            )
        )
    return out


def _fused(p: AttentionProblem, pairs: int, sram_bytes: int, spills_scores: bool) -> Bound:
    query = p.head_dim * p.dtype_q.itemsize + p.value_dim * p.dtype_o.itemsize
    key = p.head_dim * p.dtype_k.itemsize + p.value_dim * p.dtype_v.itemsize
    value: int | None = None
    if spills_scores:
        reason = "out of its class: the algorithm writes scores to slow memory"
    elif sram_bytes < query + key:
        reason = (
            f"no such algorithm: one row each of Q, dO, K and V takes {query + key} of M = {sram_bytes} bytes"
        )
    else:
        value = max(0, pairs * query * key // sram_bytes - sram_bytes)
        reason = "holds where a row each of Q, dO, K and V fits in M"
    return Bound(
        name="fused",
        bytes=value,
        valid=value is not None,
        reason=reason,
        source="derived in docs/families/backward.md",
        algorithms="P and dS never in slow memory; whole rows of Q, dO, K and V on chip for every pair",
    )


def _matmuls(p: AttentionProblem, pairs: int, sram_bytes: int, spills_scores: bool) -> Bound:
    s_q, s_k, s_v, s_o = (t.itemsize for t in (p.dtype_q, p.dtype_k, p.dtype_v, p.dtype_o))
    products = [(s_o, s_o, s_v), (s_o, s_k, s_q), (s_o, s_q, s_k)]
    smallest = max(sum(sizes) for sizes in products)
    value: int | None = None
    if not spills_scores:
        reason = "out of its class: the algorithm keeps the scores on chip"
    elif sram_bytes < smallest:
        reason = f"no such algorithm: one multiplication takes {smallest} of M = {sram_bytes} bytes"
    else:
        d_v = matmul_bound_bytes(pairs * p.value_dim, products[0], sram_bytes)
        value = d_v + max(matmul_bound_bytes(pairs * p.head_dim, sizes, sram_bytes) for sizes in products[1:])
        reason = "holds at every M that holds one element of each operand"
    return Bound(
        name="matmul",
        bytes=value,
        valid=value is not None,
        reason=reason,
        source=SMITH,
        algorithms="P read from slow memory, dS written to it and read back; no fast matmul",
    )


def _score_passes(p: AttentionProblem, seen: Seen, spills_scores: bool) -> Bound:
    scores = seen.pairs * p.heads * p.batch * p.dtype_o.itemsize
    return Bound(
        name="score round trip",
        bytes=backward_compulsory_bytes(p, seen) + 3 * scores if spills_scores else None,
        valid=spills_scores,
        reason="holds at every M"
        if spills_scores
        else "out of its class: the algorithm keeps the scores on chip",
        source="compulsory bytes, and for each unmasked score P read, dS written and read, once",
        algorithms="P read from slow memory, dS written to it and read back",
    )
