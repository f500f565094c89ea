"""FlashAttention-2, backward (Dao 2023, Algorithm 2): a thread block owns one key tile of one kv-head.

    preprocess   D = rowsum(dO ∘ O), dQ = 0                           one thread block a row tile
    backward     K_j, V_j, dK_j, dV_j stay on chip; for every query head of the group and every row tile:
                     Q_i, dO_i, lse_i, D_i ──> P ──> dV_j += Pᵀ dO_i
                                               dS ──> dK_j += dSᵀ Q_i, and dQ_i += dS K_j in slow memory

Five matmuls: S again, dP, and the three gradients. dQ is a sum over thread blocks: each adds its part with a read
and a write (atomics). The listing loads dQ_i and O_i once more than its text needs; they are not loaded here.
Q, dQ [N, d]; dO, O [N, dv]; K, dK [Nk, d]; V, dV [Nk, dv]; lse, D [N] in fp32.
Slow memory a head: (4Tc + 7)Nd elements at d = dv and one query head a kv-head; N(1 + 1 + 2Tc) statistics.
"""

from __future__ import annotations

from iosim.program.builder import Builder, Value
from iosim.program.expr import cdiv


def flash2_backward(p: Builder) -> None:
    """Both kernels; O and the log-sum-exp come from the forward."""
    _preprocess(p)
    _gradients(p)


def _preprocess(p: Builder) -> None:
    (O, dO), (dQ, D) = p.saved("O dO"), p.tensors("dQ D")
    for _ in p.kernel("preprocess"):
        for _ in p.heads():
            for i in p.grid("i", 0, cdiv(p.N, p.Br)):
                p.line("4")
                o, do = p.load("O_i", O.tile(i)), p.load("dO_i", dO.tile(i))
                p.store(D.tile(i), p.let("D_i", p.row_sum(do * o)))
                p.line("1")
                zero = p.fill("dQ_i", 0, dQ.tile(i).rows, dQ.tile(i).cols, of=dQ)
                p.store(dQ.tile(i), zero, initial=True)


def _gradients(p: Builder) -> None:
    Q, K, V, dO, LSE, dQ, D = p.saved("Q K V dO LSE dQ D")
    dK, dV = p.tensors("dK dV")
    for _ in p.kernel("backward"):
        for _ in p.kv_heads():
            for j in p.grid("j", 0, cdiv(p.Nk, p.Bc)):
                p.line("6")
                k, v = p.load("K_j", K.tile(j)), p.load("V_j", V.tile(j))
                p.line("7")
                dk = p.fill("dK_j", 0, k.rows, k.cols, of=dK)
                dv = p.fill("dV_j", 0, v.rows, v.cols, of=dV)
                for _ in p.query_heads():
                    p.line("8")
                    for i in p.each_row_tile(j, k.rows):
                        p.line("9")
                        q, do = p.load("Q_i", Q.tile(i)), p.load("dO_i", dO.tile(i))
                        lse, d_i = p.load("lse_i", LSE.tile(i)), p.load("D_i", D.tile(i))
                        p.line("11")
                        P = p.let("P", p.exp(p.mask(p.scale(q @ k.T)) - lse))
                        dS = add_gradients(p, P, (q, do, d_i), v, dk, dv)
                        p.line("15")
                        p.accumulate(dQ.tile(i), p.let("dQ_ij", dS @ k))
                p.line("18")
                p.store(dK.tile(j), dk)
                p.store(dV.tile(j), dv)


def add_gradients(
    p: Builder, P: Value, rows: tuple[Value, Value, Value], v: Value, dk: Value, dv: Value
) -> Value:
    """dV_j += Pᵀ dO_i and dK_j += dSᵀ Q_i for `rows` = (Q_i, dO_i, D_i); returns dS, the softmax scale included."""
    q, do, d_i = rows
    p.line("12")
    p.set(dv, p.matmul(P.T, do, plus=dv))
    p.line("13")
    dP = p.let("dP", do @ v.T)
    p.line("14")
    dS = p.let("dS", p.scale(P * (dP - d_i)))
    p.line("16")
    p.set(dk, p.matmul(dS.T, q, plus=dk))
    return dS
