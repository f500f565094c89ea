"""Bounds: hand-worked values, ranges, exact rounding, and no count beneath any of them."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_loops import sees
from theory_problems import large_problems, large_tile_shapes, problems, tile_shapes

from iosim.errors import UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim.theory.bounds import (
    Bound,
    bounds,
    compulsory_bytes,
    ideal_reads_sram_bytes,
    matmul_bound_bytes,
    strongest,
)
from iosim.theory.closed_forms import ClosedForm, closed_form
from iosim.theory.shapes import SHAPES

ONE_HEAD = AttentionProblem.of(seq=8192, head_dim=128)


def named(name: str, found: list[Bound]) -> Bound:
    (match,) = [b for b in found if b.name == name]
    return match


def count(algorithm: str, p: AttentionProblem, tiles: TileShape | None, **options: str) -> int:
    form: ClosedForm | None = closed_form(algorithm, p, tiles, options)
    assert form is not None
    return form.total_bytes


def test_compulsory_of_the_worked_example() -> None:
    assert compulsory_bytes(AttentionProblem.of(seq=8192, head_dim=128, heads=32)) == 268_435_456


def test_compulsory_reads_keys_once_a_kv_head() -> None:
    p = AttentionProblem.of(seq_q=1, seq_k=8192, head_dim=128, heads=32, kv_heads=8, mask="causal")
    queries_and_output = 2 * 32 * 128 * 2
    assert compulsory_bytes(p) == 33_554_432 + queries_and_output


@given(problems())
def test_compulsory_counts_the_rows_that_the_mask_leaves(p: AttentionProblem) -> None:
    queries = sum(any(sees(p, r, c) for c in range(p.seq_k)) for r in range(p.seq_q))
    keys = sum(any(sees(p, r, c) for r in range(p.seq_q)) for c in range(p.seq_k))
    expected = 0
    for _ in range(p.batch):
        for _ in range(p.heads):
            expected += queries * p.head_dim * p.dtype_q.itemsize
            expected += p.seq_q * p.value_dim * p.dtype_o.itemsize
        for _ in range(p.kv_heads):
            expected += keys * p.head_dim * p.dtype_k.itemsize
            expected += keys * p.value_dim * p.dtype_v.itemsize
    assert compulsory_bytes(p) == expected


def test_fused_bound_by_hand() -> None:
    # M = 2^17 elements: 2·N²·d²/M − M = 2·2^26·2^14/2^17 − 2^17 elements, two bytes each
    b = named("fused", bounds(ONE_HEAD, 2**18, spills_scores=False))
    assert b.bytes == 2 * (2**24 - 2**17)


def test_matmul_bound_by_hand() -> None:
    # M = 2^14 elements = d²: 2·N²·d/√M − 2M = 2·2^26·2^7/2^7 − 2·2^14 elements, for each of the two matmuls
    b = named("matmul", bounds(ONE_HEAD, 2**15, spills_scores=True))
    assert b.bytes == 2 * 2 * (2**27 - 2**15)
    b = named("matmul", bounds(ONE_HEAD, 2**15, spills_scores=False, matmul_only=True))
    assert b.bytes == 2 * (2**27 - 2**15)


def test_score_round_trip_by_hand() -> None:
    p = AttentionProblem.of(seq=4, head_dim=3, heads=2, kv_heads=1, mask="causal", dtype_o="fp32")
    b = named("score round trip", bounds(p, 64, spills_scores=True))
    inputs = 2 * 4 * 3 * 2 + 2 * 4 * 3 * 2  # Q of two heads, K and V of one, fp16
    output = 2 * 4 * 3 * 4
    scores = 2 * 10 * 4  # ten unmasked pairs a head, fp32
    assert b.bytes == inputs + output + 2 * scores


def test_gemm_compulsory_by_hand() -> None:
    p = AttentionProblem.of(seq_q=4, seq_k=5, head_dim=3, heads=6, kv_heads=2, mask="causal")
    b = named("compulsory", bounds(p, 64, spills_scores=True, matmul_only=True))
    assert b.bytes == 2 * (6 * 4 * 3 + 2 * 5 * 3 + 6 * 4 * 5)  # the mask saves nothing


def test_regimes_meet_at_d_squared() -> None:
    # leading terms: 4·N²·d/√M of the matmuls and twice 2·N²·d²/M of the fused class are equal at M = d²
    M = 128 * 128 * 2
    matmul = named("matmul", bounds(ONE_HEAD, M, spills_scores=True)).bytes
    fused = named("fused", bounds(ONE_HEAD, M, spills_scores=False)).bytes
    assert matmul is not None
    assert fused is not None
    assert matmul + 4 * M == 2 * (fused + M)


def test_each_class_gets_its_own_bounds() -> None:
    fused = {b.name: b for b in bounds(ONE_HEAD, 2**17, spills_scores=False)}
    spilling = {b.name: b for b in bounds(ONE_HEAD, 2**17, spills_scores=True)}
    assert {n for n, b in fused.items() if b.valid} == {"compulsory", "fused"}
    assert {n for n, b in spilling.items() if b.valid} == {"compulsory", "matmul", "score round trip"}
    for b in [*fused.values(), *spilling.values()]:
        assert b.valid == (b.bytes is not None)
        assert b.reason
        assert b.source


@pytest.mark.parametrize("spills", [True, False])
def test_a_memory_too_small_for_the_class_gives_no_number(spills: bool) -> None:
    row_bytes = 3 * 128 * 2
    limit = 3 * 2 if spills else row_bytes
    name = "matmul" if spills else "fused"
    below = named(name, bounds(ONE_HEAD, limit - 1, spills_scores=spills))
    assert (below.bytes, below.valid) == (None, False)
    assert str(limit) in below.reason
    assert named(name, bounds(ONE_HEAD, limit, spills_scores=spills)).valid


def test_bounds_fall_to_zero_and_not_below_it_at_large_memories() -> None:
    found = bounds(ONE_HEAD, 2**40, spills_scores=False)
    assert named("fused", found).bytes == 0
    assert strongest(found) == compulsory_bytes(ONE_HEAD)


def test_strongest_of_nothing_is_zero_and_memory_must_exist() -> None:
    assert strongest([]) == 0
    with pytest.raises(UsageError, match="sram_bytes"):
        bounds(ONE_HEAD, 0, spills_scores=False)


@given(st.integers(1, 2**60), st.tuples(*[st.sampled_from([1, 2, 4, 8])] * 3), st.integers(3, 2**28))
def test_roots_are_rounded_down_exactly(products: int, sizes: tuple[int, int, int], M: int) -> None:
    with localcontext() as context:
        context.prec = 120
        exact = 2 * products * Decimal(sizes[0] * sizes[1] * sizes[2]).sqrt() / Decimal(M).sqrt() - 2 * M
        value = matmul_bound_bytes(products, sizes, M)
        # on a perfect square the decimal root may be off in its last place only
        assert value <= max(Decimal(0), exact + Decimal("1e-60"))
        assert value > exact - 1


def flash_sram(p: AttentionProblem, t: TileShape) -> int:
    row = p.head_dim * p.dtype_q.itemsize + p.value_dim * p.dtype_o.itemsize
    key = p.head_dim * p.dtype_k.itemsize + p.value_dim * p.dtype_v.itemsize
    return t.rows * row + t.cols * key


@settings(max_examples=200)
@given(problems() | large_problems(), tile_shapes | large_tile_shapes)
def test_no_fused_count_lies_under_its_bounds(p: AttentionProblem, tiles: TileShape) -> None:
    limit = strongest(bounds(p, flash_sram(p, tiles), spills_scores=False))
    assert count("flash2", p, tiles) >= limit
    assert count("flash1", p, tiles) >= limit
    assert count("flash1", p, tiles, variant="skip-first-read") >= limit


@settings(max_examples=200)
@given(problems() | large_problems(), tile_shapes | large_tile_shapes)
def test_no_spilling_count_lies_under_its_bounds(p: AttentionProblem, tiles: TileShape) -> None:
    s_o = p.dtype_o.itemsize
    scores = tiles.rows * tiles.cols * s_o + tiles.rows * p.dtype_q.itemsize
    scores += tiles.cols * p.dtype_k.itemsize
    output = (tiles.rows * tiles.cols + tiles.rows) * s_o + tiles.cols * p.dtype_v.itemsize
    found = bounds(p, max(scores, output), spills_scores=True)
    assert count("small_cache", p, tiles) >= strongest(found)
    alone = bounds(p, scores, spills_scores=True, matmul_only=True)
    assert count("gemm", p, tiles) >= strongest(alone)


@given(problems() | large_problems(), st.integers(0, 10_000))
def test_standard_stays_above_its_bounds_where_its_ideal_reads_are_possible(
    p: AttentionProblem, more: int
) -> None:
    M = ideal_reads_sram_bytes(p) + more
    assert count("standard", p, None) >= strongest(bounds(p, M, spills_scores=True))


def test_ideal_reads_need_four_d_squared_elements() -> None:
    assert ideal_reads_sram_bytes(ONE_HEAD) == 4 * 128**2 * 2


def test_square_matmul_tiles_come_near_the_bound() -> None:
    # a b × b tile of S and two columns: M = b² + 2b; traffic 2N²d/b + N² against 2N²d/√M − 2M
    N, d, b = 4096, 4096, 64
    p = AttentionProblem.of(seq=N, head_dim=d)
    tiles = TileShape(rows=b, cols=b)
    M = (b * b + 2 * b) * 2
    limit = strongest(bounds(p, M, spills_scores=True, matmul_only=True))
    assert limit <= count("gemm", p, tiles) <= 1.03 * limit


@pytest.mark.parametrize("d", [64, 128])
def test_outer_q_comes_within_twice_the_bound(d: int) -> None:
    rows = 1024
    p = AttentionProblem.of(seq=128 * rows, head_dim=d)
    tiles = TileShape(rows=rows, cols=1)
    limit = strongest(bounds(p, flash_sram(p, tiles), spills_scores=False))
    assert 1.9 * limit < count("flash2", p, tiles) < 2.1 * limit


@given(problems(), st.integers(2, 4000))
def test_bounds_never_grow_with_memory(p: AttentionProblem, M: int) -> None:
    for spills in (True, False):
        small = {b.name: b.bytes for b in bounds(p, M, spills_scores=spills)}
        large = {b.name: b.bytes for b in bounds(p, 2 * M, spills_scores=spills)}
        for name, value in small.items():
            later = large[name]
            assert value is None or (later is not None and later <= value)


def test_shapes_hold_only_in_their_range() -> None:
    N, d = ONE_HEAD.seq_q, ONE_HEAD.head_dim
    at = {s.name: {M: s.elements(ONE_HEAD, M) for M in (d - 1, d * d, N * d, N * d + 1)} for s in SHAPES}
    assert at["FlashAttention"] == {d - 1: None, d * d: N * N, N * d: N * d, N * d + 1: None}
    assert at["large cache optimum"] == at["FlashAttention"]
    assert at["small cache optimum"][d * d] is None
    assert at["small cache optimum"][d - 1] is not None
    assert at["FlashAttention proposition 3"][d * d] is None
    assert at["FlashAttention proposition 3"][N * d] == N * d


def test_backward_shape_crosses_at_d_squared() -> None:
    (shape,) = [s for s in SHAPES if s.direction == "backward"]
    N, d = ONE_HEAD.seq_q, ONE_HEAD.head_dim
    assert shape.elements(ONE_HEAD, d * d) == N * N + N * d
    quarter, four = shape.elements(ONE_HEAD, d * d / 4), shape.elements(ONE_HEAD, 4 * d * d)
    assert quarter == 2 * (N * N + N * d)  # √M below
    assert four == (N * N + N * d) / 4  # M above
