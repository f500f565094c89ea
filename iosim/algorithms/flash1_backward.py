"""FlashAttention-1, backward (Dao et al. 2022, Algorithm 4): outer loop over K and V, inner over Q.

    K_j, V_j, dK_j, dV_j stay on chip; past them stream Q_i, O_i, dO_i, dQ_i and l_i, m_i;
    dQ_i goes back to slow memory after every key tile, D_i is computed anew from dO_i and O_i each time

Five matmuls. One thread block a kv-head walks all key tiles, and for each the query heads of its group.
Variant `literal` stores zeros in dQ, dK and dV first, as printed; `skip-first-read` does not, and starts dQ_i
on chip at its first visit. Slow memory a head at d = dv: (5Tc + 7)Nd, or (5Tc + 3)Nd; 2N·Tc statistics are read.
"""

from __future__ import annotations

from iosim.algorithms.flash1_loops import row_tiles, unseen_row_tiles
from iosim.algorithms.flash2_backward import add_gradients
from iosim.program.builder import Builder, Value
from iosim.program.expr import Expr, cdiv
from iosim.program.ir import Span, Tensor


def flash1_backward(p: Builder) -> None:
    """One kernel; option variant = literal | skip-first-read. O, m and l come from the forward."""
    Q, O, dO, M, L, K, V = p.saved("Q O dO M L K V")
    dQ, dK, dV = p.tensors("dQ dK dV")
    literal = p.options["variant"] == "literal"
    for _ in p.kernel("backward"):
        for _ in p.kv_heads():
            p.line("5")
            first_key_tile, _ = p.key_tiles(Span.whole(p.N))
            for _ in p.query_heads():
                _zeros(p, "i", 0, cdiv(p.N, p.Br) if literal else unseen_row_tiles(p), dQ)
            last_unseen = cdiv(p.Nk, p.Bc) if literal else first_key_tile
            _zeros(p, "j", 0, last_unseen, dK, dV)
            p.line("6")
            for j, every in p.each_visited_key_tile():
                p.line("7")
                k, v = p.load("K_j", K.tile(j)), p.load("V_j", V.tile(j))
                p.line("8")
                dk = p.fill("dK_j", 0, k.rows, k.cols, of=dK)
                dv = p.fill("dV_j", 0, v.rows, v.cols, of=dV)
                for _ in p.query_heads():
                    for i, fresh in row_tiles(p, j, k.rows, every if literal else None):
                        p.line("10")
                        q, o, do = (p.load(f"{t.name}_i", t.tile(i)) for t in (Q, O, dO))
                        zero = (q.rows, q.cols, dQ)
                        dq = p.fill("dQ_i", 0, *zero) if fresh else p.load("dQ_i", dQ.tile(i))
                        m, l = p.load("m_i", M.tile(i)), p.load("l_i", L.tile(i))
                        dS = _scores_gradient(p, (q, o, do, m, l), (k, v), dk, dv)
                        p.line("21")
                        p.store(dQ.tile(i), p.matmul(dS, k, plus=dq))
                p.line("24")
                p.store(dK.tile(j), dk)
                p.store(dV.tile(j), dv)


def _zeros(p: Builder, index: str, start: int, stop: Expr, *tensors: Tensor) -> None:
    """Initial zeros in the tiles [start, stop) of each tensor."""
    for t in p.loop(index, start, stop):
        for tensor in tensors:
            tile = tensor.tile(t)
            zero = p.fill(f"{tensor.name}_{index}", 0, tile.rows, tile.cols, of=tensor)
            p.store(tile, zero, initial=True)


def _scores_gradient(
    p: Builder, rows: tuple[Value, ...], keys: tuple[Value, Value], dk: Value, dv: Value
) -> Value:
    """Lines 11 to 20 and 22 for one pair of tiles: P anew from m and l, then dS."""
    q, o, do, m, l = rows
    k, v = keys
    p.line("11")
    s = p.let("S", p.mask(p.scale(q @ k.T)))
    p.line("13")
    P = p.let("P", p.exp(s - m) * p.reciprocal(l))
    p.line("19")
    d_i = p.let("D_i", p.row_sum(do * o))
    return add_gradients(p, P, (q, do, d_i), v, dk, dv)
