"""Prefix masks, ALiBi, bias matrices and dropout: which add bytes, which only flops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.analysis import analyze
from iosim.errors import ProblemError, UsageError
from iosim.problem import AttentionProblem, Mask
from iosim.theory.reference import visible_pairs

N, D, HEADS = 1024, 64, 4
PROBLEM = AttentionProblem.of(seq=N, head_dim=D, heads=HEADS)
SQUARE = HEADS * N * N * 2  # bytes of one N x N matrix a head in fp16


def run(name: str, **options: str):
    return analyze(PROBLEM, name, tiles="128x128", options=options)


@pytest.mark.parametrize(
    ("name", "options", "passes"),
    [
        ("flash2", {"bias": "alibi"}, 0),
        ("flash2", {"bias": "matrix"}, 1),
        ("flash2", {"dropout": "on"}, 0),
        ("standard", {"bias": "alibi"}, 0),
        ("standard", {"bias": "matrix"}, 1),
        ("standard", {"additive-mask": "on"}, 3),  # S in and out in a kernel of its own, and the mask
        ("standard", {"dropout": "on"}, 2.5),  # P in and out, and a byte an element
    ],
)
def test_what_adds_bytes_and_what_only_flops(name, options, passes):
    plain, changed = run(name), run(name, **options)
    assert changed.traffic.total_bytes - plain.traffic.total_bytes == passes * SQUARE
    assert changed.work.vector_flops > plain.work.vector_flops
    assert changed.work.tensor_flops == plain.work.tensor_flops
    assert changed.work.special_ops == plain.work.special_ops
    assert changed.theory.closed_form_bytes == changed.traffic.total_bytes


def test_alibi_is_one_multiply_add_a_score_in_both():
    for name in ("standard", "flash2"):
        added = run(name, bias="alibi").work.vector_flops - run(name).work.vector_flops
        assert added == 2 * HEADS * N * N


def test_a_bias_matrix_undoes_what_fusion_saved():
    problem = AttentionProblem.of(seq=16384, head_dim=128)
    plain, biased = (analyze(problem, "flash2", options={"bias": b}) for b in ("none", "matrix"))
    assert biased.traffic.total_bytes > 1.5 * plain.traffic.total_bytes


def test_a_causal_mask_skips_tiles_of_the_bias_too():
    causal = AttentionProblem.of(seq=N, head_dim=D, heads=HEADS, mask="causal")
    record = analyze(causal, "flash2", tiles="128x128", options={"bias": "matrix"})
    read = next(t.read_bytes for t in record.traffic_by_tensor if t.tensor == "BIAS")
    assert read == HEADS * 36 * 128 * 128 * 2  # 8·9/2 tiles


@given(seq_q=st.integers(1, 40), seq_k=st.integers(1, 40), prefix=st.integers(1, 45))
def test_pairs_of_a_prefix_are_those_counted_one_by_one(seq_q, seq_k, prefix):
    problem = AttentionProblem.of(seq_q=seq_q, seq_k=seq_k, head_dim=1, mask=f"prefix:{prefix}")
    seen = visible_pairs(problem.mask, seq_q, seq_k)
    assert problem.pairs == seen.sum()
    assert problem.visible_queries == seen.any(axis=1).sum()
    assert problem.visible_keys == seen.any(axis=0).sum()


def test_a_prefix_lies_between_causal_and_no_mask():
    def pairs(mask: str) -> int:
        return AttentionProblem.of(seq=100, head_dim=1, mask=mask).pairs

    assert pairs("prefix:1") == pairs("causal") == 5050
    assert pairs("prefix:100") == pairs("prefix:1000") == pairs("none") == 10_000
    assert pairs("prefix:40") == 5050 + 40 * 39 // 2  # the upper triangle of the prefix


def test_a_prefix_skips_the_tiles_right_of_both():
    problem = AttentionProblem.of(seq=1024, head_dim=64, mask="prefix:256")
    record = analyze(problem, "flash2", tiles="128x128")
    keys = next(t.read_bytes for t in record.traffic_by_tensor if t.tensor == "K") // (64 * 2)
    assert keys == 256 + 256 + sum(128 * (i + 1) for i in range(2, 8))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Mask.parse("prefix:0"), "between 1 and 2"),
        (lambda: Mask.parse("prefix"), "prefix:P"),
        (lambda: Mask("prefix"), "needs its length, as in prefix:512"),
        (lambda: Mask("causal", prefix=3), "causal takes no prefix"),
    ],
)
def test_bad_prefixes(make, complaint):
    with pytest.raises(ProblemError, match=complaint):
        make()


@pytest.mark.parametrize("options", [{"bias": "alibi"}, {"bias": "matrix"}, {"dropout": "on"}])
@pytest.mark.parametrize("name", ["standard", "flash2"])
def test_the_backward_has_neither_bias_nor_dropout(name, options):
    with pytest.raises(UsageError, match="belongs to the forward pass alone"):
        analyze(PROBLEM, name, options={**options, "pass": "bwd"})
