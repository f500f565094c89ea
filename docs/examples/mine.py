"""Attention in two passes over the keys: first each row's maximum and sum, then P and O. No rescaling of O.

Try it:  iosim simulate --algorithm docs/examples/mine.py:program,flash2 --seq 8192
"""

from math import inf


def program(p):
    """Two passes over K a row tile, so that O is never rescaled."""
    Q, K, V, O = p.tensors("Q K V O")
    for i in p.blocks(Q):  # one thread block a (batch, head, row tile of Q)
        q = p.load("Q_i", Q.tile(i))
        m = p.fill("m", -inf, q.rows)
        l = p.fill("l", 0, q.rows)
        for j in p.loop("j", *p.key_tiles(q.rows)):  # only the key tiles that the mask shows
            k = p.load("K_j", K.tile(j))
            s = p.let("S", p.mask(p.scale(q @ k.T)))
            m_new = p.let("m_new", p.maximum(m, p.row_max(s)))
            p.set(l, l * p.exp(m - m_new) + p.row_sum(p.exp(s - m_new)))
            p.set(m, m_new)
        acc = p.fill("O_i", 0, q.rows, V.tile(i).cols, of=O)
        for j in p.loop("j", *p.key_tiles(q.rows)):
            k = p.load("K_j", K.tile(j))
            v = p.load("V_j", V.tile(j))
            s = p.let("S", p.mask(p.scale(q @ k.T)))
            P = p.let("P", p.exp(s - m) * p.reciprocal(l))
            p.set(acc, p.matmul(P, v, plus=acc))
        p.store(O.tile(i), acc)
