"""Standard attention, backward (Dao et al. 2022, Algorithm 3): five kernels, with P, dP and dS in slow memory.

    P, dO ──> dV      dO, V ──> dP      P, dP ──> dS      dS, K ──> dQ      dS, Q ──> dK

Idealised like its forward: each matmul reads each operand once, one operand or result staying on chip whole.
Four matmuls; P comes from the forward and is not computed again. dK and dV are sums over the query heads that
share a kv-head. Slow memory a head: 7N² + 8Nd elements at d = dv and one query head a kv-head.
"""

from __future__ import annotations

from collections.abc import Iterator

from iosim.program.builder import Builder
from iosim.program.expr import Expr, cdiv
from iosim.program.ir import Span, Tensor


def standard_backward(p: Builder) -> None:
    """Algorithm 3; dS carries the softmax scale."""
    Q, K, V, dO, P = p.saved("Q K V dO P")
    dQ, dK, dV = p.tensors("dQ dK dV")
    dP, dS = p.scratch("dP"), p.scratch("dS")
    p.line("1")
    _sum_over_rows(p, P, dO, dV)
    p.line("2")
    _rows_times(p, dO, V, dP, transposed=True)
    p.line("3")
    for _ in p.kernel("dS"):
        for _ in p.heads():
            for r in p.grid("r", 0, cdiv(p.N, 1)):
                row = P.part(Span.one(r))
                a, b = p.load("p_r", row), p.load("dp_r", dP.part(row.rows))
                d_r = p.let("D_r", p.row_sum(a * b))
                p.store(dS.part(row.rows), p.let("ds_r", p.scale(a * (b - d_r))))
    p.line("4")
    _rows_times(p, dS, K, dQ, transposed=False)
    p.line("5")
    _sum_over_rows(p, dS, Q, dK)


def _rows_times(p: Builder, rows: Tensor, whole: Tensor, result: Tensor, *, transposed: bool) -> None:
    """result = rows · whole, or rows · wholeᵀ: `whole` stays on chip, a row at a time streams past it."""
    for _ in p.kernel(result.name):
        for _ in p.heads():
            matrix = p.load(whole.name, whole.part())
            for r in p.loop("r", 0, p.N):
                row = p.load(f"{rows.name}_r", rows.part(Span.one(r)))
                product = row @ (matrix.T if transposed else matrix)
                p.store(result.part(row.rows), p.let(f"{result.name}_r", product))


def _sum_over_rows(p: Builder, left: Tensor, right: Tensor, result: Tensor) -> None:
    """result = Σ over rows r, and over the query heads of the group, of left_rᵀ · right_r: it stays on chip."""
    for _ in p.kernel(result.name):
        for _ in p.kv_heads():
            whole = result.part()
            acc = p.fill(result.name, 0, whole.rows, whole.cols, of=result)
            for r in _group_rows(p):
                a = p.load(f"{left.name}_r", left.part(Span.one(r)))
                b = p.load(f"{right.name}_r", right.part(Span.one(r)))
                p.set(acc, p.matmul(a.T, b, plus=acc))
            p.store(whole, acc)


def _group_rows(p: Builder) -> Iterator[Expr]:
    for _ in p.query_heads():
        yield from p.loop("r", 0, p.N)
