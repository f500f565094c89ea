"""Linear attention (Katharopoulos et al. 2020): the softmax replaced by φ(q)·φ(k) with φ(x) = elu(x) + 1.

    pass 1   KV = Σ φ(K_j)ᵀ V_j  and  z = Σ φ(K_j)ᵀ 1     d x dv and d numbers that stay on chip, fp32
    pass 2   O_i = φ(Q_i) KV / (φ(Q_i) z)

Not the attention of the other algorithms: it approximates nothing and computes something else, without a mask.
Slow memory a head: N(d + dv) + Nk(d + dv) elements, whatever the tile; flops grow as N, not N².
"""

from __future__ import annotations

from iosim.program.builder import Builder
from iosim.program.expr import cdiv
from iosim.program.ir import Span


def linear(p: Builder) -> None:
    """Linear attention without a mask: one thread block a head."""
    Q, K, V, O = p.tensors("Q K V O")
    for _ in p.kernel(p.name):
        for _ in p.heads():
            state = p.fill("KV", 0, Span.whole(p.d), V.part().cols)
            z = p.fill("z", 0, Span.whole(p.d))
            for j in p.loop("j", 0, cdiv(p.Nk, p.Bc)):
                k, v = p.load("K_j", K.tile(j)), p.load("V_j", V.tile(j))
                one = p.fill("1", 1, k.rows)
                f = p.let("φK", p.op("phi", k))
                p.set(state, p.matmul(f.T, v, plus=state))
                p.set(z, p.matmul(f.T, one, plus=z))
            for i in p.loop("i", 0, cdiv(p.N, p.Br)):
                q = p.load("Q_i", Q.tile(i))
                f = p.let("φQ", p.op("phi", q))
                p.store(O.tile(i), p.let("O_i", (f @ state) * p.reciprocal(f @ z)))
