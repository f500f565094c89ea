"""Multi-head latent attention, absorbed (DeepSeek-V2 2024): one latent row a token is key and value of every head.

    c_j (Bc x d, d = latent + rope)      S = q c_jᵀ          scores over the whole row
    └── its first dv columns ──────────  O += P c_j[:, :dv]  values without a load of their own

All query heads share the one latent row, so they are rows of one tile (row query·heads + head) and the cache is read
once a sequence, not once a head. Splits and combine as in `decode`. K holds the latent rows, [Nk, d]; there is no V.
DeepSeek: d = 512 + 64, dv = 512. Slow memory: Nk·d of the cache once, H·t·(d + dv) elements of Q and O.
"""

from __future__ import annotations

from iosim.algorithms.decode import split_attention
from iosim.program.builder import Builder


def mla(p: Builder) -> None:
    """Absorbed latent attention; options splits, pack-gqa = on | off."""
    (C,) = p.tensors("K")
    split_attention(p, C, lambda j, c, _: p.let("V_j", p.first_columns(c, p.dv)))
