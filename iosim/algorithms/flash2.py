"""FlashAttention-2 (Dao 2023), forward (Algorithm 1): outer loop over Q, inner over K and V.

              K_j, V_j  (Bc rows)            a thread block owns one row tile i of one head;
            ┌───┬───┬───┬───┐                K and V stream past it, O_i stays on chip
    Q_i ──> │ → │ → │ → │ → │ ──> O_i        unnormalised and is divided by l once, at the end
  (Br rows) └───┴───┴───┴───┘

Q, O [N, d | dv]; K, V [Nk, d | dv]. On chip: Q_i, K_j, V_j, O_i and S, P, m, l.
Slow memory a head: N(d + dv) + ceil(N/Br) · Nk(d + dv) elements; 4N bytes more with `lse=on`.
The printed line 10 rescales by diag(e^(m_old − m_new))⁻¹; the inverse is a misprint.
"""

from __future__ import annotations

from math import inf

from iosim.algorithms.extras import add_bias, bias_tensor, drop
from iosim.algorithms.flash2_backward import flash2_backward
from iosim.algorithms.paging import declare_pages, look_up
from iosim.program.builder import Builder


def flash2(p: Builder) -> None:
    """FlashAttention-2; options lse, bias, dropout, page, block-mask, pass (the forward of fwd+bwd writes lse)."""
    if p.options["pass"] != "bwd":
        _forward(p)
    if p.options["pass"] != "fwd":
        flash2_backward(p)


def _forward(p: Builder) -> None:
    Q, K, V, O = p.tensors("Q K V O")
    bias, pages = bias_tensor(p), declare_pages(p)
    for i in p.blocks(Q):
        p.line("4")
        q = p.load("Q_i", Q.tile(i))
        p.line("5")
        acc = p.fill("O_i", 0, q.rows, V.tile(i).cols, of=O)
        l = p.fill("l", 0, q.rows)
        m = p.fill("m", -inf, q.rows)
        p.line("6")
        for j in p.each_key_tile(i, q.rows):
            p.line("7")
            entries = look_up(p, pages, j)
            k = p.load("K_j", K.tile(j), through=entries)
            v = p.load("V_j", V.tile(j), through=entries)
            p.line("8")
            s = p.let("S", p.mask(add_bias(p, p.scale(q @ k.T), bias, q.rows, k.rows)))
            p.line("9")
            m_new = p.let("m_new", p.maximum(m, p.row_max(s)))
            P = p.let("P", p.exp(s - m_new))
            alpha = p.let("α", p.exp(m - m_new))
            p.set(l, alpha * l + p.row_sum(P))
            p.line("10")
            p.set(acc, p.matmul(drop(p, P), v, plus=alpha * acc))
            p.set(m, m_new)
        p.line("12")
        p.store(O.tile(i), acc * p.reciprocal(l))
        if p.options["lse"] == "on" or p.options["pass"] != "fwd":
            p.line("13")
            (LSE,) = p.tensors("LSE")
            p.store(LSE.tile(i), m + p.log(l))
