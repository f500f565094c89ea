"""Masked unfused attention: what block-sparse methods did before FlashAttention, with S and P dense in slow memory.

The matmuls of hidden tiles are skipped; S and P are still N x Nk matrices that every kernel passes over whole:
hidden tiles of S are stored as −∞, and rows of P are read from end to end. So fewer flops, and the same N² bytes.
Slow memory a head: 4N·Nk + N(d + dv) elements and, for every row tile, the K and V of the tiles it visits.
A kernel that also skips hidden tiles of P in the last step would move (3 + s)N·Nk at density s.
"""

from __future__ import annotations

from math import inf

from iosim.program.builder import Builder
from iosim.program.expr import cdiv
from iosim.program.ir import Span


def masked_standard(p: Builder) -> None:
    """Three kernels over dense S and P; option block-mask."""
    Q, K, V, O, P = p.tensors("Q K V O P")
    S = p.scratch("S")
    for _ in p.kernel("scores"):
        for _ in p.heads():
            for i in p.grid("i", 0, cdiv(p.N, p.Br)):
                q = p.load("Q_i", Q.tile(i))
                for j in p.each_key_tile(i, q.rows):
                    k = p.load("K_j", K.tile(j))
                    p.store(S.tile(i, j), p.let("S_ij", p.mask(p.scale(q @ k.T))))
                for j in p.each_hidden_tile(i, q.rows):
                    tile = S.tile(i, j)
                    p.store(tile, p.fill("S_ij", -inf, tile.rows, tile.cols, of=S))
    for _ in p.kernel("softmax"):
        for _ in p.heads():
            for r in p.grid("r", 0, cdiv(p.N, 1)):
                s = p.load("S_r", S.part(Span.one(r)))
                e = p.let("e", p.exp(s - p.row_max(s)))
                p.store(P.part(s.rows), p.let("P_r", e * p.reciprocal(p.row_sum(e))))
    for _ in p.kernel("output"):
        for _ in p.heads():
            for i in p.grid("i", 0, cdiv(p.N, p.Br)):
                tile = O.tile(i)
                acc = p.fill("O_i", 0, tile.rows, tile.cols, of=O)
                for j in p.each_key_tile(i, tile.rows):
                    a, v = p.load("P_ij", P.tile(i, j)), p.load("V_j", V.tile(j))
                    p.set(acc, p.matmul(a, v, plus=acc))
                for j in p.each_hidden_tile(i, tile.rows):
                    p.load("P_ij", P.tile(i, j))  # zeros: streamed past with the rest of the row
                p.store(tile, acc)
