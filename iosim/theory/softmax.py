"""Softmax three ways, what each costs, and the merging of partial rows that FlashAttention rests on.

Sources: Milakov and Gimelshein, *Online normalizer calculation for softmax*, 2018 (passes and accesses an
element); Dao et al., *FlashAttention*, 2022, section 3.1 (merging of blocks).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iosim.errors import UsageError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxCost:
    """Passes over a row of scores that does not fit on chip, and slow-memory accesses to each element."""

    passes: int
    reads: int
    writes: int

    @property
    def accesses(self) -> int:
        """Reads and writes of one element, together."""
        return self.reads + self.writes


SOFTMAX_COSTS: dict[str, SoftmaxCost] = {
    "naive": SoftmaxCost(passes=2, reads=2, writes=1),  # sum of exp; divide
    "safe": SoftmaxCost(passes=3, reads=3, writes=1),  # maximum; sum of exp; divide
    "online": SoftmaxCost(passes=2, reads=2, writes=1),  # maximum and sum together; divide
    "fused": SoftmaxCost(passes=1, reads=1, writes=1),  # the whole row stays on chip
}
"""The one place for these numbers; `fused` computes what `safe` does, on a row held on chip."""


def naive_softmax(scores: ArrayLike) -> Array:
    """exp(x) / Σ exp(x) along the last axis: 2 passes, 3 accesses an element.

    Without the maximum taken off, a logit above about 709 overflows float64: the row holds nan.
    """
    x = np.asarray(scores, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        exponentials = np.exp(x)
        result: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return result


def safe_softmax(scores: ArrayLike) -> Array:
    """Softmax with the row maximum taken off, along the last axis: 3 passes, 4 accesses an element.

    −inf marks a masked score; a row of nothing but −inf gives zeros.
    """
    x = np.asarray(scores, dtype=np.float64)
    exponentials = np.exp(x - _finite(x.max(axis=-1, keepdims=True)))
    return _divide(exponentials, exponentials.sum(axis=-1, keepdims=True))


def online_softmax(scores: ArrayLike) -> Array:
    """Softmax whose maximum and sum come from one sweep: 2 passes, 3 accesses an element.

    The running sum l is rescaled by exp(m_old − m_new) whenever the running maximum m grows
    (Milakov and Gimelshein, algorithm 3). Masked rows as in `safe_softmax`.
    """
    x = np.asarray(scores, dtype=np.float64)
    m = np.full(x.shape[:-1], -np.inf)
    l = np.zeros(x.shape[:-1])
    for column in np.moveaxis(x, -1, 0):
        m_new = np.maximum(m, column)
        shift = _finite(m_new)
        l = l * np.exp(m - shift) + np.exp(column - shift)
        m = m_new
    return _divide(np.exp(x - _finite(m)[..., None]), l[..., None])


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStatistics:
    """What a row of attention is after some of its keys.

    `m` [...]: largest score so far, −inf before any; `l` [...]: Σ exp(score − m);
    `o` [..., value_dim]: Σ exp(score − m)·v, not yet divided by l.
    """

    m: Array
    l: Array
    o: Array


def tile_statistics(scores: ArrayLike, values: ArrayLike) -> RowStatistics:
    """Statistics of one tile: scores [..., rows, keys] (−inf: masked), values [..., keys, value_dim]."""
    x = np.asarray(scores, dtype=np.float64)
    m = x.max(axis=-1)
    p = np.exp(x - _finite(m)[..., None])
    return RowStatistics(m=m, l=p.sum(axis=-1), o=p @ np.asarray(values, dtype=np.float64))


def merge_two(a: RowStatistics, b: RowStatistics) -> RowStatistics:
    """Statistics of the union of two disjoint sets of keys; commutative, associative to rounding."""
    m = np.maximum(a.m, b.m)
    shift = _finite(m)
    weight_a, weight_b = np.exp(a.m - shift), np.exp(b.m - shift)
    return RowStatistics(
        m=m,
        l=weight_a * a.l + weight_b * b.l,
        o=weight_a[..., None] * a.o + weight_b[..., None] * b.o,
    )


def merge_statistics(parts: Iterable[RowStatistics]) -> RowStatistics:
    """Merge any number of partial results, in any order; `UsageError` when there is none."""
    items = list(parts)
    if not items:
        raise UsageError("merge_statistics: needs at least one part, got none")
    return reduce(merge_two, items)


def finish(statistics: RowStatistics) -> tuple[Array, Array]:
    """Output rows o / l and log-sum-exp m + log l; rows that saw no key give 0 and −inf."""
    with np.errstate(divide="ignore"):
        lse: Array = statistics.m + np.log(statistics.l)
    return _divide(statistics.o, statistics.l[..., None]), lse


def _finite(m: Array) -> Array:
    """Zero in place of −inf, so that exp(−inf − m) is 0 and not nan."""
    return np.where(np.isneginf(m), 0.0, m)


def _divide(a: Array, b: Array) -> Array:
    """a / b, and 0 where b is 0."""
    return np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape)), where=b != 0)
