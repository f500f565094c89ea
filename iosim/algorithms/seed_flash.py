"""The textbook tiling: FlashAttention as it is often written down, outer Q, without 1/√d, saving m and l.

The same tiles and traffic as `flash2`, with what textbook listings change: the scores are not scaled, and the
row statistics are written as two vectors (`save-stats` none | lse | m+l, m+l by default).
"""

from __future__ import annotations

from math import inf

from iosim.program.builder import Builder


def seed_flash(p: Builder) -> None:
    """Textbook FlashAttention; option save-stats = m+l | lse | none."""
    Q, K, V, O = p.tensors("Q K V O")
    for i in p.blocks(Q):
        q = p.load("Q_i", Q.tile(i))
        acc = p.fill("O_i", 0, q.rows, V.tile(i).cols, of=O)
        l = p.fill("l", 0, q.rows)
        m = p.fill("m", -inf, q.rows)
        for j in p.loop("j", *p.key_tiles(q.rows)):
            k = p.load("K_j", K.tile(j))
            v = p.load("V_j", V.tile(j))
            s = p.let("S", p.mask(q @ k.T))
            m_new = p.let("m_new", p.maximum(m, p.row_max(s)))
            P = p.let("P", p.exp(s - m_new))
            alpha = p.let("α", p.exp(m - m_new))
            p.set(l, alpha * l + p.row_sum(P))
            p.set(acc, p.matmul(P, v, plus=alpha * acc))
            p.set(m, m_new)
        p.store(O.tile(i), acc * p.reciprocal(l))
        if p.options["save-stats"] == "m+l":
            M, L = p.tensors("M L")
            p.store(M.tile(i), m)
            p.store(L.tile(i), l)
        elif p.options["save-stats"] == "lse":
            (LSE,) = p.tensors("LSE")
            p.store(LSE.tile(i), m + p.log(l))
