"""Attention for few queries and many keys: Flash-Decoding (Dao et al. 2023), the keys split over thread blocks.

    split s of S    keys ──> O_s, lse_s          one thread block a (kv-head, row tile, split)
    combine         Σ_s e^(lse_s − lse) O_s      one thread block a (kv-head, row tile)

With `pack-gqa=on` the query heads that share a kv-head are rows of one tile (row query·group + head), so K and V are
read once a kv-head; with `off` once a query head. `splits=1` stores O and has no second kernel; otherwise partial O
and log-sum-exps go through slow memory in fp32. A split owns an equal share of the key tiles that its rows see.

Q, O [N·H/Hk, d | dv] a kv-head; K, V [Nk, d | dv]. Slow memory for t queries and S > 1 splits:
K and V once, H·t·d elements of Q a split, 4·H·t·(dv + 1) bytes a split written and read again, and O.
The same program is chunked prefill (t in the hundreds, Nk longer) and speculative decoding (t a handful).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TypeAlias

from iosim.algorithms.paging import declare_pages, look_up
from iosim.program.builder import Builder, Value
from iosim.program.expr import Expr, cdiv, const
from iosim.program.ir import Tensor

ValueTile: TypeAlias = "Callable[[Expr, Value, Value | None], Value]"


def decode(p: Builder) -> None:
    """Split-KV attention; options splits, pack-gqa = on | off, page."""
    K, V = p.tensors("K V")
    split_attention(p, K, lambda j, k, entries: p.load("V_j", V.tile(j), through=entries))


def split_attention(p: Builder, K: Tensor, value_tile: ValueTile) -> None:
    """Both kernels; `value_tile(j, K_j, page entries)` gives the values of key tile j."""
    Q, O = p.packed("Q O") if p.options["pack-gqa"] == "on" else p.tensors("Q O")
    pages = declare_pages(p)
    if p.options["splits"] == "1":
        for _ in p.kernel(p.name):
            for i in _row_tiles(p, Q):
                acc, l, _ = _over_keys(p, Q, O, (K, pages), value_tile, i, None)
                p.store(O.tile(i), acc * p.reciprocal(l))
        return
    splits = p.number("splits")
    parts = p.partial("O_parts", O, splits, O.cols)
    lse_parts = p.partial("LSE_parts", O, splits, const(1))
    for _ in p.kernel("split"):
        for i in _row_tiles(p, Q):
            for s in p.grid("s", 0, splits):
                acc, l, m = _over_keys(p, Q, O, (K, pages), value_tile, i, s)
                rows = O.tile(i).rows.copy_of(s, O.rows)
                p.store(parts.part(rows), acc * p.reciprocal(l))
                p.store(lse_parts.part(rows), m + p.log(l))
    _combine(p, O, parts, lse_parts, splits)


def _row_tiles(p: Builder, Q: Tensor) -> Iterator[Expr]:
    """The grid over batch entries, heads or kv-heads, and row tiles."""
    for _ in p.kv_heads() if Q.packed else p.heads():
        yield from p.grid("i", 0, cdiv(Q.rows, p.Br))


def _over_keys(
    p: Builder,
    Q: Tensor,
    O: Tensor,
    cache: tuple[Tensor, Tensor | None],
    value_tile: ValueTile,
    i: Expr,
    s: Expr | None,
) -> tuple[Value, Value, Value]:
    """FlashAttention-2 over the key tiles of one split (all of them for s None): O_i unnormalised, l and m."""
    K, pages = cache
    q = p.load("Q_i", Q.tile(i))
    acc = p.fill("O_i", 0, q.rows, O.tile(i).cols, of=O)
    l = p.fill("l", 0, q.rows)
    m = p.fill("m", -inf, q.rows)
    first, last = p.key_tiles(q.rows)
    if s is not None:
        splits, many = p.number("splits"), last - first
        first, last = first + s * many // splits, first + (s + 1) * many // splits
    for j in p.loop("j", first, last):
        entries = look_up(p, pages, j)
        k = p.load("K_j", K.tile(j), through=entries)
        v = value_tile(j, k, entries)
        scores = p.let("S", p.mask(p.scale(q @ k.T)))
        m_new = p.let("m_new", p.maximum(m, p.row_max(scores)))
        P = p.let("P", p.exp(scores - m_new))
        alpha = p.let("α", p.exp(m - m_new))
        p.set(l, alpha * l + p.row_sum(P))
        p.set(acc, p.matmul(P, v, plus=alpha * acc))
        p.set(m, m_new)
    return acc, l, m


def _combine(p: Builder, O: Tensor, parts: Tensor, lse_parts: Tensor, splits: Expr) -> None:
    for _ in p.kernel("combine"):
        for i in _row_tiles(p, O):
            tile = O.tile(i)
            acc = p.fill("O_i", 0, tile.rows, tile.cols, of=O)
            l = p.fill("l", 0, tile.rows)
            m = p.fill("m", -inf, tile.rows)
            for s in p.loop("s", 0, splits):
                rows = tile.rows.copy_of(s, O.rows)
                lse = p.load("lse_s", lse_parts.part(rows))
                o = p.load("O_s", parts.part(rows))
                m_new = p.let("m_new", p.maximum(m, lse))
                alpha, beta = p.let("α", p.exp(m - m_new)), p.let("β", p.exp(lse - m_new))
                p.set(l, alpha * l + beta)
                p.set(acc, alpha * acc + beta * o)
                p.set(m, m_new)
            p.store(tile, acc * p.reciprocal(l))
