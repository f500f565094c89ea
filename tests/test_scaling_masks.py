"""The bound studied under block masks (Proposition 4) and for ragged batches: each against single runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from iosim.algorithms.registry import ALGORITHMS
from iosim.analysis import analyze
from iosim.errors import UsageError
from iosim.hardware import load_profile
from iosim.plots.bound import bound_figures, gap_by_sram, traffic_by_head_dim, traffic_by_sram
from iosim.plots.style import SCREEN
from iosim.problem import AttentionProblem
from iosim.ragged import analyze_ragged
from iosim.scaling import BoundStudy, Laws, Lengths, find_laws, study_bound
from iosim.scaling.sparse import least_sram_bytes, sparse_laws
from iosim.scaling.studied_options import checked_options
from iosim.scaling.traffic import Curve, along

GPU = load_profile("a100-sxm-80gb")
PROBLEM = AttentionProblem.of(seq=1024, head_dim=64)
MASK = {name: {"block-mask": "local:2+global:1"} for name in ("flash1", "flash2")}
LENGTHS = (512, 37, 1024, 37)
BATCH = AttentionProblem.of(batch=4, seq=1024, head_dim=64)


@pytest.fixture(scope="module")
def laws() -> Laws:
    return find_laws()


@pytest.fixture(scope="module")
def masked(laws: Laws) -> BoundStudy:
    return study_bound(PROBLEM, GPU, laws=laws, options=MASK)


@pytest.fixture(scope="module")
def ragged(laws: Laws) -> BoundStudy:
    return study_bound(BATCH, GPU, laws=laws, batch=Lengths(seq_lens=LENGTHS))


@pytest.mark.parametrize(
    ("passes", "want"),
    [
        # forward: 3d·Br a block with Bc = M/4d, and Nd of zeros with K and V; 2d·Bc a block with Br = M/4d, and Q and O
        ("fwd", {"flash1": (12, 3), "flash2": (8, 2)}),
        # backward: 5d·Br and 4d·Br a block with Bc = M/8d; K, V, dK, dV and three tensors of zeros, or of O and dO
        ("bwd", {"flash1": (40, 7), "flash2": (32, 7)}),
        ("fwd+bwd", {"flash1": (52, 10), "flash2": (40, 9)}),
    ],
)
def test_proposition_4(passes: str, want: dict[str, tuple[int, int]]) -> None:
    options = {name: {"pass": passes, "block-mask": "butterfly"} for name in want}
    for law in sparse_laws(options):
        constant, once = want[law.algorithm]
        assert law.constant == pytest.approx(constant, rel=0.02)
        assert law.once == pytest.approx(once, rel=0.02)
        assert law.r_squared > 0.99999


def test_each_count_under_a_block_mask_is_held_against_the_bound_of_its_own_mask(masked: BoundStudy) -> None:
    rows = masked.by_sram[masked.by_sram["algorithm"] == "flash2"]
    assert set(rows["tiles"]) == {"paper"}
    gaps = set()
    for row in rows.to_dict("records"):
        record = analyze(
            PROBLEM, "flash2", tiles="paper", options=MASK["flash2"], sram_bytes=int(row["sram_bytes"])
        )
        assert row["sm_bytes"] == record.traffic.total_bytes
        assert row["lower_bound_bytes"] == record.theory.lower_bound_bytes
        gaps.add(record.notes["block_mask"]["density"])
    assert len(gaps) > 5  # another M, another mask
    assert masked.under_a_bound == 0
    assert masked.bounds.empty
    assert masked.shapes.empty


def test_laws_are_those_of_dense_attention(laws: Laws) -> None:
    assert find_laws(options=MASK) == laws


def test_masks_too_fine_to_study_are_left_out() -> None:
    long = AttentionProblem.of(seq=1 << 16, head_dim=64)
    least = least_sram_bytes(long, MASK)
    cols = least // (4 * 64 * 2)  # Bc = M/4d, Br = min(Bc, d)
    assert (2**16 / cols) * (2**16 / min(cols, 64)) <= 1 << 20
    assert 4 * (2**16 / cols) * (2**16 / min(cols, 64)) > 1 << 20
    assert least_sram_bytes(long, {"flash2": {"pass": "bwd"}}) == 2 * least


def test_a_ragged_study_is_of_single_runs(ragged: BoundStudy) -> None:
    for name in ("flash1", "flash2", "standard"):
        rows = ragged.by_sram[(ragged.by_sram["algorithm"] == name) & (ragged.by_sram["tiles"] == "best")]
        for row in rows.iloc[::4].to_dict("records"):
            record = analyze_ragged(
                BATCH,
                LENGTHS,
                ALGORITHMS[name],
                tiles="best",
                profile=GPU,
                options={},
                granularity=1,
                sram_bytes=int(row["sram_bytes"]),
            )
            assert row["sm_bytes"] == record.traffic.total_bytes
            assert row["lower_bound_bytes"] == record.theory.lower_bound_bytes
    assert ragged.by_seq.empty
    assert ragged.under_a_bound == 0
    assert set(ragged.gaps["head_dim"]) == {64, 128, 256}
    assert any("4 sequences of 37 to 1,024 keys, 1,610 tokens" in s for s in ragged.sentences)
    assert ragged.to_dict()["seq_lens"] == list(LENGTHS)


def test_the_queries_of_a_decode_step_stay_what_they_are() -> None:
    problem = AttentionProblem.of(batch=4, heads=8, kv_heads=2, seq_q=1, seq_k=1024, head_dim=64)
    step = Lengths(seq_lens=LENGTHS, fixed_queries=True)
    rows = along(problem, sram_bytes=[1 << 16, 1 << 18], curves=[Curve(algorithm="decode")], batch=step)
    assert set(rows["seq_q"]) == {1}
    keys = 2 * sum(LENGTHS) * 2 * 64 * 2  # K and V of two kv-heads
    assert int(rows["sm_bytes"].max()) == keys + 2 * 4 * 8 * 64 * 2  # and Q and O


def test_figures_of_what_there_is(masked: BoundStudy, ragged: BoundStudy) -> None:
    assert len(bound_figures(masked)) == 4
    assert len(bound_figures(ragged)) == 3
    for study, words in ((masked, "block-mask=local:2"), (ragged, "4 sequences of 37 to 1,024")):
        for draw in (traffic_by_sram, gap_by_sram):
            plot = draw(study, SCREEN)
            assert any(words in text.get_text() for text in plot.figure.texts)
    assert "4 sequences, 1,610 tokens" in traffic_by_head_dim(ragged, SCREEN).caption


def test_a_mask_from_a_file_is_of_one_tile(tmp_path: Path) -> None:
    path = tmp_path / "mask.npy"
    np.save(path, np.ones((8, 8), dtype=bool))
    with pytest.raises(UsageError, match="the blocks of one tile"):
        checked_options({"flash2": {"block-mask": str(path)}})
