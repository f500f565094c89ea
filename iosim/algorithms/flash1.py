"""FlashAttention-1 (Dao et al. 2022), forward (Algorithm 1): outer loop over K and V, inner over Q.

                Q_i, O_i, l_i, m_i           one thread block a head keeps K_j and V_j on chip and
              ┌───┬───┬───┬───┐              walks all of Q; the output and its row statistics go
    K_j, V_j  │ ↕ │ ↕ │ ↕ │ ↕ │              through slow memory once for every key tile
              └───┴───┴───┴───┘

Q, O [N, d | dv]; K, V [Nk, d | dv]; l, m [N] in fp32.
Slow memory a head, literal: Nk(d + dv) + N(Tc·d + (2Tc + 1)dv) elements and 2N(2Tc + 1) statistics.
Variant `literal` stores zeros first and reads them back, as printed; `skip-first-read` does neither; `fp32-between`
is the latter with O in fp32 while it waits for its next key tile, rounded once at the end, when the log-sum-exp
is written too: what a kernel does that must not round O again for every key tile.
"""

from __future__ import annotations

from math import inf

from iosim.algorithms.flash1_backward import flash1_backward
from iosim.algorithms.flash1_loops import row_tiles, unseen_row_tiles
from iosim.program.builder import Builder
from iosim.program.expr import cdiv, const
from iosim.program.ir import Region, Tensor


def flash1(p: Builder) -> None:
    """FlashAttention-1; options variant = literal | skip-first-read | fp32-between, pass = fwd | bwd | fwd+bwd."""
    if p.options["pass"] != "bwd":
        _forward(p)
    if p.options["pass"] != "fwd":
        flash1_backward(p)


def _forward(p: Builder) -> None:
    Q, K, V, O, M, L = p.tensors("Q K V O M L")
    literal, rounded = (p.options["variant"] == kind for kind in ("literal", "fp32-between"))
    between = p.partial("O_between", O, const(1), O.cols) if rounded else O
    LSE = p.tensors("LSE") if rounded else []
    for _ in p.kernel(p.name):
        for _ in p.heads():
            p.line("2")
            for i in p.loop("i", 0, cdiv(p.N, p.Br) if literal else unseen_row_tiles(p)):
                _initialise(p, between.tile(i), M, L)
            p.line("5")
            for j, every in p.each_visited_key_tile():
                p.line("6")
                k = p.load("K_j", K.tile(j))
                v = p.load("V_j", V.tile(j))
                p.line("7")
                for i, fresh in row_tiles(p, j, k.rows, every if literal else None):
                    _visit(p, (Q.tile(i), between.tile(i), M.tile(i), L.tile(i)), k, v, fresh=fresh)
            for lse in LSE:
                _finish(p, between, O, (M, L), lse)


def _initialise(p: Builder, o: Region, M: Tensor, L: Tensor) -> None:
    p.store(o, p.fill("O_i", 0, o.rows, o.cols, of=o.tensor))
    p.store(M.part(o.rows), p.fill("m_i", -inf, o.rows))
    p.store(L.part(o.rows), p.fill("l_i", 0, o.rows))


def _visit(p: Builder, tiles: tuple[Region, ...], k, v, *, fresh: bool) -> None:  # type: ignore[no-untyped-def]
    """Lines 8 to 13 for one row tile; `fresh` starts from an empty output instead of reading one."""
    q_tile, o_tile, m_tile, l_tile = tiles
    p.line("8")
    q = p.load("Q_i", q_tile)
    if fresh:
        o = p.fill("O_i", 0, o_tile.rows, o_tile.cols, of=o_tile.tensor)
        m = p.fill("m_i", -inf, q.rows)
        l = p.fill("l_i", 0, q.rows)
    else:
        o, m, l = p.load("O_i", o_tile), p.load("m_i", m_tile), p.load("l_i", l_tile)
    p.line("9")
    s = p.let("S", p.mask(p.scale(q @ k.T)))
    p.line("10")
    m_tilde = p.let("m~", p.row_max(s))
    P = p.let("P~", p.exp(s - m_tilde))
    l_tilde = p.let("l~", p.row_sum(P))
    p.line("11")
    m_new = p.let("m_new", p.maximum(m, m_tilde))
    alpha = p.let("α", p.exp(m - m_new))
    beta = p.let("β", p.exp(m_tilde - m_new))
    l_new = p.let("l_new", alpha * l + beta * l_tilde)
    p.line("12")
    old = p.let("O~", alpha * l * o)
    p.store(o_tile, p.matmul(beta * P, v, plus=old) * p.reciprocal(l_new))
    p.line("13")
    p.store(l_tile, l_new)
    p.store(m_tile, m_new)


def _finish(p: Builder, between: Tensor, O: Tensor, statistics: tuple[Tensor, Tensor], lse: Tensor) -> None:
    """O once more, rounded to its own type; m and l become one number."""
    M, L = statistics
    p.line("16")
    for i in p.loop("i", 0, cdiv(p.N, p.Br)):
        o = p.load("O_i", between.tile(i))
        m, l = p.load("m_i", M.tile(i)), p.load("l_i", L.tile(i))
        p.store(O.tile(i), o)
        p.store(lse.tile(i), m + p.log(l))
