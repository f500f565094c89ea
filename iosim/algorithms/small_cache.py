"""Attention for small memories, M < d²: both matmuls blocked along d as well, with S and P in slow memory.

FlashAttention keeps whole rows of d elements on chip; below M = d² two blocked matmuls move less
(Saha & Ye 2024): about 4 N² d / √M for the operands, and a constant number of passes over S and P.

    scores: S_ij (R x C) stays on chip while the d columns of Q_i and K_j pass one at a time
    softmax: online, two reads and one write of every visible row
    output: O_ie (R x C) stays on chip while the keys pass one at a time
"""

from __future__ import annotations

from math import inf

from iosim.program.builder import Builder
from iosim.program.expr import cdiv
from iosim.program.ir import Span, Tensor


def small_cache(p: Builder) -> None:
    """Blocked attention for M < d²."""
    Q, K, V, O = p.tensors("Q K V O")
    S, P = p.scratch("S"), p.scratch("P")
    rank_one_scores(p, Q, K, S, scaled=True)
    _softmax(p, Q, S, P)
    _output(p, P, V, O)


def gemm(p: Builder) -> None:
    """The matmul alone, S = Q Kᵀ, by rank-one updates of an R x C tile that stays on chip."""
    Q, K = p.tensors("Q K")
    rank_one_scores(p, Q, K, p.scratch("S", role="output"), scaled=False)


def rank_one_scores(p: Builder, Q: Tensor, K: Tensor, S: Tensor, *, scaled: bool) -> None:
    """S tile by tile: R·C products for every R + C elements read. The plain matmul sees no mask."""
    for _ in p.kernel("scores"):
        for _ in p.heads():
            for i in p.grid("i", 0, cdiv(p.N, p.Br)):
                every = (0, cdiv(p.Nk, p.Bc))
                for j in p.grid("j", *(p.key_tiles(Q.tile(i).rows) if scaled else every)):
                    tile = S.tile(i, j)
                    acc = p.fill("S_ij", 0, tile.rows, tile.cols, of=S)
                    for c in p.loop("c", 0, p.d):
                        q = p.load("q_c", Q.part(tile.rows, Span.one(c)))
                        k = p.load("k_c", K.part(tile.cols, Span.one(c)))
                        p.set(acc, p.matmul(q, k.T, plus=acc))
                    p.store(tile, p.scale(acc) if scaled else acc)


def _softmax(p: Builder, Q: Tensor, S: Tensor, P: Tensor) -> None:
    for _ in p.kernel("softmax"):
        for _ in p.heads():
            for i in p.grid("i", 0, cdiv(p.N, p.Br)):
                rows = Q.tile(i).rows
                tiles = p.key_tiles(rows)
                for r in p.loop("r", rows.start, rows.stop):
                    row = Span.one(r)
                    m, l = p.fill("m", -inf, row), p.fill("l", 0, row)
                    for j in p.loop("j1", *tiles):
                        s = p.mask(p.load("S_rj", S.part(row, Span.tile(j, p.Bc, p.Nk))))
                        m_new = p.let("m_new", p.maximum(m, p.row_max(s)))
                        p.set(l, l * p.exp(m - m_new) + p.row_sum(p.exp(s - m_new)))
                        p.set(m, m_new)
                    for j in p.loop("j2", *tiles):
                        s = p.mask(p.load("S_rj", S.part(row, Span.tile(j, p.Bc, p.Nk))))
                        P_rj = p.let("P_rj", p.exp(s - m) * p.reciprocal(l))
                        p.store(P.part(row, Span.tile(j, p.Bc, p.Nk)), P_rj)


def _output(p: Builder, P: Tensor, V: Tensor, O: Tensor) -> None:
    for _ in p.kernel("output"):
        for _ in p.heads():
            for i in p.grid("i", 0, cdiv(p.N, p.Br)):
                for e in p.grid("e", 0, cdiv(p.dv, p.Bc)):
                    tile = O.tile(i, e)
                    acc = p.fill("O_ie", 0, tile.rows, tile.cols, of=O)
                    for c in p.loop("c", *p.key_range(tile.rows)):
                        a = p.load("p_c", P.part(tile.rows, Span.one(c)))
                        v = p.load("v_c", V.part(Span.one(c), tile.cols))
                        p.set(acc, p.matmul(a, v, plus=acc))
                    p.store(tile, acc)
