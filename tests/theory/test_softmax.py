"""Softmax variants and the merging of tile statistics."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import numpy as np
import pytest

from iosim.errors import UsageError
from iosim.theory.softmax import (
    SOFTMAX_COSTS,
    RowStatistics,
    finish,
    merge_statistics,
    merge_two,
    naive_softmax,
    online_softmax,
    safe_softmax,
    tile_statistics,
)

RNG_SEED = 3


def test_costs_of_the_published_table() -> None:
    assert {name: (c.passes, c.accesses) for name, c in SOFTMAX_COSTS.items()} == {
        "naive": (2, 3),
        "safe": (3, 4),
        "online": (2, 3),
        "fused": (1, 2),
    }


@pytest.mark.parametrize("softmax", [naive_softmax, safe_softmax, online_softmax])
def test_softmax_of_logarithms_gives_the_fractions(softmax: object) -> None:
    assert callable(softmax)
    row = np.log([1.0, 2.0, 5.0])
    np.testing.assert_allclose(softmax([row, row + 3]), [[1 / 8, 2 / 8, 5 / 8]] * 2, rtol=1e-14)


def test_naive_overflows_where_safe_and_online_do_not() -> None:
    x = np.array([1000.0, 999.0, -1000.0])
    p = 1 / (1 + math.exp(-1))
    assert np.isnan(naive_softmax(x)).any()
    for softmax in (safe_softmax, online_softmax):
        np.testing.assert_allclose(softmax(x), [p, 1 - p, 0.0], rtol=1e-13)


def test_masked_scores_get_nothing_and_masked_rows_are_zero() -> None:
    x = np.array([[0.0, -np.inf, 0.0], [-np.inf] * 3])
    for softmax in (safe_softmax, online_softmax):
        np.testing.assert_array_equal(softmax(x), [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]])


def whole(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.asarray(safe_softmax(scores) @ values)


def tiles_of(scale: float) -> tuple[np.ndarray, np.ndarray, list[RowStatistics]]:
    rng = np.random.default_rng(RNG_SEED)
    scores, values = scale * rng.standard_normal((6, 20)), rng.standard_normal((20, 3))
    scores[2, :7] = -np.inf  # a row that sees nothing of the first tile
    scores[4] = -np.inf  # a row that sees nothing at all
    cuts = [0, 7, 8, 15, 20]
    return (
        scores,
        values,
        [tile_statistics(scores[:, a:b], values[a:b]) for a, b in pairwise(cuts)],
    )


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_tiles_merge_in_any_order_to_the_same_output(scale: float) -> None:
    scores, values, parts = tiles_of(scale)
    for order in permutations(parts):
        output, _ = finish(merge_statistics(order))
        np.testing.assert_allclose(output, whole(scores, values), rtol=1e-12, atol=1e-14)


def test_tiles_merge_in_any_grouping() -> None:
    _, _, (a, b, c, d) = tiles_of(30.0)
    left = finish(merge_two(merge_two(merge_two(a, b), c), d))
    right = finish(merge_two(a, merge_two(b, merge_two(c, d))))
    tree = finish(merge_two(merge_two(a, b), merge_two(c, d)))
    for other in (right, tree):
        np.testing.assert_allclose(left[0], other[0], rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(left[1], other[1], rtol=1e-13)


def test_log_sum_exp_of_merged_tiles() -> None:
    scores, _, parts = tiles_of(2.0)
    _, lse = finish(merge_statistics(parts))
    assert lse[4] == -np.inf
    for row in (0, 1, 2, 3, 5):
        expected = math.log(math.fsum(math.exp(x) for x in scores[row]))
        assert lse[row] == pytest.approx(expected, rel=1e-13)


def test_merging_nothing_is_an_error() -> None:
    with pytest.raises(UsageError, match="at least one part"):
        merge_statistics([])
