"""The NumPy reference against a loop over pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from theory_loops import sees
from theory_problems import problems

from iosim.errors import ProblemError
from iosim.problem import AttentionProblem
from iosim.theory.reference import reference_attention, visible_pairs


def random_inputs(p: AttentionProblem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    return (
        rng.standard_normal((p.batch, p.heads, p.seq_q, p.head_dim)),
        rng.standard_normal((p.batch, p.kv_heads, p.seq_k, p.head_dim)),
        rng.standard_normal((p.batch, p.kv_heads, p.seq_k, p.value_dim)),
    )


@given(problems())
def test_visible_pairs_equals_the_pairwise_rule(p: AttentionProblem) -> None:
    table = visible_pairs(p.mask, p.seq_q, p.seq_k)
    assert table.tolist() == [[sees(p, r, c) for c in range(p.seq_k)] for r in range(p.seq_q)]
    assert table.sum() == p.pairs


@settings(max_examples=15)
@given(problems())
def test_reference_equals_a_loop_over_pairs(p: AttentionProblem) -> None:
    q, k, v = random_inputs(p)
    output, lse = reference_attention(q, k, v, mask=p.mask, scale=0.7, return_lse=True)
    for b, h, row in np.ndindex(p.batch, p.heads, p.seq_q):
        shared = h * p.kv_heads // p.heads
        keys = [c for c in range(p.seq_k) if sees(p, row, c)]
        weights = [math.exp(0.7 * math.fsum(q[b, h, row] * k[b, shared, c])) for c in keys]
        if not keys:
            assert not output[b, h, row].any()
            assert lse[b, h, row] == -np.inf
            continue
        expected = sum(w * v[b, shared, c] for w, c in zip(weights, keys, strict=True)) / math.fsum(weights)
        np.testing.assert_allclose(output[b, h, row], expected, rtol=1e-11, atol=1e-13)
        assert lse[b, h, row] == pytest.approx(math.log(math.fsum(weights)), rel=1e-11, abs=1e-12)


def test_default_scale_is_one_over_root_d() -> None:
    q, k, v = random_inputs(AttentionProblem.of(seq=5, head_dim=4))
    np.testing.assert_array_equal(reference_attention(q, k, v), reference_attention(q, k, v, scale=0.5))


def test_bias_shifts_scores_and_keep_drops_probabilities() -> None:
    q, k = np.zeros((1, 1, 2)), np.zeros((1, 3, 2))
    v = np.array([[[1.0], [10.0], [100.0]]])
    bias = np.log([1.0, 2.0, 1.0])
    keep = np.array([2.0, 0.0, 2.0])  # a dropout of one half that dropped the middle key
    output, lse = reference_attention(q, k, v, bias=bias, keep=keep, return_lse=True)
    np.testing.assert_allclose(output, [[[2 * 1 / 4 + 2 * 100 / 4]]], rtol=1e-15)
    np.testing.assert_allclose(lse, [[math.log(4)]], rtol=1e-15)


def test_large_logits_do_not_overflow() -> None:
    q, k, v = 1e4 * np.ones((1, 2, 2)), np.ones((1, 3, 2)), np.ones((1, 3, 1))
    np.testing.assert_allclose(reference_attention(q, k, v), np.ones((1, 2, 1)), rtol=1e-15)


@pytest.mark.parametrize(
    ("q", "k", "v", "message"),
    [
        ((3, 4), (3, 4), (3, 4), "axes"),
        ((1, 3, 4), (1, 3, 5), (1, 3, 4), "do not match"),
        ((1, 3, 4), (1, 3, 4), (1, 2, 4), "do not match"),
        ((3, 3, 4), (2, 3, 4), (2, 3, 4), "multiple of 2 kv heads"),
    ],
)
def test_shapes_that_do_not_belong_together(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ProblemError, match=message):
        reference_attention(np.ones(q), np.ones(k), np.ones(v))
