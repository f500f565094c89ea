"""The one-pass recurrence of online softmax, carried through to O: a query row at a time, a key at a time.

This is FlashAttention without tiles (Milakov & Gimelshein 2018; Rabe & Staats 2021): one pass over K and V a
query, nothing but q, k, v, o, m and l on chip. It reads every visible key and value once for every query.
"""

from __future__ import annotations

from math import inf

from iosim.program.builder import Builder
from iosim.program.expr import cdiv
from iosim.program.ir import Span


def online_attention(p: Builder) -> None:
    """One-pass attention, row by row."""
    Q, K, V, O = p.tensors("Q K V O")
    for _ in p.kernel(p.name):
        for _ in p.heads():
            for i in p.grid("i", 0, cdiv(p.N, 1)):
                row = Span.one(i)
                q = p.load("q", Q.part(row))
                o = p.fill("o", 0, row, V.part().cols, of=O)
                l = p.fill("l", 0, row)
                m = p.fill("m", -inf, row)
                for j in p.loop("j", *p.key_range(row)):
                    k = p.load("k", K.part(Span.one(j)))
                    v = p.load("v", V.part(Span.one(j)))
                    x = p.let("x", p.mask(p.scale(q @ k.T)))
                    m_new = p.let("m_new", p.maximum(m, x))
                    w = p.let("w", p.exp(x - m_new))
                    alpha = p.let("α", p.exp(m - m_new))
                    p.set(l, alpha * l + w)
                    p.set(o, p.matmul(w, v, plus=alpha * o))
                    p.set(m, m_new)
                p.store(O.part(row), o * p.reciprocal(l))
