"""The inner loop of FlashAttention-1, forward and backward: row tiles seen before, and those at their first visit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from iosim.program.builder import Builder
from iosim.program.expr import Expr, cdiv, maximum, minimum, param
from iosim.program.ir import Span


def row_tiles(
    p: Builder, j: Expr, keys: Span, every: Callable[[], Iterator[Expr]] | None
) -> Iterator[tuple[Expr, bool]]:
    """The inner loop for key tile j, with whether it is a row tile's first visit.

    `every` loops over all row tiles, as printed, where no visit is told apart; None tells them apart.
    """
    if every is not None:
        for i in every():
            yield i, False
        return
    first, last = p.query_tiles(keys)
    seen = _seen_before(p, j, first, last)
    for i in p.loop("i", first, seen):
        yield i, False
    for i in p.loop("i", maximum(first, seen), last):
        yield i, True


def _seen_before(p: Builder, j: Expr, first: Expr, last: Expr) -> Expr:
    """Past the last row tile that an earlier key tile visited: none at j = 0, all later unless a window moves on."""
    row_tiles = cdiv(p.N, p.Br)
    old = j * row_tiles
    if p.mask_kind == "window":
        reach = cdiv(maximum(0, j * p.Bc - (p.Nk - p.N) + param("w") - 1), p.Br)
        old = minimum(old, reach)
    return maximum(first, minimum(old, last))


def unseen_row_tiles(p: Builder) -> Expr:
    """Row tiles that no key tile visits: under a causal mask, whole tiles of the first N − Nk queries."""
    if p.mask_kind in ("none", "prefix"):  # every query sees the first key
        return minimum(0, p.N)
    return maximum(0, p.N - p.Nk) // p.Br
