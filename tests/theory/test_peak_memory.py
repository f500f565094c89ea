"""Memory held outside the chip: FlashAttention Table 21, hand-listed tensors, the longest sequence that fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import ProblemError
from iosim.problem import AttentionProblem
from iosim.theory.peak_memory import (
    ALGORITHMS,
    PASSES,
    at_length,
    held_memory,
    largest_seq,
    peak_memory_bytes,
)

MIB = 2**20

# FlashAttention (arXiv:2205.14135v2), Table 21, row "Block-Sparse FlashAttention": fp16, B = 16, H = 8, d = 64
BLOCK_SPARSE = {
    128: 22,
    256: 44,
    512: 104,
    1024: 209,
    2048: 418,
    4096: 836,
    8192: 1672,
    16384: 3344,
    32768: 6690,
    65536: 13384,
}


@pytest.mark.parametrize(("seq", "mib"), BLOCK_SPARSE.items())
def test_block_sparse_entries_of_table_21(seq: int, mib: int) -> None:
    p = AttentionProblem.of(seq=seq, head_dim=64, batch=16, heads=8)
    assert abs(peak_memory_bytes(p, "block_sparse_flash1") / MIB - mib) <= 0.6


def test_the_block_mask_is_eight_bytes_a_block_of_16_by_256() -> None:
    p = AttentionProblem.of(seq=1000, head_dim=64)
    mask = peak_memory_bytes(p, "block_sparse_flash1") - peak_memory_bytes(p, "flash1")
    assert mask == 8 * 63 * 4


def test_a_forward_pass_holds_inputs_outputs_and_what_its_algorithm_needs() -> None:
    p = AttentionProblem.of(seq_q=3, seq_k=5, head_dim=4, value_dim=6, heads=2, kv_heads=1, dtype_k="fp8")
    q, k, v, o = 2 * 3 * 4 * 2, 5 * 4 * 1, 5 * 6 * 2, 2 * 3 * 6 * 2
    assert held_memory(p, "standard", "fwd").total_bytes == q + k + v + o + 2 * (2 * 3 * 5 * 2)
    assert held_memory(p, "flash2", "fwd").total_bytes == q + k + v + o + 4 * 2 * 3
    assert held_memory(p, "flash1", "fwd").total_bytes == q + k + v + o + 4 * 2 * 3
    long = at_length(p, 300)
    assert {part.name: part.bytes for part in held_memory(long, "flash1", "fwd").parts}[
        "O between passes (fp32)"
    ] == 4 * 2 * 300 * 6


def test_flash2_training_holds_gradients_an_fp32_dq_and_two_statistics() -> None:
    p = AttentionProblem.of(seq=1024, head_dim=64, heads=4, kv_heads=2)
    rows, keys = 4 * 1024, 2 * 1024
    gradients_and_values = 2 * (2 * rows * 64 * 2 + 2 * keys * 64 * 2)
    fp32 = 4 * rows * 64 + 2 * 4 * rows
    expanded = 2 * (4 * 1024 * 64 * 2)  # dK and dV a query head, summed afterwards
    assert held_memory(p, "flash2").total_bytes == gradients_and_values + fp32 + expanded


def test_what_is_fitted_and_what_is_not_is_said() -> None:
    table = AttentionProblem.of(seq=1024, head_dim=64, batch=16, heads=8)
    grouped = AttentionProblem.of(seq=1024, head_dim=64, batch=16, heads=8, kv_heads=2)
    assert held_memory(table, "standard").status == "fitted"
    assert held_memory(grouped, "standard").status == "extrapolated"
    assert held_memory(table, "standard", "fwd").status == "derived"
    assert held_memory(grouped, "flash2").status == "derived"


def test_memory_of_flash_grows_linearly_and_of_standard_quadratically() -> None:
    p = AttentionProblem.of(seq=2**16, head_dim=64)
    for which in PASSES:
        flash, standard = (
            held_memory(at_length(p, 2 * p.seq_q), a, which).total_bytes
            / held_memory(p, a, which).total_bytes
            for a in ("flash2", "standard")
        )
        assert flash == 2
        assert standard > 3.9


@given(
    seq=st.integers(1, 5000),
    d=st.integers(1, 256),
    groups=st.integers(1, 4),
    algorithm=st.sampled_from(ALGORITHMS),
    passes=st.sampled_from(PASSES),
    capacity=st.integers(0, 2**34),
)
def test_the_largest_length_fits_and_the_next_does_not(
    seq: int, d: int, groups: int, algorithm: str, passes: str, capacity: int
) -> None:
    p = AttentionProblem.of(seq=seq, head_dim=d, heads=4, kv_heads=4 // groups if groups != 3 else 2)
    best = largest_seq(p, algorithm, passes, capacity)
    assert held_memory(at_length(p, best + 1), algorithm, passes).total_bytes > capacity
    if best:
        assert held_memory(at_length(p, best), algorithm, passes).total_bytes <= capacity


@pytest.mark.parametrize(
    ("algorithm", "passes", "says"),
    [("gemm", "fwd", "known: standard"), ("flash1", "both", "allowed: fwd, bwd, fwd")],
)
def test_unknown_names_list_the_known_ones(algorithm: str, passes: str, says: str) -> None:
    with pytest.raises(ProblemError, match=says):
        held_memory(AttentionProblem.of(seq=8, head_dim=8), algorithm, passes)
