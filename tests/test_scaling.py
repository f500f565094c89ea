"""The bound, checked: exponents, constants, crossings, and no count under a valid bound."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.analysis import analyze
from iosim.errors import TileError, UsageError
from iosim.hardware import load_profile
from iosim.problem import AttentionProblem
from iosim.scaling import BoundStudy, Laws, find_laws, fit_exponents, study_bound
from iosim.scaling.constants import coefficient_of_n_squared
from iosim.scaling.elements import counted, split
from iosim.scaling.exponents import LARGE, SMALL, _fit
from iosim.scaling.traffic import CURVES, along, best_schedule

ROOT = Path(__file__).resolve().parents[1]
EXPECTED = {  # series -> exponents of N, d and M
    ("flash1", "matrix elements"): (2, 2, -1),
    ("flash1", "row statistics"): (2, 1, -1),
    ("flash2", "matrix elements"): (2, 2, -1),
    ("standard", "matrix elements"): (2, 0, 0),
    ("small_cache", "operand reads"): (2, 1, -0.5),
    ("small_cache", "score passes"): (2, 0, 0),
    ("gemm", "operand reads"): (2, 1, -0.5),
    ("gemm", "score passes"): (2, 0, 0),
}


@pytest.fixture(scope="module")
def laws() -> Laws:
    return find_laws()


@pytest.fixture(scope="module")
def study(laws: Laws) -> BoundStudy:
    problem = AttentionProblem.of(seq=8192, head_dim=128, heads=32)
    return study_bound(problem, load_profile("a100-sxm-80gb"), laws=laws)


def test_fitted_exponents(laws: Laws) -> None:
    assert {(f.algorithm, f.series) for f in laws.fits} == EXPECTED.keys()
    for fit in laws.fits:
        found = (fit.exponent_n, fit.exponent_d, fit.exponent_m)
        assert found == pytest.approx(EXPECTED[fit.algorithm, fit.series], abs=0.02), fit
        assert fit.r_squared > 0.9999


@pytest.mark.parametrize("regime", [LARGE, SMALL])
def test_the_grids_keep_their_promise(regime: type[LARGE]) -> None:  # type: ignore[valid-type]
    for M in regime.sram_elements:
        for d in regime.head_dim:
            assert min(regime.seq) >= 64 * M / d
            assert (d * d < M) == (regime is LARGE)


def test_least_squares_finds_a_known_law() -> None:
    rng = np.random.default_rng(7)
    axes = [rng.uniform(1, 1000, 60) for _ in range(3)]
    elements = 3 * axes[0] ** 1.5 * axes[1] ** -0.25 * axes[2] ** 2
    fit = _fit("made up", "best", "matrix elements", elements, axes, LARGE)
    assert (fit.exponent_n, fit.exponent_d, fit.exponent_m) == pytest.approx((1.5, -0.25, 2))
    assert fit.r_squared == pytest.approx(1)
    noisy = _fit("made up", "best", "matrix elements", elements * rng.uniform(0.2, 5, 60), axes, LARGE)
    assert noisy.r_squared < 0.99


def test_a_program_of_ones_own_is_fitted_too() -> None:
    (fit,) = fit_exponents(f"{ROOT / 'docs' / 'examples' / 'mine.py'}:program")
    assert fit.exponent_n == pytest.approx(2, abs=0.02)
    with pytest.raises(UsageError, match="unknown algorithm"):
        fit_exponents("flash9")


def test_elements_by_series_are_those_of_the_papers() -> None:
    N, d, M = 4096, 64, 16384  # flash1 with the paper's tiles: Bc = M/4d = 64, so Tc = 64
    series = split(counted("flash1", seq=[N], head_dim=[d], sram_elements=[M], tiles="paper"), "flash1").iloc[
        0
    ]
    assert series["matrix elements"] == (3 * 64 + 3) * N * d
    assert series["row statistics"] == 2 * N * (2 * 64 + 1)
    assert series["score passes"] == 0
    plain = split(counted("standard", seq=[N], head_dim=[d], sram_elements=[M]), "standard").iloc[0]
    assert plain["matrix elements"] == 4 * N * N + 4 * N * d
    assert plain["operand reads"] == 3 * N * d + N * N  # Q, K, V and P
    assert plain["score passes"] == 3 * N * N  # S written and read, P written


def test_constants_within_two_percent(laws: Laws) -> None:
    found = {(c.algorithm, c.tiles): c for c in laws.constants}
    expected = {("flash1", "paper"): 12, ("flash2", "paper"): 8, ("flash1", "best"): 6, ("flash2", "best"): 4}
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key].value == pytest.approx(value, rel=0.02)
        assert found[key].smallest == pytest.approx(value, rel=0.02)


def test_crossings_with_standard_attention(laws: Laws) -> None:
    for c in laws.crossings:
        if c.tiles == "paper":
            assert c.over_d_squared == pytest.approx({"flash1": 3, "flash2": 2}[c.algorithm], rel=0.02)
        else:
            assert c.over_d_squared == pytest.approx({"flash1": 1.5, "flash2": 1}[c.algorithm], rel=0.05)
    assert {c.head_dim for c in laws.crossings} == {64, 128, 256}


def test_bytes_cross_later_because_m_and_l_are_fp32(laws: Laws) -> None:
    """flash1 with Bc = M/4d: Tc(6Nd + 16N) bytes a head against 8N² gives M = 3d² + 8d, up to a whole Bc."""
    for c in laws.crossings:
        d = c.head_dim
        if c.algorithm == "flash2":  # stores no statistics, so bytes are elements times two
            assert c.sram_elements_by_bytes == c.sram_elements
        elif c.tiles == "paper":
            whole_columns = 4 * d * math.ceil((3 * d * d + 8 * d) / (4 * d))
            assert 0 <= c.sram_elements_by_bytes - (3 * d * d + 8 * d) <= 4 * d
            assert c.sram_elements_by_bytes in (whole_columns, whole_columns + 4 * d)
        else:
            assert c.sram_elements_by_bytes > c.sram_elements


def test_the_range_of_gaps_covers_all_that_is_drawn(study: BoundStudy) -> None:
    sentence = next(s for s in study.sentences if s.startswith("FlashAttention-1 moves 1"))
    drawn = study.by_sram[study.by_sram["attainable"] & (study.by_sram["algorithm"] == "flash1")]
    for rule in ("best", "paper"):
        low, high = re.findall(
            rf"([\d.]+) to ([\d.]+) times its bound with the {rule}", sentence.replace("paper's", "paper")
        )[0]
        gaps = drawn[drawn["tiles"] == rule]["gap"]
        assert float(low) <= round(gaps.min(), 2)
        assert float(high) >= round(gaps.max(), 2)
    assert "N 1,024 to 16,384, d 64 to 256, M 1 KiB to 8 MiB" in sentence


def test_a_crossing_is_the_first_m_that_wins(laws: Laws) -> None:
    crossing = next(c for c in laws.crossings if (c.algorithm, c.tiles, c.head_dim) == ("flash2", "best", 64))
    M, N, d = crossing.sram_elements, crossing.seq, crossing.head_dim
    standard = 4 * N * N + 4 * N * d
    here, below = (coefficient_of_n_squared("flash2", "best", d, m) * N**2 for m in (M, M - 1))
    assert here <= standard < below


def test_d_256_at_192_kib_loses() -> None:
    assert coefficient_of_n_squared("flash1", "paper", 256, 98304) == pytest.approx(8, rel=0.001)
    assert coefficient_of_n_squared("flash2", "paper", 256, 98304) == pytest.approx(16 / 3, rel=0.001)


def test_the_study_says_it_in_words(study: BoundStudy) -> None:
    text = "\n".join(study.sentences)
    assert "At d = 256 and 192 KiB (98,304 fp16 elements) FlashAttention-1" in text
    assert "8.00 N² matrix elements, standard attention 4 N²: twice as much, so it loses" in text
    assert "matrix elements grow as N^2.00 · d^2.00 · M^−1.00" in text
    assert "12.00 with the paper's tiles and 6.01 with the best" in text
    assert (
        "no more matrix elements than standard attention from M = 3.00 d² (12,288 elements at d = 64" in text
    )
    assert "No count lies under a valid bound" in text
    assert "163 KiB (83,456 elements)" in text


def test_the_tables_of_a_study(study: BoundStudy) -> None:
    assert study.under_a_bound == 0
    assert (study.by_sram["gap"] >= 1).all()
    assert study.sram_bytes in set(study.by_sram["sram_bytes"])
    assert set(study.by_seq["sram_bytes"]) == {study.sram_bytes}
    here = study.by_sram[study.by_sram["sram_bytes"] == study.sram_bytes]
    for row in here[here["tiles"] == "best"].itertuples():
        if row.algorithm == "small_cache":
            continue
        record = analyze(
            study.problem, row.algorithm, profile=study.profile, granularity=1, footprint_model="paper"
        )
        assert row.sm_bytes == record.traffic.total_bytes
        assert row.lower_bound_bytes == record.theory.lower_bound_bytes
    loaded = json.loads(json.dumps(study.to_dict(), allow_nan=False))
    assert loaded["under_a_bound"] == 0
    assert len(loaded["traffic_by_sram"]) == len(study.by_sram)


def test_the_best_schedule_is_the_least_attainable_count(study: BoundStudy) -> None:
    for row in study.best.itertuples():
        rivals = study.by_sram[(study.by_sram["sram_bytes"] == row.sram_bytes) & study.by_sram["attainable"]]
        assert row.sm_bytes == rivals["sm_bytes"].min()
    assert study.best["sm_bytes"].is_monotonic_decreasing
    assert study.best["algorithm"].iloc[0] == "small_cache"
    assert study.best["algorithm"].iloc[-1] == "flash2"


def test_idealised_counts_do_not_win_where_they_cannot_be() -> None:
    problem = AttentionProblem.of(seq=1024, head_dim=64)
    table = along(problem, sram_bytes=[4096, 65536], curves=CURVES[:1])
    assert table["attainable"].tolist() == [False, True]  # 4 d² elements are 32 KiB
    assert best_schedule(table, "sram_bytes")["sram_bytes"].tolist() == [65536]


masks = st.sampled_from(["none", "causal", "window:100"])
dtypes = st.sampled_from(["fp8", "fp16", "fp32"])


@settings(max_examples=60)
@given(
    algorithm=st.sampled_from(["standard", "online_attention", "flash1", "flash2", "small_cache", "gemm"]),
    seq_q=st.integers(1, 3000),
    seq_k=st.integers(1, 3000),
    head_dim=st.integers(1, 200),
    value_dim=st.integers(1, 200),
    groups=st.integers(1, 3),
    mask=masks,
    dtype_q=dtypes,
    dtype_k=dtypes,
    dtype_o=dtypes,
    log_sram=st.floats(8, 17),
    tiles=st.sampled_from(["best", "paper"]),
)
def test_no_count_lies_under_a_valid_bound(
    algorithm: str,
    seq_q: int,
    seq_k: int,
    head_dim: int,
    value_dim: int,
    groups: int,
    mask: str,
    dtype_q: str,
    dtype_k: str,
    dtype_o: str,
    log_sram: float,
    tiles: str,
) -> None:
    problem = AttentionProblem.of(
        seq_q=seq_q,
        seq_k=seq_k,
        head_dim=head_dim,
        value_dim=value_dim,
        heads=2 * groups,
        kv_heads=2,
        mask=mask,
        dtype_q=dtype_q,
        dtype_k=dtype_k,
        dtype_o=dtype_o,
    )
    try:
        record = analyze(
            problem, algorithm, tiles=tiles, granularity=8, sram_bytes=math.floor(2**log_sram), profile="toy"
        )
    except TileError:
        return
    for bound in record.theory.bounds:
        if bound.valid and bound.bytes is not None:
            assert record.traffic.total_bytes >= bound.bytes, bound
